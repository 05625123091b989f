#!/usr/bin/env python3
"""A group over two hosts, which this machine plays by another host name: python3 test_nodes.py CODISTILL [CASE ...]"""
import os
import subprocess
import sys
import time

from test_train import same_checkpoints
from train_support import MPIEXEC, Skip, check, kill_job, run_cases

STEPS = 200
FIXED = ["name=t", "train.strategy=codistill", "cluster.groups=[{ranks: 4}, {ranks: 1}]", f"train.steps={STEPS}", "train.deterministic=true",
         "train.ema=0.9", "distill.weight=1", "log.tensorboard=false", "log.samples=0", "checkpoint.keep=1"]
HOST = """case "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" in
2 | 3) exec unshare --uts sh -c 'hostname other-node && exec "$@"' host "$@" ;;
esac
exec "$@"
"""


def wait_for_lines(path, process, lines):
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() - begin < 300:
        if os.path.exists(path):
            with open(path, "rb") as file:
                if file.read().count(b"\n") >= lines:
                    return
        time.sleep(0.001)
    check(False, f"{path} has not {lines} lines")


def killed(bench):
    """Four ranks of a group on two hosts, two and two, hold values together by host; killed and resumed they end with the same bits."""
    if subprocess.run(["unshare", "--uts", "hostname", "other-node"], capture_output=True, check=False).returncode != 0:
        raise Skip("another host name needs the right to make a namespace")
    command = (MPIEXEC, "--bind-to", "none", "-n", "5", "sh", bench.write("host.sh", HOST))
    result = bench.trained(*FIXED, "output=A", command=command)
    check("inside its nodes first" in result.err, "the group is on one node", result)
    check("its part of what the group's ranks of its node hold together" in result.err, "nothing is shared", result)
    process = bench.start("train", "t.yaml", *FIXED, "output=B", command=command)
    wait_for_lines(bench.path("B", "t", "metrics.0.jsonl"), process, 5)  # every 10 steps, as checkpoints: some are whole by now
    kill_job(process)
    process.communicate()
    result = bench.trained(*FIXED, "output=B", command=command)
    check("resumed at step" in result.err, "it started anew", result)
    same_checkpoints(bench, "A", "B", step=STEPS)


CASES = {"killed": killed}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
