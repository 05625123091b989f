"""What a run's groups send each other in all, and at most in a step. docs/notebook/evidence.py --peaks has it; docs/evidence.md has the formulas.

The peak is the most bytes that one group sends or receives in a meeting, divided by the steps that they may take before a step waits for them.
"""

import json
import pathlib

import common


def options(run):
    """What the run was configured with, by "section.key", as text."""
    found, section = {}, ""
    for line in (pathlib.Path(run["folder"]) / "config.yaml").read_text().splitlines():
        key, _, value = line.split("  #")[0].partition(":")
        if not key.startswith(" "):
            section = key
        found[f"{section}.{key.strip()}"] = value.strip()
    return found


def summary(run):
    return json.loads((pathlib.Path(run["folder"]) / "summary.json").read_text())


def largest_publication(compared):
    """Bytes of the largest publication that can be told from sums: the largest mean of one peer's, so have an arm that pulls a key and no deltas."""
    means = [peer["pulled_bytes"] / peer["pulled"] for arm in compared["arms"] for run in arm["runs"] if run["state"] == "finished"
             for group in summary(run)["group_results"] for peer in group.get("peers", []) if peer["pulled"] > 0]
    return max(means, default=0)


def peers_of_a_group(run):
    """Of the group that has most: the peers that it reads, or that read it."""
    read = [(group["group"], peer["group"]) for group in summary(run)["group_results"] for peer in group.get("peers", []) if peer["pulled"] > 0]
    return max((sum(pair[side] == group for pair in read) for side in (0, 1) for group, _ in read), default=0)


def meeting(strategy, run, groups, publication):
    """Bytes of a group in a meeting, and the steps that they may take."""
    o, weights = options(run), 4 * summary(run)["parameters"]
    ring = 2 * weights * (groups - 1) / groups
    if strategy == "local_sgd" or strategy == "allreduce" and o["train.allreduce_codec"] == "none":
        return ring, 1
    if strategy == "diloco" and o["diloco.codec"] == "f32":
        return ring / int(o["diloco.fragments"]), max(1, int(o["diloco.overlap_steps"]))
    if strategy == "noloco":
        return 2 * weights, 1
    if strategy == "codistill":
        waits = o["train.deterministic"] == "true" or o["exchange.deterministic"] == "true"
        return peers_of_a_group(run) * publication, int(o["exchange.lag_steps" if waits else "exchange.period"])
    raise common.Failure(f"{run['folder']}: --peaks has no formula for {strategy} as it is configured there")


def columns(arm, run, publication):
    """MB that a group sends in all, as counted, and the peak, kB a step. The groups have one rank each."""
    groups = arm["ranks"]  # allreduce makes one group of them
    if arm["strategy"] != "allreduce" and arm["groups"] != groups:
        raise common.Failure(f"{arm['name']}: --peaks is for groups of one rank")
    data, steps = meeting(arm["strategy"], run, groups, publication)
    return run["bytes"]["between"] / groups / 1e6, data / steps / 1e3
