#!/usr/bin/env python3
"""Runs that are resumed or compared on data that changed in between: python3 test_same_data.py CODISTILL [CASE ...]"""

import os
import shutil
import sys

from train_support import check, png, read_metadata, run_cases

PICTURES = ["data.kind=pictures", "data.path=[photos]", "checkpoint.every=5", "eval.every=5", "log.tensorboard=false"]
TABLE = """\
name: c
model: {name: mlp, hidden: [8]}
data: {kind: iris, path: table.csv, batch: 8}
train: {steps: 10, precision: f32}
eval: {every: 5}
checkpoint: {every: 5}
log: {every: 5, tensorboard: false}
compare: {arms: [single, {name: longer, strategy: single, set: [train.rate=1e-2]}], seeds: [1]}
"""


def table(rows, first=5.0):
    return "".join(f"{first + i % 7 * 0.1:.1f},{3 + i % 5 * 0.2:.1f},{'ab'[i % 2]}\n" for i in range(rows))


def begun(bench, folder="photos"):
    """A run of ten steps on six pictures."""
    for i in range(6):
        bench.write(f"{folder}/{i}.png", png(64, 48, i))
    return bench.trained(*PICTURES, "train.steps=10")


def pictures(bench):
    """A picture added, removed or replaced is named and refused, and what was saved stays; restored data resume."""
    begun(bench)
    new, old = png(64, 48, 9), bench.read("photos/3.png")
    check(len(bench.read("runs/t/data.0.tsv").splitlines()) == 6, "the list of files")
    def refused(words):
        return bench.refused(words, "train", "t.yaml", *PICTURES, "train.steps=20")
    saved = sorted(os.listdir(bench.path("runs/t/checkpoints")))
    bench.write("photos/new.png", new)
    refused("the data's files have changed: 1 added (new.png); restore them, or set checkpoint.data=any")
    os.remove(bench.path("photos/3.png"))
    refused("1 added (new.png), 1 removed (3.png)")
    os.rename(bench.path("photos/new.png"), bench.path("photos/3.png"))
    refused("1 changed (3.png)")
    bench.write("photos/3.png", old[:-20] + bytes(byte ^ 1 for byte in old[-20:-12]) + old[-12:])
    refused("1 changed (3.png)")  # of the same size
    check(sorted(os.listdir(bench.path("runs/t/checkpoints"))) == saved, "checkpoints changed")
    bench.write("photos/3.png", old)
    result = bench.trained(*PICTURES, "train.steps=20")
    check("resumed at step 10" in result.err, "restored data", result)


def moved(bench):
    """A copy elsewhere, with other times, is the same data; the copy of something else is not."""
    begun(bench)
    shutil.copytree(bench.path("photos"), bench.path("elsewhere"), copy_function=shutil.copyfile)
    result = bench.trained(*PICTURES, "data.path=[elsewhere]", "train.steps=20")
    check("resumed at step 10" in result.err, "a copy", result)
    for i in range(6):
        bench.write(f"others/{i}.png", png(64, 48, 100 + i))
    bench.refused("6 changed (0.png, 1.png, 2.png, …)", "train", "t.yaml", *PICTURES, "data.path=[others]", "train.steps=30")


def accepted(bench):
    """With checkpoint.data=any the run goes on with what is there, warns, and forgets the best figure of other data."""
    begun(bench)
    bench.write("photos/new.png", png(64, 48, 9))
    result = bench.trained(*PICTURES, "train.steps=20", "checkpoint.data=any")
    check("1 added (new.png)" in result.err and "forgets the best figure" in result.err, "no warning", result)
    check(len(bench.read("runs/t/data.0.tsv").splitlines()) == 7, "the list of files")
    result = bench.trained(*PICTURES, "train.steps=30")
    check("warning" not in result.err, "the new data are now the run's", result)


def held_out(bench):
    """Other items held out of the same files are refused, too; the checkpoint, config.yaml and summary.json tell which."""
    begun(bench)
    bench.refused("other items of the data are held out", "train", "t.yaml", *PICTURES, "train.steps=20", "data.val_count=3")
    metadata = read_metadata(bench.path("runs/t/checkpoints/step-000000010/group-0.safetensors"))
    summary, config = bench.summary("t"), bench.read("runs/t/config.yaml").decode()
    for key in ("data_files", "data_held_out"):
        check(len(metadata[key]) == 16 and metadata[key] == summary[key] and metadata[key] in config, f"{key}: {metadata}\n{config}")
    bench.done("train", "runs/t/config.yaml", "name=again", "train.steps=5")


def tables(bench):
    """A table's contents count: a comparison's finished runs are refused beside new ones of another table."""
    bench.write("c.yaml", TABLE)
    bench.write("table.csv", table(60))
    bench.done("compare", "c.yaml")
    found = [run["data_files"] for arm in bench.json("c-compare", "compare.json")["arms"] for run in arm["runs"]]
    check(len(found) == 2 and len(set(found)) == 1, f"compare.json: {found}")
    bench.write("table.csv", table(60, 5.1))
    result = bench.refused("'runs/c-single-seed1' was trained on other data than there are now: 1 changed (table.csv)", "compare", "c.yaml", "compare.seeds=[1, 2]")
    check(not os.path.exists(bench.path("runs/c-single-seed2")), "a run was started", result)
    bench.write("runs/c-single-seed1/data.0.tsv", "path 0\tother.csv\t9\t0000000000000000\n")  # of other data than the run's
    bench.refused("was trained on other data than there are now, so it cannot be compared", "compare", "c.yaml", "compare.seeds=[1, 2]")
    bench.write("table.csv", table(60))
    bench.done("compare", "c.yaml", "compare.seeds=[1, 2]")


def unclear(bench):
    """val_count=0 is told to leave the choice to val_fraction, unless that is set; a class whose name is no text is refused."""
    begun(bench)
    words = "data.val_count=0 leaves it to data.val_fraction (0.1)"
    for overrides, said in ((["data.val_count=0"], True), (["data.val_count=0", "data.val_fraction=0"], False)):
        bench.write("v.yaml", bench.read("t.yaml").decode().replace("val_count: 1, ", ""))
        result = bench.done("train", "v.yaml", *PICTURES, "name=v", "checkpoint.resume=never", "train.steps=5", *overrides)
        check((words in result.err) == said, f"{overrides}", result)
    bench.write("c.yaml", TABLE)
    bench.write("table.csv", table(20).replace(",b\n", ",caf\u00e9\n").encode("latin-1"))
    result = bench.run("train", "c.yaml")
    check(result.code == 1 and r"'table.csv': the class 'caf\xE9' is not UTF-8 text: rename it" in result.err, "not text", result)


CASES = {"pictures": pictures, "moved": moved, "accepted": accepted, "held-out": held_out, "tables": tables, "unclear": unclear}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
