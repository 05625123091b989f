#!/usr/bin/env python3
"""Ranks that are late at the end of a job, or never come: python3 test_ends.py CODISTILL [CASE ...]"""

import os
import signal
import sys
import time

from train_support import check, descendants, hanging, is_alive, rank_process, run_cases, wait_for_steps

FIXED = ["name=e", "train.strategy=codistill", "cluster.groups=2", "train.steps=200", "log.tensorboard=false", "log.samples=0"]
LIMIT_S = 2
FINISHED = ("final.safetensors", "summary.json", "group.0.safetensors", "group.1.safetensors")


def wait_until(condition, what, process):
    begin = time.monotonic()
    while not condition():
        check(process.poll() is None and time.monotonic() - begin < 300, f"it has ended, or this does not come: {what}")
        time.sleep(0.01)


def held_at_the_page(bench, limit_s):
    """A run whose models are all written, and whose first rank is held while it reads summary.json for the run's page. @return the job, the file that holds it"""
    flag = bench.path("holds")
    bench.write("holds", "")
    with open(bench.path("err"), "wb") as err:
        process = bench.start("train", "t.yaml", *FIXED, f"cluster.teardown_timeout_s={limit_s}", stderr=err,
                              environment=hanging(bench.path("runs", "e", "summary.json"), COD_HANG_WHILE=flag))
    wait_until(lambda: os.path.exists(flag + ".held"), "the page", process)
    return process, flag


def ended(bench, process, code, before):
    result = bench.wait(process, ["train"], 120)
    said = bench.read("err").decode()
    check(result.code == code, f"exit code {result.code}, not {code}:\n{said}")
    check(not any(is_alive(pid) for pid in before), f"processes are left:\n{said}")
    return said


def late(bench):
    """The first rank takes longer for the page than ranks are waited for, and does something: it is waited for."""
    process, flag = held_at_the_page(bench, LIMIT_S)
    ours = descendants(process.pid)
    time.sleep(3 * LIMIT_S)
    os.remove(flag)
    said = ended(bench, process, 0, ours)
    check("warning: " not in said and "codistill: " not in said and "the run's page: " in said, f"it was not waited for:\n{said}")
    check(os.path.exists(bench.path("runs", "e", "report.html")), "there is no page")


def stopped_and_continued(bench):
    """A rank that is stopped, for less than ranks are waited for, ends with the others."""
    process, flag = held_at_the_page(bench, 600)
    ours, rank = descendants(process.pid), rank_process(process, 0)
    os.kill(rank, signal.SIGSTOP)
    os.remove(flag)
    time.sleep(1)
    check(process.poll() is None, "it ended without a rank")
    os.kill(rank, signal.SIGCONT)
    said = ended(bench, process, 0, ours)
    check("warning: " not in said and "codistill: " not in said and "the run's page: " in said, f"it was not waited for:\n{said}")


def stopped_when_all_is_written(bench):
    """A rank that is stopped for good when all is written: the job ends without it, with a warning, and has not failed."""
    process, flag = held_at_the_page(bench, LIMIT_S)
    ours, rank = descendants(process.pid), rank_process(process, 0)
    os.kill(rank, signal.SIGSTOP)
    os.remove(flag)
    said = ended(bench, process, 0, ours)
    check("warning: the run has finished, but not all of its ranks end: " in said and "rank 0 on " in said, f"no warning:\n{said}")
    check("codistill: " not in said and "MPI_ABORT" not in said and "Abort(" not in said, f"the launcher's words are shown:\n{said}")
    check(all(os.path.exists(bench.path("runs", "e", name)) for name in FINISHED), "something is missing")


def stopped_before_the_end(bench):
    """A group that is stopped for good while it trains is not waited for, either; that is a failure, of which the other group's model is left."""
    with open(bench.path("err"), "wb") as err:
        process = bench.start("train", "t.yaml", *FIXED, "train.steps=2000", "eval.every=0", "checkpoint.every=0", "log.every=50", "cluster.teardown_timeout_s=0.5", stderr=err)
    wait_for_steps(bench, process, "e", 2, 0)
    wait_for_steps(bench, process, "e", 2, 1)
    ours = descendants(process.pid)
    os.kill(rank_process(process, 1), signal.SIGSTOP)
    said = ended(bench, process, 1, ours)
    check("this group's model and checkpoint are saved, but not all groups ended: rank 1 on " in said, f"no message:\n{said}")
    check(os.path.exists(bench.path("runs", "e", "group.0.safetensors")), "the model is missing")


CASES = {
    "late": late,
    "stopped-and-continued": stopped_and_continued,
    "stopped-when-written": stopped_when_all_is_written,
    "stopped-before": stopped_before_the_end,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
