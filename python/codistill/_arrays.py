"""Weights of PyTorch, NumPy and JAX as memory that the library reads and writes.

An entry is one array. Where the library cannot use its memory (on a GPU, not contiguous, in double precision), there is
a copy beside it in the host's memory: load() fills the copy, store() brings back what a merge changed. The array itself
is always written in place, so that captured graphs, views and optimisers keep seeing it.
"""

import numpy

from . import _library

_NUMPY_TYPES = {numpy.dtype(numpy.float32): _library.F32, numpy.dtype(numpy.float16): _library.F16}


def _is_torch(value):
    return type(value).__module__.split(".")[0] == "torch" or hasattr(value, "data_ptr")


class NumpyEntry:
    def __init__(self, name, array, is_state=False):
        if not numpy.issubdtype(array.dtype, numpy.floating):
            raise _library.ArgumentError(f"'{name}' has values of type {array.dtype}; weights are floating-point")
        if not array.flags.writeable:
            raise _library.ArgumentError(f"'{name}' cannot be written")
        self.name, self.array, self.is_state = name, array, is_state
        direct = array.dtype in _NUMPY_TYPES and array.flags.c_contiguous
        self.memory = array if direct else numpy.empty(array.shape, numpy.float32)
        self.shape = tuple(array.shape)
        self.type = _NUMPY_TYPES[self.memory.dtype]

    def renew(self, array):
        if tuple(array.shape) != self.shape or array.dtype != self.array.dtype:
            raise _library.ArgumentError(f"'{self.name}' was {self.array.dtype} of shape {self.shape} and is now "
                                         f"{array.dtype} of shape {tuple(array.shape)}: join anew")
        if self.memory is self.array:
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise _library.ArgumentError(f"'{self.name}' can no longer be written in place: join anew")
            self.memory = array
        self.array = array

    def address(self):
        return self.memory.ctypes.data

    def load(self):
        if self.memory is not self.array:
            numpy.copyto(self.memory, self.array, casting="same_kind")

    def store(self):
        if self.memory is not self.array:
            # A wider array keeps the bits that the copy does not have.
            self.array += self.memory - self.array.astype(self.memory.dtype)


class TorchEntry:
    def __init__(self, name, tensor, is_state=False):
        import torch
        if not tensor.is_floating_point():
            raise _library.ArgumentError(f"'{name}' has values of type {tensor.dtype}; weights are floating-point")
        types = {torch.float32: _library.F32, torch.float16: _library.F16, torch.bfloat16: _library.BF16}
        self.name, self.tensor, self.is_state = name, tensor, is_state
        self.shape = tuple(tensor.shape)
        self.direct = tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.dtype in types
        if self.direct:
            self.memory = tensor.detach()
        else:
            dtype = tensor.dtype if tensor.dtype in types else torch.float32
            self.memory = torch.empty(self.shape, dtype=dtype, pin_memory=tensor.is_cuda)
        self.type = types[self.memory.dtype]

    def renew(self, tensor):
        if tensor is self.tensor and tensor.data_ptr() == self.memory.data_ptr():
            return
        if tuple(tensor.shape) != self.shape or tensor.dtype != self.tensor.dtype:
            raise _library.ArgumentError(f"'{self.name}' was {self.tensor.dtype} of shape {self.shape} and is now "
                                         f"{tensor.dtype} of shape {tuple(tensor.shape)}: join anew")
        if self.direct:
            if tensor.device.type != "cpu" or not tensor.is_contiguous():
                raise _library.ArgumentError(f"'{self.name}' moved to {tensor.device} or is no longer contiguous: "
                                             "join anew")
            self.memory = tensor.detach()
        self.tensor = tensor

    def address(self):
        return self.memory.data_ptr()

    def load(self):
        if not self.direct:
            self.memory.copy_(self.tensor.detach())

    def store(self):
        import torch
        if self.direct:
            return
        with torch.no_grad():
            if self.memory.dtype == self.tensor.dtype:
                self.tensor.copy_(self.memory)
            else:  # a wider tensor keeps the bits that the copy does not have
                change = self.memory - self.tensor.detach().to("cpu", self.memory.dtype)
                self.tensor.add_(change.to(self.tensor.device, self.tensor.dtype))


def entry(name, value, is_state=False):
    if _is_torch(value):
        return TorchEntry(name, value, is_state)
    return NumpyEntry(name, value, is_state)


class Module:
    """A torch.nn.Module: parameters that train, and running statistics as they stand in its state_dict()."""

    def __init__(self, module, masters):
        self.module, self.masters = module, dict(masters or {})
        self.entries = [entry(name, value, state) for name, value, state in self.items()]

    def items(self):
        kept = self.module.state_dict(keep_vars=True)
        found = [(name, p, False) for name, p in self.module.named_parameters() if p.requires_grad]
        names = {name for name, _, _ in found}
        for name in self.masters:
            if name not in names:
                raise _library.ArgumentError(f"masters: the module has no parameter '{name}' that trains")
        found = [(name, self.masters.get(name, p), state) for name, p, state in found]
        found += [(name, b, True) for name, b in self.module.named_buffers() if name in kept and b.is_floating_point()]
        return found

    def renew(self):
        items = self.items()
        if [name for name, _, _ in items] != [e.name for e in self.entries]:
            raise _library.ArgumentError("the module has other parameters or buffers than when it joined: join anew")
        for known, (_, value, _) in zip(self.entries, items):
            known.renew(value)

    def merged(self):
        """Parameters follow their masters."""
        import torch
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                if name in self.masters:
                    parameter.copy_(self.masters[name].view_as(parameter))


class Named:
    """A dict of arrays, or a list of them."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.entries = [entry(name, value) for name, value in self.items()]

    def items(self):
        if hasattr(self.arrays, "items"):
            return [(str(name), value) for name, value in self.arrays.items()]
        return [(str(i), value) for i, value in enumerate(self.arrays)]

    def renew(self):
        items = self.items()
        if [name for name, _ in items] != [e.name for e in self.entries]:
            raise _library.ArgumentError("there are other arrays than when they joined: join anew")
        for known, (_, value) in zip(self.entries, items):
            known.renew(value)

    def merged(self):
        pass


class Tree:
    """Nested dicts, lists and tuples of arrays that cannot be written, such as JAX's: each step takes and gives one."""

    def __init__(self, tree):
        self.tree = tree
        self.entries = [NumpyEntry(name, numpy.array(leaf)) for name, leaf in self.leaves(tree)]

    def leaves(self, tree, name=""):
        if isinstance(tree, dict):
            children = [(str(key), tree[key]) for key in sorted(tree)]
        elif isinstance(tree, (list, tuple)):
            children = [(str(i), child) for i, child in enumerate(tree)]
        else:
            return [(name or "0", tree)]
        return [leaf for key, child in children for leaf in self.leaves(child, f"{name}.{key}" if name else key)]

    def renew(self):
        leaves = self.leaves(self.tree)
        if [name for name, _ in leaves] != [e.name for e in self.entries]:
            raise _library.ArgumentError("the tree has other leaves than when it joined: join anew")
        for known, (name, leaf) in zip(self.entries, leaves):
            if tuple(leaf.shape) != known.shape:
                raise _library.ArgumentError(f"'{name}' was of shape {known.shape} and is now of shape "
                                             f"{tuple(leaf.shape)}: join anew")
            numpy.copyto(known.array, numpy.asarray(leaf), casting="same_kind")

    def merged(self):
        made = iter([self.like(leaf, known) for known, (_, leaf) in zip(self.entries, self.leaves(self.tree))])
        self.tree = self.build(self.tree, made)

    @staticmethod
    def like(leaf, known):
        if type(leaf).__module__.split(".")[0] in ("jax", "jaxlib"):
            import jax
            return jax.device_put(known.array.astype(leaf.dtype), leaf.sharding)
        return known.array.copy()

    def build(self, tree, leaves):
        if isinstance(tree, dict):
            built = {key: self.build(tree[key], leaves) for key in sorted(tree)}
            return type(tree)((key, built[key]) for key in tree)
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return type(tree)(*(self.build(child, leaves) for child in tree))
        if isinstance(tree, (list, tuple)):
            return type(tree)(self.build(child, leaves) for child in tree)
        return next(leaves)


def source_of(model, masters=None):
    """What the library is to exchange, out of a module, a dict, a list or a tree."""
    if hasattr(model, "named_parameters"):
        return Module(model, masters)
    if masters:
        raise _library.ArgumentError("masters belong to a torch.nn.Module")
    values = list(model.values()) if hasattr(model, "values") else list(model) if isinstance(model, (list, tuple)) else []
    flat = bool(values) and all(_is_torch(v) or isinstance(v, numpy.ndarray) for v in values)
    if flat:
        return Named(model)
    if values or hasattr(model, "__array__"):
        return Tree(model)
    raise _library.ArgumentError(f"{type(model).__name__} is neither a torch.nn.Module nor a dict, list or tree of "
                                 "arrays")
