"""What the exchange takes of each rank's memory in a real run, beside what `codistill plan` says; see scale_measured.sh --memory."""
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import common
from common import Failure, say

CONFIG = common.ROOT / "configs/evidence/sweep-groups.yaml"
PERIOD, SLOTS = 6, 8
SAVED = PERIOD * (SLOTS + 1)  # all slots hold a version, and the checkpoint's copy of them is made
READ = SAVED + PERIOD
F32 = ["exchange.codec=f32", "exchange.entropy=none"]  # fills its slots
EXCHANGES = {"delta": ["exchange.codec=delta"], "f32": F32, "f32, 2 fragments": [*F32, "exchange.fragments=2"]}
WITHOUT = ["train.strategy=allreduce"]  # of one group
# Mappings whose names say what they are; the second is a window of Open MPI, the third what all ranks of a node share of the data.
PARTS = {"versions": "/memfd:codistill", "slots": "/dev/shm/osc_rdma"}
PICTURES = "/dev/shm/codistill-"


def settings(groups, ranks, arguments, *overrides):
    return [f"data.path={arguments.data}", f"cluster.groups={groups}", f"cluster.ranks_per_group={ranks}", "cluster.device=cpu",
            "model.hidden=[2048,2048]", "data.batch=8", "data.items_per_group=100", "train.deterministic=false", "train.optimiser=sgd",
            "train.steps=1000000", "distill.weight=0", "eval.every=0", f"checkpoint.every={SAVED}", "checkpoint.keep=1", "log.every=1",
            f"exchange.period={PERIOD}", f"exchange.slots={SLOTS}",
            "exchange.min_interval_ms=0", *overrides]


def planned(program, arguments, groups, ranks, overrides):
    """Megabytes of a rank that `codistill plan` counts for the exchange."""
    command = [str(program), "plan", str(CONFIG), *settings(groups, ranks, arguments, *overrides)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told = re.search(r"^    weights .*, exchange ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or told is None:
        raise Failure(f"plan ended with {done.returncode} and told no memory of the exchange", done.stdout)
    return float(told[1])


def resident(process):
    """Megabytes of a process, what several share in equal parts: of the mappings in PARTS, and of all but files and pictures."""
    found, name = {**dict.fromkeys(PARTS, 0.0), "all": 0.0}, ""
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Pss:" and not name.startswith(PICTURES):
            for part in [part for part, begin in PARTS.items() if name.startswith(begin)] + ["all"]:
                found[part] += int(words[1]) * 1024e-6
    rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    found["all"] -= int(re.search(r"^Pss_File: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024e-6
    return found


def steps_done(folder, groups):
    logs = [folder / f"metrics.{group}.jsonl" for group in range(groups)]
    return min(log.read_bytes().count(b"\n") if log.exists() else 0 for log in logs)


def measured(program, arguments, groups, ranks, overrides, patience_s=1800):
    """Of each rank what resident() says, once all groups have done READ steps."""
    with tempfile.TemporaryDirectory(prefix="cod-memory-") as scratch, open(f"{scratch}/said", "w+", encoding="utf-8") as said:
        folder = pathlib.Path(scratch) / "run"
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(groups * ranks), str(program), "train", str(CONFIG), "name=run",
                   f"output={scratch}", *settings(groups, ranks, arguments, *overrides)]
        # With a fixed threshold the C library gives back to the system what is freed: the rest is held.
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
        job, end = subprocess.Popen(command, stdout=said, stderr=said, env=environment), time.monotonic() + patience_s
        try:
            while steps_done(folder, groups) < READ:
                if job.poll() is not None or time.monotonic() > end:
                    said.seek(0)
                    raise Failure(f"{groups}x{ranks} did not do {READ} steps: {' / '.join(said.read().splitlines()[-3:])}")
                time.sleep(0.1)
            return [resident(common.process_of_rank(rank, scratch)) for rank in range(groups * ranks)]
        finally:
            job.terminate()
            job.wait()


def mean(ranks, part):
    return statistics.mean(rank[part] for rank in ranks)


def compare(program, arguments, layouts):
    """Rows of what was planned and measured, which are also said."""
    rows = []
    say("MB of a rank; those of ranks differ by what each touched of what they share\n"
        f"{'layout':7} {'codec':16} {'planned':>8} {'measured':>9} {'off %':>6} {'least':>7} {'most':>7}   {'versions':>8} {'slots':>7} {'rest':>7}")
    for groups, ranks in layouts:
        without = measured(program, arguments, 1, ranks, WITHOUT)
        for codec, overrides in EXCHANGES.items():
            plan, run = planned(program, arguments, groups, ranks, overrides), measured(program, arguments, groups, ranks, overrides)
            more = [rank["all"] - without[r % ranks]["all"] for r, rank in enumerate(run)]
            took, parts = statistics.mean(more), {part: mean(run, part) - mean(without, part) for part in PARTS}
            rest = took - sum(parts.values())
            say(f"{groups}x{ranks:<5} {codec:16} {plan:8.1f} {took:9.1f} {100 * (took / plan - 1):+6.1f} {min(more):7.1f} {max(more):7.1f}   "
                f"{parts['versions']:8.1f} {parts['slots']:7.1f} {rest:7.1f}")
            rows.append({"groups": groups, "ranks": ranks, "codec": codec, "planned_mb": plan, "measured_mb": took, "least_mb": min(more),
                         "most_mb": max(more), "without_mb": mean(without, "all"), "rest_mb": rest, **{f"{part}_mb": mb for part, mb in parts.items()}})
    return rows
