#!/usr/bin/env python3
"""What takes longer than exchange.pull_timeout_s and loses no version: python3 test_patience.py CODISTILL [CASE ...]"""

import os
import random
import signal
import sys
import time

from train_support import STOPPED, TCP, check, hanging, run_cases, wait_for_steps

PATIENCE_S = 0.1
# A pull takes eight steps, so that each meets what happens every second one; over TCP it waits for answers meanwhile.
FIXED = ["train.strategy=codistill", "cluster.groups=2", "train.schedule=constant", "exchange.slots=16", f"exchange.pull_timeout_s={PATIENCE_S}",
         "log.every=5", "log.tensorboard=false", "log.samples=0"]


def pause_s(bench, name, group, begin, first):
    """Seconds of what there is every second step, since the group was at the step `first`."""
    return 2 * (time.monotonic() - begin) / (bench.metrics(name, group)[-1]["step"] - first)


def paused(bench, name, *overrides, environment):
    """Trains until each group has used three versions of the other, however long that takes. @return the seconds of a pause, and versions that were lost"""
    arguments = ["train", "t.yaml", f"name={name}", *FIXED, "train.steps=10000000", *overrides]
    job = bench.start(*arguments, environment=environment)
    wait_for_steps(bench, job, name, 1)
    begin, first = time.monotonic(), bench.metrics(name, 0)[-1]["step"]
    switches = [0, 0]
    while min(switches) < 3:
        check(job.poll() is None and time.monotonic() - begin < 300, f"the groups used {switches[0]} and {switches[1]} versions of each other")
        time.sleep(0.1)
        switches = [sum(event["kind"] == "switch" for event in bench.events(name, group)) for group in range(2)]
    wait_for_steps(bench, job, name, len(bench.metrics(name, 0)) + 1)
    seconds = pause_s(bench, name, 0, begin, first)
    job.send_signal(signal.SIGTERM)
    result = bench.wait(job, arguments)
    check(result.code == STOPPED, "it did not end well", result)
    peers = [bench.metrics(name, group)[-1]["peers"][0] for group in range(2)]
    check(all(peer["rejected"] == 0 for peer in peers), f"versions were rejected: {peers}", result)
    return seconds, sum(peer["lost"] for peer in peers)


def loses_nothing(run):
    """
    Runs again until a run whose pauses are longer than a pull's patience, without which it shows nothing, loses no version. On a busy machine a peer
    may wait for a processor for several such pauses, and answer too late.

    @param run  given the number of a run, as paused()
    """
    seen = []
    for number in range(6):
        seen.append(run(number))
        if seen[-1][0] > PATIENCE_S and seen[-1][1] == 0:
            return
    check(False, f"seconds of pauses, and versions lost, of each run: {seen}")


def evaluation(bench):
    def run(number):
        pictures = 120 << number  # a machine that is fast needs more
        return paused(bench, f"e{number}", "eval.every=2", f"data.synthetic_count={pictures + 4}", f"data.val_count={pictures}", f"eval.images={pictures}",
                      "checkpoint.every=0", environment=TCP)
    loses_nothing(run)


def checkpoint(bench):
    def run(number):
        slow = hanging(bench.path("runs", f"c{number}", "checkpoints"), COD_HANG_SYNC_MS=str(int(1000 * PATIENCE_S)))
        return paused(bench, f"c{number}", "eval.every=0", "checkpoint.every=2", environment={**TCP, **slow})
    loses_nothing(run)


def stopped(bench, name, chance):
    """
    Stops a reader (SIGSTOP) six times for twice its patience at any moment of its pulls, most of whose time their bytes take: it goes on with what is
    in the slots. @return the versions that it lost
    """
    patience_s = 2
    fixed = [f"name={name}", *FIXED, "train.steps=10000000", "exchange.transport=file", f"exchange.directory=shared-{name}",
             f"exchange.pull_timeout_s={patience_s}", "exchange.min_interval_ms=1000", "eval.every=0", "checkpoint.every=0"]  # a version is there for 14 s
    slow = hanging(bench.path(f"shared-{name}"), COD_HANG_READ_MS="600")
    jobs = [bench.start("train", "t.yaml", *fixed, "--group", str(group), environment=slow if group == 0 else None) for group in range(2)]

    def newest():
        return max((event["version"] for event in bench.events(name, 0) if event["kind"] == "switch"), default=0)

    def wait_for_version(version):
        begin = time.monotonic()
        while newest() <= version:
            check(all(job.poll() is None for job in jobs) and time.monotonic() - begin < 300, f"no version after {version} is taken")
            time.sleep(0.01)

    for group, job in enumerate(jobs):
        wait_for_steps(bench, job, name, 1, group)
    wait_for_version(0)
    for _ in range(6):
        time.sleep(chance.random())
        os.kill(jobs[0].pid, signal.SIGSTOP)
        before = newest()
        time.sleep(2 * patience_s)
        os.kill(jobs[0].pid, signal.SIGCONT)
        wait_for_version(before + 1)
    for job in jobs:
        job.send_signal(signal.SIGTERM)
        result = bench.wait(job, ["train"])
        check(result.code == STOPPED, "it did not end well", result)
    peer = bench.metrics(name, 0)[-1]["peers"][0]
    check(peer["rejected"] == 0, f"versions were rejected: {peer}")
    return peer["lost"]


def stopped_reader(bench):
    """A reader that was stopped goes on with its pull. On a busy machine storage may make it lose a version all the same: then again."""
    seed = int(os.environ.get("COD_SEED") or random.SystemRandom().randrange(1 << 30))
    chance = random.Random(seed)
    print(f"seed {seed} (COD_SEED={seed} replays the moments)", flush=True)
    lost = []
    for number in range(4):
        lost.append(stopped(bench, f"s{number}", chance))
        if lost[-1] == 0:
            return
    check(False, f"versions lost in each run: {lost}")


CASES = {"evaluation": evaluation, "checkpoint": checkpoint, "stopped-reader": stopped_reader}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
