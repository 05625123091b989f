#!/usr/bin/env python3
"""What training sees of pictures, end to end: python3 test_data.py CODISTILL [CASE ...]"""

import os
import re
import struct
import sys

from test_train import killed
from train_support import check, png, read_safetensors, run_cases

DEGRADED = ["data.degradation=real_esrgan", "eval.degraded=true"]


def show(bench, folder, *arguments):
    """The lines that are printed and the files that are written."""
    result = bench.done("data", "t.yaml", "--show", folder, *arguments)
    return result.out.splitlines(), {name: bench.read(folder, name) for name in sorted(os.listdir(bench.path(folder)))}


def shows(bench):
    """Sample pairs and how they were degraded, the same each time; nothing is replaced unasked, and no run is left behind."""
    lines, files = show(bench, "a", "--count", "3", *DEGRADED)
    check(list(files) == ["sample-0000.png", "sample-0001.png", "sample-0002.png"], f"{list(files)}")
    for name, line in zip(files, lines):
        check(struct.unpack(">II", files[name][16:24]) == (2 * 32 + 8, 32), f"{name} is no pair of 32x32 pixels")  # patch 8, x4
        check(re.fullmatch(rf"a/{name}: blur .+ noise [\d.]+, JPEG \d+; .+; .*JPEG \d+.*", line), f"'{line}'")
    check(len(lines) == 3 and len(set(files.values())) == 3, f"{lines}")
    again, same = show(bench, "b", "--count", "3", *DEGRADED)
    check(same == files and [line[1:] for line in again] == [line[1:] for line in lines], "other samples the second time")
    bench.refused("a/sample-0000.png: exists already; --force replaces it", "data", "t.yaml", "--show", "a", "--count", "4")
    check(len(os.listdir(bench.path("a"))) == 3, "samples were added to those that exist")
    lines, plain = show(bench, "a", "--count", "3", "--force")
    check([line.split(": ")[1] for line in lines] == ["MATLAB's bicubic"] * 3, f"{lines}")
    check(all(plain[name] != files[name] for name in files), "bicubic gives the degraded samples")
    check(not os.path.exists(bench.path("runs")), "a run was left behind")
    _, adversarial = show(bench, "c", "--count", "3", *DEGRADED, "train.recipe=srgan", "gan.content=vgg22", "gan.perceptual_file=absent.safetensors")
    check(adversarial == files, "other samples with another recipe")  # and without what training alone needs


def trains(bench):
    """Degradations reach training and, where asked for, validation; validation is the same picture at every evaluation."""
    bench.write("photos/a.png", png(96, 80, 1))
    bench.write("photos/b.png", png(80, 96, 2))
    photos = ["data.kind=pictures", "data.path=photos", "train.rate=1e-12", "eval.every=20"]
    bench.trained("output=runs/bicubic", *photos)
    bench.trained("output=runs/half", *photos, DEGRADED[0])
    bench.trained("output=runs/whole", *photos, *DEGRADED)
    models = [read_safetensors(bench.path("runs", name, "t", "final.safetensors")) for name in ("bicubic", "half", "whole")]
    check(models[0] != models[1] and models[1] == models[2], "validation decides what is trained on, or degradations do not")
    bicubic, half, whole = ([line["psnr_y"] for line in bench.metrics(f"{name}/t", 0) if line.get("psnr_y")] for name in ("bicubic", "half", "whole"))
    check(len(bicubic) == 3 and bicubic == half, f"validation without eval.degraded is on degraded pictures: {bicubic}, {half}")
    check(max(whole) < min(bicubic) and max(whole) - min(whole) < 1e-3, f"{whole} degraded, {bicubic} not")


CASES = {"shows": shows, "trains": trains, "killed": killed("single", 3, None, *DEGRADED, "data.threads=2")}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
