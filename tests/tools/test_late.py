#!/usr/bin/env python3
"""The command on a device that keeps its memory from the host and runs late: python3 test_late.py CODISTILL_LATE [CASE ...]

The device is tests/support/late.h around `ref` or `cpu`: the bits must be those of what it wraps, and what a device would not forgive
ends the run.
"""

import json
import signal
import sys

from test_classes import CONFIG as CLASSES
from test_classes import csv
from test_strategies import DILOCO, LOCAL_SGD, NOLOCO
from test_train import SETUPS, killed, not_a_number, replays, same_checkpoints, stops
from train_support import check, png, run_cases

STEPS, EVERY = 12, 4
LATE = {"COD_TEST_LATE": "ref", "COD_LATE_ABORT": "1"}
FIXED = ["name=t", "train.deterministic=true", f"train.steps={STEPS}", "train.ema=0.9", "exchange.period=3",
         "exchange.lag_steps=1", "distill.burn_in=3", "distill.ramp=2", f"checkpoint.every={EVERY}", "checkpoint.keep=9",
         f"eval.every={EVERY}", "log.every=1", "log.tensorboard=false", "log.samples=0"]
FRAGMENTS = ["exchange.period=4", "exchange.fragments=2", "exchange.lag_steps=1", "exchange.codec=delta", "exchange.key_every=3", "exchange.chunk_values=256"]
SOON = ["local_sgd.period=3", "diloco.period=3", "noloco.period=3"]  # meetings
BATCH_NORM = "model.norm=batch"
SERVER, CENTRAL, ASYNC = (f"train.strategy={name}" for name in ("parameter_server", "central_storage", "async_parameter_server"))
REF = ["--backend", "ref"]
TOLD = ["psnr_y", "ssim_y", "accuracy", "lr", "distill_weight", "teacher_step", "staleness_steps", "merges", "published_bytes", "pulled_bytes"]


def same_losses(plain, late, group, delay):
    """A device's losses are told `delay` steps later; the last line of metrics has the mean of what is left."""
    for key in ("task_loss", "distill_loss"):
        first, second = ([line[key] for line in lines[:-1]] for lines in (plain, late))
        expected = [None] * delay + first[:len(first) - delay]
        check(second == expected, f"group {group}: {key} is {second}, not {expected}")
    sums = []
    for lines in (plain, late):
        told = [line["task_loss"] for line in lines[:-1] if line["task_loss"] is not None]
        sums.append(sum(told) + (STEPS - len(told)) * lines[-1]["task_loss"])
    check(abs(sums[0] - sums[1]) < 1e-12 * sums[0], f"group {group}: the losses add up to {sums}")


def same(config, *overrides, backend="ref", device=()):
    """Trains on the backend and on the device, there with more overrides: the same losses, figures, exchanges, checkpoints and models."""
    def case(bench):
        bench.write("c.yaml", CLASSES)
        for name, environment in (("plain", None), ("late", {**LATE, "COD_TEST_LATE": backend})):
            more = device if name == "late" else ()
            result = bench.run("train", config, f"output=runs/{name}", f"train.backend={backend}", *FIXED, *overrides, *more,
                               environment=environment)
            check(result.code == 0, "training failed", result)
        groups, strategy = (bench.summary("plain/t")[key] for key in ("groups", "strategy"))
        for step in range(EVERY, STEPS + 1, EVERY):
            same_checkpoints(bench, "runs/plain", "runs/late", step)
        for group in range(groups):
            plain, late = (bench.metrics(f"{name}/t", group) for name in ("plain", "late"))
            same_losses(plain, late, group, 0 if strategy == "model_parallel" else 1)  # stages wait for their losses
            for key in TOLD:
                first, second = ([line.get(key) for line in lines] for lines in (plain, late))
                check(first == second, f"group {group}: {key} is {first} and {second}")
            if groups > 1:
                file = f"group.{group}.safetensors"
                check(bench.read("runs", "plain", "t", file) == bench.read("runs", "late", "t", file), f"{file} differs")
            check(strategy != "codistill" or "distill.weight=0" in overrides or any(line["distill_loss"] for line in late), "nothing was taught")
    return case


def goes_on(setup, *overrides):
    """Once; before the first line of metrics, of step 10, there is a checkpoint to go on from."""
    return killed(setup, 1, LATE, "train.backend=ref", "checkpoint.every=4", *overrides)


def on_late(case):
    """A case of test_train.py, whose runs find a device around `cpu` by themselves."""
    def late_case(bench):
        bench.environment.update({**LATE, "COD_TEST_LATE": "cpu", "COD_LATE_DELAY_US": "5"})
        result = bench.trained("name=seen", "train.strategy=single", "train.steps=1")
        check("memory of the device for a rank" in result.err, "there is no device", result)
        case(bench)
    return late_case


def transfers(bench):
    """Ways to a device are refused where there is none, and uint8 where there are no bytes; the bench compares them."""
    bench.write("c.yaml", CLASSES)
    bench.write("points.csv", csv(60))
    iris = ["c.yaml", "data.kind=iris", "data.path=points.csv"]
    for arguments, environment, words in (
            (["t.yaml", "data.transfer=mapped"], None, "mapped is a way to devices with memory of their own; backend 'ref' computes in the host's"),
            (["t.yaml", "data.transfer=pinned"], None, "pinned is a way to devices"),
            ([*iris, "data.transfer=uint8"], LATE, "uint8 is for data of 8-bit pixels, and iris are measurements; auto, pinned and mapped"),
            (["t.yaml", *SETUPS["2x1"], "distill.inputs=mixup", "data.transfer=uint8"], LATE, "of which distill.inputs=mixup makes others; set pinned"),
            (["t.yaml", "train.strategy=model_parallel", "cluster.ranks_per_group=2", "data.transfer=mapped"], LATE, "mapped is not for model_parallel")):
        result = bench.run("train", *arguments, "train.backend=ref", environment=environment)
        check(result.code == 2 and "data.transfer" in result.err and words in result.err, f"{arguments}", result)
    bench.refused("uint8 is a way to devices", "train", "t.yaml", "data.transfer=uint8", "cluster.device=cpu")
    bench.done("train", *iris, "data.transfer=mapped", "train.backend=ref", "train.steps=3", environment=LATE)
    small = ["--batch", "1", "--patch", "4", "--mib", "1", "--repeats", "1", *REF, "blocks=1", "channels=4", "head_kernel=3", "tail_kernel=3"]
    soon = {**LATE, "COD_LATE_DELAY_US": "5"}
    result = bench.run("bench", "copy", *small, "--json", environment=soon)
    figures = json.loads(result.out)
    check([row["bytes"] for row in figures["transfers"]] == [65536, 262144, 1048576], f"{figures}")
    check(figures["batch_bytes"] == (4 * 4 + 16 * 16) * 3 * 4 and figures["unfed_step_ms"] > 0, f"{figures}")
    for way in ("pageable", "pinned", "mapped", "uint8"):
        step = figures["steps"][way]
        check(all(row[way] > 0 for row in figures["transfers"]) and step["step_ms"] > 0 and 0 <= step["hidden"] <= 1, f"{way}: {figures}")
    result = bench.run("bench", "copy", *small, "--backend", "cpu", environment={**soon, "COD_TEST_LATE": "cpu"})
    for words in ("GB/s             pageable       pinned       mapped        uint8", "1.00 MiB", "batch 1 of 4x4", "0.00 MB a step", "hidden %",
                  "uint8                   -            -            -            -"):
        check(result.code == 0 and words in result.out, words, result)
    for device, words in (("--backend cpu", "'cpu' computes in the host's memory, where nothing has to be copied"),
                          ("--device cpu", "'cpu' computes in the host's memory"), ("--device gpu", "'gpu' is none of auto, cpu, cuda"),
                          ("--backend gpu", "there is no backend 'gpu'")):
        bench.refused(words, "bench", "copy", *device.split())
    check("--mib: '0' is not a whole number from 1 to 4096" in bench.run("bench", "copy", "--mib", "0").err, "--mib")


def both(bench, *arguments, files=()):
    """What a command prints on `ref` and on the device, where it must write the same files."""
    ends = []
    for environment in (None, LATE):
        result = bench.done(*arguments, environment=environment)
        ends.append((result.out, [bench.read(file) for file in files]))
    check(ends[0][1] == ends[1][1], f"{arguments}: other files")
    return [out for out, _ in ends]


def commands(bench):
    """What reads models says and writes the same."""
    def evaluate(*arguments):
        figures = both(bench, "eval", *arguments, "--json", *REF)
        check(figures[0] == figures[1], f"eval {arguments}: {figures}")
        return json.loads(figures[0])

    for i, name in enumerate("ab"):
        bench.write(f"photos/{name}.png", png(36 + 8 * i, 52, i))
    bench.write("points.csv", csv(60))
    bench.write("c.yaml", CLASSES)
    bench.trained("name=sr", "train.steps=4", BATCH_NORM)
    bench.done("train", "c.yaml", "data.kind=iris", "data.path=points.csv", "train.steps=40")
    check(evaluate("runs/c/final.safetensors", "--data", "points.csv")["count"] == 60, "other examples")
    model = "runs/sr/final.safetensors"
    for more in ([], ["--tile", "8"], ["--precision", "bf16"], ["--precision", "int8"]):
        check(evaluate(model, "--data", "photos", *more)["mean"]["psnr_y"] > 5, "no picture")
    both(bench, "upscale", model, "photos", "-o", "big", "--force", *REF, files=["big/a.png", "big/b.png"])
    for name in ("m.onnx", "m.safetensors"):
        both(bench, "export", model, "-o", name, files=[name])
    outs = both(bench, "bench", "step", "--batch", "2", "--patch", "8", "--repeats", "1", "--json", *REF, "blocks=1", "channels=8")
    losses = [json.loads(out)["loss"] for out in outs]
    check(losses[0] == losses[1], f"bench step: losses {losses}")
    plans = both(bench, "plan", "t.yaml", *SETUPS["2x2"], "train.backend=ref")
    check(all("group 1: ranks 2 to 3" in plan for plan in plans), f"{plans}")


SR, C = "t.yaml", "c.yaml"
CASES = {
    "single": same(SR, *SETUPS["single"], BATCH_NORM, "train.clip_norm=1"),
    "bf16": same(SR, *SETUPS["single"], "train.precision=bf16", "train.accumulate=2"),
    "allreduce": same(SR, *SETUPS["allreduce"], BATCH_NORM, "train.bucket_kb=4"),
    "accumulate": same(SR, *SETUPS["allreduce"], "train.accumulate=3", "train.bucket_kb=4"),
    "coded": same(SR, *SETUPS["allreduce"], "train.allreduce_codec=int8", "train.bucket_kb=4"),
    "hierarchical": same(SR, "train.strategy=allreduce", "cluster.ranks_per_group=3", "train.allreduce=hierarchical", "train.bucket_kb=4"),
    "2x1": same(SR, *SETUPS["2x1"]),
    "2x2": same(SR, *SETUPS["2x2"], BATCH_NORM, "exchange.publish=ema", "train.accumulate=2"),
    "3x1": same(SR, *SETUPS["3x1"], "distill.teachers_per_step=2", "exchange.merge=none"),
    "mixup": same(SR, *SETUPS["2x1"], "distill.inputs=mixup", "train.accumulate=2"),
    "no-reference": same(SR, *SETUPS["2x1"], "distill.inputs=no_reference"),
    "int8-teacher": same(SR, *SETUPS["int8"], "distill.every=1"),
    "bf16-teacher": same(SR, *SETUPS["2x1"], "distill.teacher_precision=bf16"),
    "fragments": same(SR, *SETUPS["2x2"], BATCH_NORM, *FRAGMENTS),
    "fragments-whole": same(SR, *SETUPS["int8"], *FRAGMENTS, "exchange.teacher_fragments=whole", "distill.every=1"),
    "gossip": same(SR, *SETUPS["3x1"], "exchange.merge=average", "distill.weight=0", "exchange.peers=ring"),
    "unlike-groups": same(SR, "train.strategy=codistill", "cluster.groups=[{ranks: 1, model: {channels: 12}}, {ranks: 2}]"),
    "local-sgd": same(SR, *SETUPS["2x2"], *LOCAL_SGD, *SOON, BATCH_NORM),
    "diloco": same(SR, *SETUPS["2x1"], *DILOCO, *SOON, "diloco.codec=int8"),
    "streaming": same(SR, *SETUPS["2x2"], "train.strategy=diloco", "diloco.period=4", "diloco.fragments=2", "diloco.overlap_steps=1", BATCH_NORM),
    "noloco": same(SR, *SETUPS["3x1"], *NOLOCO, *SOON, BATCH_NORM),
    "server": same(SR, SERVER, "cluster.ranks_per_group=3", BATCH_NORM, "train.bucket_kb=4", "train.accumulate=2", "train.clip_norm=1"),
    "async": same(SR, ASYNC, "cluster.ranks_per_group=4", "async_parameter_server.servers=2", BATCH_NORM, "train.accumulate=2"),
    "async-coded": same(SR, ASYNC, "cluster.ranks_per_group=3", BATCH_NORM, "async_parameter_server.push_codec=int8",
                        "async_parameter_server.pull_codec=topk", "train.clip_norm=1"),
    "central": same(SR, CENTRAL, "cluster.ranks_per_group=3", BATCH_NORM, "train.accumulate=2"),
    "central-clipped": same(SR, CENTRAL, "cluster.ranks_per_group=2", BATCH_NORM, "train.clip_norm=0.1"),
    "pipeline": same(SR, "train.strategy=model_parallel", "cluster.ranks_per_group=4", "model_parallel.stages=2", BATCH_NORM, "model.blocks=3",
                     "train.accumulate=3", "train.clip_norm=1"),
    "classes": same(C, "train.strategy=codistill", "cluster.groups=3", "data.placement=dirichlet", "data.alpha=0.1",
                    "distill.teachers_per_step=2", "exchange.merge=none", "eval.every=4"),
    "probabilities": same(C, "train.strategy=codistill", "cluster.groups=3", "distill.teachers_per_step=2", "distill.average=probabilities",
                          "distill.burn_in=0", "distill.ramp=0", "exchange.merge=none"),
    "cpu": same(SR, *SETUPS["2x2"], BATCH_NORM, backend="cpu"),
    "mapped": same(SR, *SETUPS["2x1"], "distill.inputs=mixup", "train.accumulate=2", device=["data.transfer=mapped"]),
    "uint8": same(SR, *SETUPS["2x1"], BATCH_NORM, "train.accumulate=2", device=["data.transfer=uint8"]),
    "uint8-classes": same(C, *SETUPS["allreduce"], "eval.every=4", device=["data.transfer=uint8"]),
    "transfers": transfers,
    "killed-2x2": goes_on("2x2", BATCH_NORM, "train.accumulate=2"),
    "killed-coded": goes_on("allreduce", "train.allreduce_codec=int8"),
    "killed-fragments": goes_on("2x2", BATCH_NORM, *FRAGMENTS),
    "killed-gated": goes_on("2x1", "distill.gate=true", "distill.every=1"),
    "killed-server": goes_on("allreduce", SERVER, "cluster.ranks_per_group=3", BATCH_NORM),
    "killed-async": goes_on("allreduce", ASYNC, "cluster.ranks_per_group=3", BATCH_NORM, "async_parameter_server.push_codec=topk",
                            "async_parameter_server.pull_codec=int8"),
    "killed-central": goes_on("allreduce", CENTRAL, "cluster.ranks_per_group=2", BATCH_NORM, "train.ema=0.9"),
    "killed-file": goes_on("2x1", "exchange.transport=file"),
    "killed-local-sgd": goes_on("2x2", *LOCAL_SGD, BATCH_NORM),
    "killed-diloco": goes_on("2x1", *DILOCO, "diloco.codec=int8"),
    "replays": on_late(replays("3x1")),
    "stops": on_late(stops("2x2", signal.SIGTERM)),
    "nan": on_late(not_a_number),
    "commands": commands,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
