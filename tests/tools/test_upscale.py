#!/usr/bin/env python3
"""`codistill upscale` as files go in and come out: python3 test_upscale.py CODISTILL [CASE ...]"""

import json
import os
import pathlib
import struct
import sys

from train_support import Skip, check, png, run_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHIPPED, PERCEPTUAL, BICUBIC_ON_SET5 = "sr-x4.safetensors", "sr-x4-perceptual", 28.43
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"


def size_of(bench, path):
    with open(bench.path(path), "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def formats(bench):
    """Pictures of every format are read, and results are written as their names or --format say."""
    names = ["rgb8.webp", "rgba8.bmp", "rgb16.tif", "baseline.jpg", "rgba16.png"]
    result = bench.done("upscale", "bicubic", *(str(GOLDEN / name) for name in names), "-o", "big", "--scale", "2")
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
    result = bench.refused("b.png: exists already; --force replaces it", "upscale", "bicubic", "photos", "-o", "big")
    check(os.listdir(bench.path("big")) == ["b.png"] and os.path.getsize(bench.path("big/b.png")) == 8, "something was made", result)
    result = bench.run("upscale", "bicubic", "photos", "-o", "big", "--force")
    check(result.code == 0 and size_of(bench, "big/b.png") == (48, 40), "--force replaces", result)


def sizes(bench):
    """--outscale gives any size, whatever the model's scale is."""
    bench.write("a.png", png(12, 10, 1))
    for scale, size in (("1", (12, 10)), ("2.5", (30, 25)), ("0.5", (6, 5)), ("6", (72, 60))):
        result = bench.run("upscale", "bicubic", "a.png", "-o", "big.png", "--force", "--outscale", scale)
        check(result.code == 0 and size_of(bench, "big.png") == size, f"--outscale {scale}", result)


def shipped(bench):
    """Without a model the one of COD_MODELS is taken, or the message says where it was looked for."""
    bench.write("a.png", png(12, 10, 1))
    bench.trained("train.steps=2")
    os.makedirs(bench.path("models"))
    here = {"COD_MODELS": bench.path("models")}
    bench.refused(f"no '{here['COD_MODELS']}/{SHIPPED}', where COD_MODELS says", "upscale", "a.png", "-o", "big.png", environment=here)
    os.rename(bench.path("runs/t/final.safetensors"), bench.path("models", SHIPPED))
    for name, words in (("path.png", [f"models/{SHIPPED}"]), ("unnamed.png", []), ("named.png", ["sr-x4"])):
        bench.done("upscale", *words, "a.png", "-o", name, environment=here)
        check(bench.read(name) == bench.read("path.png"), f"another model was taken for {name}")
    bench.refused(f"there is no model '{PERCEPTUAL}'", "upscale", PERCEPTUAL, "a.png", "-o", "p.png", environment=here)
    for words in (["eval", "sr-x4", "--data", "."], ["interpolate", "sr-x4", "sr-x4", "--alpha", "0.5", "-o", "half.safetensors"]):
        bench.done(*words, environment=here)
    known = "there is no model 'sr-x3'; models that come with the program are sr-x4 and sr-x4-perceptual"
    for words in (["upscale", "sr-x3", "a.png", "-o", "c.png"], ["export", "sr-x3", "-o", "e.onnx"], ["bench", "upscale", "sr-x3"]):
        bench.refused(known, *words, environment=here)
    bench.done("export", "sr-x4", "-o", "e.onnx", environment=here)
    bench.done("bench", "upscale", "sr-x4", "--size", "8x8", "--repeats", "1", environment=here)
    bench.trained("train.steps=2", "name=on", "model.init=sr-x4", environment=here)


def of_a_run(bench):
    """A training run's folder means its final model, wherever a model is named."""
    bench.write("a.png", png(36, 32, 1))
    bench.trained("train.steps=2")
    for words, result in ((["upscale", "runs/t", "a.png"], "a.png"), (["export", "runs/t"], "a.safetensors")):
        final = [word.replace("runs/t", "runs/t/final.safetensors") for word in words]
        bench.done(*words, "-o", f"folder/{result}")
        bench.done(*final, "-o", f"file/{result}")
        check(bench.read(f"folder/{result}") == bench.read(f"file/{result}"), f"{words[0]}: another model was taken")
    bench.done("eval", "runs/t", "--data", "a.png", "--scale", "4")
    result = bench.trained("train.steps=2", "name=on", "model.init=runs/t")
    check("tensors from 'runs/t'" in result.err, "another start", result)
    os.remove(bench.path("runs/t/final.safetensors"))
    bench.refused("'runs/t' is the folder of a training run that has no final.safetensors yet", "upscale", "runs/t", "a.png", "-o", "b.png")
    bench.refused("IN is missing", "upscale", "runs/on", "-o", "b.png")


def folders(bench):
    """Which of several pictures it is and the time left stand in each line; --skip-existing goes on; Real-ESRGAN's letters work."""
    for name in "abc":
        bench.write(f"photos/{name}.png", png(12, 10, 1))
    result = bench.done("upscale", "bicubic", "photos", "-o", "big")
    check([line.split(", picture ")[1] for line in result.out.splitlines()][2] == "3 of 3, left 0:00:00", "no count", result)
    os.remove(bench.path("big/b.png"))
    bench.write("big/a.png", b"precious")
    result = bench.done("upscale", "bicubic", "photos", "-o", "big", "--skip-existing")
    check("2 of 3 results are there already" in result.err and result.out.startswith("big/b.png: ") and result.out.count("\n") == 1, "not so", result)
    check(os.path.getsize(bench.path("big/a.png")) == 8 and size_of(bench, "big/b.png") == (48, 40), "wrong ones were made", result)
    result = bench.done("upscale", "bicubic", "photos", "-o", "big", "--skip-existing")
    check(result.out == "" and "3 of 3 results" in result.err, "nothing was left to do", result)
    bench.refused("give one of them", "upscale", "bicubic", "photos", "-o", "big", "--skip-existing", "--force")
    bench.done("upscale", "-n", "bicubic", "-i", "photos/a.png", "-o", "letters.png", "-s", "2")
    check(size_of(bench, "letters.png") == (24, 20), "letters")


def data_folder():
    return pathlib.Path(os.environ.get("COD_DATA", ROOT.parent / "shared" / "data"))


def shipped_quality(bench):
    """
    The models that come with the program are small. On pictures that they have not seen one is better than bicubic by PSNR,
    the other than the first by NIQE.
    """
    niqe, values = data_folder() / "niqe" / "niqe_pris_params.npz", []
    for name in (SHIPPED, f"{PERCEPTUAL}.safetensors"):
        path, data = ROOT / "share" / "models" / name, data_folder() / "set5"
        for needed in (path, data, niqe):
            if not needed.exists():
                raise Skip(f"there is no {needed}")
        check(path.stat().st_size <= 2 << 20, f"{path.stat().st_size} bytes")
        result = bench.done("eval", str(path), "--data", str(data), "--json", "--metrics", "psnr,niqe", "--niqe-model", str(niqe))
        values.append(json.loads(result.out)["mean"])
    check(values[0]["psnr_y"] > BICUBIC_ON_SET5 + 0.9, f"PSNR on Set5: {values[0]}")
    check(values[1]["niqe"] < values[0]["niqe"] - 1, f"NIQE on Set5: {values}")


CASES = {"formats": formats, "keeps": keeps, "sizes": sizes, "folders": folders, "of-a-run": of_a_run, "shipped": shipped, "shipped-quality": shipped_quality}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
