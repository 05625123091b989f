"""Real runs of several groups beside the model of `codistill bench scale`, which is given what their steps took."""
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
    p.add_argument("--data", default=str(common.ROOT / "../shared/data/mnist"), metavar="FOLDER", help="MNIST (../shared/data/mnist)")
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


def pace(lines):
    """Seconds of each step: those from one line to the next, in equal parts."""
    seconds, step, at = [], 0, 0.0
    for line in lines:
        count = line["step"] - step
        seconds += [(line["trained_s"] - at) / count] * count
        step, at = line["step"], line["trained_s"]
    return seconds


def measured(folder, groups):
    lines = [[json.loads(line) for line in (folder / f"metrics.{g}.jsonl").read_text().splitlines()] for g in range(groups)]
    steps = {group[-1]["step"] for group in lines}
    if len(steps) != 1 or min(steps) < 3 * PERIOD:
        raise Failure(f"{folder}: the groups' metrics end after steps {sorted(steps)}, not all after one")
    stale = [max(0, peer["staleness_steps"]) for line in itertools.chain(*lines) for peer in line["peers"] if peer["version"] > 0]
    last = [peer for group in lines for peer in group[-1]["peers"]]
    ends = [sum(pace(group)) for group in lines]
    return {"share": statistics.mean(group[-1]["exchange_share"] for group in lines),
            "bytes_a_step": sum(peer["pulled_bytes"] for peer in last) / min(steps) / groups, "taken": sum(peer["pulled"] for peer in last), "lost": sum(peer["lost"] for peer in last),
            "staleness_median": statistics.median(stale), "staleness_most": max(stale), "steps": min(steps),
            "drift": statistics.pstdev(ends) / statistics.mean(ends), "pace": [pace(group) for group in lines]}


def modelled(program, groups, ranks, run, *costs):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(run["pace"], file)
        file.flush()
        command = [str(program), "bench", "scale", "--layouts", f"{groups}x{ranks}", "--weights", str(WEIGHTS), "--links", "inf", "--latency-ms",
                   "0", "--peers", "all", "--pace", file.name, "--publications", str(run["steps"] // PERIOD), *costs,
                   "--ratios", "4.3,12.9", "--json", f"period={PERIOD}"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"bench scale ended with {done.returncode}", done.stderr)
    return json.loads(done.stdout)["rows"][0]


def compare_paces(arguments, program):
    rows = []
    with tempfile.TemporaryDirectory(prefix="cod-scale-") as scratch:
        output = pathlib.Path(arguments.output or scratch).absolute()
        say(f"{'':7} {'drift':>6} {'of all, taken over':^24} {'stale, median steps':^21} {'most':^13} {'lost':^13} {'kB to a group a step':^23} {'of a step, %':^15}\n"
            f"{'layout':7} {'%':>6} {'measured':>9} {'model':>7} {'off %':>6} {'measured':>9} {'model':>7}     "
            f"{'meas.':>6} {'model':>6} {'meas.':>6} {'model':>6} {'measured':>9} {'model':>6} {'off %':>6} {'measured':>9} {'model':>5}")
        for groups, ranks in layouts_of(arguments):
            folder = output / f"scale-{groups}x{ranks}"
            if not (folder / "summary.json").exists():
                train(program, groups, ranks, arguments, folder)
            run = measured(folder, groups)
            model = modelled(program, groups, ranks, run, "--costs", "0,0,0,0,0")  # the steps as measured have them
            model["overhead"] = modelled(program, groups, ranks, run)["overhead"]  # of what coding takes here on one thread
            offered = groups * (groups - 1) * model["publications"]
            used, expected = run["taken"] / offered, model["taken"] / offered
            say(f"{groups}x{ranks:<5} {100 * run['drift']:6.1f} {100 * used:9.1f} {100 * expected:7.1f} {100 * (expected / used - 1):+6.1f} "
                f"{run['staleness_median']:9.0f} {model['staleness_median']:7.0f}     {run['staleness_most']:6.0f} {model['staleness_most']:6.0f} "
                f"{run['lost']:6} {model['lost']:6.0f} {1e-3 * run['bytes_a_step']:9.1f} {1e-3 * model['bytes_a_step']:6.1f} "
                f"{100 * (model['bytes_a_step'] / run['bytes_a_step'] - 1):+6.1f} {100 * run['share']:9.1f} {100 * model['overhead']:5.1f}")
            del run["pace"]
            rows.append({"groups": groups, "ranks": ranks, "measured": run, "model": model})
    return rows


def main(argv):
    arguments, program = parse(argv)
    rows = scale_memory.compare(program, arguments, layouts_of(arguments)) if arguments.memory else compare_paces(arguments, program)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(common.run(main))
