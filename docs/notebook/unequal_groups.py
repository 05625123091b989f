#!/usr/bin/env python3
"""What is left of merging when one group is slower than the others: it is stopped for a part of every 40 ms (SIGSTOP).

All groups make the same number of steps; the others end first, and what they published last stays to be read."""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools/bench"))
import common
from common import Failure, say

CYCLE_S = 0.04
ARMS = {"alone": ["distill.weight=0", "exchange.codec=none"], "distil": ["exchange.merge=none"], "merge": ["distill.weight=0"], "both": []}


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--config", default=str(common.ROOT / "configs/mnist-groups.yaml"), help="what to train (configs/mnist-groups.yaml)")
    p.add_argument("--groups", type=int, default=4, help="groups of one rank (4); the last one is slow")
    p.add_argument("--ratios", default="1,2,4", help="how much slower (1,2,4)")
    p.add_argument("--arms", default="alone,distil,merge,both", help="of alone, distil, merge and both (all)")
    p.add_argument("--seeds", type=int, default=3, help="runs of each, with seeds 1 … (3)")
    p.add_argument("overrides", nargs="*", metavar="key.path=value", help="further settings")
    arguments = p.parse_args(argv)
    try:
        arguments.ratios = [float(r) for r in arguments.ratios.split(",")]
        arguments.arms = arguments.arms.split(",")
        assert min(arguments.ratios) >= 1 and set(arguments.arms) <= set(ARMS) and arguments.groups >= 2 and arguments.seeds >= 1
    except (ValueError, AssertionError):
        p.error("ratios are numbers of at least 1, arms of alone, distil, merge and both; 2 groups and 1 seed are the least")
    return arguments, common.find_program(arguments.codistill)


def slow_down(job, folder, rank, ratio):
    """Lets the rank run for 1/ratio of the time, until the job ends. A process that has gone is no failure: it was done."""
    process = None
    while process is None and job.poll() is None:
        with contextlib.suppress(Failure):
            process = common.process_of_rank(rank, folder)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        while process is not None and job.poll() is None:
            os.kill(process, signal.SIGSTOP)
            time.sleep(CYCLE_S * (1 - 1 / ratio))
            os.kill(process, signal.SIGCONT)
            time.sleep(CYCLE_S / ratio)


def train(program, arguments, arm, ratio, seed):
    """The groups' results of one run."""
    with tempfile.TemporaryDirectory(prefix="codistill-unequal-") as folder:
        command = [str(program), "train", arguments.config, "name=run", f"output={folder}", f"seed={seed}", f"cluster.groups={arguments.groups}",
                   "train.deterministic=false", *ARMS[arm], *arguments.overrides]
        with open(pathlib.Path(folder) / "log", "w+") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, cwd=common.ROOT)
            slower = threading.Thread(target=slow_down, args=(job, folder, arguments.groups - 1, ratio))
            if ratio > 1:
                slower.start()
            code = job.wait()
            if ratio > 1:
                slower.join()
            if code != 0:
                log.seek(0)
                raise Failure(f"{' '.join(command)} ended with {code}: {' / '.join(log.read().strip().splitlines()[-3:])}")
        return json.loads((pathlib.Path(folder) / "run" / "summary.json").read_text())["group_results"]


def spread(values):
    return f"{statistics.fmean(values):6.2f} ± {statistics.pstdev(values):.2f}"


def main(argv):
    arguments, program = parse(argv)
    common.describe_machine()
    say(f"test accuracy in %, mean ± deviation of {arguments.seeds} seeds")
    say(f"{'arm':>7} {'ratio':>6} {'reached':>8} {'slow group':>15} {'the others':>15} {'merges, slow':>13} {'others':>7}")
    for arm in arguments.arms:
        for ratio in arguments.ratios:
            runs = [train(program, arguments, arm, ratio, seed) for seed in range(1, arguments.seeds + 1)]
            slow, others = [r[-1] for r in runs], [g for r in runs for g in r[:-1]]
            reached = statistics.fmean(g["step_ms_mean"] for g in slow) / statistics.fmean(g["step_ms_mean"] for g in others)
            say(f"{arm:>7} {ratio:6.1f} {reached:8.1f} {spread([g['test_accuracy'] for g in slow]):>15} {spread([g['test_accuracy'] for g in others]):>15} "
                f"{statistics.fmean(g['merges'] for g in slow):13.0f} {statistics.fmean(g['merges'] for g in others):7.0f}")


if __name__ == "__main__":
    sys.exit(common.run(main))
