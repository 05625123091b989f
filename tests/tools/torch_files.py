"""Writes files of torch.save() and safetensors without PyTorch, for the tests of `codistill import`."""

import io
import json
import pickle
import struct
import zipfile

# PyTorch's storages: the size of a number and safetensors' name for it.
KINDS = {"Double": (8, "F64"), "Float": (4, "F32"), "Half": (2, "F16"), "BFloat16": (2, "BF16"), "Long": (8, "I64"), "Int": (4, "I32"),
         "Short": (2, "I16"), "Char": (1, "I8"), "Byte": (1, "U8"), "Bool": (1, "BOOL"), "ComplexFloat": (8, "C64")}


class Tensor:
    """A tensor with its storage's bytes, of which tensors with the same object share one; `kind` is the name of PyTorch's storage."""

    def __init__(self, shape, data, kind="Float", offset=0, strides=None):
        self.shape, self.data, self.kind, self.offset, self.strides = tuple(shape), data, kind, offset, strides or row_major(shape)


def row_major(shape):
    strides, step = [], 1
    for side in reversed(shape):
        strides.insert(0, step)
        step *= side
    return tuple(strides)


COUNTER = Tensor((), struct.pack("<q", 3), "Long")


def pickled(value, storages, *views):
    """A value's instructions in protocol 2; bytes are instructions already. Data goes to the list `storages`. `views`: what the older form
    says of a storage besides."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if value is None:
        return b"N"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(name, storages) + pickled(item, storages, *views) for name, item in value.items()) + b"u"
    if isinstance(value, tuple):
        return b"(" + b"".join(pickled(item, storages, *views) for item in value) + b"t"
    key = next((i for i, storage in enumerate(storages) if storage is value.data), len(storages))
    storages += [value.data] if key == len(storages) else []
    place = ("storage", f"ctorch\n{value.kind}Storage\n".encode(), str(key), "cpu", len(value.data) // KINDS[value.kind][0], *views)
    arguments = (pickled(place, storages) + b"Q", value.offset, value.shape, value.strides, b"\x89", b"ccollections\nOrderedDict\n)R")
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + pickled(arguments, storages) + b"R"


def plain_zip(entries, how=zipfile.ZIP_STORED):
    """A ZIP archive, whose entries are stored as they are or packed otherwise."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, how)
    return file.getvalue()


def torch_entries(value, folder="archive"):
    """The entries of what torch.save() writes of a value."""
    storages = []
    data = b"\x80\x02" + pickled(value, storages) + b"."
    return {f"{folder}/data.pkl": data, **{f"{folder}/data/{index}": storage for index, storage in enumerate(storages)}}


def torch_file(value):
    """What torch.save() writes of a value."""
    return plain_zip(torch_entries(value))


def old_torch_file(value, kind_of=4, little=True):
    """What torch.save() wrote of a value before PyTorch 1.6, all of whose numbers have `kind_of` bytes."""
    storages = []
    data = b"\x80\x02" + pickled(value, storages, None) + b"."
    keys = [str(i) for i in range(len(storages))]
    system = {"protocol_version": 1001, "little_endian": little, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    head = [pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, system)]
    return b"".join([*head, data, pickle.dumps(keys, 2), *(struct.pack("<q", len(one) // kind_of) + one for one in storages)])


def safetensors_header(header, body, padding=0):
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(text) + padding) + text + b" " * padding + body


def safetensors_file(tensors, metadata=None, padding=0):
    header, body = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": KINDS[tensor.kind][1], "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(tensor.data)]}
        body += tensor.data
    return safetensors_header(header, body, padding)


def read_tensors(path):
    """The tensors of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    kinds = {name: kind for kind, (_, name) in KINDS.items()}
    return {name: Tensor(entry["shape"], data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]], kinds[entry["dtype"]])
            for name, entry in header.items() if name != "__metadata__"}


def compact(features=2, scale=2):
    """A small network of Real-ESRGAN's SRVGGNetCompact."""
    def floats(*shape):
        count = 1
        for side in shape:
            count *= side
        return Tensor(shape, struct.pack(f"<{count}f", *(0.01 * (i % 7) for i in range(count))))
    return {"body.0.weight": floats(features, 3, 3, 3), "body.0.bias": floats(features), "body.1.weight": floats(features),
            "body.2.weight": floats(3 * scale**2, features, 3, 3), "body.2.bias": floats(3 * scale**2)}
