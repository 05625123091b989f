"""Writes files of torch.save() and safetensors without PyTorch, for the tests of `codistill import`."""

import io
import json
import struct
import zipfile


class Tensor:
    """A tensor with its bytes; `kind` is the name of PyTorch's storage."""

    def __init__(self, shape, data, kind="Float"):
        self.shape, self.data, self.kind = tuple(shape), data, kind


COUNTER = Tensor((), struct.pack("<q", 3), "Long")


def pickled(value, storages):
    """A value's instructions in protocol 2; bytes are instructions already. Data goes to the list `storages`."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(name, storages) + pickled(item, storages) for name, item in value.items()) + b"u"
    if isinstance(value, tuple):
        return b"(" + b"".join(pickled(item, storages) for item in value) + b"t"
    strides, step = [], 1
    for side in reversed(value.shape):
        strides.insert(0, step)
        step *= side
    place = ("storage", f"ctorch\n{value.kind}Storage\n".encode(), str(len(storages)), "cpu", step)
    storages.append(value.data)
    arguments = (pickled(place, storages) + b"Q", 0, value.shape, tuple(strides), b"\x89", b"ccollections\nOrderedDict\n)R")
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + pickled(arguments, storages) + b"R"


def plain_zip(entries):
    """A ZIP archive whose entries are stored as they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def torch_file(value):
    """What torch.save() writes of a value."""
    storages = []
    data = b"\x80\x02" + pickled(value, storages) + b"."
    return plain_zip({"archive/data.pkl": data, **{f"archive/data/{index}": storage for index, storage in enumerate(storages)}})


def safetensors_file(tensors):
    kinds, header, body = {"Float": "F32", "Long": "I64"}, {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": kinds[tensor.kind], "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(tensor.data)]}
        body += tensor.data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def read_tensors(path):
    """The tensors of a safetensors file of floats."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    return {name: Tensor(entry["shape"], data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
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
