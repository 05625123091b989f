"""Processes that train one model each, publish their weights, and merge or learn from each other's.

    import codistill
    peers = codistill.join(model, "runs/mine", group=0, groups=4, period=50)
    for x, y in data:
        logits = model(x)
        loss = criterion(logits, y) + peers.distill(x, logits)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        peers.step()
    peers.leave()

Groups meet in a folder that all of them see. Nobody waits for anybody: each may start, end, be killed and come back
alone.
"""

import ctypes
import dataclasses
import math
import os
import tempfile

import numpy

from . import _arrays, _library
from ._library import ArgumentError, Error, FormatError, StorageError

__all__ = ["join", "attach", "Peers", "Peer", "Figures", "Error", "ArgumentError", "StorageError", "FormatError"]
__version__ = _library.library.codistill_version().decode()


@dataclasses.dataclass(frozen=True)
class Peer:
    """What is known of another group."""

    group: int
    step: int  #: its step, of the newest weights that have come completely; 0 = none yet
    age_s: float  #: seconds since it copied these weights, by the clocks of both hosts; NaN = not known
    pulled: int  #: versions that have come
    rejected: int  #: versions that were damaged, not finite, or of another model
    lost: int  #: versions that were removed while they were read, or that took too long
    bytes: int  #: that were read of it
    merged: int  #: versions that were merged


@dataclasses.dataclass(frozen=True)
class Figures:
    """What this group has done, and what that took."""

    published: int
    published_bytes: int
    skipped: int  #: publications that were left out: too soon, not finite, or storage full or gone
    pulled: int
    pulled_bytes: int
    memory_bytes: int  #: that the library holds, at most
    caller_s: float  #: seconds that step() and its merges took


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


class Peers:
    """This process as one group of several; made by join()."""

    def __init__(self, model, directory, *, group, groups, period=50, masters=None, **settings):
        self._handle = ctypes.c_void_p()
        self._source = _arrays.source_of(model, masters)
        self._step, self._period, self._fragments = 0, int(period), int(settings.get("fragments", 1))
        self._teacher, self._teacher_step, self._taught_at, self._turn = None, 0, None, 0
        chosen = dict(settings, directory=os.fspath(directory), group=group, groups=groups, period=period)
        texts = [f"{key}={_text(value)}".encode() for key, value in chosen.items()]
        entries = self._source.entries
        tensors = (_library.Tensor * len(entries))()
        for tensor, entry in zip(tensors, entries):
            if len(entry.shape) > _library.RANK_MAX:
                raise ArgumentError(f"'{entry.name}' has {len(entry.shape)} dimensions, and {_library.RANK_MAX} are the most")
            tensor.name, tensor.type, tensor.rank = entry.name.encode(), entry.type, len(entry.shape)
            tensor.shape = (ctypes.c_int64 * _library.RANK_MAX)(*entry.shape)
            tensor.data, tensor.is_state = entry.address(), int(entry.is_state)
        status = _library.library.codistill_open((ctypes.c_char_p * len(texts))(*texts), len(texts), tensors, len(entries),
                                                 ctypes.byref(self._handle))
        try:
            _library.check(self._handle, status)
        except Exception:
            self.leave()
            raise

    # What a training loop calls.

    def step(self, values=None):
        """Tells that a training step is done: publishes if it is time to, and merges what has come. Never waits.

        Arrays are merged in place, and the number of merged versions is returned. Arrays that cannot be written, such as
        JAX's, are given in `values`, as they were to join(), and returned, merged.
        """
        step = self._step + 1
        if isinstance(self._source, _arrays.Tree):
            if values is None:
                raise ArgumentError("these arrays cannot be changed in place: params = peers.step(params)")
            self._source.tree = values
        publishes = step % (self._period // self._fragments) == 0
        if publishes:
            self._load()
        self._call("codistill_step", step, None)
        self._step = step
        merged = 0
        if _library.library.codistill_mergeable(self._handle) > 0:
            if not publishes:
                self._load()
            merged = self._merge()
        return self._source.tree if isinstance(self._source, _arrays.Tree) else merged

    def distill(self, inputs, outputs, *, weight=None, temperature=2.0, loss="auto"):
        """A loss that draws `outputs` toward what a peer's model predicts of `inputs`; 0 until there is a teacher.

        For a torch.nn.Module. The teacher is a copy of it with a peer's weights, another peer's each period. `loss` is
        "kl" (classes, with a temperature), "mse", or a function of outputs and targets; "auto" takes kl where outputs
        have two dimensions. `weight` is 1 for kl, and 0.1 else.
        """
        import torch
        teacher = self._renew_teacher()
        if teacher is None:
            return outputs.new_zeros(())
        with torch.no_grad():
            targets = teacher(*inputs) if isinstance(inputs, tuple) else teacher(inputs)
        if targets.shape != outputs.shape:
            raise ArgumentError(f"the teacher gives {tuple(targets.shape)} where outputs are {tuple(outputs.shape)}")
        if loss == "auto":
            loss = "kl" if outputs.dim() == 2 else "mse"
        if callable(loss):
            return (1.0 if weight is None else weight) * loss(outputs, targets)
        functional = torch.nn.functional
        if loss == "mse":
            return (0.1 if weight is None else weight) * functional.mse_loss(outputs, targets)
        if loss != "kl":
            raise ArgumentError(f"loss '{loss}' is none of auto, kl, mse, or a function")
        divergence = functional.kl_div(functional.log_softmax(outputs / temperature, 1),
                                       functional.log_softmax(targets / temperature, 1), reduction="batchmean",
                                       log_target=True)
        return (1.0 if weight is None else weight) * temperature ** 2 * divergence

    def leave(self):
        """Leaves the groups; what was published last stays in the folder. Called by `with`, too."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            status = _library.library.codistill_close(handle)
            if status:
                raise Error("the exchange did not end well: storage did not answer in time")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def __del__(self):
        try:
            self.leave()
        except Exception:
            pass

    # What it knows.

    @property
    def peers(self):
        """The other groups that this one reads."""
        return [self._read(index) for index in range(self._count())]

    @property
    def figures(self):
        found = _library.Figures()
        self._call("codistill_read_figures", ctypes.byref(found))
        return Figures(**{name: getattr(found, name) for name, _ in _library.Figures._fields_})

    def weights(self, peer):
        """Copies of a peer's newest weights by name, and its step; ({}, 0) while none have come."""
        copies = {}
        for entry in self._source.entries:
            dtype = numpy.float32 if entry.type == _library.F32 else numpy.uint16 if entry.type == _library.BF16 else numpy.float16
            copies[entry.name] = numpy.empty(entry.shape, dtype)
        step = self._peer_weights(peer, [array.ctypes.data for array in copies.values()])
        return (copies, step) if step else ({}, 0)

    # What a restart needs.

    def state_dict(self):
        """What a restarted process needs to go on; saved with the model, the optimiser and the step."""
        with tempfile.NamedTemporaryFile(prefix="codistill-") as file:
            self._call("codistill_save", file.name.encode())
            with open(file.name, "rb") as written:
                return {"step": self._step, "exchange": numpy.frombuffer(written.read(), numpy.uint8).copy()}

    def load_state_dict(self, state):
        """Before the first step, with the weights that were saved with it."""
        with tempfile.NamedTemporaryFile(prefix="codistill-") as file:
            file.write(bytes(numpy.asarray(state["exchange"], numpy.uint8)))
            file.flush()
            self._call("codistill_load", file.name.encode())
        self._step = int(state["step"])

    # Inside.

    def _call(self, name, *arguments):
        if not self._handle:
            raise ArgumentError("this group has left; join again")
        _library.check(self._handle, getattr(_library.library, name)(self._handle, *arguments))

    def _load(self):
        """Gives the library the arrays as they are now: some may lie elsewhere than at the last step."""
        self._source.renew()
        for index, entry in enumerate(self._source.entries):
            self._call("codistill_set_data", index, entry.address())
            entry.load()

    def _merge(self):
        merged = ctypes.c_int()
        self._call("codistill_merge", ctypes.byref(merged))
        for entry in self._source.entries:
            entry.store()
        self._source.merged()
        return merged.value

    def _count(self):
        return _library.library.codistill_peer_count(self._handle) if self._handle else 0

    def _read(self, index):
        found = _library.Peer()
        self._call("codistill_read_peer", index, ctypes.byref(found))
        return Peer(**{name: getattr(found, name) for name, _ in _library.Peer._fields_})

    def _peer_weights(self, peer, addresses):
        step = ctypes.c_int64()
        targets = (ctypes.c_void_p * len(addresses))(*addresses)
        self._call("codistill_peer_weights", peer, targets, ctypes.byref(step))
        return step.value

    def _renew_teacher(self):
        """The teacher, with another peer's weights once a period; None while there is none, or it is too old."""
        oldest = 20 * self._period
        due = self._taught_at is None or self._step >= self._taught_at + self._period
        if due:
            for _ in range(self._count()):
                peer, self._turn = self._turn % self._count(), self._turn + 1
                if self._read(peer).step > 0:
                    self._teach(peer)
                    break
        if self._taught_at is None or self._step - self._teacher_step > oldest:
            return None
        return self._teacher

    def _teach(self, peer):
        import copy
        if not isinstance(self._source, _arrays.Module):
            raise ArgumentError("distill() is for a torch.nn.Module; peers.weights() gives weights for a teacher of yours")
        if self._teacher is None:
            self._teacher = copy.deepcopy(self._source.module).eval().requires_grad_(False)
            values = dict(self._teacher.named_parameters())
            values.update(self._teacher.named_buffers())
            self._teacher_entries = [_arrays.TorchEntry(entry.name, values[entry.name], entry.is_state)
                                     for entry in self._source.entries]
        for known, own in zip(self._teacher_entries, self._source.entries):
            if known.type != own.type:
                raise ArgumentError(f"'{own.name}': its master is of another type than the parameter; use peers.weights()")
        self._teacher_step = self._peer_weights(peer, [entry.address() for entry in self._teacher_entries])
        for entry in self._teacher_entries:
            entry.store()
        self._taught_at = self._step


def join(model, directory, *, group, groups, period=50, masters=None, **settings):
    """Joins the groups of a folder.

    model: a torch.nn.Module, a dict or list of arrays (PyTorch, NumPy), or a tree of arrays that cannot be written (JAX).
    group, groups: which of how many this process is.
    period: steps from one publication to the next.
    masters: of a module whose parameters are copies in a short type, the tensors by name that the optimiser moves.
    settings: those of section `exchange` of a configuration, by the same names: codec, fragments, merge, key_every, …
    """
    return Peers(model, directory, group=group, groups=groups, period=period, masters=masters, **settings)


def attach(optimizer, directory, *, group, groups, period=50, **settings):
    """Joins with what a PyTorch optimiser moves; each optimizer.step() then is a step, and the loop stays as it is."""
    parameters = [p for options in optimizer.param_groups for p in options["params"]]
    peers = join(parameters, directory, group=group, groups=groups, period=period, **settings)
    optimizer.register_step_post_hook(lambda *_: peers.step() and None)
    return peers
