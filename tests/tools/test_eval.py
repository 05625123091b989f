#!/usr/bin/env python3
"""Figures of pictures, by `codistill eval` and while training: python3 test_eval.py CODISTILL [CASE ...]."""

import io
import itertools
import json
import math
import pathlib
import random
import struct
import sys
import zipfile
import zlib

from train_support import check, run_cases

FEATURES = 36  # of NIQE
CHANNELS = [64, 128, 256, 384, 384, 512, 512]  # of SqueezeNet's stages
FIRES = [(2, 64, 16, 64), (3, 128, 16, 64), (4, 128, 32, 128), (5, 256, 32, 128), (6, 256, 48, 192), (7, 384, 48, 192), (8, 384, 64, 256),
         (9, 512, 64, 256)]
METRICS = "psnr,ssim,niqe,pi,lpips"


def write_picture(bench, name, width, height, seed):
    """Soft noise, so that no block is flat."""
    draw = random.Random(seed)
    coarse = [[[draw.randrange(256) for _ in range(3)] for _ in range(width // 8 + 2)] for _ in range(height // 8 + 2)]
    rows = b""
    for y in range(height):
        rows += b"\0" + bytes(min(255, max(0, coarse[y // 8][x // 8][c] * (8 - x % 8) // 8 + coarse[y // 8][x // 8 + 1][c] * (x % 8) // 8
                                                + (x * 7 + y * 13) % 29 - 14)) for x in range(width) for c in range(3))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    bench.write(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def npy(shape, values):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}d", *values)


def write_niqe_model(bench):
    identity = [float(i == j) for i in range(FEATURES) for j in range(FEATURES)]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("mu_pris_param.npy", npy((1, FEATURES), [1.0] * FEATURES))
        file.writestr("cov_pris_param.npy", npy((FEATURES, FEATURES), identity))
    bench.write("niqe.npz", archive.getvalue())


def write_tensors(bench, name, tensors, kinds="f"):
    """Tensors of F32, or each of its own kind."""
    header, data, at = {}, [], 0
    for (key, shape, values), kind in zip(tensors, itertools.cycle(kinds)):
        data.append(struct.pack(f"<{len(values)}{kind}", *values))
        header[key] = {"dtype": {"f": "F32", "d": "F64", "i": "I32"}[kind], "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    header = json.dumps(header).encode()
    bench.write(name, struct.pack("<Q", len(header)) + header + b"".join(data))


def write_network(bench):
    """SqueezeNet by Caffe's names, with random weights out of a short list; and linear weights of 0.5."""
    draw, tensors = random.Random(5), []

    def layer(name, outputs, inputs, kernel):
        count = inputs * kernel * kernel
        some = [draw.gauss(0, math.sqrt(2 / count)) for _ in range(997)]
        tensors.append((name + ".weight", [outputs, inputs, kernel, kernel], (some * (outputs * count // 997 + 1))[:outputs * count]))
        tensors.append((name + ".bias", [outputs], [0.01] * outputs))

    layer("conv1", 64, 3, 3)
    for number, before, squeezed, expanded in FIRES:
        layer(f"fire{number}/squeeze1x1", squeezed, before, 1)
        layer(f"fire{number}/expand1x1", expanded, squeezed, 1)
        layer(f"fire{number}/expand3x3", expanded, squeezed, 3)
    write_tensors(bench, "squeezenet.safetensors", tensors)
    write_tensors(bench, "linear.safetensors", [(f"lin{i}.model.1.weight", [1, c, 1, 1], [0.5] * c) for i, c in enumerate(CHANNELS)])


def write_ma_model(bench):
    """One tree a forest, each a single leaf, so that every picture's score is 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 8 = 4."""
    tensors, kinds = [("linear", [4], [1, 0.5, 0.25, 0.125])], "d"
    for group, leaf in (("blocks", 2), ("bands", 4), ("patches", 8)):
        tensors += [(f"{group}.value", [1], [leaf]), (f"{group}.roots", [1], [0]), (f"{group}.feature", [1], [-1]), (f"{group}.left", [1], [0])]
        kinds += "diii"
    write_tensors(bench, "ma.safetensors", tensors, kinds)


def prepare(bench):
    for i in range(3):
        write_picture(bench, f"photos/{i}.png", 208, 112, i)
    write_niqe_model(bench)
    write_network(bench)
    write_ma_model(bench)


def evaluate(bench, model, *options):
    result = bench.done("eval", model, "--data", "photos", "--niqe-model", "niqe.npz", "--lpips-network", "squeezenet.safetensors", *options)
    return result


def tells(bench):
    """All figures of a folder, in parallel or not; what a picture is too small for, and what PI and LPIPS stand for, is said."""
    prepare(bench)
    write_picture(bench, "photos/small.png", 96, 64, 9)
    texts = [evaluate(bench, "bicubic", "--metrics", METRICS, "--json", "--threads", threads).out for threads in ("1", "3")]
    check(texts[0] == texts[1], "threads changed a figure")
    said = json.loads(texts[0])
    check([image["file"] for image in said["images"]] == ["0.png", "1.png", "2.png", "small.png"], texts[0])
    *large, small = said["images"]
    check(small["niqe"] is None and small["pi"] is None and small["lpips"] > 0 and small["psnr_y"] > 0, f"{small}")
    for key in ("psnr_y", "ssim_y", "psnr_rgb", "niqe", "niqe_truth", "pi", "lpips"):
        of = large if key in ("niqe", "niqe_truth", "pi") else said["images"]
        mean = sum(image[key] for image in of) / len(of)
        check(abs(said["mean"][key] - mean) < 1e-9 * abs(mean), f"{key}: {said['mean'][key]}, not {mean}")
    rmse = math.sqrt(sum(image["rmse_y"] ** 2 for image in said["images"]) / 4)
    check(abs(said["mean"]["rmse_y"] - rmse) < 1e-9, f"{said['mean']}")
    region = 1 if rmse <= 11.5 else 2 if rmse <= 12.5 else 3 if rmse <= 16 else None
    check(said["pirm_region"] == region and "without Ma's score" in said["pi_is"] and said["lpips_is"] == "unweighted", texts[0])
    weighted = json.loads(evaluate(bench, "bicubic", "--metrics", "lpips", "--json", "--lpips-weights", "linear.safetensors").out)
    check(weighted["lpips_is"] == "weighted" and set(weighted["mean"]) == {"lpips"}, f"{weighted}")
    check(abs(weighted["mean"]["lpips"] - said["mean"]["lpips"] / 2) < 1e-6, "weights of a half do not halve LPIPS")
    of_both = json.loads(evaluate(bench, "bicubic", "--metrics", "pi", "--json", "--ma-model", "ma.safetensors").out)
    check("(10 - Ma) + NIQE" in of_both["pi_is"], f"{of_both}")
    for alone, both in zip(large + [said["mean"]], of_both["images"][:3] + [of_both["mean"]]):
        check(abs(both["pi"] - (10 - 4 + alone["pi"]) / 2) < 1e-9, f"{both}, not half of 6 + {alone['pi']}")
    table = evaluate(bench, "bicubic", "--metrics", METRICS)
    for part in ("NIQE: without 1 of 4 pictures", "PI: NIQE of the Y channel alone", "PIRM 2018", "LPIPS: on SqueezeNet 1.1, unweighted"):
        check(part in table.out, f"'{part}' is not said", table)
    check("small.png has no NIQE" in table.err, "no warning", table)


def judges(bench):
    """eval.best picks the checkpoint and is the run's figure; a run may go on with another one."""
    prepare(bench)
    data = ["data.kind=pictures", "data.path=photos", "data.val_path=photos", "data.val_count=0", "eval.images=0", "eval.every=10", "eval.niqe_model=niqe.npz",
            "eval.lpips_network=squeezenet.safetensors", "train.schedule=constant", "train.rate=0.01"]
    first = bench.trained(*data, "train.steps=40", "eval.best=niqe", "eval.metrics=psnr, pi, lpips")
    check("niqe" in first.out + first.err, "the figure is not told", first)
    lines, summary = bench.metrics("t", 0), bench.summary("t")
    known = [line for line in lines if line["niqe"] is not None]
    check(len(known) == 4 and "ssim_y" not in lines[0], f"{lines}")
    check(all(line[key] is not None for line in known for key in ("psnr_y", "psnr_rgb", "pi", "rmse_y", "lpips")), f"{known}")
    check(summary["figure"] == "niqe" and summary["niqe"] == known[-1]["niqe"], f"{summary}")
    bicubic = json.loads(evaluate(bench, "bicubic", "--metrics", METRICS, "--json").out)["mean"]
    check(summary["baseline"] == "bicubic_niqe" and abs(summary["bicubic_niqe"] - bicubic["niqe"]) < 1e-9, f"{summary}")
    best = "runs/t/checkpoints/best.group-0.safetensors"
    of_best = json.loads(evaluate(bench, best, "--metrics", METRICS, "--json", "--precision", "f32").out)["mean"]
    least = min(line["niqe"] for line in known)
    check(abs(of_best["niqe"] - least) < 1e-3 * least, f"best has {of_best['niqe']}, the least was {least}")
    last = json.loads(evaluate(bench, "runs/t/final.safetensors", "--metrics", METRICS, "--json", "--precision", "f32").out)["mean"]
    for key in ("psnr_y", "niqe", "pi", "rmse_y", "lpips"):
        check(abs(last[key] - summary[key]) < 1e-3 * abs(last[key]), f"{key}: {last[key]}, in the summary {summary[key]}")
    events = b"".join(path.read_bytes() for path in pathlib.Path(bench.path("runs", "t", "tensorboard", "group0")).iterdir())
    check(b"train/niqe" in events and b"train/lpips" in events, "TensorBoard has no figures")
    bench.trained(*data, "train.steps=50", "eval.best=lpips", "eval.metrics=psnr")
    lines, summary = bench.metrics("t", 0), bench.summary("t")
    check(summary["figure"] == "lpips" and summary["lpips"] == lines[-1]["lpips"] and lines[-1]["step"] == 50, f"{summary}")
    of_best = json.loads(evaluate(bench, best, "--metrics", "lpips", "--json", "--precision", "f32").out)["mean"]
    check(abs(of_best["lpips"] - summary["lpips"]) < 1e-3 * summary["lpips"], "no model is the best by the new figure")


def full_disk(bench):
    """What cannot be written is no success, whichever command prints it."""
    prepare(bench)
    for command in ("config", "models", "train --help", "--version", "plan t.yaml", "eval bicubic --data photos"):
        result = bench.run(*command.split(), command=("/bin/sh", "-c", 'exec "$0" "$@" >/dev/full'))
        check(result.code == 1 and "standard output: cannot write the result" in result.err, command, result)


if __name__ == "__main__":
    sys.exit(run_cases({"tells": tells, "judges": judges, "full-disk": full_disk}, sys.argv[1], sys.argv[2:]))
