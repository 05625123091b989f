#!/usr/bin/env python3
"""`codistill train` under Slurm, on a cluster of two nodes that this machine plays: python3 test_slurm.py CODISTILL [CASE ...]"""

import os
import pathlib
import re
import signal
import sys

from slurm_support import Cluster
from train_support import MPI, STOPPED, check, descendants, run_cases

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "slurm"
GROUPS = ["train.strategy=codistill", "cluster.groups=2"]
ENDLESS = ["train.steps=1000000", "log.every=50", "log.tensorboard=false", "log.samples=0"]


def has_steps(bench, name, group=0):
    path = bench.path("runs", name, f"metrics.{group}.jsonl")
    return lambda: os.path.getsize(path) > 0


def joins_srun(bench, cluster):
    """srun starts the ranks with the means of their MPI; others are refused before MPI can fail."""
    means, others = ("pmi2", ["none"]) if MPI == "mpich" else ("pmix", ["none", "pmi2"])
    train = [bench.program, "train", "t.yaml", *GROUPS]
    cluster.call("srun", "-N", "2", "-n", "2", f"--mpi={means}", *train, "name=joined", "train.steps=600")
    check(bench.summary("joined")["ranks"] == 2, "not two ranks")
    check(all(group["pulls"] > 0 for group in bench.summary("joined")["group_results"]), "nothing crossed")
    result = cluster.call("srun", "-N", "2", "-n", "2", f"--mpi={means}", *train, "name=part", "train.steps=10000000", "train.max_time=1s", check=False)
    check(result.code == STOPPED and result.err.count("stopped and saved") == 2, "srun does not hand on that it stopped", result)
    for other in others:
        result = cluster.call("srun", "-n", "2", f"--mpi={other}", *train, "name=refused", check=False)
        check(result.code == 1 and f"srun --mpi={means}" in result.err, f"--mpi={other} is not refused in our words", result)
    check(not os.path.exists(bench.path("runs", "refused")), "a refused run left a folder")


def starts_ranks(bench, cluster):
    """Plain train in an allocation starts ranks on all its nodes, groups whole; SIGUSR1 stops them; nodes may be groups."""
    layouts = {"2x1": (["cluster.groups=2"], [0, 1]), "2x2": (["cluster.groups=2", "cluster.ranks_per_group=2"], [0, 0, 1, 1]),
               "3x2": (["cluster.groups=3", "cluster.ranks_per_group=2"], [0, 0, 0, 0, 1, 1])}
    for name, (overrides, nodes) in layouts.items():
        arguments = ["salloc", "-Q", "-N", "2", "--ntasks-per-node=4", bench.program, "train", "t.yaml", f"name={name}",
                     *GROUPS, *overrides, *ENDLESS]
        process = cluster.start(*arguments)
        cluster.wait_for("the first steps", has_steps(bench, name))
        ranks = cluster.processes(bench.program)
        launcher = next(pid for pid in descendants(process.pid) if os.readlink(f"/proc/{pid}/exe") == bench.program)
        os.kill(launcher, signal.SIGUSR1)
        result = bench.wait(process, arguments, 300)
        check(ranks == list(enumerate(nodes)), f"{name}: ranks lie on nodes as {ranks}, not {nodes}", result)
        check(result.code == STOPPED and "stopped and saved" in result.err, "it did not stop well", result)


def batch(bench, cluster):
    """The batch script, told its groups because both nodes are one host; asked by SIGUSR1, as before the time limit, it saves, waits its turn and goes on."""
    job = cluster.call("sbatch", "--parsable", "--output=batch.log", f"--export=ALL,CODISTILL={bench.program}", str(SCRIPTS / "codistill.sbatch"),
                       "t.yaml", "name=batch", *GROUPS, *ENDLESS).out.strip()
    cluster.wait_for("the first steps", has_steps(bench, "batch"))
    cluster.call("scancel", "--signal=USR1", "--batch", job)
    cluster.wait_for("the second turn in the queue", lambda: cluster.call("squeue", "-h", "-j", job, "-o", "%t").out.strip() == "PD")
    said = bench.read("batch.log").decode()
    saved = re.findall(r"group (\d): stopped and saved at step (\d+)", said)
    check(sorted(group for group, _ in saved) == ["0", "1"], f"not every group saved:\n{said}")
    cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now+2")  # a job that ended and starts in one second is refused
    cluster.wait_for("the resumed run", lambda: bench.read("batch.log").count(b"resumed at step") == 2)
    cluster.wait_for("its steps", lambda: bench.metrics("batch", 0)[-1]["step"] > int(dict(saved)["0"]) + 100)
    cluster.call("scancel", "--signal=TERM", "--batch", job)
    cluster.wait_for("the end", lambda: not cluster.call("squeue", "-h", "-j", job, check=False).out.strip())
    check(bench.read("batch.log").count(b"stopped and saved") == 4, f"SIGTERM did not save:\n{bench.read('batch.log').decode()}")


def array(bench, cluster):
    """The array script: each group a job of its own; one is stopped for good and the other goes on; started again, both end."""
    submit = ["sbatch", "--parsable", "--output=array.%a.log", f"--export=ALL,CODISTILL={bench.program}", str(SCRIPTS / "codistill-array.sbatch"),
              "t.yaml", "name=array", *GROUPS]
    job = cluster.call(*submit, *ENDLESS, "train.schedule=constant").out.strip()
    steps = [lambda group=group: bench.metrics("array", group)[-1]["step"] for group in (0, 1)]
    for group in (0, 1):
        cluster.wait_for("the first steps", has_steps(bench, "array", group))
    cluster.call("scancel", "--signal=TERM", "--batch", f"{job}_1")
    cluster.wait_for("the end of group 1", lambda: b"group 1: stopped and saved" in bench.read("array.1.log"))
    stopped_at = steps[0]()
    cluster.wait_for("steps of the other", lambda: steps[0]() > stopped_at + 500)
    cluster.call("scancel", "--signal=TERM", "--batch", f"{job}_0")
    cluster.wait_for("the end", lambda: not cluster.call("squeue", "-h", check=False).out.strip())
    last = max(step() for step in steps) + 200
    cluster.call(submit[0], "--wait", *submit[1:], *ENDLESS, "train.schedule=constant", f"train.steps={last}")
    results = bench.summary("array")["group_results"]
    check(len(results) == 2 and all(group["pulls"] > 0 for group in results), f"results {results}")
    check(all(b"resumed at step" in bench.read(f"array.{group}.log") for group in (0, 1)), "a group began anew")


def in_cluster(*parts):
    def case(bench):
        with Cluster(bench) as cluster:
            for part in parts:
                part(bench, cluster)
                print(f"      {part.__name__}", flush=True)
        check(not cluster.strays(), f"processes are left: {cluster.strays()}")
    return case


CASES = {"all": in_cluster(joins_srun, starts_ranks, batch, array), "joins": in_cluster(joins_srun), "starts": in_cluster(starts_ranks), "batch": in_cluster(batch), "array": in_cluster(array)}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
