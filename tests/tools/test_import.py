#!/usr/bin/env python3
"""`codistill import` on files that PyTorch wrote (tests/io/golden/torch/write.py): python3 test_import.py CODISTILL [CASE ...]"""

import math
import os
import pathlib
import struct
import sys

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
    result = imported(bench, "checkpoint.pth", "c.safetensors")
    check("7 tensors of 'params_ema'" in result.out, "the averaged weights are taken", result)
    check("they are no model" in result.err, "an unknown network is written, with a word about it", result)
    result = imported(bench, "checkpoint.pth", "d.safetensors", "--key", "state_dict")
    check("7 tensors of 'state_dict'" in result.out, "--key chooses", result)
    result = bench.run("import", str(GOLDEN / "checkpoint.pth"), "-o", "e.safetensors", "--key", "nothing")
    check(result.code == 2 and "'state_dict' (7 tensors), 'params_ema' (7 tensors)" in result.err, "what there is", result)
    check(not os.path.exists(bench.path("e.safetensors")), "something was written")


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


CASES = {"names-generators": names_generators, "names-edsr": names_edsr, "names-discriminators": names_discriminators, "chooses": chooses, "lists": lists, "refuses": refuses}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
