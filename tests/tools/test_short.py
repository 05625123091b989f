#!/usr/bin/env python3
"""Each allocation of a command fails once, or each call for a file: python3 test_short.py CODISTILL_SHORT [--every K] [CASE ...]; it ends with
one message, whichever it was. Cases that take long try one in so many; --every K says how many, 1 for all."""

import argparse
import concurrent.futures
import errno
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

from train_support import Failure, check, png, run_cases

EVERY = None  # of so many allocations or calls one fails
HARMLESS = "EINTR", "part"
HOWS = "own", *HARMLESS
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "io" / "golden" / "torch"
MLP = """\
name: p
cluster: {threads: 1}
model: {name: mlp, hidden: [8], classes: 3}
data: {kind: iris, path: points.csv, batch: 4}
train: {strategy: codistill, steps: 20}
"""
CLASSES = """\
name: classes
cluster: {threads: 1}
model: {name: logistic}
data: {kind: folder, path: kinds, size: 16, batch: 2, val_count: 1, threads: 1}
train: {steps: 2}
"""
TRAINING = ["train", "p.yaml", "train.strategy=single", "train.schedule=constant", "output=OUT", "log.tensorboard=false", "log.every=2", "checkpoint.every=5", "eval.every=10"]


def prepare(bench):
    bench.write("p.yaml", MLP)
    bench.write("points.csv", "x,y,kind\n" + "".join(f"{i},{i * i % 7},{'abc'[i % 3]}\n" for i in range(30)))
    bench.write("photos/a.png", png(24, 20, 1))
    bench.write("photos/more/b.png", png(20, 24, 2))
    bench.write("classes.yaml", CLASSES)
    for kind in ("light", "dark"):
        bench.write(f"kinds/{kind}/a.png", png(20, 20, 3))
        bench.write(f"kinds/{kind}/more/b.png", png(20, 20, 4))


def trained(bench, name):
    """A model of pictures, or one of classes: its file."""
    if not os.path.exists(bench.path("runs", name)):
        bench.done("train", *(["t.yaml", "name=pictures", "train.steps=10"] if name == "pictures" else ["classes.yaml"]))
    return f"runs/{name}/final.safetensors"


def check_end(result, which, harmless):
    """It has ended well, or with one message, and the sanitizers of their tree have nothing to say."""
    check("Sanitizer" not in result.err and "runtime error:" not in result.err, f"{which}: a sanitizer's report", result)
    check(result.code in (0, 1, 2), f"{which}: exit code {result.code}", result)
    check(result.code == 0 or not harmless, f"{which} ends it", result)
    messages = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
    check(result.code == 0 or len(messages) == 1, f"{which}: {len(messages)} messages", result)


def fail_each(bench, *command, calls=False, how="own", every=1, made=None, before=None, then=None):
    """Runs the command once for each of its allocations or calls, which fails: it ends with a message, or with 0 where it can do without,
    and then with what it has `made` otherwise, of a folder and a result. A call that is interrupted or moves a part of its bytes ends
    nothing. With `every` only each so many; `before` and `then` are told the folder of each."""
    every = EVERY or every
    count, what = bench.path("count"), "allocation" if not calls else "call" if how == "own" else f"{how} call"
    place = tempfile.mkdtemp(dir=bench.folder)
    environment = {"COD_TEST_CALL_HOW": str(getattr(errno, how, how))} if how != "own" else {}

    def run(folder, **variables):
        if before:
            before(folder)
        return bench.run(*(word.replace("OUT", folder) for word in command), environment={**environment, **own_place(folder), **variables})

    whole = os.path.join(place, "whole")
    result = run(whole, COD_TEST_SHORT_COUNT=count)
    check(result.code == 0, "it fails by itself", result)
    right = made(whole, result) if made else None
    with open(count) as file:
        total = max(int(line.split()[calls]) for line in file)
    os.remove(count)

    def fail(number):
        """What was wrong, or nothing: a first failure is not to hide others."""
        folder, which = os.path.join(place, f"out{number}"), f"{what} {number} of {total}"
        try:
            result = run(folder, **{"COD_TEST_CALL_AT" if calls else "COD_TEST_SHORT_AT": str(number)})
            check_end(result, which, how in HARMLESS)
            if made and result.code == 0 and "warning: " not in result.err:
                now = made(folder, result)
                check(now == right or "is missing: " in now, f"{which}: other results, without a word", result)
            if then:
                then(which, folder, [word.replace("OUT", folder) for word in command])
        except Failure as failure:
            return str(failure)
        return None

    numbers = range(1, total + 1, every)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [failure for failure in pool.map(fail, numbers) if failure]
    shutil.rmtree(place)
    check(not failures, f"{' '.join(command)}: {len(failures)} of {len(numbers)}\n" + "\n".join(failures))
    print(f"{' '.join(command)}: {total} {what}s{f', one in {every}' if every > 1 else ''}", flush=True)


def own_place(folder):
    """Of Open MPI's files, which jobs that begin and end at once would take from each other."""
    os.makedirs(folder + ".tmp", exist_ok=True)
    return {"TMPDIR": folder + ".tmp", "OMPI_MCA_btl_vader_backing_directory": folder + ".tmp"}


def written(ending):
    """Of commands that write one file."""
    def read(folder, _result):
        with open(folder + ending, encoding="latin-1", newline="") as file:
            return file.read().replace(folder, "")
    return read


def said(folder, result):
    """But for times, which differ from run to run."""
    return re.sub(r"[0-9.]+ m?s\b", "", result.out).replace(folder, "")


def plan(bench, **how):
    fail_each(bench, "plan", "p.yaml", made=said, **how)


def export(bench, **how):
    fail_each(bench, "export", trained(bench, "pictures"), "-o", "OUT.onnx", made=written(".onnx"), **how)


def config(bench, **how):
    fail_each(bench, "config", "--markdown", made=said, **how)
    fail_each(bench, "models", made=said, **how)
    fail_each(bench, "--complete", "train", "model.na", **how)


def upscale(bench, **how):
    fail_each(bench, "upscale", trained(bench, "pictures"), "photos/a.png", "-o", "OUT.png", made=written(".png"), **how)


def evaluate(bench, **how):
    fail_each(bench, "eval", trained(bench, "pictures"), "--data", "photos", made=said, **how)


def evaluate_classes(bench, **how):
    fail_each(bench, "eval", trained(bench, "classes"), "--data", "kinds", every=3 if "calls" in how else 1, made=said, **how)


def import_file(bench, **how):
    fail_each(bench, "import", str(GOLDEN / "edsr.pth"), "-o", "OUT.safetensors", made=written(".safetensors"), **how)


def report(bench, **how):
    run = os.path.dirname(trained(bench, "pictures"))
    fail_each(bench, "report", "OUT", made=written("/report.html"), before=lambda folder: shutil.copytree(bench.path(run), folder), **how)


def allocations(case):
    def run(bench):
        prepare(bench)
        case(bench)
    return run


def train(bench):
    fail_each(bench, *TRAINING, every=3, then=goes_on(bench))


def resume(bench):
    """Of a training that goes on at its half."""
    right, half = goes_on(bench), bench.path("half")
    bench.done(*(word.replace("OUT", half) for word in TRAINING), "train.steps=10")
    fail_each(bench, *TRAINING, every=9, before=lambda folder: shutil.copytree(half, folder), then=right)


def goes_on(bench):
    """A training that has ended early goes on by the same command to the same bits."""
    # What Open MPI leaves allocated is known by its libraries' names alone, which take a slow look at each allocation.
    bench.environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:fast_unwind_on_malloc=1"
    bench.done(*(word.replace("OUT", bench.path("right")) for word in TRAINING))

    def model(folder):
        return bench.read(folder, "p", "final.safetensors")

    def steps(folder):
        return [json.loads(line)["step"] for line in bench.read(folder, "p", "metrics.0.jsonl").splitlines()]

    right = bench.path("right")
    data = bench.read(right, "p", "data.0.tsv")

    def check_same(which, folder, arguments):
        result = bench.run(*arguments, environment=own_place(folder))
        check(result.code == 0, f"{which}: the same command does not go on", result)
        check(bench.read(folder, "p", "data.0.tsv") == data, f"{which}: other data", result)
        check(model(folder) == model(right), f"{which}: other bits", result)
        check(steps(folder) == steps(right), f"{which}: metrics of steps {steps(folder)}", result)
        for path in (folder, folder + ".tmp"):
            shutil.rmtree(path)

    return check_same


def calls(bench):
    """Of commands that read and write files; each call is one of the program's own, for a file, a folder or a stream."""
    prepare(bench)
    for how in HOWS:
        for command in (plan, export, import_file, upscale, evaluate, evaluate_classes, report):
            command(bench, calls=True, how=how)


def train_calls(bench):
    prepare(bench)
    right = goes_on(bench)
    for how in HOWS:
        fail_each(bench, *TRAINING, calls=True, how=how, every=9, then=right)


COMMANDS = {"plan": plan, "export": export, "config": config, "import": import_file, "upscale": upscale, "eval": evaluate, "eval-classes": evaluate_classes, "report": report, "train": train, "resume": resume}
CASES = {**{name: allocations(case) for name, case in COMMANDS.items()}, "calls": calls, "train-calls": train_calls}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int)
    parser.add_argument("--how", help="what happens to calls: the name of an errno, part, or own, for a reason of each call's own; else own, EINTR and part")
    given = parser.parse_args()
    EVERY = given.every
    HOWS = HOWS if given.how is None else [given.how]
    sys.exit(run_cases(CASES, given.program, given.cases))
