#!/usr/bin/env python3
"""What takes longer than exchange.pull_timeout_s and loses no version: python3 test_patience.py CODISTILL [CASE ...]"""

import os
import random
import signal
import sys
import time

from train_support import TCP, check, hanging, run_cases, wait_for_steps

PATIENCE_S = 0.1
# A pull takes eight steps, so that each meets what happens every second one; over TCP it waits for answers meanwhile.
FIXED = ["train.strategy=codistill", "cluster.groups=2", "train.schedule=constant", "exchange.slots=16", f"exchange.pull_timeout_s={PATIENCE_S}",
         "log.every=5", "log.tensorboard=false", "log.samples=0"]


def paused(bench, name, *overrides, environment):
    """Trains until each group has used three versions of the other, however long that takes; none may be lost on the way."""
    arguments = ["train", "t.yaml", f"name={name}", *FIXED, "train.steps=10000000", *overrides]
    begin = time.monotonic()
    job = bench.start(*arguments, environment=environment)
    switches = [0, 0]
    while min(switches) < 3:
        check(job.poll() is None and time.monotonic() - begin < 300, f"the groups used {switches[0]} and {switches[1]} versions of each other")
        time.sleep(0.1)
        switches = [sum(event["kind"] == "switch" for event in bench.events(name, group)) for group in range(2)]
    job.send_signal(signal.SIGTERM)
    result = bench.wait(job, arguments)
    check(result.code == 0, "it did not end well", result)
    lines = [bench.metrics(name, group)[-1] for group in range(2)]
    # What there was between steps took longer than a pull's patience each time, or the case shows nothing.
    pauses = lines[0]["step"] // 2
    seconds = time.monotonic() - begin - 3
    check(seconds / pauses > PATIENCE_S, f"{pauses} pauses and all else took {seconds:.1f} s", result)
    for group, line in enumerate(lines):
        peer = line["peers"][0]
        check(peer["lost"] == 0 and peer["rejected"] == 0, f"group {group} lost versions: {peer}")


def evaluation(bench):
    paused(bench, "e", "eval.every=2", "data.synthetic_count=124", "data.val_count=120", "eval.images=120", "checkpoint.every=0", environment=TCP)


def checkpoint(bench):
    slow = hanging(bench.path("runs", "c", "checkpoints"), COD_HANG_SYNC_MS=str(int(1000 * PATIENCE_S)))
    paused(bench, "c", "eval.every=0", "checkpoint.every=2", environment={**TCP, **slow})


def stopped_reader(bench):
    """SIGSTOP for twice its patience at any moment of its pulls, most of whose time their bytes take: it goes on with what is in the slots."""
    seed = int(os.environ.get("COD_SEED") or random.SystemRandom().randrange(1 << 30))
    chance = random.Random(seed)
    print(f"seed {seed} (COD_SEED={seed} replays the moments)", flush=True)
    fixed = ["name=s", *FIXED, "train.steps=10000000", "exchange.transport=file", "exchange.directory=shared", "exchange.pull_timeout_s=1",
             "exchange.min_interval_ms=400", "eval.every=0", "checkpoint.every=0"]  # a version is there for 6 s
    slow = hanging(bench.path("shared"), COD_HANG_READ_MS="300")
    jobs = [bench.start("train", "t.yaml", *fixed, "--group", str(group), environment=slow if group == 0 else None) for group in range(2)]

    def newest():
        return max((event["version"] for event in bench.events("s", 0) if event["kind"] == "switch"), default=0)

    def wait_for_version(version):
        begin = time.monotonic()
        while newest() <= version:
            check(all(job.poll() is None for job in jobs) and time.monotonic() - begin < 300, f"no version after {version} is taken")
            time.sleep(0.01)

    for group, job in enumerate(jobs):
        wait_for_steps(bench, job, "s", 1, group)
    wait_for_version(0)
    for _ in range(6):
        time.sleep(0.4 * chance.random())
        os.kill(jobs[0].pid, signal.SIGSTOP)
        before = newest()
        time.sleep(2)
        os.kill(jobs[0].pid, signal.SIGCONT)
        wait_for_version(before + 1)
    for group, job in enumerate(jobs):
        job.send_signal(signal.SIGTERM)
        result = bench.wait(job, ["train"])
        check(result.code == 0, "it did not end well", result)
    peer = bench.metrics("s", 0)[-1]["peers"][0]
    check(peer["lost"] == 0 and peer["rejected"] == 0, f"the reader lost versions: {peer}")


CASES = {"evaluation": evaluation, "checkpoint": checkpoint, "stopped-reader": stopped_reader}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
