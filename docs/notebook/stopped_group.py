#!/usr/bin/env python3
"""Stops one group of a training for a while (SIGSTOP) and compares the others' steps before, meanwhile and afterwards."""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools/bench"))
import common
from common import Failure, say

WARM_UP_STEPS = 50
PATIENCE_S = 120


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__,
                                epilog="last line: `slowdown X lost N`: the largest ratio of a group's median step while the other is stopped to "
                                "the one before, and the steps missing from the records of the groups that went on")
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--config", default=str(common.ROOT / "configs/sr-demo.yaml"), help="what to train (configs/sr-demo.yaml)")
    p.add_argument("--groups", type=int, default=4, help="groups of one rank (4); the last one is stopped")
    p.add_argument("--seconds", type=float, default=60, help="length of each of the three phases (60)")
    p.add_argument("overrides", nargs="*", metavar="key.path=value", help="further settings")
    arguments = p.parse_args(argv)
    if arguments.groups < 2 or arguments.seconds <= 0:
        p.error("at least 2 groups and a time above 0 are needed")
    return arguments, common.find_program(arguments.codistill)


class Records:
    """The steps that a group has written so far."""

    def __init__(self, folder, group):
        self.path = pathlib.Path(folder) / f"metrics.{group}.jsonl"
        self.steps = []

    def read(self):
        """The steps since the last call."""
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        new = [json.loads(line) for line in lines[len(self.steps):] if line.endswith("\n")]
        self.steps += [line["step"] for line in new]
        return [line["step_ms"] for line in new]

    def lost(self):
        return self.steps[-1] - self.steps[0] + 1 - len(self.steps)


def wait_for_start(job, records):
    end = time.monotonic() + PATIENCE_S
    while True:
        for r in records:
            r.read()
        if all(len(r.steps) > WARM_UP_STEPS for r in records):
            return
        if job.poll() is not None or time.monotonic() > end:
            raise Failure(f"the training did not get to step {WARM_UP_STEPS}; see its log")
        time.sleep(0.2)


def phase(job, records, seconds):
    """Steps of each group within some seconds, in ms."""
    for r in records:
        r.read()
    try:
        code = job.wait(seconds)
    except subprocess.TimeoutExpired:
        return [r.read() for r in records]
    raise Failure(f"the training ended with {code}")


def report(before, stopped, after):
    say(f"{'group':>5} {'before':>22} {'one group stopped':>22} {'afterwards':>22}   ratio")
    worst = 0.0
    for group, times in enumerate(zip(before, stopped, after)):
        if any(len(t) == 0 for t in times):
            raise Failure(f"group {group} made no step in a phase")
        medians = [statistics.median(t) for t in times]
        worst = max(worst, medians[1] / medians[0])
        cells = " ".join(f"{len(t):6d} steps {m:7.2f} ms" for t, m in zip(times, medians))
        say(f"{group:5d} {cells}   {medians[1] / medians[0]:.3f}")
    return worst


def main(argv):
    arguments, program = parse(argv)
    common.describe_machine()
    with tempfile.TemporaryDirectory(prefix="codistill-stopped-") as folder, open(pathlib.Path(folder) / "log", "w+") as log:
        command = [str(program), "train", arguments.config, "name=run", f"output={folder}", f"cluster.groups={arguments.groups}",
                   "train.steps=100000000", "log.every=1", "eval.every=0", "checkpoint.every=0", *arguments.overrides]
        say(f"$ {' '.join(command)}")
        job = subprocess.Popen(command, stdout=log, stderr=log, cwd=common.ROOT)
        try:
            records = [Records(f"{folder}/run", g) for g in range(arguments.groups)]
            others = records[:-1]
            wait_for_start(job, records)
            process = common.process_of_rank(arguments.groups - 1, folder)
            before = phase(job, others, arguments.seconds)
            os.kill(process, signal.SIGSTOP)
            try:
                stopped = phase(job, others, arguments.seconds)
            finally:
                os.kill(process, signal.SIGCONT)
            after = phase(job, others, arguments.seconds)
            records[-1].read()
        except Failure as failure:
            log.seek(0)
            raise Failure(f"{failure}: {' / '.join(log.read().strip().splitlines()[-3:])}") from None
        finally:
            job.send_signal(signal.SIGINT)
            try:
                job.wait(60)
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
        worst = report(before, stopped, after)
        say(f"the stopped group itself: {len(records[-1].steps)} steps in all")
        print(f"slowdown {worst:.3f} lost {sum(r.lost() for r in records)}")


if __name__ == "__main__":
    sys.exit(common.run(main))
