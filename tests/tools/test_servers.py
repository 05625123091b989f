#!/usr/bin/env python3
"""Servers that do not wait, and memory that ranks share, end to end on tiny models: python3 test_servers.py CODISTILL [CASE ...]"""

import json
import os
import re
import signal
import struct
import sys
import time

from test_strategies import PLAIN_SGD, QUIET, farthest, model, saved
from test_train import killed
from train_support import MPI, STOPPED, TCP, check, floats, parse_safetensors, png, rank_process, run_cases, wait_for_steps

SHARED_TCP = {key: value + ",sm" if key == "OMPI_MCA_osc" else value for key, value in TCP.items()}
ASYNC = "train.strategy=async_parameter_server"


def option(**values):
    return [f"async_parameter_server.{key}={value}" for key, value in values.items()]


def equals_single(bench):
    """One worker that waits for its own update trains as one rank does, bit for bit, however many servers share the weights."""
    adam = ["model.norm=batch", "train.ema=0.9", "train.steps=20", "eval.every=5", *QUIET]
    alone = [ASYNC, *option(max_delay=0)]
    clipped = ["train.accumulate=2", "train.clip_norm=0.1"]
    runs = {"one": [*adam, "train.strategy=single"],
            "one-1": [*adam, *alone, "cluster.ranks_per_group=2"],
            "one-2": [*adam, *alone, "cluster.ranks_per_group=3", *option(servers=2)],
            "one-3": [*adam, *alone, "cluster.ranks_per_group=4", *option(servers=3, push_codec="topk", topk_fraction=1)],
            "clipped": [*adam, *clipped, "train.strategy=single"],
            "clipped-1": [*adam, *clipped, *alone, "cluster.ranks_per_group=2"]}
    for name, overrides in runs.items():
        bench.trained(f"name={name}", *overrides, environment=TCP if name in ("one-2", "clipped-1") else None)
    for name in list(runs):
        base = name.split("-")[0]
        check(model(bench, base) == model(bench, name), f"{name}: another network than {base}")
        quality, expected = ([line["psnr_y"] for line in bench.metrics(run, 0)] for run in (name, base))
        check(quality == expected, f"{name}: evaluated to {quality}, not {expected}")
        check(bench.summary(name)["samples_per_group"] == bench.summary(base)["samples_per_group"], "samples")
    check(model(bench, "one") != model(bench, "clipped"), "both are one: the test shows nothing")
    result = bench.summary("one-2")["group_results"][0]
    check(result["pushes"] == 20 and result["push_staleness_mean"] == result["push_staleness_max"] == 0, f"{result}")


class Reference:
    """Plain SGD on one picture, whose gradient at given weights a run of one step tells."""

    def __init__(self, bench):
        self.bench = bench
        for i in range(4):
            bench.write(f"photos/{i}.png", png(32, 32, 1))
        self.fixed = [*PLAIN_SGD, *QUIET, "data.kind=pictures", "data.path=photos", "data.val_count=0", "data.val_fraction=0",
                      "data.augment=false", "train.backend=ref"]
        bench.trained("name=start", *self.fixed, "train.strategy=single", "train.steps=1", "train.rate=1e-12")
        self.header, body = parse_safetensors(bench.path("runs", "start", "final.safetensors"))
        self.start = list(floats(body))

    def gradient(self, weights):
        header = json.dumps(self.header).encode()
        header += b" " * (-len(header) % 8)
        self.bench.write("at.safetensors", struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(weights)}f", *weights))
        self.bench.trained("name=g", *self.fixed, "train.strategy=single", "train.steps=1", "model.init=at.safetensors",
                           "checkpoint.resume=never")
        moved = floats(parse_safetensors(self.bench.path("runs", "g", "final.safetensors"))[1])
        return [(a - b) / 0.1 for a, b in zip(weights, moved)]

    def train(self, workers, steps, delay, aware):
        """Workers in turn; with a delay of 0 they all get the weights after the last of a step."""
        weights, version = self.start, 0
        held, versions = [weights] * workers, [0] * workers
        for _ in range(steps):
            for worker in range(workers):
                rate = 0.1 / max(1, version - versions[worker] if aware else 1)
                weights = [a - rate * g for a, g in zip(weights, self.gradient(held[worker]))]
                version += 1
                if delay > 0:
                    held[worker], versions[worker] = weights, version
            if delay == 0:
                held, versions = [weights] * workers, [version] * workers
        return weights


def once_a_node(bench):
    """One network for all ranks of a node is data-parallel training: bit for bit where two numbers are added up. It takes less memory."""
    adam = ["model.norm=batch", "train.ema=0.9", "train.steps=20", "eval.every=5", "train.deterministic=true", *QUIET]
    for ranks, more, environment in ((1, [], None), (2, [], None), (2, ["train.accumulate=2", "train.clip_norm=0.1"], SHARED_TCP),
                                     (3, [], SHARED_TCP), (4, [], None)):
        for strategy in ("allreduce", "central_storage"):
            bench.trained(f"name={strategy}", *adam, *more, f"train.strategy={strategy}", f"cluster.ranks_per_group={ranks}",
                          "checkpoint.resume=never", environment=environment)
        difference = farthest(model(bench, "allreduce"), model(bench, "central_storage"))
        quality = [[line["psnr_y"] for line in bench.metrics(strategy, 0)] for strategy in ("allreduce", "central_storage")]
        check(difference == 0 and quality[0] == quality[1] if ranks < 3 else difference < 1e-3, f"{ranks} ranks, {more}: {difference}")
    large = ["model.channels=192", "data.batch=1", "train.steps=1", "train.ema=0.9", "eval.every=0", "cluster.ranks_per_group=2", *QUIET]
    memory, planned = {}, {}
    for strategy in ("allreduce", "central_storage"):
        bench.trained(f"name=large-{strategy}", *large, f"train.strategy={strategy}")
        memory[strategy] = bench.summary(f"large-{strategy}")["group_results"][0]["memory_bytes"]
        result = bench.run("plan", "t.yaml", *large, f"train.strategy={strategy}")
        told = re.search(r"moving average of 2 ranks on one node: ([\d.]+) MB", result.out)
        check(told, "the plan", result)
        planned[strategy] = float(told[1]) * 1e6
    size = 4 * bench.summary("large-allreduce")["parameters"]
    saved_bytes, expected = (figures["allreduce"] - figures["central_storage"] for figures in (memory, planned))
    print(f"S = {size} bytes: {saved_bytes:.0f} saved of {memory['allreduce']:.0f}, {expected:.0f} planned")
    check(abs(expected - 4 * size) < 1e6 and saved_bytes > 0.5 * expected, f"{memory}, {planned}")


def central_stops(bench):
    fixed = ["name=s", "train.strategy=central_storage", "cluster.ranks_per_group=3", "train.ema=0.9", *QUIET]
    result = bench.stopped(*fixed, "train.steps=10000000", "train.max_time=1s")
    step = int(re.search(r"stopped and saved at step (\d+)", result.err)[1])
    group, parts = saved(bench, "s", step, 0), [saved(bench, "s", step, rank, "rank") for rank in range(3)]
    check("adam_m" not in group and "ema" in group and sum(len(part["adam_m"]) for part in parts) == len(group["values"]), "moments")
    result = bench.trained(*fixed, f"train.steps={step + 20}", "train.schedule=constant")
    check(f"resumed at step {step}" in result.err, "it did not go on", result)
    result = bench.train(*fixed, f"train.steps={step + 40}", "cluster.ranks_per_group=2")
    check(result.code == 2 and "had 3 ranks" in result.err, "another number of ranks", result)
    result = bench.train("name=r", "train.strategy=central_storage", "cluster.ranks_per_group=2", environment=TCP)
    if MPI == "openmpi4":
        check(result.code == 1 and "ranks of a node cannot share memory" in result.err and "osc pt2pt,sm" in result.err, "no memory", result)
    arguments = ["train", "t.yaml", "name=d", *fixed[1:], "train.steps=10000000"]
    process = bench.start(*arguments)
    wait_for_steps(bench, process, "d", 2)
    os.kill(rank_process(process, 2), signal.SIGKILL)
    result = bench.wait(process, arguments, 300)
    check(result.code == 1 and "rank 2" in result.err and "the last good checkpoint is of step" in result.err, "a death", result)
    result = bench.train("name=n", *fixed[1:], "train.optimiser=sgd", "train.rate=1e3", "train.loss=mse", "train.schedule=constant")
    check(result.code == 1 and result.err.count("codistill: ") == 1 and "NaN or infinite at step" in result.err, "a bad loss", result)


def order(bench):
    """In a fixed order each update is by the gradient at the weights that its worker had, at the rate that its age allows."""
    reference = Reference(bench)
    cases = {"apart": (3, 2, 1, True), "together": (2, 2, 0, True), "unaware": (3, 2, 1, False)}
    ends = {}
    for name, (workers, steps, delay, aware) in cases.items():
        bench.trained(f"name={name}", *reference.fixed, ASYNC, f"train.steps={steps}", f"cluster.ranks_per_group={workers + 1}",
                      "train.deterministic=true", *option(max_delay=delay, staleness_aware=str(aware).lower()))
        ends[name] = floats(parse_safetensors(bench.path("runs", name, "final.safetensors"))[1])
        expected = reference.train(workers, steps, delay, aware)
        moved, difference = farthest(reference.start, ends[name]), farthest(expected, ends[name])
        check(difference < 2e-6 and moved > 1e-3, f"{name}: {difference} from the reference where weights moved by {moved}")
        stale = bench.summary(name)["group_results"][0]
        mean, most = {"apart": (9 / 6, 2), "unaware": (9 / 6, 2), "together": (0.5, 1)}[name]
        check(stale["pushes"] == workers * steps and stale["push_staleness_mean"] == mean and stale["push_staleness_max"] == most,
              f"{name}: {stale}")
    check(farthest(ends["apart"], ends["unaware"]) > 1e-4, "the rate does not matter: the test shows nothing")


def codecs(bench):
    """Every coding trains, and moves the bytes that the plan says."""
    fixed = [ASYNC, "cluster.ranks_per_group=4", "model.channels=32", "train.steps=80", "train.schedule=constant",
             "eval.every=0", "checkpoint.every=0", *QUIET]
    losses = {}
    for name, push, pull in (("exact", "none", "none"), ("int8", "int8", "int8"), ("topk", "topk", "onebit"), ("onebit", "onebit", "topk")):
        coded = option(servers=2, push_codec=push, pull_codec=pull, topk_fraction=0.05)
        bench.trained(f"name={name}", *fixed, *coded, environment=TCP if name == "topk" else None)
        losses[name] = [line["loss"] for line in bench.metrics(name, 0)]
        check(losses[name][-1] < 0.9 * losses[name][0], f"{name} does not learn: {losses[name]}")
        planned = bench.run("plan", "t.yaml", *fixed, *coded)
        told = re.search(rf"gradients to 2 servers \({push}\), weights back \({pull}\), ([\d.]+) MB (?:each way|sent and ([\d.]+) MB received)",
                         planned.out)
        check(told, "the plan", planned)
        expected = 2 * 80 * 1e6 * (float(told[1]) + float(told[2] or told[1]))
        moved = bench.summary(name)["intragroup_bytes"]
        # Messages' headers, reductions, a part for the checkpoint; and the plan's rounding.
        slack = 2 * 80 * 1e6 * (0.11 if name == "exact" else 0.011) + 150e3
        check(abs(moved - expected) < slack, f"{name}: {moved} bytes, planned {expected}", planned)
    check(len({tuple(values) for values in losses.values()}) == 4, "codings do not matter: the test shows nothing")


def delay(bench):
    """While a worker stands still the other goes on, but no further than it may."""
    for most in (0, 3):
        name = f"d{most}"
        arguments = ["train", "t.yaml", f"name={name}", ASYNC, "cluster.ranks_per_group=3", "train.steps=10000000",
                     *option(max_delay=most), *QUIET, "checkpoint.every=0", "eval.every=0"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, name, 3)
        # The second stands still where the other is ahead already, and cannot go far; then the other does.
        begin, stale = time.monotonic(), 0
        while stale < most or time.monotonic() < begin + 4:
            for worker in (rank_process(process, rank) for rank in (2, 1)):
                os.kill(worker, signal.SIGSTOP)
                time.sleep(1)
                os.kill(worker, signal.SIGCONT)
                wait_for_steps(bench, process, name, len(bench.metrics(name, 0)) + 2)
            stale = bench.metrics(name, 0)[-1]["push_staleness_max"]
            check(time.monotonic() < begin + 300, f"no worker went ahead by {most}: {stale}")
        process.send_signal(signal.SIGTERM)
        result = bench.wait(process, arguments, 300)
        check(result.code == STOPPED and "stopped and saved" in result.err, "a stop is no failure", result)
        stale = bench.metrics(name, 0)[-1]["push_staleness_max"]
        check(most <= stale <= 2 * most + 1, f"{stale} updates old with a delay of {most}")


def stops(bench):
    """Ranks stop at one step and go on, also with workers apart; what a run says of its pushes is of all its processes."""
    fixed = ["name=s", ASYNC, "cluster.ranks_per_group=4", *option(servers=2, push_codec="onebit", pull_codec="int8", max_delay=8), *QUIET]
    result = bench.stopped(*fixed, "train.steps=10000000", "train.max_time=1s")
    step = int(re.search(r"stopped and saved at step (\d+)", result.err)[1])
    parts = [saved(bench, "s", step, rank, "rank") for rank in range(4)]
    count = len(saved(bench, "s", step, 0)["values"])
    check("adam_m" not in saved(bench, "s", step, 0) and len(parts[0]["adam_m"]) + len(parts[1]["adam_v"]) == count, "moments")
    check(len(parts[3]["residual"]) == count and "adam_m" not in parts[3] and len(parts[1]["known.1"]) == count // 2, "states")
    result = bench.trained(*fixed, f"train.steps={step + 20}", "train.schedule=constant")
    check(f"resumed at step {step}" in result.err and bench.summary("s")["group_results"][0]["pushes"] == 2 * (step + 20),
          "it did not go on", result)
    for overrides, words in ((option(servers=1), "written by 2 servers, not 1"), (["cluster.ranks_per_group=3"], "had 4 ranks")):
        result = bench.train(*fixed, *overrides, f"train.steps={step + 40}")
        check(result.code == 2 and words in result.err, words, result)


def ends_together(bench):
    """A server or a worker that dies, or diverges, ends all ranks with one message."""
    fixed = [ASYNC, "cluster.ranks_per_group=4", *option(servers=2), *QUIET]
    for rank in (1, 3):
        arguments = ["train", "t.yaml", f"name=d{rank}", *fixed, "train.steps=10000000"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, f"d{rank}", 2)
        os.kill(rank_process(process, rank), signal.SIGKILL)
        result = bench.wait(process, arguments, 300)
        check(result.code == 1 and f"rank {rank}" in result.err and "the last good checkpoint is of step" in result.err, "a death", result)
    diverging = ["train.optimiser=sgd", "train.rate=1e3", "train.loss=mse", "train.schedule=constant"]
    for push, pull in (("none", "none"), ("int8", "none"), ("none", "onebit")):
        result = bench.train("name=n", *fixed, *diverging, *option(push_codec=push, pull_codec=pull))
        check(result.code == 1 and result.err.count("codistill: ") == 1 and "NaN or infinite at step" in result.err, "a bad loss", result)


def refusals(bench):
    for overrides, words in ((["cluster.ranks_per_group=1"], "1 server and one rank at least that trains"),
                             (["cluster.ranks_per_group=3", *option(servers=3)], "3 servers and one rank at least"),
                             (["cluster.ranks_per_group=4", "train.clip_norm=1", *option(servers=2)], "norm of a whole gradient"),
                             (["cluster.ranks_per_group=2", *option(max_delay=-1)], "whole number from 0"),
                             (["cluster.ranks_per_group=2", *option(push_codec="int4")], "did you mean 'int8'?"),
                             (["cluster.ranks_per_group=2", *option(topk_fraction=0)], "number from"),
                             (["cluster.groups=by_node"], "but the job has 1")):
        result = bench.train("name=r", ASYNC, *overrides)
        check(result.code == 2 and words in result.err and not os.path.exists(bench.path("runs", "r", "final.safetensors")), words, result)


CODED = [ASYNC, "cluster.ranks_per_group=4", *option(servers=2, push_codec="topk", pull_codec="int8", topk_fraction=0.1)]
CASES = {
    "async-equals-single": equals_single,
    "async-order": order,
    "async-codecs": codecs,
    "async-delay": delay,
    "async-stops": stops,
    "async-killed": killed("allreduce", 2, None, *CODED, "model.norm=batch"),
    "async-killed-tcp": killed("allreduce", 2, TCP, ASYNC, "cluster.ranks_per_group=3"),
    "async-ends-together": ends_together,
    "async-refusals": refusals,
    "central-equals-allreduce": once_a_node,
    "central-stops": central_stops,
    "central-killed": killed("allreduce", 2, None, "train.strategy=central_storage", "cluster.ranks_per_group=3", "model.norm=batch"),
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
