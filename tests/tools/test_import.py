#!/usr/bin/env python3
"""`codistill import` on files that PyTorch wrote (tests/io/golden/torch/write.py): python3 test_import.py CODISTILL [CASE ...]"""

import math
import os
import pathlib
import re
import struct
import sys

from torch_files import COUNTER, compact, pickled, read_tensors, safetensors_file, torch_file
from train_support import check, floats, png, read_safetensors, run_cases

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "io" / "golden" / "torch"


def imported(bench, name, output, *options):
    result = bench.done("import", str(GOLDEN / name), "-o", output, *options)
    return result


def names_generators(bench):
    """ESRGAN's three namings of one generator give one file, which upscales a picture."""
    files = []
    for naming in ("basicsr", "esrgan", "first"):
        result = imported(bench, f"rrdb-{naming}.pth", f"{naming}.safetensors")
        check("42 tensors" in result.out and "model rrdb" in result.out, f"what {naming} is", result)
        files.append(read_safetensors(bench.path(f"{naming}.safetensors")))
    check(files[0] == files[1] == files[2], "three namings give three generators")
    bench.write("photo.png", png(8, 6, 1))
    result = bench.run("upscale", "first.safetensors", "photo.png", "-o", "big.png")
    check(result.code == 0 and os.path.exists(bench.path("big.png")), "the generator upscales", result)


def names_edsr(bench):
    """BasicSR's EDSR is recognised, upscales, trains on and is exported."""
    result = imported(bench, "edsr.pth", "edsr.safetensors")
    check("16 tensors" in result.out and "model edsr" in result.out, "what it is", result)
    bench.write("photo.png", png(8, 6, 1))
    result = bench.run("upscale", "edsr.safetensors", "photo.png", "-o", "big.png")
    check(result.code == 0 and bench.read("big.png")[16:24] == struct.pack(">II", 24, 18), "it upscales three times", result)
    bench.trained("name=t", "model={name: edsr, num_feat: 4, num_block: 2, scale: 3, init: edsr.safetensors}", "train.steps=3", "train.rate=1e-9",
                  "eval.every=0")
    before, after = read_safetensors(bench.path("edsr.safetensors")), read_safetensors(bench.path("runs", "t", "final.safetensors"))
    check(before.keys() == after.keys() and all(math.dist(floats(before[name]), floats(after[name])) < 1e-6 for name in before),
          "training began with other weights")
    result = bench.run("export", "runs/t/final.safetensors", "-o", "edsr.onnx")
    check(result.code == 0 and os.path.exists(bench.path("edsr.onnx")), "it is exported", result)


def names_discriminators(bench):
    """Discriminators in BasicSR's two layouts say what they are for, and adversarial training begins with them."""
    cases = {"unet": ("real_esrgan", 28, ["data.patch=8", "gan.hidden=0"]), "vgg": ("esrgan", 36, ["data.patch=8", "gan.hidden=5"])}
    for layout, (recipe, count, options) in cases.items():
        result = imported(bench, f"net_d-{layout}.pth", f"{layout}.safetensors")
        check(f"{count} tensors" in result.out and f"gan.discriminator_init of recipe {recipe} takes it" in result.out, "what it is", result)
        check("no model" not in result.err, "it is of use", result)
        bench.trained(f"name={layout}", f"train.recipe={recipe}", "gan.content=pixel", "gan.pixel_weight=0", "gan.features=2", "gan.rate=1e-12",
                      "train.steps=2", "eval.every=0", f"gan.discriminator_init={layout}.safetensors", *options)
        given, left = (read_safetensors(bench.path(*path)) for path in ([f"{layout}.safetensors"], ["runs", layout, "discriminator.0.safetensors"]))
        weights = [name for name in left if name.endswith(("weight", "bias", "weight_orig"))]
        check(len(weights) > 10 and all(math.dist(floats(given[name]), floats(left[name])) < 1e-6 for name in weights), f"{layout}: it began elsewhere")


def chooses(bench):
    """Of several dictionaries the averaged weights are taken, another by --key; unknown keys are answered with what there is."""
    result = bench.run("import", str(GOLDEN / "checkpoint.pth"), "-o", "c.safetensors")
    check("7 tensors of 'params_ema'" in result.out, "the averaged weights are taken", result)
    check(result.code == 1 and "they are no model" in result.err, "no model is a failure", result)
    check(len(read_safetensors(bench.path("c.safetensors"))) == 7, "an unknown network is written")
    result = bench.run("import", str(GOLDEN / "checkpoint.pth"), "-o", "d.safetensors", "--key", "state_dict")
    check("7 tensors of 'state_dict'" in result.out, "--key chooses", result)
    result = bench.run("import", str(GOLDEN / "checkpoint.pth"), "-o", "e.safetensors", "--key", "nothing")
    check(result.code == 2 and "'state_dict' (7 tensors), 'params_ema' (7 tensors)" in result.err, "what there is", result)
    check(not os.path.exists(bench.path("e.safetensors")), "something was written")


def below(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def first_naming(name):
    """The name in ESRGAN's first release of a tensor that BasicSR names so."""
    for now, old in {"conv_first.": "model.0.", "conv_body.": "model.1.sub.1.", "conv_up1.": "model.3.", "conv_up2.": "model.6.", "conv_hr.": "model.8.",
                     "conv_last.": "model.10."}.items():
        if name.startswith(now):
            return old + name[len(now):]
    return re.sub(r"body\.(\d+)\.rdb(\d)\.conv(\d)\.", r"model.1.sub.\1.RDB\2.conv\3.0.", name)


def wrappers(bench):
    """Whatever wrapped a network, its model is the same, from PyTorch's files and from safetensors."""
    imported(bench, "rrdb-basicsr.pth", "plain.safetensors")
    plain, good = read_tensors(bench.path("plain.safetensors")), bench.read("plain.safetensors")
    flat = {
        "compiled": below("_orig_mod.", plain), "parallel": below("module.module.", plain),
        "both": below("module._orig_mod.", plain), "compiled-within": {name.replace("body.0.", "body.0._orig_mod."): t for name, t in plain.items()},
        "averaged": {"n_averaged": COUNTER, **below("module.", plain)}, "mmagic": {**below("generator.", plain), "step_counter": COUNTER},
        "lightning": below("model.net_g.", plain), "basicsr": {**below("params_ema.", plain), **below("params.", compact())},
        "first-naming": below("module.", {first_naming(name): tensor for name, tensor in plain.items()}),
    }
    scalar = (b"cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\n" + pickled(("f8", b"\x89", b"\x88"), []) + b"R" + pickled((3, "<"), []) + b"b" +
              b"c_codecs\nencode\n" + pickled(("12345678", "latin1"), []) + b"R\x86R")
    settings = b"cpytorch_lightning.utilities.parsing\nAttributeDict\n)\x81" + pickled({"rate": 1}, []) + b"b(" + pickled("rate", []) + b"K\x01u"
    nested = {
        "checkpoint": {"epoch": 3, "state_dict": below("model.", plain), "hyper_parameters": settings, "callbacks": {"best": scalar},
                       "optimizer_states": {"state": {"exp_avg": plain["conv_last.bias"]}}},
        "dictionaries": {"net_g": plain, "optimizer_g": {"exp_avg": plain["conv_last.bias"]}},
    }
    bench.write("photo.png", png(8, 6, 1))
    bench.done("upscale", "plain.safetensors", "photo.png", "-o", "plain.png")
    for name, tensors in (flat | nested).items():
        bench.write(f"{name}.pth", torch_file(tensors))
        result = bench.done("import", f"{name}.pth", "-o", f"{name}.out.safetensors")
        check("42 tensors" in result.out and "model rrdb" in result.out, name, result)
        check(read_safetensors(bench.path(f"{name}.out.safetensors")) == read_safetensors(bench.path("plain.safetensors")), f"{name}: other tensors")
        for left_out, where in (("n_averaged", "averaged"), ("step_counter", "mmagic"), ("params (5 tensors)", "basicsr")):
            check((left_out in result.out) == (where == name), f"{name} and {left_out}", result)
    for name in ("compiled", "averaged", "basicsr", "first-naming"):
        bench.write(f"{name}.safetensors", safetensors_file(flat[name]))
        bench.done("import", f"{name}.safetensors", "-o", f"{name}.out.safetensors")
        check(bench.read(f"{name}.out.safetensors") == good, f"{name}.safetensors is another model")
        bench.done("upscale", f"{name}.safetensors", "photo.png", "-o", f"{name}.png")
        check(bench.read(f"{name}.png") == bench.read("plain.png"), f"{name}.safetensors upscales otherwise")


def prefixes(bench):
    """Of two models in one file --prefix takes one; of a model and another network the model is taken."""
    two = {"state_dict": {**below("netG.", compact(3)), **below("netD.", compact(2))}}
    bench.write("two.pth", torch_file(two))
    result = bench.run("import", "two.pth", "-o", "x.safetensors")
    check(result.code == 2 and "--prefix" in result.err, "a choice is wanted", result)
    check("'state_dict.netD' (compact, 5 tensors), 'state_dict.netG' (compact, 5 tensors)" in result.err, "what there is", result)
    check(not os.path.exists(bench.path("x.safetensors")), "something was written")
    for prefix, features in (("netG", 3), ("state_dict.netD", 2)):
        result = bench.done("import", "two.pth", "-o", f"{features}.safetensors", "--prefix", prefix)
        check("left out: state_dict.net" in result.out, "what is left out", result)
        check(read_tensors(bench.path(f"{features}.safetensors"))["body.1.weight"].shape == (features,), f"--prefix {prefix}")
    bench.refused("begins with --prefix 'net'", "import", "two.pth", "-o", "x.safetensors", "--prefix", "net")
    bench.write("two.safetensors", safetensors_file(two["state_dict"]))
    result = bench.run("export", "two.safetensors", "-o", "two.onnx")
    check(result.code == 2 and "'netG' (compact, 5 tensors)" in result.err, "a model cannot be guessed", result)
    other = {f"discriminator.layer{i}.weight": tensor for i, tensor in enumerate(compact().values())}
    bench.write("gan.pth", torch_file({**below("generator.", compact()), **other}))
    result = bench.done("import", "gan.pth", "-o", "gan.safetensors")
    check("of 'generator', model compact" in result.out and "left out: discriminator (5 tensors)" in result.out, "the one that runs", result)
    result = bench.run("import", "gan.pth", "-o", "d.safetensors", "--prefix", "discriminator")
    check(result.code == 1 and "they are no model" in result.err, "the other network", result)
    check(sorted(read_safetensors(bench.path("d.safetensors"))) == [f"layer{i}.weight" for i in range(5)], "its names")
    bench.done("import", "gan.safetensors", "-o", "again.safetensors")
    check(bench.read("again.safetensors") == bench.read("gan.safetensors"), "what was imported is imported as it is")


def lists(bench):
    """--list names every tensor's dictionary, name, type and shape."""
    result = bench.run("import", str(GOLDEN / "checkpoint.pth"), "--list")
    check(result.code == 0 and "state_dict\thead.weight\tF32\t[1, 2]\n" in result.out, "a tensor is listed", result)
    check(result.out.count("\n") == 14, "all tensors are listed", result)


def refuses(bench):
    """What wants other Python objects is refused by their names, and nothing is executed or written."""
    for name, what in (("harmful.pth", "posix.system"), ("harmful-old.pth", "posix.system"), ("module.pth", "__main__.Network")):
        result = bench.run("import", str(GOLDEN / name), "-o", "x.safetensors")
        check(result.code == 1 and what in result.err, f"{name} was taken", result)
        check(not os.path.exists(bench.path("x.safetensors")) and not os.path.exists("/tmp/harmed"), f"{name} did something")


CASES = {"names-generators": names_generators, "names-edsr": names_edsr, "names-discriminators": names_discriminators, "chooses": chooses,
         "wrappers": wrappers, "prefixes": prefixes, "lists": lists, "refuses": refuses}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
