#!/usr/bin/env python3
"""Layers divided over ranks, end to end on tiny models: python3 test_pipeline.py CODISTILL [CASE ...]"""

import os
import re
import signal
import sys

from test_classes import CONFIG as CLASSES
from test_strategies import QUIET, farthest, model, saved
from test_train import killed
from train_support import TCP, check, kill_job, rank_process, run_cases, wait_for_steps

FIXED = [*QUIET, "train.deterministic=true", "train.steps=16", "checkpoint.every=8", "checkpoint.keep=9", "log.every=8", "eval.every=8"]
# A skip over all blocks, statistics of normalisation, moments and a moving average: all of it passes cuts, or is gathered.
BLOCKS = ["model.norm=batch", "model.blocks=3", "train.ema=0.9"]


def divided(ranks, *more):
    return ["train.strategy=model_parallel", f"cluster.ranks_per_group={ranks}", *more]


def run(bench, config, name, *overrides, **options):
    result = bench.done("train", config, f"name={name}", *overrides, **options)
    return result


def same(bench, one, other, figure="psnr_y"):
    """Two runs with the same bits in model, checkpoints and figures."""
    check(model(bench, one) == model(bench, other), f"{other}: the model differs from {one}'s")
    for step in (8, 16):
        first, second = saved(bench, one, step, 0), saved(bench, other, step, 0)
        check(first.keys() == second.keys(), f"{other}: a checkpoint holds other tensors")
        for tensor in first:
            check(first[tensor] == second[tensor], f"{other}, step {step}: '{tensor}' differs from {one}'s")
    for own, theirs in zip(bench.metrics(one, 0), bench.metrics(other, 0)):
        check(own["loss"] == theirs["loss"] and own[figure] == theirs[figure], f"{own}, {theirs}")
    check(bench.summary(one)["samples_per_group"] == bench.summary(other)["samples_per_group"], f"{other}: other samples")


def equals_single(bench):
    """A network in stages trains as it does on one rank with as many mini-batches a step: bit for bit."""
    for backend in ("cpu", "ref"):
        fixed = [*FIXED, *BLOCKS, f"train.backend={backend}", "train.accumulate=4"]
        bench.trained(f"name={backend}", *fixed, "train.strategy=single")
        for ranks in (2, 3):
            name = f"{backend}-{ranks}"
            result = bench.trained(f"name={name}", *fixed, *divided(ranks))
            same(bench, backend, name)
            shares = [float(share) for share in re.findall(r"stage \d: layers .*, ([\d.]+) % of the work \(operations", result.err)]
            check(len(shares) == ranks and abs(sum(shares) - 100) < 0.2, "the division", result)
            told = re.findall(r"stage \d: predicted ([\d.]+) % of the work, measured ([\d.]+) %; idle ([\d.-]+) %", result.err)
            check([float(row[0]) for row in told] == shares and abs(sum(float(row[1]) for row in told) - 100) < 0.2, "balance", result)
    check(f"each idles {100 * 2 / 6:.1f} % of the time" in result.err, "the idle time", result)


def more_equals_single(bench):
    """Over TCP, with one mini-batch a step, in bf16, at given cuts, with images that skip to the last stage, and timed."""
    bench.trained("name=s", *FIXED, *BLOCKS, "train.accumulate=4", "train.strategy=single")
    bench.trained("name=s-tcp", *FIXED, *BLOCKS, "train.accumulate=4", *divided(3), environment=TCP)
    same(bench, "s", "s-tcp")
    result = bench.trained("name=s-cut", *FIXED, *BLOCKS, "train.accumulate=4", *divided(3), "model_parallel.cuts=[body.1.f.3, tail.3]")
    same(bench, "s", "s-cut")
    check("stage 1: layers body.1.f.3 to tail.0, " in result.err, "the cuts", result)
    bf16 = [*FIXED, *BLOCKS, "train.accumulate=2", "train.backend=ref", "train.precision=bf16"]
    bench.trained("name=b", *bf16, "train.strategy=single")
    bench.trained("name=b-2", *bf16, *divided(2))
    same(bench, "b", "b-2")
    check(model(bench, "b") != model(bench, "s"), "all runs are one: the test shows nothing")
    one = [*FIXED, "model.skip=bicubic"]
    bench.trained("name=o", *one, "train.strategy=single")
    bench.trained("name=o-2", *one, *divided(2))
    same(bench, "o", "o-2")
    # `ref` has one way to compute: it stays exact where the cut comes from timing.
    timed = [*FIXED, "train.backend=ref", "train.accumulate=2", "train.deterministic=false"]
    bench.trained("name=t", *timed, "train.strategy=single")
    result = bench.trained("name=t-2", *timed, *divided(2))
    same(bench, "t", "t-2")
    check(result.err.count("% of the work (timed)") == 2, "the costs", result)


def classes(bench):
    """Classifiers; a convolutional one is cut between any of its layers."""
    bench.write("c.yaml", CLASSES)
    for name, overrides in (("mlp", ["model.hidden=[16,12]"]),
                            ("cnn", ["model.name=cnn", "model.stages=[4,6]", "data.synthetic_shape=[8,8,3]"])):
        if name == "cnn":
            bench.write("c.yaml", CLASSES.replace("name: mlp, hidden: [16]", "name: cnn"))
        fixed = [*FIXED, *overrides, "train.accumulate=3"]
        run(bench, "c.yaml", name, *fixed, "train.strategy=single")
        for ranks in (2, 3):
            run(bench, "c.yaml", f"{name}-{ranks}", *fixed, *divided(ranks))
            same(bench, name, f"{name}-{ranks}", "accuracy")


def side_by_side(bench):
    """Two networks of two stages are data-parallel training of two; a clipped gradient's norm is that of all stages, to rounding."""
    fixed = [*FIXED, *BLOCKS, "train.accumulate=3", "train.bucket_kb=4"]
    bench.trained("name=a", *fixed, "train.strategy=allreduce", "cluster.ranks_per_group=2")
    result = bench.trained("name=a-2", *fixed, *divided(4, "model_parallel.stages=2"))
    same(bench, "a", "a-2")
    check("2 stages, 2 networks" in result.err, "networks", result)
    own, theirs = bench.summary("a"), bench.summary("a-2")
    check(own["ranks"] == 2 and theirs["ranks"] == 4 and theirs["intergroup_bytes"] == 0, f"{theirs}")
    for name, clip in (("free", 0), ("clipped", 0.01)):
        plain = [*fixed, "train.optimiser=sgd", "train.momentum=0", "train.rate=0.1", f"train.clip_norm={clip}"]
        bench.trained(f"name={name}", *plain, "train.strategy=allreduce", "cluster.ranks_per_group=2")
        bench.trained(f"name={name}-2", *plain, *divided(4, "model_parallel.stages=2"))
    difference, clipped = (farthest(model(bench, "clipped"), model(bench, name)) for name in ("clipped-2", "free"))
    check(difference < 1e-6 and clipped > 1e-3, f"they differ by {difference}, where clipping moves weights by {clipped}")


def stops(bench):
    """A stopped run goes on, and with other stages too, as a checkpoint holds the whole network; one that is done says so."""
    fixed = [*QUIET, *BLOCKS, "train.deterministic=true", "train.accumulate=2", "train.schedule=constant"]
    result = bench.stopped("name=p", *fixed, *divided(2), "train.steps=10000000", "train.max_time=1s")
    step = int(re.search(r"stopped and saved at step (\d+)", result.err)[1])
    result = bench.trained("name=p", *fixed, *divided(2), f"train.steps={step + 20}")
    check(f"resumed at step {step}" in result.err and bench.summary("p")["steps"] == step + 20, "it did not go on", result)
    check("predicted" in result.err, "the balance", result)
    result = bench.trained("name=p", *fixed, *divided(2), f"train.steps={step + 20}")
    check("nothing is left to do" in result.err, "the finished run", result)
    fixed = [*FIXED, *BLOCKS, "train.accumulate=2", "train.schedule=constant"]
    bench.trained("name=s", *fixed, "train.strategy=single")
    bench.trained("name=m", *fixed, *divided(2), "train.steps=8")
    result = bench.trained("name=m", *fixed, *divided(3), "train.steps=16")
    check("resumed at step 8" in result.err, "it began anew", result)
    check(model(bench, "s") == model(bench, "m"), "the resumed run ends with another model")
    check(saved(bench, "s", 16, 0) == saved(bench, "m", 16, 0), "the resumed run ends with another checkpoint")


def ends_together(bench):
    """A rank that dies, or fails, ends all with one message; so does a loss that is no number, which the last rank alone has."""
    fixed = [*QUIET, *divided(3), "train.accumulate=2"]
    for rank in (0, 1):
        arguments = ["train", "t.yaml", f"name=d{rank}", *fixed, "train.steps=10000000"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, f"d{rank}", 2)
        os.kill(rank_process(process, rank), signal.SIGKILL)
        result = bench.wait(process, arguments, 300)
        check(result.code == 1 and f"rank {rank}" in result.err and "the last good checkpoint is of step" in result.err, "a death", result)
        kill_job(process)
    result = bench.train("name=n", *fixed, "train.optimiser=sgd", "train.rate=1e3", "train.loss=mse", "train.schedule=constant")
    check(result.code == 1 and result.err.count("codistill: ") == 1 and "NaN or infinite at step" in result.err, "a bad loss", result)


def refusals(bench):
    """What cannot be divided is refused, with what would be right, and leaves nothing behind."""
    bench.write("c.yaml", CLASSES)
    for config, overrides, words in (
            ("t.yaml", divided(1), "over 2 ranks or more, but the job has 1; set cluster.ranks_per_group"),
            ("t.yaml", divided(3, "model_parallel.stages=2"), "3 ranks are no whole number of networks of 2 stages; start a multiple of 2"),
            ("t.yaml", divided(2, "model_parallel.stages=1"), "one stage is no division"),
            ("t.yaml", divided(2, "model_parallel.stagse=2"), "did you mean 'stages'?"),
            ("c.yaml", divided(3), "3 stages are more than the 2 layers with weights that model 'mlp' has"),
            ("t.yaml", divided(2, "model_parallel.cuts=[tail.1]"), "cannot begin with 'tail.1'; did you mean 'tail.0'? layers to begin with are: "),
            ("t.yaml", divided(3, "model_parallel.cuts=[tail.3, tail.0]"), "'tail.0' does not come after 'tail.3'"),
            ("t.yaml", divided(2, "model_parallel.cuts=[tail.0, tail.3]"), "2 cuts make 3 stages, not 2")):
        result = bench.refused(words, "train", config, "name=r", *overrides)
        check(not os.path.exists(bench.path("runs", "r", "final.safetensors")), "it trained", result)
    bench.refused("but the job has 1", "train", "t.yaml", "name=r", "train.strategy=model_parallel", "cluster.groups=by_node")


def is_planned(bench):
    """The plan shows the stages, and the bytes that a run then moves."""
    fixed = [*BLOCKS, *divided(2), "train.accumulate=4", "train.deterministic=true", *QUIET]
    planned = bench.run("plan", "t.yaml", *fixed)
    check(planned.code == 0 and "with equal stages each idles 20.0 % of the time" in planned.out, "the plan", planned)
    told = re.findall(r"stage \d: layers (\S+) to (\S+), (\d+) parameters, .* ([\d.]+) MB sent in a step", planned.out)
    check(len(told) == 2 and told[0][0] == "head.0" and told[1][1] == "tail.6" and "all-reduced" not in planned.out, "stages", planned)
    bench.trained("name=p", *fixed, "train.steps=40", "checkpoint.every=0", "eval.every=0")
    moved, expected = bench.summary("p")["intragroup_bytes"], 40e6 * sum(float(row[3]) for row in told)
    check(expected - 5e4 < moved < 1.1 * expected + 4e5, f"{moved} bytes moved, {expected} planned", planned)
    planned = bench.run("plan", "t.yaml", *BLOCKS, *divided(4, "model_parallel.stages=2"), "train.accumulate=4")
    check("2 stages, 2 networks" in planned.out and planned.out.count("MB a rank all-reduced") == 2, "two networks", planned)


CASES = {
    "equals-single": equals_single,
    "more-equals-single": more_equals_single,
    "classes": classes,
    "side-by-side": side_by_side,
    "stops": stops,
    "killed": killed("allreduce", 2, None, "train.strategy=model_parallel", "train.accumulate=2", "model.norm=batch"),
    "ends-together": ends_together,
    "refusals": refusals,
    "is-planned": is_planned,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
