#!/usr/bin/env python3
"""What the exchange promises, seen from outside the command. Only settings that 572510b knows are used: each case fails with the program of that
commit, which is how docs/exchange-measurements.md shows what was mended: python3 test_promises.py CODISTILL [CASE ...]"""

import os
import shutil
import sys

from train_support import TCP, check, longer_and_longer, read_safetensors, run_cases

FEW_LINES = ["log.tensorboard=false", "log.samples=0"]
FILES = ["train.strategy=codistill", "cluster.groups=2", "exchange.transport=file", "exchange.directory=x", *FEW_LINES]


def switches(bench, name, group):
    return [event for event in bench.events(name, group) if event["kind"] == "switch"]


def many_groups(bench):
    """Eight groups that all read each other use most of what is published: one pull at a time could follow three peers."""
    groups, period = 8, 10
    for steps in longer_and_longer(400, seconds=60):
        bench.trained(f"name=m{steps}", "train.strategy=codistill", f"cluster.groups={groups}", f"exchange.period={period}", f"train.steps={steps}", "eval.every=0",
                      "checkpoint.every=0", "log.every=50", *FEW_LINES)
        usable = groups * (groups - 1) * (steps // period - 2)  # the run ends before the last two have their turn
        used = sum(len(switches(bench, f"m{steps}", group)) for group in range(groups)) / usable
        print(f"      used {100 * used:.0f} % in {steps} steps")
        if used > 0.45:
            break
    check(used > 0.45, f"{100 * used:.0f} % of the publications were used")


def long_steps(bench):
    """Steps that are longer than the patience of a pull lose nothing: what counts is how often a pull was found where it was."""
    bench.trained("name=l", "train.strategy=codistill", "cluster.groups=2", "exchange.pull_timeout_s=0.1", "exchange.period=6", "train.steps=36", "eval.every=0",
                  "checkpoint.every=0", "model.channels=64", "model.blocks=8", "data.patch=24", "data.batch=16", *FEW_LINES, environment=TCP)
    last = [bench.metrics("l", group)[-1] for group in (0, 1)]
    print("      pulled %s, lost %s" % tuple([line["peers"][0][key] for line in last] for key in ("pulled", "lost")))
    check(all(line["peers"][0]["pulled"] > 0 for line in last), f"pulled: {[line['peers'][0] for line in last]}")


def saved_once(bench):
    """The ranks of a group save what they all have once between them."""
    bench.trained("name=s", "train.strategy=codistill", "cluster.groups=2", "cluster.ranks_per_group=2", *FEW_LINES)
    folder = bench.path("runs", "s", "checkpoints", "step-000000060")
    arrays = [array for part in sorted(os.listdir(folder)) for array in read_safetensors(os.path.join(folder, part)).values() if len(array) > 1000]
    total, once = sum(map(len, arrays)), sum(map(len, set(arrays)))
    print(f"      {total} bytes in arrays, {total - once} of them twice")
    check(total - once < 0.25 * total, f"of {total} bytes in checkpoints {total - once} are there twice")


def deleted_run(bench):
    """What a deleted run left in the exchange's folder teaches nobody."""
    fixed = ["name=a", *FILES, "train.steps=100"]
    for group in ("1", "0"):
        result = bench.done("train", "t.yaml", "--group", group, *fixed)
        taught = switches(bench, "a", 0)
        shutil.rmtree(bench.path("runs", "a"))
    check(not taught, f"a deleted run was a teacher: {taught}", result)


def links(bench):
    """A link in the exchange's folder is not followed to what others have."""
    fixed = ["name=a", *FILES, "train.steps=60"]
    bench.done("train", "t.yaml", "--group", "1", *fixed)
    (shard,) = (os.path.join(where, name) for where, names, _ in os.walk(bench.path("x")) for name in names if name.startswith("shard-"))
    shutil.rmtree(shard)
    bench.write("precious/1.bin", "somebody's")
    os.symlink(bench.path("precious"), shard)
    shutil.rmtree(bench.path("runs"))
    bench.run("train", "t.yaml", "--group", "1", *fixed)
    check(os.path.exists(bench.path("precious", "1.bin")) and bench.read("precious", "1.bin") == b"somebody's", "a file behind a link was removed")


CASES = {"many-groups": many_groups, "long-steps": long_steps, "saved-once": saved_once, "deleted-run": deleted_run, "links": links}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
