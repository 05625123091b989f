#!/usr/bin/env python3
"""Strategies whose groups wait for each other, end to end on tiny models: python3 test_strategies.py CODISTILL [CASE ...]"""

import json
import os
import re
import signal
import struct
import sys
import time

from test_train import killed, stops_in_step
from train_support import TCP, check, floats, kill_job, png, rank_process, read_safetensors, run_cases, wait_for_steps

QUIET = ["log.tensorboard=false", "log.samples=0"]
KEPT = [*QUIET, "checkpoint.every=1", "checkpoint.keep=1000", "train.deterministic=true"]
PLAIN_SGD = ["train.optimiser=sgd", "train.momentum=0", "train.rate=0.1", "train.schedule=constant"]
EQUAL, UNEQUAL = "cluster.groups=2", "cluster.groups=[{ranks: 1}, {ranks: 2}]"


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def saved(bench, name, step, group, part="group"):
    """A group's, or rank's, part of a checkpoint."""
    return read_safetensors(bench.path("runs", name, "checkpoints", f"step-{step:09d}", f"{part}-{group}.safetensors"))


def model(bench, name, file="final"):
    tensors = read_safetensors(bench.path("runs", name, f"{file}.safetensors"))
    return [value for tensor in sorted(tensors) for value in floats(tensors[tensor])]


def farthest(a, b):
    check(len(a) == len(b) and len(a) > 1000, f"{len(a)} and {len(b)} values")
    return max(abs(x - y) for x, y in zip(a, b))


def trains(strategy, layout, environment=None, *more):
    """Groups part and meet: equal bits at every meeting and the end, others in between; the bytes are counted and planned."""
    def case(bench):
        overrides = [*more, f"train.strategy={strategy}", f"{strategy}.period=5", layout, "model.norm=batch", "train.steps=13"]
        bench.trained("name=m", *overrides, *KEPT, "log.every=1", environment=environment)
        for step in range(1, 14):
            first, second = saved(bench, "m", step, 0), saved(bench, "m", step, 1)
            meets = step % 5 == 0 or step == 13
            check((first["values"] == second["values"]) == meets, f"step {step}: weights are {'not ' if meets else ''}equal")
            check(first["adam_m"] != second["adam_m"], f"step {step}: the moments are equal")
        events = bench.events("m", 1)
        check([(event["step"], event["kind"]) for event in events] == [(5, "average"), (10, "average"), (13, "average")], f"{events}")
        summary = bench.summary("m")
        count = len(saved(bench, "m", 1, 0)["values"])
        moved = summary["intergroup_bytes"] / 6  # a meeting and a group
        check(summary["strategy"] == strategy and summary["groups"] == 2 and summary["steps"] == 13, f"{summary}")
        check(count * 0.25 < moved < count * 0.3 if "diloco.codec=int8" in more else moved == count, f"{moved} bytes for {count}")
        check(all(group["merges"] == 3 and group["exchange_ms_per_step"] > 0 for group in summary["group_results"]), f"{summary}")
        check((summary["intragroup_bytes"] > 3 * count) == (layout == UNEQUAL), f"{summary['intragroup_bytes']} bytes inside")
        check(model(bench, "m", "group.0") == model(bench, "m", "group.1") == model(bench, "m"), "the models are not one")
        planned = bench.run("plan", "t.yaml", *overrides)
        told = re.search(r"between groups, each 5 steps: .*, ([\d.]+) MB sent and received by each group", planned.out)
        check(told and abs(float(told[1]) * 1e6 - moved) < 6e3, f"not {moved} bytes", planned)
    return case


def mean(bench):
    """A meeting leaves the mean of what the groups had, by their ranks."""
    for layout, weights in ((EQUAL, (0.5, 0.5)), (UNEQUAL, (1 / 3, 2 / 3))):
        fixed = ["train.strategy=local_sgd", layout, "model.norm=batch", "train.steps=4", *KEPT]
        bench.trained("name=apart", *fixed, "local_sgd.period=3", "checkpoint.resume=never")
        bench.trained("name=met", *fixed, "local_sgd.period=2", "checkpoint.resume=never")
        parts = [floats(saved(bench, "apart", 2, group)["values"]) for group in (0, 1)]
        met = floats(saved(bench, "met", 2, 0)["values"])
        check(farthest(*parts) > 1e-3, "the groups are one before they meet")
        trained = len(saved(bench, "met", 2, 0)["adam_m"]) // 4  # statistics behind them are each rank's own
        for a, b, value in zip(*parts, met[:trained]):
            right = f32(weights[0] * a + weights[1] * b)
            check(value == right if layout == EQUAL else abs(value - right) <= 3e-7 * (abs(a) + abs(b)), f"{a}, {b}: {value}, not {right}")


def equals_allreduce(bench):
    """With plain SGD, groups that meet after every step are data-parallel training over all ranks, to rounding."""
    for i in range(4):
        bench.write(f"photos/{i}.png", png(32, 32, i))
    # Pictures as large as crops, all of them in every step: whatever the order, and the group, the mini-batch is the same.
    fixed = [*PLAIN_SGD, *QUIET, "data.kind=pictures", "data.path=photos", "data.val_count=0", "data.val_fraction=0",
             "data.augment=false", "train.steps=8", "train.backend=ref"]
    divisions = {"all": ["train.strategy=allreduce", "cluster.ranks_per_group=2"],
                 "met": ["train.strategy=local_sgd", "cluster.groups=2", "data.placement=disjoint", "local_sgd.period=1"],
                 "four": ["train.strategy=local_sgd", "cluster.groups=2", "cluster.ranks_per_group=2", "data.placement=disjoint",
                          "local_sgd.period=1", "data.batch=1"],
                 "seldom": ["train.strategy=local_sgd", "cluster.groups=2", "data.placement=disjoint", "local_sgd.period=8"],
                 "start": ["train.strategy=allreduce", "cluster.ranks_per_group=2", "train.rate=1e-12"]}
    for name, division in divisions.items():
        bench.trained(f"name={name}", *fixed, *division)
    moved = farthest(model(bench, "all"), model(bench, "start"))
    check(moved > 1e-2, f"training moved nothing ({moved})")
    for name in ("met", "four"):
        difference = farthest(model(bench, "all"), model(bench, name))
        check(difference < 1e-6, f"{name} differs from allreduce by {difference}; the weights moved by {moved}")
    check(farthest(model(bench, "all"), model(bench, "seldom")) > 1e-5, "averaging seldom is the same: the test shows nothing")


def outer_steps(bench):
    """diloco's outer optimiser against the paper's formula; with rate 1 and no momentum it is local_sgd, bit for bit."""
    fixed = ["cluster.groups=[{ranks: 1}, {ranks: 2}]", "model.norm=batch", "train.steps=4", *KEPT]
    bench.trained("name=start", *fixed, "train.strategy=local_sgd", "train.rate=1e-12", "local_sgd.period=1")
    bench.trained("name=apart", *fixed, "train.strategy=diloco", "diloco.period=3")
    bench.trained("name=outer", *fixed, "train.strategy=diloco", "diloco.period=2")
    start, first, last = (floats(saved(bench, name, step, 0)["values"]) for name, step in (("start", 1), ("outer", 2), ("outer", 4)))
    trained = len(saved(bench, "outer", 2, 0)["adam_m"]) // 4
    momentum = [[floats(saved(bench, "outer", step, rank, "rank")["outer_momentum"]) for step in (2, 4)] for rank in range(3)]
    parts = [momentum[1][i] + momentum[2][i] for i in range(2)]  # each rank of a group saves its part
    check(momentum[0] == parts and min(len(m[0]) for m in momentum[1:]) > 0 and any(momentum[0][0]), "the outer momentum is not one")
    parts = [floats(saved(bench, "apart", 2, group)["values"]) for group in (0, 1)]
    for i in range(trained):
        u1, u2 = momentum[0][0][i], momentum[0][1][i]
        change1, change2 = start[i] - (parts[0][i] + 2 * parts[1][i]) / 3, u2 - 0.9 * u1
        for value, right in ((u1, change1), (first[i], start[i] - 0.7 * (change1 + 0.9 * change1)),
                             (last[i], first[i] - 0.7 * (change2 + 0.9 * u2))):
            check(abs(value - right) < 1e-6, f"weight {i}: {value}, not {right}")
    check(farthest(first, last) > 1e-3 and farthest(start, first) > 1e-3, "an outer step moved nothing")

    plain = ["train.strategy=diloco", "diloco.period=2", "diloco.outer_rate=1", "diloco.outer_momentum=0"]
    bench.trained("name=plain", *fixed, *plain)
    bench.trained("name=local", *fixed, "train.strategy=local_sgd", "local_sgd.period=2")
    for step in range(1, 5):
        for group in (0, 1):
            check(saved(bench, "plain", step, group) == saved(bench, "local", step, group), f"step {step}, group {group}: not local_sgd")
    bench.trained("name=coded", *fixed, *plain, "diloco.codec=int8")
    exact, coded = (floats(saved(bench, name, 2, 0)["values"]) for name in ("plain", "coded"))
    error = farthest(exact[:trained], coded[:trained])
    check(0 < error < 0.01 * farthest(exact[:trained], start[:trained]), f"int8 is off by {error}")
    check(exact[trained:] == coded[trained:], "statistics must travel as they are")


def fragments(bench):
    """Streaming DiLoCo against the paper's formula: halves of the weights meet in turn; a group goes on for a step while one is averaged."""
    fixed = ["cluster.groups=[{ranks: 1}, {ranks: 2}]", "model.norm=batch", "train.steps=9", *KEPT, "train.strategy=diloco"]
    halves = ["diloco.period=4", "diloco.fragments=2"]
    bench.trained("name=start", *fixed, "train.rate=1e-12", "diloco.period=1", "train.steps=1")
    bench.trained("name=apart", *fixed, "diloco.period=20")
    bench.trained("name=late", *fixed, *halves, "diloco.overlap_steps=1", "diloco.keep_local=0.25")
    bench.trained("name=atonce", *fixed, *halves)
    trained = len(saved(bench, "late", 1, 0)["adam_m"]) // 4
    half, start = trained // 2, floats(saved(bench, "start", 1, 0)["values"])
    given, alone, mixed = ([floats(saved(bench, name, step, group)["values"]) for group in (0, 1)]
                           for name, step in (("apart", 2), ("apart", 3), ("late", 3)))
    for group in (0, 1):
        check(floats(saved(bench, "late", 2, group)["values"])[:trained] == given[group][:trained], "it does not go on alone")
        check(mixed[group][half:trained] == alone[group][half:trained], "a half that has not met is another")
    outer = [floats(saved(bench, "late", 3, rank, "rank")["outer"]) for rank in range(3)]
    still = max(abs(a - b) for a, b in zip(outer[0][half:], start[half:trained]))  # `start` has made a step of nearly nothing, and rounds it
    check(outer[0] == outer[1] + outer[2] and len(outer[0]) == trained and still < 1e-7, f"the outer weights, {still}")
    for i in range(half):
        right = start[i] - 0.7 * 1.9 * (start[i] - (given[0][i] + 2 * given[1][i]) / 3)
        check(abs(outer[0][i] - right) < 1e-6, f"outer weight {i}: {outer[0][i]}, not {right}")
        for group in (0, 1):
            right = 0.25 * alone[group][i] + 0.75 * outer[0][i]
            check(abs(mixed[group][i] - right) < 1e-6, f"group {group}, weight {i}: {mixed[group][i]}, not {right}")
    check(max(abs(outer[0][i] - alone[0][i]) for i in range(half)) > 1e-3, "the outer step moved nothing")
    for step in range(1, 10):
        first, second = (floats(saved(bench, "atonce", step, group)["values"]) for group in (0, 1))
        meets = [step in (2, 6, 9), step in (4, 8, 9)]
        check([first[:half] == second[:half], first[half:trained] == second[half:trained]] == meets, f"step {step}: what is equal")
    for name in ("late", "atonce"):
        check(saved(bench, name, 9, 0)["values"] == saved(bench, name, 9, 1)["values"], f"{name}: the groups end apart")
    # Four halves, and both after the last step: three times all values, of which two groups give and get each once.
    count = len(saved(bench, "late", 1, 0)["values"])
    check(bench.summary("atonce")["intergroup_bytes"] == 2 * 3 * count, f"{bench.summary('atonce')['intergroup_bytes']} bytes, {count} values")


def pairs(bench):
    """noloco's rounds with three groups, one of two ranks, against the paper's formula, the odd group included; its bytes as planned."""
    rate, alpha, pull = 0.5, 0.25, 0.75
    own = ["train.strategy=noloco", f"noloco.outer_rate={rate}", f"noloco.outer_momentum={alpha}", f"noloco.pull={pull}"]
    fixed = ["cluster.groups=[{ranks: 1}, {ranks: 2}, {ranks: 1}]", "model.norm=batch", "train.steps=8", *KEPT]
    bench.trained("name=start", *fixed, "train.strategy=local_sgd", "train.rate=1e-12", "local_sgd.period=1", "train.steps=1")
    bench.trained("name=apart", *fixed, *own, "noloco.period=3")
    bench.trained("name=n", *fixed, *own, "noloco.period=2")
    start = floats(saved(bench, "start", 1, 0)["values"])
    parts = [floats(saved(bench, "apart", 2, group)["values"]) for group in range(3)]
    trained = len(saved(bench, "n", 2, 0)["adam_m"]) // 4

    def state(step, kind):
        ranks = [floats(saved(bench, "n", step, rank, "rank")[kind]) for rank in range(4)]
        return [ranks[0], ranks[1] + ranks[2], ranks[3]]  # each rank of a group saves its part

    def worst(pair):
        """How far the first round is from the formula if this pair met."""
        groups = [sum(parts[g][i] for g in pair) / len(pair) for i in range(trained)]
        return max(abs(momenta[g][i] + rate * (start[i] - groups[i])) for g in pair for i in range(trained))

    momenta, outer, moved = state(2, "outer_momentum"), state(2, "outer"), 0
    fits = [alone for alone in range(3) if worst([g for g in range(3) if g != alone]) < 1e-6 and worst([alone]) < 1e-6]
    check(len(fits) == 1, f"groups that may have been alone: {fits}")
    for step in (4, 6, 8):
        now, weights = state(step, "outer_momentum"), state(step, "outer")
        for g in range(3):
            check(floats(saved(bench, "n", step, g)["values"])[:trained] == weights[g], f"step {step}: group {g} goes on from others")
        # Both have one mean of changes, so that the difference of their momenta is the formula's without it.
        off = {(a, b): max(abs(now[a][i] - now[b][i] - alpha * (momenta[a][i] - momenta[b][i]) + pull * (outer[a][i] - outer[b][i]))
                           for i in range(trained)) for a, b in ((0, 1), (0, 2), (1, 2))}
        near = [pair for pair, value in off.items() if value < 1e-6]
        check(len(near) == 1, f"step {step}: pairs that may have met: {off}")
        moved = max(moved, *(abs(x - y) for x, y in zip(outer[near[0][0]], outer[near[0][1]])))
        momenta, outer = now, weights
    check(moved > 1e-3, "no two groups met that were apart: the test shows nothing")
    count = len(saved(bench, "n", 1, 0)["values"])
    sent = bench.summary("n")["intergroup_bytes"] / (4 * 2)  # two groups a round
    check(sent == count + 4 * trained, f"{sent} bytes for {count}")
    planned = bench.run("plan", "t.yaml", *fixed, *own)
    told = re.search(r"each 50 steps: weights swapped with one random group, ([\d.]+) MB", planned.out)
    check(told and abs(float(told[1]) * 1e6 - sent) < 6e3, f"not {sent} bytes", planned)


def hierarchical(bench):
    """Averaging by node is averaging: the same bits where two numbers are added up, else to rounding."""
    for ranks, environment in ((2, None), (3, TCP)):
        for how in ("flat", "hierarchical"):
            result = bench.trained(f"name={how}", *PLAIN_SGD, *QUIET, "train.strategy=allreduce", f"cluster.ranks_per_group={ranks}",
                                   f"train.allreduce={how}", "train.bucket_kb=4", "train.steps=8", "checkpoint.resume=never",
                                   environment=environment)
            check(("averaged inside its nodes first" in result.err) == (how == "hierarchical"), "it does not say how", result)
        difference = farthest(model(bench, "flat"), model(bench, "hierarchical"))
        check(difference == 0 if ranks == 2 else difference < 1e-6, f"{ranks} ranks: {difference}")
    bench.refused("did you mean 'hierarchical'?", "train", "t.yaml", "name=r", "train.allreduce=hierarchial")


def coded(bench):
    """Gradients in a quarter of the bytes, in an all-reduce and inside groups that do other things too."""
    fixed = ["model.channels=24", "model.norm=batch", "train.bucket_kb=16", "train.steps=20", "eval.every=0", *QUIET]
    layouts = {"all": ["train.strategy=allreduce", "cluster.ranks_per_group=3"],
               "local": ["train.strategy=local_sgd", "local_sgd.period=10", "cluster.groups=2", "cluster.ranks_per_group=2"]}
    for name, layout in layouts.items():
        for codec in ("none", "int8"):
            bench.trained(f"name={name}-{codec}", *fixed, *layout, f"train.allreduce_codec={codec}", environment=TCP)
        exact, summary = (bench.summary(f"{name}-{codec}") for codec in ("none", "int8"))
        ratio = exact["intragroup_bytes"] / summary["intragroup_bytes"]
        check(3.3 < ratio < 3.97 and exact["intergroup_bytes"] == summary["intergroup_bytes"], f"{name}: {ratio} times fewer bytes")
        losses = [bench.metrics(f"{name}-{codec}", 0)[-1]["loss"] for codec in ("none", "int8")]
        check(model(bench, f"{name}-none") != model(bench, f"{name}-int8") and abs(losses[1] / losses[0] - 1) < 0.05, f"{name}: {losses}")
    planned = bench.run("plan", "t.yaml", *fixed, *layouts["all"], "model.channels=192", "train.allreduce_codec=int8")
    told = re.search(r": (\d+) parameters", planned.out)
    sent = re.search(r"each step: ([\d.]+) MB a rank all-reduced as int8\n", planned.out)
    held = re.search(r"coded gradients ([\d.]+)", planned.out)
    size = 4e-6 * float(told[1])
    check(abs(float(sent[1]) - 4 / 3 * size / 3.97) < 0.06 and abs(float(held[1]) - size * (4 / 3 + 2 / 3.97)) < 0.06, "the plan", planned)
    # One rank sends nothing, and rounds nothing.
    for codec in ("none", "int8"):
        bench.trained(f"name=one-{codec}", *fixed, "train.strategy=allreduce", f"train.allreduce_codec={codec}")
    check(model(bench, "one-none") == model(bench, "one-int8"), "one rank trains another network")


def coded_stops(bench):
    """What coding owes is saved; it is no other run's. A bad gradient of any rank ends all, as without coding."""
    fixed = ["train.strategy=allreduce", "cluster.ranks_per_group=2", "train.allreduce_codec=int8", "train.schedule=constant",
             "train.deterministic=true", *QUIET]
    bench.trained("name=whole", *fixed, "train.steps=20")
    bench.trained("name=s", *fixed, "train.steps=10")
    owed = [floats(saved(bench, "s", 10, rank, "rank")["allreduce_residual"]) for rank in (0, 1)]
    check(owed[0] != owed[1] and all(any(values) for values in owed), "nothing is owed")
    for overrides, words in ((["train.allreduce_codec=none"], "written with train.allreduce_codec=int8, not none"),
                             (["cluster.ranks_per_group=3"], "had 2 ranks")):
        bench.refused(words, "train", "t.yaml", "name=s", *fixed, *overrides, "train.steps=20")
    result = bench.trained("name=s", *fixed, "train.steps=20")
    check("resumed at step 10" in result.err and model(bench, "s") == model(bench, "whole"), "it went another way", result)
    plain = ["train.strategy=allreduce", "cluster.ranks_per_group=2", *QUIET]
    bench.trained("name=p", *plain, "train.steps=10")
    result = bench.train("name=p", *plain, "train.allreduce_codec=int8", "train.steps=20")
    check(result.code == 2 and "written with train.allreduce_codec=none, not int8" in result.err, "a codec later on", result)
    result = bench.train("name=n", *fixed, "train.optimiser=sgd", "train.rate=1e3", "train.loss=mse")
    check(result.code == 1 and result.err.count("codistill: ") == 1 and "became NaN or infinite at step" in result.err, "a bad loss", result)
    for overrides, words in ((["train.strategy=parameter_server"], "strategy 'parameter_server' does not average gradients by an all-reduce"),
                             (["train.strategy=central_storage"], "int8 is for: single, allreduce, local_sgd, diloco, noloco, codistill"),
                             (["train.strategy=model_parallel"], "strategy 'model_parallel'"),
                             (["train.strategy=async_parameter_server"], "strategy 'async_parameter_server'"),
                             (["train.allreduce=hierarchical"], "leave out train.allreduce=hierarchical"),
                             (["train.allreduce_codec=int4"], "did you mean 'int8'?")):
        result = bench.train("name=r", *fixed, *overrides)
        check(result.code == 2 and words in result.err and not os.path.exists(bench.path("runs", "r")), f"'{words}'", result)


def server(bench):
    """A server and its workers are data-parallel training over the workers: bit for bit where two numbers are added up."""
    adam = ["model.norm=batch", "train.ema=0.9", "train.bucket_kb=4", "train.deterministic=true", "train.steps=20", *QUIET]
    serves = "train.strategy=parameter_server"
    runs = {"two": [*adam, "train.strategy=allreduce", "cluster.ranks_per_group=2"],
            "two-served": [*adam, serves, "cluster.ranks_per_group=3"],
            "many": [*adam, "train.strategy=allreduce", "cluster.ranks_per_group=2", "train.accumulate=2", "train.clip_norm=0.1"],
            "many-served": [*adam, serves, "cluster.ranks_per_group=3", "train.accumulate=2", "train.clip_norm=0.1"],
            "one": [*adam, "train.strategy=single"],
            "one-served": [*adam, serves, "cluster.ranks_per_group=2"]}
    for name, overrides in runs.items():
        bench.trained(f"name={name}", *overrides, environment=TCP if name == "many-served" else None)
    for name in ("two", "many", "one"):
        check(model(bench, name) == model(bench, f"{name}-served"), f"{name}: the server's network is another")
        own, other = bench.metrics(name, 0)[-1], bench.metrics(f"{name}-served", 0)[-1]
        check(own["loss"] == other["loss"] and own["psnr_y"] == other["psnr_y"], f"{name}: {own}, {other}")
        check(bench.summary(name)["samples_per_group"] == bench.summary(f"{name}-served")["samples_per_group"], "samples")
    check(model(bench, "one") != model(bench, "two") != model(bench, "many"), "all runs are one: the test shows nothing")
    count = len(model(bench, "two")) * 4
    summary = bench.summary("two-served")
    check(4 * 20 * count * 0.98 < summary["intragroup_bytes"] < 4.3 * 20 * count and summary["intergroup_bytes"] == 0, f"{summary}")
    # Three numbers are added up in another order than MPI's.
    sgd = [*PLAIN_SGD, *QUIET, "train.steps=8"]
    for name, rate in (("three", 0.1), ("start", 1e-12)):
        bench.trained(f"name={name}", *sgd, "train.strategy=allreduce", "cluster.ranks_per_group=3", f"train.rate={rate}")
    bench.trained("name=three-served", *sgd, serves, "cluster.ranks_per_group=4")
    difference, moved = (farthest(model(bench, "three"), model(bench, name)) for name in ("three-served", "start"))
    check(difference < 1e-6 and moved > 1e-2, f"they differ by {difference} where weights moved by {moved}")


def server_stops(bench):
    """A server stops with its workers, and goes on; started alone it says what it needs."""
    fixed = ["name=s", "train.strategy=parameter_server", "cluster.ranks_per_group=3", *QUIET]
    result = bench.stopped(*fixed, "train.steps=10000000", "train.max_time=1s")
    step = int(re.search(r"stopped and saved at step (\d+)", result.err)[1])
    result = bench.trained(*fixed, f"train.steps={step + 20}", "train.schedule=constant")
    check(f"resumed at step {step}" in result.err and bench.summary("s")["steps"] == step + 20, "it did not go on", result)
    result = bench.train("name=a", "train.strategy=parameter_server")
    check(result.code == 2 and "one at least that trains: 2 or more" in result.err and not os.path.exists(bench.path("runs", "a")),
          "alone", result)
    bench.refused("but the job has 1 rank", "train", "t.yaml", "name=a", "train.strategy=parameter_server", "cluster.groups=by_node")
    planned = bench.run("plan", "t.yaml", "train.strategy=parameter_server", "cluster.ranks_per_group=3", "model.channels=64")
    told = re.search(r"inside the group, each step: gradients to rank 0, weights back, ([\d.]+) MB each way", planned.out)
    check(told and float(told[1]) > 0 and "all-reduced" not in planned.out, "the plan", planned)


def gossip(bench):
    """Plain averaging with a peer that may be stale: every version taken over is averaged with, once, and draws groups together."""
    fixed = ["train.strategy=codistill", "cluster.groups=3", "exchange.peers=ring", "distill.weight=0", "train.deterministic=true", *QUIET]
    for merge in ("average", "none"):
        bench.trained(f"name={merge}", *fixed, f"exchange.merge={merge}")
    for group in range(3):
        events = bench.events("average", group)
        merged, switched = ([(e["step"], e["version"]) for e in events if e["kind"] == kind] for kind in ("merge", "switch"))
        check(merged == switched and len(merged) > 3, f"averaged {merged}, taken over {switched}")
        check(all(event["alpha"] == 1 for event in events if event["kind"] == "merge"), f"{events}")
    check(bench.summary("average")["intergroup_bytes"] > 0, "no bytes are counted")
    apart, together = (farthest(model(bench, name, "group.0"), model(bench, name, "group.1")) for name in ("none", "average"))
    check(0 < together < 0.7 * apart, f"groups end {together} apart, and {apart} without averaging")


def unread(bench):
    """A group that no other one reads publishes all the same, as it merges against its own publications. Where the run must repeat, the
    coder stays, and the log says so."""
    result = bench.trained("name=u", "seed=1", "train.strategy=codistill", "cluster.groups=3", "exchange.peers=random(1)", "train.steps=35",
                           "exchange.deterministic=true", "exchange.codec=auto", "eval.every=0")
    check(result.err.count("exchange.codec=auto stays with zstd, as the run must repeat") == 3, "each group says so once", result)
    read = {peer["group"] for group in range(3) for peer in bench.metrics("u", group)[-1]["peers"]}
    check(read == {1, 2}, f"seed 1 draws readers for {read}: take one that leaves a group without")
    groups = bench.summary("u")["group_results"]
    check(all(group["publications"] > 0 and group["merges"] > 0 for group in groups), f"a group does not publish or merge: {groups}")


def merge_shares(bench):
    """A group's part of a merge is that of its samples: its ranks among those of all groups that train its model."""
    for groups, shares in (("[{ranks: 1}, {ranks: 2}]", (2 / 3, 1 / 3)), ("2", (1 / 2, 1 / 2))):
        names = [f"{merge}-{shares[0]:.1f}" for merge in ("none", "delay_corrected")]
        for name in names:
            bench.trained(f"name={name}", "train.strategy=codistill", f"cluster.groups={groups}", f"exchange.merge={name.split('-')[0]}", "exchange.codec=f32",
                          "exchange.period=10", "exchange.lag_steps=5", "distill.weight=0", "model.norm=none", "train.steps=15", *KEPT)
        published = [floats(saved(bench, names[1], 10, group)["values"]) for group in range(2)]
        for group in range(2):
            before, after = (floats(saved(bench, name, 15, group)["values"]) for name in names)
            expected = [b + shares[group] * (peer - own) for b, peer, own in zip(before, published[1 - group], published[group])]
            moved = farthest(before, after)
            check(farthest(after, expected) < 1e-3 * moved, f"{groups}: group {group} is {farthest(after, expected)} away, and moved {moved}")
            check(bench.events(names[1], group)[-1]["alpha"] == 1, f"{bench.events(names[1], group)}")
            moments = [{key: value for key, value in saved(bench, name, 15, group).items() if key.startswith("adam_")} for name in names]
            check(moments[0] and moments[0] == moments[1], f"a merge has moved the moments {moments[0].keys()}")
            losses = [peer["teacher_loss"] for line in bench.metrics(names[1], group) for peer in line["peers"]]
            check(losses and set(losses) == {None}, f"a teacher without a weight has run: {losses}")


def data_of_all(bench):
    """All ranks as one group hold what the groups hold together, one rank what the first group holds."""
    fixed = ["data.synthetic_count=40", "data.placement=disjoint", "data.items_per_group=3", "train.steps=2", *QUIET]
    for strategy, layout, count in (("codistill", "3", 3), ("allreduce", "3", 9), ("single", "3", 3), ("parameter_server", "[{ranks: 2}, {}, {}]", 9),
                                    ("parameter_server", "4", 9)):  # the server's group holds nothing where it has no worker
        result = bench.trained("name=d", f"train.strategy={strategy}", f"cluster.groups={layout}", "checkpoint.resume=never", *fixed)
        check(f"group 0: {count} training" in result.out + result.err, f"{strategy} has not {count}", result)


def ends_together(bench):
    """A rank that dies, or fails, ends all groups with one message; the others do not wait for it at the next meeting."""
    for rank, fixed in ((1, ["train.strategy=local_sgd", "cluster.groups=2", "local_sgd.period=20", *QUIET]),
                        (0, ["train.strategy=parameter_server", "cluster.ranks_per_group=3", *QUIET])):
        arguments = ["train", "t.yaml", f"name=d{rank}", *fixed, "train.steps=10000000"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, f"d{rank}", 2)
        os.kill(rank_process(process, rank), signal.SIGKILL)
        result = bench.wait(process, arguments, 300)
        check(result.code == 1 and f"rank {rank}" in result.err and "the last good checkpoint is of step" in result.err, "a death", result)
        result = bench.train(f"name=n{rank}", *fixed, "train.optimiser=sgd", "train.rate=1e3", "train.loss=mse", "train.schedule=constant")
        check(result.code == 1 and result.err.count("codistill: ") == 1 and "NaN or infinite at step" in result.err, "a bad loss", result)


def refusals(bench):
    """What cannot be averaged is refused before anything starts, and so is another division on resuming."""
    for strategy in ("local_sgd", "diloco", "noloco"):
        own = ["train.strategy=" + strategy]
        for overrides, words in ((["cluster.groups=[{}, {model: {channels: 12}}]"], "all groups train the run's model"),
                                 (["model.init=own"], "a common start"), ([f"{strategy}.period=0"], "whole number from 1"),
                                 ([f"{strategy}.perod=5"], "did you mean 'period'?")):
            result = bench.train("name=r", *own, *overrides)
            check(result.code == 2 and words in result.err and not os.path.exists(bench.path("runs", "r")), f"'{words}'", result)
        bench.refused("--group", "train", "t.yaml", "name=r", *own, "cluster.groups=2", "--group", "0")
        bench.trained(f"name={strategy}", *own, "cluster.groups=2", "train.steps=20")
        bench.refused("cluster.groups as it was", "train", "t.yaml", f"name={strategy}", *own, "cluster.groups=3", "train.steps=40")
    bench.refused("did you mean 'int8'?", "train", "t.yaml", "name=r", "train.strategy=diloco", "diloco.codec=int4")
    for words, *own in (("3 is no divisor of diloco.period, 500", "fragments=3"), ("in 125 steps; set fewer", "fragments=4", "overlap_steps=125"),
                        ("set diloco.codec=f32 to overlap", "overlap_steps=1", "codec=int8")):
        bench.refused(words, "train", "t.yaml", "name=r", "train.strategy=diloco", *(f"diloco.{option}" for option in own))
    for words, *own in (("3 is no divisor of exchange.period, 10", "fragments=3"), ("in 5 steps; set fewer", "fragments=2", "deterministic=true")):
        bench.refused(words, "train", "t.yaml", "name=r", "train.strategy=codistill", *(f"exchange.{option}" for option in own))
    result = bench.train("name=r", "train.strategy=codistill", "cluster.groups=2", "exchange.period=50", "exchange.fragments=25")
    check(result.code != 0 and "do not make 25 fragments" in result.err, "a fragment without a chunk", result)


def other_exchange(bench):
    """Groups that do not exchange hold and save nothing of an exchange, and a resume neither begins one nor ends one."""
    sizes = {}
    for codec, other, words in (("none", "f32", "exchange.codec=none, whose groups did not exchange: set it back"),
                                ("f32", "none", "whose groups exchanged, and with exchange.codec=none they do not")):
        fixed = [f"name={codec}", "train.strategy=codistill", "cluster.groups=2", "train.schedule=constant"]
        result = bench.trained(*fixed, f"exchange.codec={codec}", "train.steps=20")
        check(("MB for the exchange" in result.err) == (codec == "f32"), "memory", result)
        check(("peers" in bench.summary(codec)["group_results"][0]) == (codec == "f32"), f"{bench.summary(codec)}")
        step = bench.path("runs", codec, "checkpoints", "step-000000020")
        sizes[codec] = sum(os.path.getsize(os.path.join(step, name)) for name in os.listdir(step))
        result = bench.train(*fixed, f"exchange.codec={other}", "train.steps=40")
        check(result.code == 2 and words in result.err and "cannot resume from step 20" in result.err, f"from {codec} to {other}", result)
        result = bench.trained(*fixed, f"exchange.codec={codec}", "train.steps=40")
        check(result.err.count("resumed at step 20") == 2, "it did not go on", result)
    check(sizes["none"] < 0.5 * sizes["f32"], f"bytes of a checkpoint: {sizes}")


def exact_merges(bench):
    """Own weights in place of what peers decode of them: another run, which goes on from what it saved; no resume changes which."""
    fixed = ["train.strategy=codistill", EQUAL, "train.schedule=constant", "train.deterministic=true", "distill.weight=0", "exchange.period=8",
             "exchange.lag_steps=3", "exchange.key_every=4", "exchange.quality_db=18", *QUIET]
    exact = [*fixed, "exchange.merge_against=exact"]
    bench.trained("name=d", *fixed, "train.steps=20")
    bench.trained("name=e", *exact, "train.steps=20")
    bench.trained("name=whole", *exact, "train.steps=40")
    check(model(bench, "d") != model(bench, "e"), "the weights are those of merges against decoded publications")
    apart = {name: [array for array in saved(bench, name, 20, 0, "rank") if array.startswith("exchange.decoded.")] for name in "de"}
    check(apart == {"d": [], "e": ["exchange.decoded.0"]}, f"saved: {apart}")
    for name, overrides, words in (("d", exact, "exchange.merge_against=decoded: set it back"),
                                   ("e", fixed, "exchange.merge_against=exact: set it back")):
        bench.refused(words, "train", "t.yaml", f"name={name}", *overrides, "train.steps=40")
    result = bench.trained("name=e", *exact, "train.steps=40")
    check("resumed at step 20" in result.err and model(bench, "e") == model(bench, "whole"), "it went another way", result)


def compares(bench):
    result = bench.run("compare", "t.yaml", "--strategies", "parameter_server,local_sgd,diloco", "cluster.groups=2", "train.steps=20",
                       "local_sgd.period=10", "diloco.period=10")
    check(result.code == 0 and "t-local_sgd-seed1" in result.out, "no table", result)
    with open(bench.path("runs", "t-compare", "compare.json"), encoding="utf-8") as file:
        arms = {arm["strategy"]: arm for arm in json.load(file)["arms"]}
    for strategy in ("local_sgd", "diloco"):
        check(arms[strategy]["runs"][0]["bytes"]["between"] > 0 and arms[strategy]["groups"] == 2, f"{strategy}: {arms}")
    # Two groups of one rank each: what is inside the server's one group is between the configured ones.
    server = arms["parameter_server"]["runs"][0]["bytes"]
    check(server["inside"] == 0 and server["between"] > 0, f"{server}")


DILOCO = ("train.strategy=diloco", "diloco.period=7")
STREAMING = ("train.strategy=diloco", "diloco.period=8", "diloco.fragments=2", "diloco.overlap_steps=3")
NOLOCO = ("train.strategy=noloco", "noloco.period=7")
FRAGMENTS = ("exchange.period=8", "exchange.fragments=2", "exchange.lag_steps=3", "exchange.chunk_values=256")
LOCAL_SGD = ("train.strategy=local_sgd", "local_sgd.period=7")
CASES = {
    "local-sgd-2x1": trains("local_sgd", EQUAL),
    "local-sgd-unequal": trains("local_sgd", UNEQUAL),
    "local-sgd-tcp": trains("local_sgd", UNEQUAL, TCP),
    "local-sgd-killed": killed("2x2", 2, None, *LOCAL_SGD),
    "local-sgd-stops": stops_in_step("2x1", signal.SIGTERM, 1, "train.strategy=local_sgd"),
    "diloco-2x1": trains("diloco", EQUAL),
    "diloco-tcp": trains("diloco", UNEQUAL, TCP),
    "diloco-int8": trains("diloco", UNEQUAL, None, "diloco.codec=int8"),
    "diloco-killed": killed("2x2", 2, None, *DILOCO),
    "diloco-killed-int8": killed("3x1", 2, None, *DILOCO, "diloco.codec=int8"),
    "diloco-fragments": fragments,
    "diloco-killed-fragments": killed("2x2", 2, None, *STREAMING),
    "diloco-killed-fragments-int8": killed("3x1", 2, TCP, "train.strategy=diloco", "diloco.period=8", "diloco.fragments=4", "diloco.codec=int8"),
    "diloco-stops-fragments": stops_in_step("2x1", signal.SIGTERM, 1, *STREAMING),
    "noloco-pairs": pairs,
    "noloco-killed": killed("2x2", 2, None, *NOLOCO),
    "noloco-killed-odd": killed("3x1", 2, TCP, *NOLOCO),
    "hierarchical": hierarchical,
    "coded": coded,
    "coded-stops": coded_stops,
    "coded-killed": killed("2x2", 2, TCP, "train.allreduce_codec=int8", "train.bucket_kb=4"),
    "server": server,
    "server-stops": server_stops,
    "server-killed": killed("allreduce", 2, None, "train.strategy=parameter_server", "cluster.ranks_per_group=3"),
    "unread": unread,
    "merge-shares": merge_shares, "gossip": gossip,
    "fragments-mixed-killed": killed("2x2", 2, None, *FRAGMENTS),
    "fragments-whole-killed": killed("3x1", 2, TCP, *FRAGMENTS, "exchange.teacher_fragments=whole"),
    "fragments-int8-killed": killed("int8", 2, None, *FRAGMENTS),
    "fragments-files-killed": killed("2x1", 1, None, *FRAGMENTS, "exchange.transport=file"),
    "gossip-killed": killed("3x1", 2, None, "exchange.merge=average", "distill.weight=0", "exchange.peers=ring"),
    "mean": mean,
    "outer-steps": outer_steps,
    "equals-allreduce": equals_allreduce,
    "data-of-all": data_of_all,
    "ends-together": ends_together,
    "refusals": refusals,
    "other-exchange": other_exchange,
    "exact-merges": exact_merges,
    "compares": compares,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
