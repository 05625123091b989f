#!/usr/bin/env python3
"""cluster.device and --device, end to end: python3 test_device.py CODISTILL_EMULATED CODISTILL_LATE [CASE ...]

CODISTILL_EMULATED is the command with the CUDA backend on the emulated GPU, whose kernels are slow: its cases are tiny. CODISTILL_LATE has
as `cuda` a device that runs late around `cpu` (COD_TEST_LATE=cuda), with less memory where a case says so.
"""

import json
import os
import re
import subprocess
import sys

from test_classes import CONFIG as CLASSES
from test_classes import csv
from test_strategies import DILOCO, LOCAL_SGD, NOLOCO
from test_train import killed
from train_support import MPIEXEC, Bench, check, png, read_safetensors, run_cases

NO_GPU = {"COD_CUDA_GPUS": ""}
LATE = {"COD_TEST_LATE": "cuda", "COD_LATE_ABORT": "1"}
SHORT = ["train.steps=4", "log.every=2", "checkpoint.every=0", "eval.every=0", "log.tensorboard=false", "log.samples=0"]
SOON = ["exchange.period=2", "exchange.lag_steps=1", "distill.burn_in=1", "distill.ramp=1"]
MIXED = "cluster.groups=[{ranks: 1, device: cuda}, {ranks: 1, device: cpu}]"
CUDA = "cluster.device=cuda"
# The emulated GPU is slow: beside other tests, one group may end half a minute before the other.
PATIENT = "cluster.teardown_timeout_s=600"
# Several publications and checkpoints in few steps.
OFTEN = ["train.steps=28", "exchange.period=6", "exchange.lag_steps=3", "checkpoint.every=4", "log.every=6"]
late_program = None
nccl_folder = None  # of what tests/cuda/emulated/nccl.c and aware.c are built to


def on_late(bench, *arguments, environment=None):
    """The command whose `cuda` is late, which is fast."""
    emulated, bench.program = bench.program, late_program
    result = bench.run(*arguments, environment={**LATE, **(environment or {})})
    bench.program = emulated
    return result


def train_late(bench, *overrides, environment=None):
    return on_late(bench, "train", "t.yaml", *overrides, environment=environment)


def device_of(name, bench):
    return bench.summary(name)["device"]


def chosen(bench):
    """auto takes the GPU, or says why not; cuda demands it; cpu, and a backend by name, leave it alone."""
    for overrides, environment, device, said in (
            (["cluster.device=auto"], None, "GPU 0 (GPU-00000000): emulated GPU", "group 0: device: cuda (GPU 0 (GPU-00000000): emulated GPU"),
            ([], NO_GPU, "oneDNN", "group 0: device: cpu (there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it)"),
            ([CUDA], None, "GPU 0 (GPU-00000000): emulated GPU", "group 0: device: cuda (GPU 0"),
            (["cluster.device=cpu"], None, "oneDNN", None),
            ([CUDA, "train.backend=cpu"], NO_GPU, "oneDNN", None)):
        result = bench.trained(*SHORT, *overrides, "checkpoint.resume=never", f"name=n{len(overrides)}{device[0]}", environment=environment)
        check(device_of(f"n{len(overrides)}{device[0]}", bench).startswith(device), "another device", result)
        check(said in result.err if said else "device:" not in result.err, f"not said: {said}", result)
    bench_step = ["bench", "step", "--batch", "1", "--patch", "8", "--repeats", "1", "blocks=1", "channels=8"]
    for more, said in (([], True), (["--device", "cpu"], False)):
        result = bench.run(*bench_step, *more, environment=NO_GPU)
        words = "device: cpu (there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it)"
        check(result.code == 0 and (words in result.err) == said, "why a bench took the processor", result)
    result = bench.train(*SHORT, CUDA, "name=none", environment=NO_GPU)
    check(result.code == 1 and "cluster.device: cuda: there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it; "
          "`cpu` computes without a GPU, and `auto` where there is none" in result.err, "not refused", result)
    result = bench.train(*SHORT, "train.precision=auto", "name=half")
    check(bench.summary("half")["precision"] == "bf16", "auto is not bf16", result)


def integers(done, gpu):
    """Precision int8 of a model that has layers of 16 channels: not what bf16 gives, but close to it and to ref's int8."""
    model = "runs/wide/final.safetensors"
    done("train", "t.yaml", *SHORT, "cluster.device=cpu", "name=wide", "model.channels=16", err="")
    figures = {}
    for name, more in (("bf16", [*gpu, "--precision", "bf16"]), ("int8", [*gpu, "--precision", "int8"]), ("ref", ["--backend", "ref", "--precision", "int8"])):
        result = done("eval", model, "--data", "photos", "--json", *more, err="" if name == "ref" else "device: cuda")
        figures[name] = json.loads(result.out)["mean"]["psnr_y"]
    check(figures["int8"] != figures["bf16"], f"the layers did not run on integers: {figures}")
    check(all(abs(figures["int8"] - figures[other]) < 0.05 for other in ("bf16", "ref")), f"{figures}")
    done("upscale", model, "photos/a.png", "-o", "small.png", "--precision", "int8", *gpu, part="144x128")


def commands(bench):
    """Every command that computes, on the GPU."""
    gpu, model = ["--device", "cuda"], "runs/t/final.safetensors"

    def done(*arguments, part="", err="device: cuda (GPU 0 (GPU-00000000): emulated GPU"):
        result = bench.run(*arguments)
        check(result.code == 0 and part in result.out and err in result.err, f"no '{part}' or '{err}'", result)
        return result

    bench.write("photos/a.png", png(36, 32, 1))
    bench.write("c.yaml", CLASSES)
    bench.write("points.csv", csv(40))
    done("plan", "t.yaml", CUDA, part="cuda:0")
    done("train", "t.yaml", *SHORT, CUDA)
    figures = [json.loads(done("eval", model, "--data", "photos", "--json", "--device", device, err=err).out)["mean"]["psnr_y"]
               for device, err in (("cuda", "device: cuda"), ("cpu", ""))]
    check(abs(figures[0] - figures[1]) < 0.2, f"{figures}")
    done("eval", model, "--data", "photos", "--backend", "ref", err="")
    done("upscale", model, "photos/a.png", "-o", "big.png", *gpu, part="144x128")
    integers(done, gpu)
    done("bench", "upscale", model, "--size", "16x8", "--repeats", "1", *gpu, part="emulated GPU")
    tiny = ["--batch", "1", "--patch", "8", "--repeats", "1", *gpu, "blocks=1", "channels=8"]
    done("bench", "step", *tiny, part="emulated GPU", err="")
    result = on_late(bench, "bench", "teacher", *tiny)
    check(result.code == 0 and "every 4: step ms" in result.out, "bench teacher", result)
    done("compare", "t.yaml", *SHORT, CUDA, "name=c", "--strategies", "single,allreduce", part="allreduce")
    done("train", "c.yaml", *SHORT, CUDA, "data.kind=iris", "data.path=points.csv", "train.strategy=single", "cluster.groups=1")
    done("eval", "runs/c/final.safetensors", "--data", "points.csv", *gpu, part="accuracy")
    result = bench.run("eval", model, "--data", "photos", *gpu, environment=NO_GPU)
    check(result.code == 1 and "--device: cuda: there is no NVIDIA GPU" in result.err, "not refused", result)


def strategies(bench):
    """The strategies that no other case has on the GPU; those whose groups meet did so."""
    fragments = ["diloco.period=4", "diloco.fragments=2", "diloco.overlap_steps=1"]
    for strategy, name, meetings, *overrides in (
            ["model_parallel", "stages", 0, "cluster.ranks_per_group=2", "model_parallel.stages=2"],
            ["local_sgd", "local", 2, "cluster.groups=2", *LOCAL_SGD[1:], "local_sgd.period=2"],
            ["diloco", "outer", 2, "cluster.groups=2", *DILOCO[1:], "diloco.period=2"],
            ["diloco", "fragments", 2, "cluster.groups=2", *fragments],
            ["noloco", "pairs", 2, "cluster.groups=2", *NOLOCO[1:], "noloco.period=2"]):
        result = bench.trained(*SHORT, CUDA, f"train.strategy={strategy}", f"name={name}", *overrides)
        check(device_of(name, bench).startswith("GPU 0 (GPU-00000000): emulated GPU"), "another device", result)
        merges = [group["merges"] for group in bench.summary(name)["group_results"]]
        check(all(count >= meetings for count in merges), f"{name}: the groups met {merges} times")


def servers(bench):
    """Servers and what a node's ranks share, on the GPU: the bits of the strategies that they are equal to."""
    fixed = [*SHORT, CUDA, "train.precision=f32", "train.allreduce=flat", "train.ema=0.9", "model.norm=batch", "train.bucket_kb=1"]
    two = "cluster.ranks_per_group=2"
    served = "async_parameter_server"
    runs = {"allreduce": ["train.strategy=allreduce", two],
            "central": ["train.strategy=central_storage", two],
            "server": ["train.strategy=parameter_server", "cluster.ranks_per_group=3"],
            "single": ["train.strategy=single"],
            "async": [f"train.strategy={served}", "cluster.ranks_per_group=3", f"{served}.servers=2", f"{served}.max_delay=0"]}
    for name, overrides in runs.items():
        result = bench.trained(*fixed, *overrides, f"name={name}")
        check(device_of(name, bench).startswith("GPU 0 (GPU-00000000): emulated GPU"), "another device", result)
    models = {name: read_safetensors(bench.path("runs", name, "final.safetensors")) for name in runs}
    for name, other in (("central", "allreduce"), ("server", "allreduce"), ("async", "single")):
        check(models[name] == models[other], f"{name} has other weights than {other}")
    check(models["single"] != models["allreduce"], "all runs are one: the case shows nothing")


def taught(bench, name):
    """Each group switched teachers and merged, and one had losses toward a teacher."""
    results = bench.summary(name)["group_results"]
    lines = [line for group in range(2) for line in bench.metrics(name, group)]
    check(all(result["pulls"] > 0 for result in results), f"nothing was pulled: {results}")
    check(any(line["distill_loss"] for line in lines), f"nothing was taught: {lines}")


def mixed(bench):
    """A group on a device beside one on the processor: they exchange, or meet, whatever each computes on."""
    both = ["group 0: device: cuda (", "group 0: memory of the device for a rank, MB: weights"]
    for name, *overrides in (["codistill", "train.steps=60", *SOON], ["local_sgd", *LOCAL_SGD[1:], "local_sgd.period=2"]):
        overrides += [f"train.strategy={name}", MIXED, "train.deterministic=true"]
        result = train_late(bench, *SHORT, *overrides, f"name={name}")
        check(result.code == 0 and all(part in result.err for part in both) and "group 1: memory of the device" not in result.err,
              "another device", result)
        if name == "codistill":
            taught(bench, name)
    result = bench.trained(*SHORT, "train.precision=auto", "train.strategy=codistill", "train.deterministic=true", *SOON, MIXED, "name=emulated", "train.steps=10")
    check("group 0: device: cuda (GPU 0 (GPU-00000000): emulated GPU" in result.err, "another device", result)
    taught(bench, "emulated")
    devices = [group["device"] for group in bench.summary("emulated")["group_results"]]
    check("emulated GPU" in devices[0] and devices[1].startswith("oneDNN"), f"the groups' devices: {devices}")


def mpirun(bench, *ranks, overrides=()):
    """A job in which each rank has an environment of its own."""
    command = [MPIEXEC]
    for environment in ranks:
        command += [":"] * (len(command) > 1) + ["-n", "1", "env", *(f"{key}={value}" for key, value in environment.items()), bench.program,
                                                 "train", "t.yaml", *SHORT, *overrides]
    done = subprocess.run(command, cwd=bench.folder, env={**os.environ, **bench.environment}, capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, f"the job failed\n{done.stdout}{done.stderr}")
    return done.stderr


def places(bench):
    """Ranks take GPUs in turn, and share those that are fewer; a group's ranks compute on one kind."""
    two = ["train.strategy=allreduce", "cluster.ranks_per_group=2"]
    result = bench.trained(*SHORT, *two, CUDA, "name=one")
    check(re.search(r"^2 ranks of \S+ compute on one device \(GPU 0 \(GPU-00000000\): emulated GPU.*they take turns, unless NVIDIA's MPS", result.err, re.M),
          "sharing is not said", result)
    result = bench.trained(*SHORT, *two, CUDA, "name=two", environment={"COD_CUDA_GPUS": "0,1"})
    check("compute on one device" not in result.err, "each has its own", result)
    said = mpirun(bench, {"COD_CUDA_GPUS": "3"}, {"COD_CUDA_GPUS": "4"}, overrides=[*two, CUDA, "name=apart"])
    check("compute on one device" not in said, f"GPUs that have one number but are two\n{said}")
    # The groups on the processor do not count: with two GPUs the ranks of groups 0 and 2 have one each.
    groups = "cluster.groups=[{ranks: 1, device: cuda}, {ranks: 1, device: cpu}, {ranks: 1, device: cuda}]"
    result = bench.trained(*SHORT, "train.strategy=codistill", groups, "name=three", environment={"COD_CUDA_GPUS": "0,1"})
    check("group 2: device: cuda (GPU 1 (GPU-01000000): " in result.err and "compute on one device" not in result.err, "places are wasted", result)
    said = mpirun(bench, {}, NO_GPU, overrides=[*two, "name=part"])
    check("group 0: device: cpu (another rank of the group has no GPU that it can use)" in said, f"one of two ranks has a GPU\n{said}")
    check(device_of("part", bench).startswith("oneDNN"), "not on the processor")


def memory(bench):
    """What is needed stands beside what is free, when all is well and when it is not."""
    wide = ["model.channels=64", "model.blocks=4", "data.batch=4", "train.ema=0.9"]
    result = train_late(bench, *SHORT, *wide, CUDA, "name=enough")
    told = re.search(r"memory of the device for a rank, MB: (.*): ([\d.]+) in all; [\d.]+ of [\d.]+ are free", result.err)
    check(result.code == 0 and told, "no plan of the memory", result)
    parts = dict(part.rsplit(" ", 1) for part in told[1].split(", "))
    check({"weights", "gradients", "moments", "moving average", "activations", "inputs and outputs"} <= set(parts), f"{parts}")
    check(abs(sum(map(float, parts.values())) - float(told[2])) < 0.5, f"{parts} are not {told[2]}")
    check(abs(float(parts["moments"]) - 2 * float(parts["weights"])) < 0.2, f"{parts}")
    for room, needed in ((2, "weights"), (8, "activations"), (9, "activations")):
        result = train_late(bench, *SHORT, *wide, CUDA, f"name=room{room}", environment={"COD_LATE_MEMORY_MB": str(room)})
        check(result.code == 1 and re.search(rf"out of memory: [\d.]+ MB are needed, [\d.]+ are free; training needs in the device's memory, in MB: "
                                             rf"weights [\d.]+, gradients [\d.]+, moments .*{'' if needed == 'weights' else needed}.*; [\d.]+ of {room}.0 are free. "
                                             "A smaller data.batch", result.err), f"{room} MB", result)
    result = bench.train(*SHORT, *wide, CUDA, "name=gpu", environment={"COD_CUDA_MEMORY_MB": "8"})
    check(result.code == 1 and "the GPU is out of memory: " in result.err and "training needs in the device's memory, in MB: weights" in result.err, "the GPU's words", result)
    result = bench.train(*SHORT, CUDA, "name=graph", environment={"COD_CUDA_GRAPHS_FAIL": "1"})
    check(result.code == 1 and re.search(r"CUDA: cudaGraphInstantiate.*: out of memory; training needs in the device's memory, in MB: weights [\d.]+, gradients [\d.]+, .*"
                                         r"activations [\d.]+.* are free. A smaller data.batch", result.err), "the first step's recording", result)
    # What is made later than the session: the weights of the first evaluation. A teacher on integers is compiled, and counted, before the first step.
    teacher = ["cluster.groups=2", "train.strategy=codistill", *SOON, "distill.teacher_precision=int8", "data.batch=2", "train.steps=8", "train.deterministic=true"]
    # `ref` is what computes on integers on every processor.
    for name, overrides, within in (("evaluated", [], {}), ("integers", teacher, {"COD_TEST_LATE": "cuda-ref"})):
        result = train_late(bench, *SHORT, *wide, CUDA, *overrides, f"name={name}", environment=within)
        told = re.search(r"memory of the device for a rank, MB: .*: ([\d.]+) in all", result.err)
        check(result.code == 0 and told, "no plan of the memory", result)
        room = str(int(float(told[1])) + 1)
        result = train_late(bench, *SHORT, *wide, CUDA, *overrides, f"name={name}-short", environment={**within, "COD_LATE_MEMORY_MB": room})
        check(result.code == 1 and re.search(r"the late device is out of memory: [\d.]+ MB are needed, [\d.]+ are free; training needs in the device's "
                                             rf"memory, in MB: weights [\d.]+, .*; [\d.]+ of {room}.0 are free", result.err), f"{name}: {room} MB", result)
    # An evaluation while training, and the commands that run models: on their first window, when the rest has its memory.
    bench.write("photos/a.png", png(300, 400))
    bench.trained(*SHORT, *wide, "train.backend=cpu", "name=wide")
    for command in (["eval", "runs/wide/final.safetensors", "--data", "photos"],
                    ["upscale", "runs/wide/final.safetensors", "photos", "-o", "big"]):
        result = on_late(bench, *command, "--device", "cuda", environment={"COD_LATE_MEMORY_MB": "4"})
        check(result.code == 1 and re.search(r"out of memory: [\d.]+ MB are needed, [\d.]+ are free; the network needs in the device's memory, in MB: weights "
                                             r"[\d.]+, activations [1-9][\d.]+, inputs and outputs [\d.]+, and what plans keep for themselves; [\d.]+ of 4.0 "
                                             r"are free. A smaller tile \(--tile\), or the processor \(--device cpu\), needs less", result.err), command[0], result)


def planned_and_told(bench, run, *overrides, training=SHORT):
    """What `plan` says of a rank's memory on the device, by part; training says the same when it starts."""
    parts = {}
    for command, more in (("plan", []), ("train", training)):
        result = run(bench, command, "t.yaml", *overrides, *more)
        told = re.search(r"(?:in the device's memory|group 0: memory of the device for a rank), MB: (.*): [\d.]+ in all", result.out + result.err)
        check(result.code == 0 and told, f"{command} says no sizes", result)
        parts[command] = {part: float(size) for part, size in (part.rsplit(" ", 1) for part in told[1].split(", "))}
    check(parts["plan"].keys() == parts["train"].keys(), f"{overrides}: {parts}")
    check(all(abs(size - parts["train"][part]) <= 0.3 for part, size in parts["plan"].items()), f"{overrides}: {parts}")
    return parts["plan"]


def planned(bench):
    """`plan` says what training says when it starts; teachers, and what the exchange has there, are counted in both."""
    setup = [CUDA, "cluster.groups=2", "train.strategy=codistill", *SOON]
    wide = ["model.channels=64", "model.blocks=4", "data.batch=4"]
    for run, sizes, prefix in ((on_late, wide, "late"), (type(bench).run, ["model.channels=32"], "coded")):
        beside = {}
        for name, overrides in (("none", ["distill.weight=0", "exchange.merge=none"]), ("merged", ["distill.weight=0"]), ("taught", [])):
            parts = planned_and_told(bench, run, *setup, *sizes, *overrides, f"name={prefix}-{name}")
            beside[name] = parts["teachers and exchange"]
        check(beside["none"] < beside["merged"] < beside["taught"], f"{beside}")
    # Where ranks update a part each, moments are of that.
    wide, moments = ["model.channels=64", "model.blocks=4", "train.ema=0.9", "cluster.ranks_per_group=4", CUDA], {}
    for name, *overrides in (["allreduce"], ["parameter_server"], ["central_storage"], ["async_parameter_server", "async_parameter_server.servers=3"]):
        parts = planned_and_told(bench, on_late, *wide, f"train.strategy={name}", *overrides, f"name=part-{name}")
        moments[name] = parts["moments"] / parts["weights"]
    for name, expected in (("allreduce", 2), ("parameter_server", 2), ("central_storage", 2 / 4), ("async_parameter_server", 2 / 3)):
        check(abs(moments[name] - expected) < 0.1, f"{moments}")


def recomputed(bench):
    """train.recompute=cheap: plan and training say the same smaller size of the activations, weights keep their bits, and who has too little memory hears of it."""
    sizes = ["model.norm=batch", "model.channels=16", "model.blocks=6", "data.batch=4", "train.strategy=single"]
    taught_soon = ["model.blocks=3", "data.batch=2", "train.strategy=codistill", "cluster.groups=2", *SOON, "train.deterministic=true"]
    for run, prefix, model, more in ((on_late, "late", "final", []), (type(bench).run, "emulated", "group.1", taught_soon)):
        activations, models = {}, {}
        for choice in ("none", "cheap"):
            name = f"{prefix}-{choice}"
            parts = planned_and_told(bench, run, *sizes, *more, CUDA, f"train.recompute={choice}", f"name={name}", training=[*SHORT, "train.steps=6"])
            activations[choice] = parts["activations"]
            models[choice] = read_safetensors(bench.path("runs", name, f"{model}.safetensors"))
        check(activations["cheap"] < 0.9 * activations["none"], f"{prefix}: {activations}")
        check(models["cheap"] == models["none"], f"{prefix}: other weights")
    taught(bench, "emulated-cheap")
    for choice, hint in (("none", "train.recompute=cheap, train.precision=bf16"), ("cheap", "in return, train.precision=bf16")):
        result = train_late(bench, *SHORT, *sizes, CUDA, f"train.recompute={choice}", f"name=short-{choice}", environment={"COD_LATE_MEMORY_MB": "1"})
        check(result.code == 1 and hint in result.err, f"too little memory, {choice}", result)


def copies(bench):
    """All ways to the GPU are timed; 10 s of work for the emulated one's kernels."""
    result = bench.run("bench", "copy", "--batch", "1", "--patch", "4", "--mib", "1", "--repeats", "1", "--json", "--device", "cuda", "blocks=1", "channels=4",
                       "head_kernel=3", "tail_kernel=3")
    check(result.code == 0 and "device: cuda (GPU 0 (GPU-00000000): emulated GPU" in result.err, "bench copy", result)
    figures = json.loads(result.out)
    for way in ("pageable", "pinned", "mapped", "uint8"):
        check(all(row[way] > 0 for row in figures["transfers"]) and figures["steps"][way]["step_ms"] > 0, f"bench copy, {way}: {figures}")


def older(bench):
    """A run from before there was cluster.device, when the backend was cpu, is what it was."""
    bench.trained(*SHORT, "train.backend=cpu")
    path = bench.path("runs/t/config.yaml")
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"  device: auto[^\n]*\n", "", file.read())
    check("  device:" not in text and "backend: cpu" in text, text)
    bench.write("runs/t/config.yaml", text)
    result = bench.trained(*SHORT)
    check("nothing is left to do" in result.err and "another configuration" not in result.err, "the finished run", result)
    result = bench.run("train", "runs/t/config.yaml", "train.steps=6", "name=again")
    check(result.code == 0 and "device:" not in result.err and device_of("again", bench).startswith("oneDNN"), "its own configuration", result)


def averages(bench):
    """Gradients of a group go through NCCL where each rank has a GPU of its own: to the bits that MPI's way has for two ranks."""
    two = [*SHORT, CUDA, "train.strategy=allreduce", "cluster.ranks_per_group=2", "train.bucket_kb=1", "train.precision=f32"]
    gpus = {"COD_CUDA_GPUS": "0,1"}
    nccl = {**gpus, "LD_LIBRARY_PATH": nccl_folder}
    models = {}
    for name, overrides, environment, said in (
            ("nccl", [], nccl, "group 0: gradients are averaged by NCCL, between its GPUs"),
            ("flat", ["train.allreduce=flat"], nccl, None),
            # Without the stand-in: NVIDIA's own, which is loaded where it is installed and finds no GPU, or none.
            ("absent", [], gpus, "group 0: gradients are averaged by MPI, through the host's memory"),
            ("shared", [], {**nccl, "COD_CUDA_GPUS": "0"}, "(several of its ranks compute on one GPU, and NCCL wants one for each; "),
            ("broken", [], {**nccl, "COD_NCCL_BROKEN": "1"}, "as a better way failed (NCCL 2.27.7: cannot begin: unhandled system error; ")):
        result = bench.trained(*two, *overrides, f"name={name}", environment=environment)
        check(said in result.err if said else "averaged by" not in result.err, f"not said: {said}", result)
        models[name] = read_safetensors(bench.path("runs", name, "final.safetensors"))
    check(all(model == models["flat"] for model in models.values()), f"other weights: {[m == models['flat'] for m in models.values()]}")
    for overrides, environment, said in (
            ([], gpus, "train.allreduce=nccl: group 0: "),
            (["cluster.device=cpu"], nccl, "train.allreduce=nccl: group 0: backend 'cpu' has no averages of its own")):
        result = bench.train(*two, "train.allreduce=nccl", *overrides, "name=refused", environment=environment)
        check(result.code == 1 and said in result.err, f"not refused: {said}", result)
    # One GPU under two numbers, as each process counts those that it sees.
    err = mpirun(bench, nccl, {**nccl, "COD_CUDA_GPUS": "1,0"}, overrides=[*two[len(SHORT):], "name=twice"])
    check("several of its ranks compute on one GPU" in err, f"one GPU counts twice\n{err}")
    # One rank alone cannot: the other is not left waiting in ncclCommInitRank(), and both take MPI's way.
    alone = {**nccl, "COD_NCCL_NO_VERSION": "1"}
    err = mpirun(bench, nccl, alone, overrides=[*two[len(SHORT):], "name=alone"])
    check("averaged by MPI, through the host's memory" in err and "libnccl.so.2 cannot tell its version: internal error" in err,
          f"one rank without NCCL\n{err}")
    check(read_safetensors(bench.path("runs", "alone", "final.safetensors")) == models["flat"], "other weights where one rank has no NCCL")
    bench.refused("leave out train.allreduce=nccl", "train", "t.yaml", *two, "train.allreduce=nccl", "train.allreduce_codec=int8", "name=refused")


def direct(bench):
    """Where MPI says that it is CUDA-aware, its messages begin and end in the GPUs' memory, to the bits of the way through the host's for two ranks."""
    two = [*SHORT, CUDA, "train.strategy=allreduce", "cluster.ranks_per_group=2", "train.bucket_kb=1", "train.precision=f32"]
    gpus = {"COD_CUDA_GPUS": "0,1"}
    aware = {**gpus, "COD_CUDA_UNWATCHED": "1", "LD_PRELOAD": os.path.join(nccl_folder, "libmpi_aware.so")}
    both = {**aware, "LD_LIBRARY_PATH": nccl_folder}
    between = "group 0: gradients are averaged by MPI, between its GPUs"
    unaware = re.escape("does not say that it is CUDA-aware")
    models = {}
    for name, overrides, environment, said in (
            ("direct", ["train.allreduce=direct"], both, re.escape(between) + "$"),
            ("flat", ["train.allreduce=flat"], both, None),
            ("auto", [], aware, re.escape(between + " (no NCCL: ") + "|" + re.escape(between + ", as a better way failed (NCCL ")),
            ("nccl", [], both, "group 0: gradients are averaged by NCCL, between its GPUs"),
            ("shared", [], {**both, "COD_CUDA_GPUS": "0"}, re.escape(between) + r" \(several of its ranks compute on one GPU, and NCCL wants one for each\)"),
            ("again", ["train.deterministic=true"], both, re.escape(between) + "$"),
            ("unaware", [], {**both, "COD_CUDA_GPUS": "0", "COD_MPI_UNAWARE_RANK": "1"},
             f"averaged by MPI, through the host's memory, as a better way failed \\(several .*; rank 1 on .* failed: .* {unaware}\\)")):
        result = bench.trained(*two, *overrides, f"name={name}", environment=environment)
        check(re.search(said, result.err, re.M) if said else "averaged by" not in result.err, f"not said: {said}", result)
        models[name] = read_safetensors(bench.path("runs", name, "final.safetensors"))
    del models["again"] # fixed implementations have bits of their own
    check(all(model == models["flat"] for model in models.values()), f"other weights: {[m == models['flat'] for m in models.values()]}")
    for overrides, environment, said in (
            ([], gpus, unaware), (["cluster.device=cpu"], aware, "backend 'cpu' gives MPI no addresses")):
        result = bench.train(*two, "train.allreduce=direct", *overrides, "name=refused", environment=environment)
        check(result.code == 1 and re.search(f"train.allreduce=direct: group 0: .*{said}", result.err), f"not refused: {said}", result)
    bench.refused("leave out train.allreduce=direct", "train", "t.yaml", *two, "train.allreduce=direct", "train.allreduce_codec=int8", "name=refused")
    # On a device that runs late, and ends the run where something is out of order.
    for way in ("direct", "flat"):
        result = train_late(bench, *two, "train.accumulate=2", f"train.allreduce={way}", f"name=late-{way}", environment=aware)
        check(result.code == 0 and (between in result.err) == (way == "direct"), f"late, {way}", result)
        models[way] = read_safetensors(bench.path("runs", f"late-{way}", "final.safetensors"))
    check(models["direct"] == models["flat"], "other weights on a late device")


def without_cuda(bench):
    """For the command without CUDA, in the place of CODISTILL_EMULATED: auto takes the processor and says why, cuda is refused."""
    result = bench.trained("cluster.device=auto", "train.steps=4", "name=auto")
    check("group 0: device: cpu (this build has no CUDA)" in result.err, "why it is the processor", result)
    result = bench.train("cluster.device=cuda", "train.steps=4", "name=cuda")
    check(result.code == 1 and "cluster.device: cuda: this build has no CUDA" in result.err, "not refused", result)


CASES = {
    "chosen": chosen, "commands": commands, "strategies": strategies, "servers": servers, "mixed": mixed, "places": places, "memory": memory, "planned": planned, "recomputed": recomputed,
    "copies": copies, "older": older, "averages": averages, "direct": direct, "without-cuda": without_cuda,
    # Two groups that code what they exchange on the GPU: killed once and resumed, they end with the bits of a run in one piece.
    "killed-2x1": killed("2x1", 1, None, CUDA, PATIENT, *OFTEN),
    "killed-2x2": killed("2x2", 1, None, CUDA, PATIENT, *OFTEN, "model.norm=batch")}

if __name__ == "__main__":
    late_program = os.path.abspath(sys.argv[2])
    nccl_folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1]))), "cuda", "nccl")
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[3:]))
