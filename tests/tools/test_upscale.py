#!/usr/bin/env python3
"""`codistill upscale` as files go in and come out: python3 test_upscale.py CODISTILL [CASE ...]"""

import os
import pathlib
import struct
import sys

from train_support import check, png, run_cases

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"


def size_of(bench, path):
    with open(bench.path(path), "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def formats(bench):
    """Pictures of every format are read, and results are written as their names or --format say."""
    names = ["rgb8.webp", "rgba8.bmp", "rgb16.tif", "baseline.jpg", "rgba16.png"]
    result = bench.run("upscale", "bicubic", *(str(GOLDEN / name) for name in names), "-o", "big", "--scale", "2")
    check(result.code == 0, "not all formats are read", result)
    check(sorted(os.listdir(bench.path("big"))) == ["baseline.png", "rgb16.png", "rgb8.png", "rgba16.png", "rgba8.png"], "other names", result)
    heads = {"a.jpg": b"\xff\xd8\xff", "a.webp": b"RIFF", "a.png": b"\x89PNG"}
    for name, head in heads.items():
        result = bench.run("upscale", "bicubic", str(GOLDEN / "rgb8.png"), "-o", name)
        with open(bench.path(name), "rb") as file:
            check(result.code == 0 and file.read(4).startswith(head), f"{name} is of another format", result)
    result = bench.run("upscale", "bicubic", str(GOLDEN / "rgb8.png"), "-o", "other", "--format", "webp", "--quality", "50")
    check(result.code == 0 and os.listdir(bench.path("other")) == ["rgb8.webp"], "--format", result)
    sizes = []
    for quality in ("10", "95"):
        bench.run("upscale", "bicubic", str(GOLDEN / "rgb8.png"), "-o", f"{quality}.jpg", "--quality", quality)
        sizes.append(os.path.getsize(bench.path(f"{quality}.jpg")))
    check(sizes[0] < sizes[1], f"quality costs nothing: {sizes}")


def keeps(bench):
    """What exists is replaced with --force alone, and without it nothing of a folder is made."""
    for name in ("a", "b"):
        bench.write(f"photos/{name}.png", png(12, 10, 1))
    bench.write("big/b.png", b"precious")
    result = bench.run("upscale", "bicubic", "photos", "-o", "big")
    check(result.code == 2 and "b.png: exists already; --force replaces it" in result.err, "it is refused", result)
    check(os.listdir(bench.path("big")) == ["b.png"] and os.path.getsize(bench.path("big/b.png")) == 8, "something was made", result)
    result = bench.run("upscale", "bicubic", "photos", "-o", "big", "--force")
    check(result.code == 0 and size_of(bench, "big/b.png") == (48, 40), "--force replaces", result)


def sizes(bench):
    """--outscale gives any size, whatever the model's scale is."""
    bench.write("a.png", png(12, 10, 1))
    for scale, size in (("1", (12, 10)), ("2.5", (30, 25)), ("0.5", (6, 5)), ("6", (72, 60))):
        result = bench.run("upscale", "bicubic", "a.png", "-o", "big.png", "--force", "--outscale", scale)
        check(result.code == 0 and size_of(bench, "big.png") == size, f"--outscale {scale}", result)


CASES = {"formats": formats, "keeps": keeps, "sizes": sizes}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
