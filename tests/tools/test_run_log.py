#!/usr/bin/env python3
"""What a training says first, and the log that it leaves of each group: python3 test_run_log.py CODISTILL [CASE ...]"""

import os
import re
import signal
import sys

from train_support import STOPPED, check, rank_process, run_cases, wait_for_steps

TWO = ["train.strategy=codistill", "cluster.groups=2"]
QUIET = ["eval.every=0", "log.samples=0", "log.tensorboard=false", "train.schedule=constant"]
ENDLESS = [*QUIET, "train.steps=10000000"]


def lines(bench, name, group=0):
    """Of a group's log, without their times, each of which must be there."""
    found = bench.read("runs", name, f"log.{group}.txt").decode().splitlines()
    check(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \S", line) for line in found), f"a line has no time: {found}")
    return [line[20:] for line in found]


def check_lines(found, *patterns):
    """Lines that match these patterns are there, in this order."""
    rest = iter(found)
    for pattern in patterns:
        check(any(re.fullmatch(pattern, line) for line in rest), f"no '{pattern}', or too early:\n" + "\n".join(found))


def version_of(bench):
    return re.escape(bench.done("--version").out.splitlines()[0].removeprefix("codistill "))


def opening(bench):
    """The first line has the run's folder, model, parameters, steps and version, or the first two where that is wide."""
    version = version_of(bench)
    first = bench.trained("name=a", "train.steps=20").err.splitlines()[0]
    check(re.fullmatch(rf"'runs/a': srresnet, 6,992 parameters, 20 steps, codistill {version}", first) and len(first) <= 80, f"'{first}'")
    name = "with-a-name-that-is-longer-than-others"
    for setup, ranks in (([], ""), ([*TWO], ", 2 groups, 2 ranks")):
        said = bench.trained(f"name={name}{len(setup)}", *setup, "train.steps=20").err.splitlines()
        words = [line for line in said if not line.startswith("group 1")][:2]  # mpirun may mix the lines of two ranks
        check(words[0] == f"'runs/{name}{len(setup)}': srresnet, 6,992 parameters, 20 steps" and re.fullmatch(f"codistill {version}{ranks}", words[1]), f"{words}")


def one_rank(bench):
    """Started, stopped, resumed and finished; the finished run's command and a refused one change nothing."""
    fixed = ["name=o", *QUIET]
    bench.stopped(*fixed, "train.max_time=0.5", "train.steps=10000000")
    check_lines(lines(bench, "o"), rf"started: codistill {version_of(bench)} on \S+, process \d+, rank 0 of 1: codistill train t.yaml name=o eval.every=0 .*",
                "'runs/o': srresnet, .*", r"group 0  step 10/10000000  .*", r"group 0: stopped and saved at step \d+ of 10000000: train.max_time is over",
                "stopped: the same command goes on")
    steps = bench.metrics("o", 0)[-1]["step"] + 100
    bench.trained(*fixed, f"train.steps={steps}")
    check_lines(lines(bench, "o"), "stopped: .*", rf"started: .* name=o .*train.steps={steps}", r"group 0: resumed at step \d+",
                r"'runs/o' goes on with another configuration than so far \(train.steps: 10000000 there, \d+ here\)", "final.safetensors is .*",
                f"finished at step {steps} of {steps}")
    before = lines(bench, "o")
    bench.trained(*fixed, f"train.steps={steps}")
    bench.refused("already", "train", "t.yaml", *fixed, "train.steps=20")
    bench.refused("seed", "train", "t.yaml", *fixed, f"train.steps={steps}", "seed=2")
    check(lines(bench, "o") == before, "a command that trains nothing is in the log")


def groups(bench):
    """Each group's log says by which signal it stopped, and how another rank died or failed."""
    process = bench.start("train", "t.yaml", "name=g", *TWO, *ENDLESS)
    for group in range(2):
        wait_for_steps(bench, process, "g", 2, group)
    process.send_signal(signal.SIGTERM)
    check(bench.wait(process, ["train"]).code == STOPPED, "it did not stop")
    for group in range(2):
        check_lines(lines(bench, "g", group), rf"started: .* rank {group} of 2: .*", rf"group {group}: stopped and saved at step \d+ of 10000000: signal 10 .*",
                    "stopped: the same command goes on", r"stopped: the command was sent signal 15 \(Terminated\)")
    process = bench.start("train", "t.yaml", "name=g", *TWO, *ENDLESS)
    for group in range(2):
        wait_for_steps(bench, process, "g", len(bench.metrics("g", group)) + 2, group)
    os.kill(rank_process(process, 1), signal.SIGKILL)
    check(bench.wait(process, ["train"]).code == 1, "it did not fail")
    for group in range(2):
        check_lines(lines(bench, "g", group), "stopped: .*", "started: .*", rf"group {group}: resumed at step \d+", r"failed: rank 1 on \S+ was killed by signal 9 \(Killed\)")


def failure(bench):
    """A failure is in the log as it was said, of whichever rank; of a run that does not come to its steps, too."""
    result = bench.train("name=n", "train.strategy=allreduce", "cluster.ranks_per_group=2", "train.optimiser=sgd", "train.rate=1e3", *QUIET)
    (message,) = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
    check(result.code == 1 and lines(bench, "n")[-1] == message.replace("codistill: ", "failed: "), f"{lines(bench, 'n')}", result)
    bench.write("runs/b/checkpoints/step-000000010/group-0.safetensors", "nothing")
    result = bench.train("name=b", *QUIET)
    check(result.code == 1, "a damaged checkpoint", result)
    check_lines(lines(bench, "b"), "started: .*", "warning: .*7 bytes are too few .*", "failed: none of the checkpoints in 'runs/b/checkpoints' can be used .*")


CASES = {"opening": opening, "one-rank": one_rank, "groups": groups, "failure": failure}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
