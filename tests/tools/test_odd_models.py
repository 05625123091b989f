#!/usr/bin/env python3
"""A table of models in all forms that their formats have, made here, each with the right weights or the right refusal:
python3 test_odd_models.py CODISTILL [CASE ...]"""

import gzip
import json
import math
import os
import pickle
import struct
import sys
import zipfile

from torch_files import (COUNTER, KINDS, Tensor, compact, old_torch_file, pickled, plain_zip, read_tensors, row_major, safetensors_file, safetensors_header,
                         torch_entries, torch_file)
from train_support import check, check_count, png, run_cases

FORMATS = {"Double": "d", "Float": "f", "Half": "e", "Int": "i", "Char": "b", "Byte": "B", "Bool": "?"}


def numbers(values, kind="Float"):
    """Their bytes; bfloat16 is the upper half of a float."""
    if kind == "BFloat16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{FORMATS[kind]}", *values)


def network(kind="Float"):
    """A small network with weights that all types of floats hold."""
    tensors = {}
    for place, (name, tensor) in enumerate(compact(4).items()):
        count = math.prod(tensor.shape)
        tensors[name] = Tensor(tensor.shape, numbers([((i * 5 + place) % 17 - 8) / 64 for i in range(count)], kind), kind)
    return tensors


def values(tensor):
    if tensor.kind == "BFloat16":
        return struct.unpack(f"<{len(tensor.data) // 2}f", b"".join(b"\0\0" + tensor.data[at:at + 2] for at in range(0, len(tensor.data), 2)))
    return struct.unpack(f"<{len(tensor.data) // KINDS[tensor.kind][0]}{FORMATS[tensor.kind]}", tensor.data)


def changed(name, tensor):
    return {**network(), name: tensor}


def spoiled(number):
    """One weight is that number."""
    first = network()["body.0.weight"]
    return changed("body.0.weight", Tensor(first.shape, numbers([number, *values(first)[1:]])))


def without(name):
    return {other: tensor for other, tensor in network().items() if other != name}


def below(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def gathered(tensor, strides, offset=0):
    """The same numbers in a storage where they lie otherwise."""
    shape, plain = tensor.shape, row_major(tensor.shape)
    places = {}
    for at, value in enumerate(values(tensor)):
        places[offset + sum(at // step % side * stride for step, side, stride in zip(plain, shape, strides, strict=True))] = value
    return Tensor(shape, numbers([places.get(i, 99.0) for i in range(max(places) + 3)]), "Float", offset, strides)


def channels_last(tensor):
    if len(tensor.shape) != 4:
        return tensor
    _, channels, height, width = tensor.shape
    return gathered(tensor, (channels * height * width, 1, width * channels, channels))


def in_one_storage(tensors):
    whole, made, at = b"".join(tensor.data for tensor in tensors.values()), {}, 0
    for name, tensor in tensors.items():
        made[name] = Tensor(tensor.shape, whole, "Float", at)
        at += len(tensor.data) // 4
    return made


def written(tensors, layout):
    """A safetensors file whose header and data have orders of their own."""
    header, body, entries = {}, b"", list(tensors.items())
    for name, tensor in layout(entries):
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(tensor.data)]}
        body += tensor.data
    return safetensors_header({name: header[name] for name, _ in entries}, body)


def zip64(entries):
    """An archive whose sizes and places stand in ZIP64's fields alone."""
    body, central = b"", b""
    for name, data in entries.items():
        crc, offset = zipfile.crc32(data), len(body)
        extra = struct.pack("<HHQQ", 1, 16, len(data), len(data))
        body += struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, len(name), len(extra)) + name.encode() + extra + data
        extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), offset)
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, len(name), len(extra), 0, 0, 0, 0,
                               2**32 - 1) + name.encode() + extra
    end = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(entries), len(entries), len(central), len(body))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(body) + len(central), 1)
    return body + central + end + locator + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)


def parameters(tensors):
    """torch.nn.Parameter around each."""
    storages = []
    items = b"".join(pickled(name, []) + b"ctorch._utils\n_rebuild_parameter\n(" + pickled(tensor, storages) + b"\x88ccollections\nOrderedDict\n)RtR"
                     for name, tensor in tensors.items())
    return plain_zip({"m/data.pkl": b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u.", **{f"m/data/{i}": data for i, data in enumerate(storages)}})


def torch_models():
    """Name -> the bytes of a file of torch.save() that holds network()."""
    plain = network()
    momentum = {"state": {"exp_avg": plain["body.2.bias"]}, "param_groups": {"lr": 1}}
    return {
        **{kind.lower(): torch_file(network(kind)) for kind in ("Float", "Double", "Half", "BFloat16")},
        "mixed": torch_file({name: network("Half" if "bias" in name else "Float")[name] for name in plain}),
        "channels_last": torch_file({name: channels_last(tensor) for name, tensor in plain.items()}),
        "transposed": torch_file({name: gathered(tensor, row_major(tensor.shape[::-1])[::-1]) for name, tensor in plain.items()}),
        "offset": torch_file({name: gathered(tensor, tensor.strides, 5) for name, tensor in plain.items()}),
        "strided": torch_file({name: gathered(tensor, tuple(3 * step for step in tensor.strides), 1) for name, tensor in plain.items()}),
        "one_storage": torch_file(in_one_storage(plain)),
        "shared": torch_file({"params": plain, "params_ema": plain}),
        "reversed": torch_file(dict(reversed(plain.items()))),
        "parameters": parameters(plain),
        "folder": plain_zip(torch_entries(plain, "net_g_latest")),
        "records": plain_zip({**torch_entries(plain), "archive/version": b"3\n", "archive/byteorder": b"little", "archive/.data/serialization_id": b"7" * 40}),
        "zip64": zip64(torch_entries(plain)),
        "old": old_torch_file(plain),
        "old_one_storage": old_torch_file(in_one_storage(plain)),
        "old_half": old_torch_file(network("Half"), 2),
        "compiled": torch_file(below("_orig_mod.", plain)),
        "parallel_thrice": torch_file(below("module.module.module.", plain)),
        "model": torch_file(below("model.", plain)),
        "generator": torch_file(below("generator.", plain)),
        "net_g": torch_file({"net_g": below("module.", plain)}),
        "ema": torch_file({"params": spoiled(1.0), "params_ema": plain}),
        "averaged": torch_file({"n_averaged": COUNTER, **below("module.", plain)}),
        "lightning": torch_file({"epoch": 3, "pytorch-lightning_version": "2.1", "state_dict": below("model.net.", plain), "optimizer_states": momentum}),
        "training": torch_file({"epoch": 3, "model_state_dict": plain, "optimizer_state_dict": momentum, "scaler": {"scale": COUNTER}, "none": None}),
        "empty_beside": torch_file({"params": {**plain}, "unused": {"nothing": Tensor((0, 4), b"")}}),
    }


def safetensors_models():
    """Name -> the bytes of a safetensors file that holds network()."""
    plain = network()
    return {
        **{kind.lower(): safetensors_file(network(kind)) for kind in ("Float", "Double", "Half", "BFloat16")},
        "mixed": safetensors_file({name: network("Half" if "bias" in name else "Double")[name] for name in plain}),
        "data_reversed": written(plain, reversed),
        "data_by_size": written(plain, lambda entries: sorted(entries, key=lambda entry: len(entry[1].data))),
        "header_reversed": safetensors_file(dict(reversed(plain.items()))),
        "metadata": safetensors_file(plain, {"format": "pt", "": "", "\u00fc": "\u4e2d"}),
        "metadata_empty": safetensors_file(plain, {}),
        **{f"padded_{padding}": safetensors_file(plain, None, padding) for padding in (1, 3, 8, 4099)},
        "counter": safetensors_file({**below("module.", plain), "n_averaged": COUNTER}),
        "compiled": safetensors_file(below("_orig_mod.", plain)),
        "parallel": safetensors_file(below("module.", plain)),
        "generator": safetensors_file({**below("generator.", plain), "step_counter": COUNTER}),
        "optimiser": safetensors_file({**below("model.", plain), "optimizer.exp_avg": plain["body.2.bias"]}),
        "empty_beside": safetensors_file({**below("net.", plain), "other.nothing": Tensor((0, 4), b"")}),
    }


OTHERS = {  # what is no model in any form: its bytes, and words of its refusal
    "empty": (b"", "is an empty file"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "is a Git LFS pointer, not a"),
    "page": (b"<!doctype html><html><title>Sign in</title></html>", "is an HTML page, not a"),
    "onnx": (b"\x08\x08\x12\x07pytorch\x1a\x03" + b"2.1" + b":" + bytes(40), "is an ONNX model, not a"),
    "gzip": (gzip.compress(torch_file(compact())), "is a gzip file, not a"),
    "tar": (bytes(257) + b"ustar" + bytes(800), "is a tar archive, not a"),
    "numpy": (plain_zip({"a.npy": b"\x93NUMPY\1\0" + bytes(100)}), "is an archive of NumPy (npz), not a"),
    "picture": (png(8, 6), "is a PNG picture, not a"),
    "gguf": (b"GGUF" + bytes(60), "is a GGUF model, not a"),
    "folder": (None, "no regular file"),
}


def call(function, arguments=b"", pack=b"t"):
    """Instructions that call a function of Python with arguments that are instructions, too."""
    module, name = function.rsplit(".", 1)
    return f"c{module}\n{name}\n(".encode() + arguments + pack + b"R"


def archive(instructions, **entries):
    """An archive of torch.save() whose pickle is made of instructions, with one storage of zeros."""
    return plain_zip({"m/data.pkl": b"\x80\x02" + instructions + b".", "m/data/0": bytes(256), **{f"m/{name}": data for name, data in entries.items()}})


def view(offset, strides, kind="torch.FloatStorage"):
    """Arguments that describe 4 numbers of a storage of 4."""
    module, name = kind.rsplit(".", 1)
    storage = pickled(("storage", f"c{module}\n{name}\n".encode(), "0", "cpu", 4), []) + b"Q"
    return storage + pickled(offset, []) + pickled((4,), []) + pickled(strides, [])


def dictionary(value):
    return b"}" + pickled("weight", []) + value + b"s"


def torch_refusals():
    """Name -> the bytes of a file and words of its refusal."""
    plain = network()
    entries, good, old, hooks = torch_entries(plain), torch_file(plain), old_torch_file(plain), b"\x89" + call("collections.OrderedDict")
    rebuild, first = "torch._utils._rebuild_tensor_v2", "archive/data/0"
    return {
        "big_endian": (plain_zip({**entries, "archive/byteorder": b"big"}), "its numbers have their most significant byte first"),
        "big_endian_old": (old_torch_file(plain, 4, False), "its numbers have their most significant byte first"),
        "deflated": (plain_zip(entries, zipfile.ZIP_DEFLATED), "compressed or encrypted; only stored files are read"),
        "bzip2": (plain_zip(entries, zipfile.ZIP_BZIP2), "compressed or encrypted; only stored files are read"),
        "quantised": (archive(dictionary(call("torch._utils._rebuild_qtensor", view(0, (1,), "torch.QInt8Storage")))), "Python's 'torch._utils._rebuild_qtensor'"),
        "sparse": (archive(dictionary(call("torch._utils._rebuild_sparse_tensor"))), "Python's 'torch._utils._rebuild_sparse_tensor'"),
        "meta": (archive(dictionary(call("torch._utils._rebuild_meta_tensor_no_storage"))), "_rebuild_meta_tensor_no_storage"),
        "complex": (torch_file(changed("more", Tensor((1,), bytes(8), "ComplexFloat"))), "Python's 'torch.ComplexFloatStorage'"),
        "bool": (torch_file(changed("body.2.bias", Tensor((12,), bytes(12), "Bool"))), "is BOOL, not floating point"),
        "int8": (torch_file({name: Tensor(tensor.shape, bytes(len(tensor.data) // 4), "Char") for name, tensor in plain.items()}), "is I8, not floating point"),
        "negative_stride": (archive(dictionary(call(rebuild, view(3, (-1,)) + hooks))), "in a way that PyTorch does not write"),
        "beyond_storage": (archive(dictionary(call(rebuild, view(1, (1,)) + hooks))), "reaches beyond its storage"),
        "stride_beyond": (archive(dictionary(call(rebuild, view(0, (2,)) + hooks))), "reaches beyond its storage"),
        "strides_lacking": (archive(dictionary(call(rebuild, view(0, ()) + hooks))), "in a way that PyTorch does not write"),
        "short_storage": (plain_zip({**entries, first: entries[first][:-4]}), "are cut off: 428 bytes of 108 x 4"),
        "no_storage": (plain_zip({name: data for name, data in entries.items() if name != first}), "the numbers '0' are missing"),
        "truncated": (good[:-60], "no ZIP archive, or one that is cut off"),
        "damaged": (good.replace(plain["body.0.weight"].data[:16], bytes(16)), "is damaged: its CRC-32 is another"),
        "truncated_old": (old[:-60], "it ends within the numbers '3'"),
        "truncated_old_pickle": (old[:200], "it ends early"),
        "no_pickle": (plain_zip({"archive/data/0": b""}), "a ZIP archive, not a file of torch.save(): unpack it"),
        "script": (archive(b"c__torch__\nNet\n)\x81", **{"constants.pkl": b"\x80\x02)."}), "a program of TorchScript"),
        "module": (archive(b"c__main__\nNetwork\n)\x81"), "Python's '__main__.Network'"),
        "harmful": (archive(call("posix.system", pickled("touch harmed", []))), "Python's 'posix.system'"),
        "harmful_beside": (archive(dictionary(call("builtins.eval", pickled("1", [])))), "Python's 'builtins.eval'"),
        "tensor_alone": (torch_file(plain["body.0.bias"]), "it holds no dictionary of tensors"),
        "list": (archive(b"]"), "it holds no dictionary of tensors"),
        "nothing": (torch_file({}), "there is no tensor in it"),
        "texts_alone": (torch_file({"a": "b"}), "there is no tensor in it"),
        "state_alone": (torch_file({"optimizer": {"exp_avg": plain["body.0.bias"]}}), "its tensors are states of training, not weights"),
        "missing": (torch_file(without("body.2.bias")), "1 missing: 'body.2.bias'"),
        "extra": (torch_file(changed("body.9.weight", plain["body.2.bias"])), "1 unexpected: 'body.9.weight'"),
        "shape": (torch_file(changed("body.2.bias", plain["body.0.bias"])), "1 of another shape: 'body.2.bias' [4] in place of [12]"),
        "nan": (torch_file(spoiled(math.nan)), "'body.0.weight' holds NaN"),
        "inf": (torch_file(spoiled(-math.inf)), "'body.0.weight' holds an infinity"),
        "plain_pickle": (pickle.dumps({"a": 1}, 2), "a pickle of Python"),
        "text": (b"hello, this is text\n" * 3, "no ZIP archive, or one that is cut off"),
        **OTHERS,
    }


def described(change=None, header=None, data=None):
    """A safetensors file of the network whose last tensor is described otherwise, or whose header or data are others."""
    whole = safetensors_file(network())
    (length,) = struct.unpack("<Q", whole[:8])
    text, data = whole[8:8 + length], whole[8 + length:] if data is None else data
    if change is not None:
        text = json.loads(text)
        text["body.2.bias"].update(change)
    return safetensors_header(text if header is None else header(text), data)


def safetensors_refusals():
    """Name -> the bytes of a file and words of its refusal, by `import` and by others where they differ."""
    plain = network()
    good = safetensors_file(plain)
    size = sum(len(tensor.data) for tensor in plain.values())
    return {
        "duplicate": (described(header=lambda text: text.replace(b"body.0.bias", b"body.1.weight")), "'body.1.weight' stands twice"),
        "overlap": (described({"data_offsets": [0, 48]}), "overlaps another's"),
        "hole": (described({"data_offsets": [size - 44, size + 4]}, data=bytes(size + 4)), "follows a hole"),
        "outside": (described({"data_offsets": [size, size + 48]}), "lies outside of the file"),
        "backwards": (described({"data_offsets": [48, 0]}), "lies outside of the file"),
        "negative": (described({"data_offsets": [-48, 0]}), "lies outside of the file"),
        "fraction": (described({"data_offsets": [0.5, 48.5]}), "lies outside of the file"),
        "huge_offset": (described({"data_offsets": [2**63, 2**63 + 48]}), "lies outside of the file"),
        "huge_shape": (described({"shape": [2**40, 2**40]}), "impossible shape"),
        "negative_shape": (described({"shape": [-12]}), "invalid shape"),
        "nine_dimensions": (described({"shape": [1] * 9}), "invalid shape"),
        "other_size": (described({"shape": [13]}), "48 bytes of data where its shape needs 52"),
        "other_type": (described({"dtype": "F64"}), "48 bytes of data where its shape needs 96"),
        "complex": (described({"dtype": "C64", "shape": [6]}), "unknown dtype 'C64'"),
        "quarter": (described({"dtype": "F8_E8M0", "shape": [48]}), "unknown dtype 'F8_E8M0'"),
        "int32": (described({"dtype": "I32"}), "is I32, not floating point"),
        "bool": (safetensors_file(changed("body.2.bias", Tensor((12,), bytes(12), "Bool"))), "is BOOL, not floating point"),
        "more_keys": (described({"more": 1}), "is not described by dtype, shape and data_offsets"),
        "metadata_number": (safetensors_file(plain, {"epoch": 3}), "'epoch' in __metadata__ is no text"),
        "metadata_list": (safetensors_file(plain, ["pt"]), "__metadata__ is no object"),
        "not_json": (described(header=lambda text: text[:-1]), "no valid JSON at byte"),
        "list": (safetensors_header(b"[]", b""), "the header is no object"),
        "nothing": (safetensors_file({}), ("there is no tensor in it", "the file holds no tensors")),
        "junk_behind": (good + b"x", "1 bytes at the end belong to no tensor"),
        "truncated": (good[:-1], "lies outside of the file"),
        "truncated_header": (good[:100], "the file ends within its header"),
        "long_header": (struct.pack("<Q", 2**62) + good[8:], "no safetensors file, or a header beyond 16777216 bytes"),
        "missing": (safetensors_file(without("body.2.bias")), "1 missing: 'body.2.bias'"),
        "extra": (safetensors_file(changed("body.9.weight", plain["body.2.bias"])), "1 unexpected: 'body.9.weight'"),
        "shape": (safetensors_file(changed("body.2.bias", plain["body.0.bias"])), "1 of another shape: 'body.2.bias' [4] in place of [12]"),
        "nan": (safetensors_file(spoiled(math.nan)), "'body.0.weight' holds NaN"),
        "inf": (safetensors_file(spoiled(-math.inf)), "'body.0.weight' holds an infinity"),
        "seven_bytes": (bytes(7), "7 bytes are too few for a safetensors file"),
        "zeros": (bytes(64), "no valid JSON at byte"),
        "torch": (torch_file({"weight": plain["body.0.weight"]}), (None, "no network in it is of an architecture that is known by its tensors; `codistill import")),
        **OTHERS,
    }


def same(bench):
    """Every file gives the weights of the plain one, bit for bit, and upscales as it does."""
    right = {name: values(tensor) for name, tensor in network().items()}
    files = {f"{name}.pth": data for name, data in torch_models().items()} | {f"{name}.safetensors": data for name, data in safetensors_models().items()}
    check_count("models that give the weights of the plain one", len(files))
    bench.write("photos/photo.png", png(40, 32, 1))
    bench.write("plain.safetensors", safetensors_file(network()))
    bench.done("upscale", "plain.safetensors", "photos/photo.png", "-o", "plain.png")
    for name, data in files.items():
        bench.write(name, data)
        result = bench.done("import", name, "-o", "out.safetensors")
        check("5 tensors" in result.out and "model compact" in result.out, name, result)
        found = {one: values(tensor) for one, tensor in read_tensors(bench.path("out.safetensors")).items()}
        check(found == right, f"{name}: other weights")
        bench.done("upscale", name, "photos/photo.png", "-o", "big.png", "--force")
        check(bench.read("big.png") == bench.read("plain.png"), f"{name} upscales otherwise")
    model = "model={name: compact, num_feat: 4, num_conv: 0, scale: 2, init: %s}"
    wanted = bench.done("eval", "plain.safetensors", "--data", "photos").out
    for file in ("bfloat16.safetensors", "data_reversed.safetensors", "parallel.safetensors", "parallel_thrice.pth"):
        name = file.replace(".", "-")
        check(bench.done("eval", file, "--data", "photos").out == wanted, f"{file} is judged otherwise")
        bench.trained(f"name={name}", model % file, "train.steps=1", "train.rate=1e-12", "eval.every=0")
        found = {one: values(tensor) for one, tensor in read_tensors(bench.path("runs", name, "final.safetensors")).items()}
        check(all(math.dist(found[one], right[one]) < 1e-6 for one in right), f"{file}: training began elsewhere")
    for kind in ("onnx", "safetensors"):
        for source in ("plain.safetensors", "parallel_thrice.pth"):
            bench.done("export", source, "-o", f"{source}.{kind}")
        check(bench.read(f"plain.safetensors.{kind}") == bench.read(f"parallel_thrice.pth.{kind}"), f"parallel_thrice.pth is exported otherwise as {kind}")
    bench.done("bench", "upscale", "parallel_thrice.pth", "--size", "8x8", "--repeats", "1")


def refused(bench, words, *command):
    """A command that ends with exit code 1 and a message that has these words."""
    result = bench.run(*command)
    check(result.code == 1 and words in result.err, f"nobody says '{words}'", result)


def refusals(bench):
    """What is no model is refused with its reason, by each command that reads models; nothing of it is executed."""
    bench.write("photos/photo.png", png(40, 32, 1))
    files = 0
    for form, table in (("pth", torch_refusals()), ("safetensors", safetensors_refusals())):
        for name, (data, words) in table.items():
            path, (at_import, elsewhere) = f"{name}.{form}", (words, words) if isinstance(words, str) else words
            files += 1
            if data is None:
                os.mkdir(bench.path(path))
            else:
                bench.write(path, data)
            if at_import:
                refused(bench, at_import, "import", path, "-o", "out.safetensors")
            if form == "safetensors" and name != "folder":
                refused(bench, elsewhere, "upscale", path, "photos/photo.png", "-o", "big.png")
    check_count("models that are refused", files)
    check(not os.path.exists(bench.path("harmed")) and not os.path.exists(bench.path("big.png")), "something was executed or written")
    for name in ("missing", "nan", "truncated", "lfs", "int32", "nothing"):
        words = safetensors_refusals()[name][1]
        words, path = words if isinstance(words, str) else words[1], f"{name}.safetensors"
        refused(bench, words, "eval", path, "--data", "photos")
        refused(bench, words, "export", path, "-o", "out.onnx")
        if name not in ("missing", "nothing"):  # which are said in the words of what the model wants
            refused(bench, words, "train", "t.yaml", "model={name: compact, num_feat: 4, num_conv: 0, scale: 2, init: %s}" % path)


CASES = {"same": same, "refusals": refusals}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
