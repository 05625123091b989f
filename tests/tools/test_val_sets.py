#!/usr/bin/env python3
"""Several validation sets by data.val_sets: python3 test_val_sets.py CODISTILL [CASE ...]"""

import json
import os
import sys

from test_classes import CONFIG, csv
from train_support import check, png, read_metadata, run_cases

SETS = "data.val_sets=[set5=sets/Set5, sets/mine/]"
EVERY = ["train.steps=20", "eval.every=10", "log.samples=0"]


def write_sets(bench):
    for index, name in enumerate(("Set5/a.png", "Set5/b.png", "mine/c_HR.png", "mine/c_LR.png")):
        bench.write(f"sets/{name}", png(48, 40, index))


def near(a, b):
    return a is not None and abs(a - b) < 1e-3


def of_sets(bench, name, figure, paths, read):
    """Each set has its figure in metrics and summary.json, as `codistill eval` measures the final model on it."""
    rows, summary = bench.metrics(name, 0), bench.summary(name)
    for which, path in paths.items():
        key = f"{figure}.{which}"
        result = bench.done("eval", f"runs/{name}/final.safetensors", "--data", path, "--json", "--precision", "f32")
        measured = read(json.loads(result.out))
        check(near(summary[key], measured) and near(summary["group_results"][0][key], measured), f"{key} is {summary[key]}, not {measured}")
        check([row["step"] for row in rows if row[key] is not None] == [10, 20], f"evaluations of {key}")
        check(near(rows[-1][key], measured), f"the last line has {rows[-1][key]} as {key}, not {measured}")


def pictures(bench):
    """Also of a folder with pairs called HR and LR, of which eval judges the high ones; a set may choose the best model."""
    write_sets(bench)
    result = bench.train("name=p", SETS, *EVERY, "eval.best_set=mine", "eval.patience=100")
    check(result.code == 0 and "validation set set5: 2 pictures" in result.err and "validation set mine: 1 pictures" in result.err, "sets", result)
    check(" dB on set5, " in result.err, "the terminal does not say the final figures", result)
    of_sets(bench, "p", "psnr_y", {"set5": "sets/Set5", "mine": "sets/mine"}, lambda result: result["mean"]["psnr_y"])
    page = bench.read("runs", "p", "report.html")
    check(b"PSNR of the Y channel: set5" in page and b"SSIM of the Y channel: mine" in page, "the report does not draw them")
    folder = bench.path("runs", "p", "tensorboard", "group0")
    events = b"".join(bench.read(folder, name) for name in os.listdir(folder))
    check(b"train/psnr_y.set5" in events and b"train/ssim_y.mine" in events, "TensorBoard has not got them")
    metadata = read_metadata(bench.path("runs", "p", "checkpoints", "step-000000010", "group-0.safetensors"))
    first = bench.metrics("p", 0)[0]
    check(float(metadata["best_psnr_y.mine"]) == first["psnr_y.mine"], f"the best is not by the set named: {metadata}")


def changed(bench):
    """A resume notices changed pictures of a set."""
    write_sets(bench)
    bench.done("train", "t.yaml", "name=c", SETS, *EVERY)
    again = ["train", "t.yaml", "name=c", SETS, *EVERY, "train.steps=30"]
    bench.write("sets/mine/c_HR.png", png(48, 40, 9))
    result = bench.run(*again)
    check(result.code != 0 and "the data's files have changed: 1 changed (c_HR.png)" in result.err, "it goes on", result)
    bench.done(*again, "checkpoint.data=any")
    rows = bench.read("runs", "c", "data.0.tsv").decode().splitlines()
    check([row.split("\t")[:2] for row in rows[1:3]] == [["val_sets 0", "a.png"], ["val_sets 0", "b.png"]], f"{rows}")


def tables(bench):
    """Classification of a CSV table: further tables of the same classes, normalised as the training data."""
    bench.write("c.yaml", CONFIG)
    bench.write("points.csv", csv(120))
    bench.write("more/others.csv", csv(40))
    bench.write("first.csv", csv(10))
    data = ["name=t", "data.kind=iris", "data.path=points.csv", "log.every=10", *EVERY[:2]]
    bench.done("train", "c.yaml", *data, "data.val_sets=[more/others.csv, few=first.csv]")
    of_sets(bench, "t", "accuracy", {"others": "more/others.csv", "few": "first.csv"}, lambda result: result["accuracy"])
    bench.write("other.csv", csv(30, ("left", "right", "lowermost")))
    result = bench.run("train", "c.yaml", *data, "name=u", "data.val_sets=[other.csv]")
    check(result.code != 0 and "data.val_sets: 'other'" in result.err, "other classes are taken", result)


def folders(bench):
    """And of folders of photographs, one subfolder a class."""
    bench.write("c.yaml", CONFIG)
    for part, count in (("train", 6), ("hand", 2)):
        for index, kind in enumerate(("ant", "bee", "fly")):
            for number in range(count):
                bench.write(f"{part}/{kind}/{number}.png", png(20, 20, 10 * index + number))
    bench.done("train", "c.yaml", "name=f", "data.kind=folder", "data.path=train", "data.size=16", "log.every=10", *EVERY[:2], "data.val_sets=[hand]")
    of_sets(bench, "f", "accuracy", {"hand": "hand"}, lambda result: result["accuracy"])


def refused(bench):
    write_sets(bench)
    os.makedirs(bench.path("sets", "empty"))
    bench.write("sets/my photos/a.png", png(48, 40))
    for words, setting in (("there is no 'sets/none'", "data.val_sets=[sets/none]"),
                           ("'sets/my photos' gives no name of letters, digits, - and _: write NAME=PATH", "data.val_sets=[sets/my photos]"),
                           ("two sets are called 'Set5'", "data.val_sets=[sets/Set5, Set5=sets/mine]"),
                           ("'set6' is no set of data.val_sets, which is empty", "eval.best_set=set6")):
        bench.refused(words, "train", "t.yaml", setting)
    bench.refused("'set6' is no set of data.val_sets; these are: set5, mine", "train", "t.yaml", SETS, "eval.best_set=set6")
    bench.write("c.yaml", CONFIG)
    bench.refused("generated classes are in no files", "train", "c.yaml", SETS)
    check(not os.path.exists(bench.path("runs")), "something was trained")
    result = bench.train("data.val_sets=[sets/empty]")
    check(result.code != 0 and "data.val_sets: no pictures in 'sets/empty'" in result.err, "a folder without pictures", result)


CASES = {"pictures": pictures, "changed": changed, "tables": tables, "folders": folders, "refused": refused}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
