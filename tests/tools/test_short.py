#!/usr/bin/env python3
"""Each allocation of a command fails once: python3 test_short.py CODISTILL_SHORT [CASE ...]; it ends with a message, whichever it was."""

import concurrent.futures
import os
import sys

from train_support import check, png, run_cases

MLP = """\
name: p
cluster: {threads: 1}
model: {name: mlp, hidden: [8], classes: 3}
data: {kind: iris, path: points.csv, batch: 4}
train: {strategy: codistill, steps: 20}
"""


def prepare(bench):
    bench.write("p.yaml", MLP)
    bench.write("points.csv", "x,y,kind\n" + "".join(f"{i},{i * i % 7},{'abc'[i % 3]}\n" for i in range(30)))
    bench.write("photos/a.png", png(24, 20, 1))
    bench.trained("name=m", "train.steps=10")


def fail_each(bench, *command):
    """Runs the command once for each of its allocations, which fails: it ends with a message, or with 0 where it can do without."""
    count = bench.path("count")
    bench.done(*(word.replace("OUT", bench.path("whole")) for word in command), environment={"COD_TEST_SHORT_COUNT": count})
    with open(count) as file:
        total = max(map(int, file))
    os.remove(count)

    def run(number):
        folder = bench.path(f"out{number}")
        arguments = [word.replace("OUT", folder) for word in command]
        return number, bench.run(*arguments, environment={"COD_TEST_SHORT_AT": str(number)})

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, result in pool.map(run, range(1, total + 1)):
            check(result.code in (0, 1, 2), f"allocation {number} of {total}: exit code {result.code}", result)
            check(result.code == 0 or "codistill" in result.err, f"allocation {number} of {total}: no message", result)
    print(f"{' '.join(command)}: {total} allocations", flush=True)


def plan(bench):
    prepare(bench)
    fail_each(bench, "plan", "p.yaml")


def export(bench):
    prepare(bench)
    fail_each(bench, "export", "runs/m/final.safetensors", "-o", "OUT.onnx")


def config(bench):
    fail_each(bench, "config", "--markdown")


def upscale(bench):
    prepare(bench)
    fail_each(bench, "upscale", "runs/m/final.safetensors", "photos/a.png", "-o", "OUT.png")


def evaluate(bench):
    prepare(bench)
    fail_each(bench, "eval", "runs/m/final.safetensors", "--data", "photos")


def train(bench):
    prepare(bench)
    fail_each(bench, "train", "p.yaml", "train.strategy=single", "output=OUT", "log.tensorboard=false")


CASES = {"plan": plan, "export": export, "config": config, "upscale": upscale, "eval": evaluate, "train": train}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
