"""Real runs of several groups beside the model of `codistill bench scale`.

Of versions and bytes: the model is given what each group's steps took and the bytes of each publication. Of steps: it is given what each rank
computes in a step without the exchange, and the cores that all ranks share; what coding takes it measures on one thread."""
import argparse
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import common
import scale_memory
from common import Failure, say

CONFIG = common.ROOT / "configs/evidence/sweep-groups.yaml"
PERIOD, STEPS, WEIGHTS, LOG_EVERY = 50, 1000, 269328, 5


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/bench/scale_measured.sh", description=__doc__)
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--layouts", default="8x1,16x1,4x4", metavar="LIST", help="groups x ranks of each run (8x1,16x1,4x4)")
    p.add_argument("--data", default=str(common.ROOT / "data/mnist"), metavar="FOLDER", help="MNIST (data/mnist, which tools/get-data.sh mnist brings)")
    p.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="that the runs have or had (those of this machine)")
    p.add_argument("--output", metavar="FOLDER", help="keeps the runs there; what lies there already is not run again")
    p.add_argument("--memory", action="store_true",
                   help="in place of paces: what the exchange takes of each rank's memory (Pss, less that of a run without) beside `codistill plan`")
    p.add_argument("--json", metavar="FILE", help="also writes the figures")
    arguments = p.parse_args(argv)
    if not re.fullmatch(r"\d+x[1-9]\d*(,\d+x[1-9]\d*)*", arguments.layouts) or min(groups for groups, _ in layouts_of(arguments)) < 2:
        p.error(f"--layouts: '{arguments.layouts}' is not a list such as 8x1,4x4 of 2 groups or more")
    return arguments, common.find_program(arguments.codistill)


def layouts_of(arguments):
    return [tuple(map(int, layout.split("x"))) for layout in arguments.layouts.split(",")]


def train(program, groups, ranks, arguments, folder):
    command = ["mpirun", "--bind-to", "none", "-n", str(groups * ranks), str(program), "train", str(CONFIG), f"name={folder.name}",
               f"output={folder.parent}", f"data.path={arguments.data}", f"cluster.groups={groups}",
               f"cluster.ranks_per_group={ranks}", "cluster.device=cpu",
               "train.deterministic=false", f"train.steps={STEPS}", "distill.weight=0", "data.items_per_group=100", "eval.every=0",
               "checkpoint.every=0", f"log.every={LOG_EVERY}", f"exchange.period={PERIOD}"]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode != 0:
        raise Failure(f"{groups}x{ranks} ended with {done.returncode}", done.stdout)


def pace(lines, total=lambda line: line["trained_s"]):
    """Seconds of each step: those from one line to the next, in equal parts."""
    seconds, step, at = [], 0, 0.0
    for line in lines:
        count = line["step"] - step
        seconds += [max(0.0, total(line) - at) / count] * count
        step, at = line["step"], total(line)
    return seconds


def computed(line):
    """Processor seconds of a rank's steps, the exchange aside."""
    return line["processor_s"] - line["exchange_processor_s"]


def publications(lines, ranks):
    """Bytes of each: encoding ends long before the next begins, and that of the last one with the run."""
    ends = [line["published_bytes"] for line in lines if (line["step"] + LOG_EVERY) % PERIOD == 0][1:] + [lines[-1]["published_bytes"]]
    return [ranks * (end - begin) for begin, end in zip([0, *ends], ends)]


def measured(folder, groups, ranks):
    lines = [[json.loads(line) for line in (folder / f"metrics.{g}.jsonl").read_text().splitlines()] for g in range(groups)]
    steps = {group[-1]["step"] for group in lines}
    if len(steps) != 1 or min(steps) < 3 * PERIOD:
        raise Failure(f"{folder}: the groups' metrics end after steps {sorted(steps)}, not all after one")
    stale = [max(0, peer["staleness_steps"]) for line in itertools.chain(*lines) for peer in line["peers"] if peer["version"] > 0]
    last = [peer for group in lines for peer in group[-1]["peers"]]
    ends = [sum(pace(group)) for group in lines]
    share = statistics.mean(group[-1]["exchange_processor_s"] / group[-1]["processor_s"] for group in lines)
    return {"share": share, "step_s": statistics.mean(ends) / min(steps), "computed": [pace(group, computed) for group in lines],
            "publications": [publications(group, ranks) for group in lines],
            "bytes_a_step": sum(peer["pulled_bytes"] for peer in last) / min(steps) / groups, "taken": sum(peer["pulled"] for peer in last), "lost": sum(peer["lost"] for peer in last),
            "staleness_median": statistics.median(stale), "staleness_most": max(stale), "steps": min(steps),
            "drift": statistics.pstdev(ends) / statistics.mean(ends), "pace": [pace(group) for group in lines]}


def measure_costs(program):
    """Of coding and merging a weight on one thread, ns."""
    done = subprocess.run([str(program), "bench", "scale", "--layouts", "2x1", "--weights", str(WEIGHTS), "--publications", "3", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"bench scale ended with {done.returncode}", done.stderr)
    costs = json.loads(done.stdout)["costs_ns"]
    return ",".join(f"{costs[key]:.3g}" for key in ("copy", "encode", "mirror", "decode", "merge"))


def modelled(program, groups, ranks, run, steps, *more):
    """@param steps  seconds of each group's steps"""
    with tempfile.TemporaryDirectory(prefix="cod-scale-") as folder:
        for name, lists in (("pace", steps), ("bytes", run["publications"])):
            with open(f"{folder}/{name}.json", "w") as file:
                json.dump(lists, file)
        command = [str(program), "bench", "scale", "--layouts", f"{groups}x{ranks}", "--weights", str(WEIGHTS), "--links", "inf", "--latency-ms",
                   "0", "--peers", "all", "--pace", f"{folder}/pace.json", "--bytes", f"{folder}/bytes.json", "--publications", str(run["steps"] // PERIOD),
                   "--ratios", "4.3,12.9", "--json", *more, f"period={PERIOD}"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"bench scale ended with {done.returncode}", done.stderr)
    return json.loads(done.stdout)["rows"][0]


def compare_paces(arguments, program):
    rows = []
    with tempfile.TemporaryDirectory(prefix="cod-scale-") as scratch:
        output = pathlib.Path(arguments.output or scratch).absolute()
        costs = measure_costs(program)
        say(f"{'':7} {'drift':>6} {'taken over, % of all':^24} {'stale: median, most':^25} {'lost':^13} {'kB to a group a step':^24} {'a step, ms':^24} {'exchange, % of computing':^24}\n"
            f"{'layout':7} {'%':>6} {'measured':>9} {'model':>7} {'off %':>6} {'measured':>12} {'model':>12} {'meas.':>6} {'model':>6}"
            + f" {'measured':>10} {'model':>6} {'off %':>6}" * 3)
        for groups, ranks in layouts_of(arguments):
            folder = output / f"scale-{groups}x{ranks}"
            if not (folder / "summary.json").exists():
                train(program, groups, ranks, arguments, folder)
            run = measured(folder, groups, ranks)
            model = modelled(program, groups, ranks, run, run["pace"], "--costs", "0,0,0,0,0")  # the steps as measured have them
            alone = modelled(program, groups, ranks, run, run["computed"], "--costs", costs, "--cores", str(arguments.cores))
            model |= {"share": alone["overhead"] / (1 + alone["overhead"]), "step_s": alone["with_exchange_s"]}
            offered = groups * (groups - 1) * model["publications"]
            run["used"], model["used"] = 100 * run["taken"] / offered, 100 * model["taken"] / offered
            figures = [f"{scale * run[key]:10.{digits}f} {scale * model[key]:6.{digits}f} {100 * (model[key] / run[key] - 1):+6.1f}"
                       for key, scale, digits in (("bytes_a_step", 1e-3, 1), ("step_s", 1e3, 2), ("share", 100, 1))]
            say(f"{groups}x{ranks:<5} {100 * run['drift']:6.1f} {run['used']:9.1f} {model['used']:7.1f} {100 * (model['used'] / run['used'] - 1):+6.1f} "
                f"{run['staleness_median']:6.0f},{run['staleness_most']:5.0f} {model['staleness_median']:6.0f},{model['staleness_most']:5.0f} "
                f"{run['lost']:6} {model['lost']:6.0f} {' '.join(figures)}")
            del run["pace"], run["computed"]
            rows.append({"groups": groups, "ranks": ranks, "costs_ns": costs, "measured": run, "model": model})
    return rows


def main(argv):
    arguments, program = parse(argv)
    rows = scale_memory.compare(program, arguments, layouts_of(arguments)) if arguments.memory else compare_paces(arguments, program)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(common.run(main))
