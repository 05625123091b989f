#!/usr/bin/env python3
"""Each allocation of a command fails once, or each call for a file: python3 test_short.py CODISTILL_SHORT [CASE ...]; it ends with a message,
whichever it was."""

import concurrent.futures
import os
import pathlib
import shutil
import sys

from train_support import check, png, run_cases

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "io" / "golden" / "torch"
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


def fail_each(bench, *command, calls=False, every=1, then=None):
    """Runs the command once for each of its allocations or calls, which fails: it ends with a message, or with 0 where it can do without.
    With `every` only each so many; `then` is told the folder of each."""
    count, what = bench.path("count"), "call" if calls else "allocation"
    bench.done(*(word.replace("OUT", bench.path("whole")) for word in command), environment={"COD_TEST_SHORT_COUNT": count})
    with open(count) as file:
        total = max(int(line.split()[calls]) for line in file)
    os.remove(count)

    def run(number):
        folder = bench.path(f"out{number}")
        arguments = [word.replace("OUT", folder) for word in command]
        result = bench.run(*arguments, environment={"COD_TEST_CALL_AT" if calls else "COD_TEST_SHORT_AT": str(number)})
        if then:
            then(number, folder, arguments)
        return number, result

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, result in pool.map(run, range(1, total + 1, every)):
            check(result.code in (0, 1, 2), f"{what} {number} of {total}: exit code {result.code}", result)
            check(result.code == 0 or "codistill" in result.err, f"{what} {number} of {total}: no message", result)
    print(f"{' '.join(command)}: {total} {what}s{f', one in {every}' if every > 1 else ''}", flush=True)


def plan(bench):
    prepare(bench)
    fail_each(bench, "plan", "p.yaml")


def export(bench):
    prepare(bench)
    fail_each(bench, "export", "runs/m/final.safetensors", "-o", "OUT.onnx")


def config(bench):
    fail_each(bench, "config", "--markdown")
    fail_each(bench, "models")
    fail_each(bench, "--complete", "train", "model.na")


def upscale(bench):
    prepare(bench)
    fail_each(bench, "upscale", "runs/m/final.safetensors", "photos/a.png", "-o", "OUT.png")


def evaluate(bench):
    prepare(bench)
    fail_each(bench, "eval", "runs/m/final.safetensors", "--data", "photos")


def import_file(bench):
    fail_each(bench, "import", str(GOLDEN / "edsr.pth"), "-o", "OUT.safetensors")


def report(bench):
    prepare(bench)
    fail_each(bench, "report", "runs/m")


def train(bench):
    prepare(bench)
    fail_each(bench, "train", "p.yaml", "train.strategy=single", "output=OUT", "log.tensorboard=false")


def calls(bench):
    """Of commands that read and write files; each call is one of the program's own, for a file, a folder or a stream."""
    prepare(bench)
    fail_each(bench, "plan", "p.yaml", calls=True)
    fail_each(bench, "export", "runs/m/final.safetensors", "-o", "OUT.onnx", calls=True)
    fail_each(bench, "upscale", "runs/m/final.safetensors", "photos/a.png", "-o", "OUT.png", calls=True)
    fail_each(bench, "eval", "runs/m/final.safetensors", "--data", "photos", calls=True)
    fail_each(bench, "report", "runs/m", calls=True)


def train_calls(bench):
    """A training that storage has ended goes on by the same command to the same bits."""
    prepare(bench)
    right = {}

    def resumed(number, folder, arguments):
        result = bench.run(*arguments)
        check(result.code == 0, f"call {number}: the same command does not go on", result)
        with open(os.path.join(folder, "p", "final.safetensors"), "rb") as file:
            check(file.read() == right["final"], f"call {number}: other bits", result)
        shutil.rmtree(folder)

    command = ["train", "p.yaml", "train.strategy=single", "output=OUT", "log.tensorboard=false", "checkpoint.every=5", "eval.every=10"]
    bench.done(*(word.replace("OUT", bench.path("right")) for word in command))
    right["final"] = bench.read("right", "p", "final.safetensors")
    fail_each(bench, *command, calls=True, every=5, then=resumed)


CASES = {"plan": plan, "export": export, "config": config, "import": import_file, "upscale": upscale, "eval": evaluate, "report": report, "train": train, "calls": calls, "train-calls": train_calls}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
