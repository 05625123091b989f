#!/usr/bin/env python3
"""The recipe srgan, end to end: python3 test_srgan.py CODISTILL [CASE ...]

Cases that begin with `late` take codistill_late, those that begin with `cuda` codistill_emulated.
"""

import json
import math
import random
import shutil
import struct
import sys

from test_eval import write_network, write_picture
from test_late import goes_on, same
from test_train import SETUPS, killed, same_checkpoints
from train_support import check, check_near_ref, kill_job, parse_safetensors, read_safetensors, run_cases, steps_saved, tries, wait_for_steps

GAN = ["train.recipe=srgan", "model.norm=batch", "gan.content=vgg11", "gan.pixel_weight=1", "gan.content_weight=0.1", "gan.features=3",
       "gan.hidden=5", "gan.perceptual_file=vgg.safetensors"]
# Frozen, but lighter; on two layers.
SQUEEZED = ["train.recipe=srgan", "model.norm=batch", "gan.content=[squeeze1, 0.5*squeeze3]", "gan.pixel_weight=1", "gan.content_weight=0.01",
            "gan.features=3", "gan.hidden=5", "gan.perceptual_file=squeezenet.safetensors"]
LESSONS = ["distill.loss=features", "distill.weight=0.5"]
WARM = ["gan.warm_up=7", "gan.label_smoothing=0.1", "gan.rate=1e-4", "gan.schedule=step", "gan.milestones=20"]
ACCUMULATE = ["train.accumulate=2", "gan.warm_up=4"]


def write_vgg(bench):
    """The first layer of VGG-19."""
    draw, header, data = random.Random(3), {}, b""
    for name, shape in (("features.0.weight", [64, 3, 3, 3]), ("features.0.bias", [64])):
        count = math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *(draw.gauss(0, 0.2) for _ in range(count)))
    header = json.dumps(header).encode()
    bench.write("vgg.safetensors", struct.pack("<Q", len(header)) + header + data)


def with_vgg(case):
    def run(bench):
        write_vgg(bench)
        case(bench)
    return run


def with_squeezenet(case):
    def run(bench):
        write_network(bench)
        case(bench)
    return run


def trains(bench):
    """Losses, rates and the discriminator's means are told; the generator rests at first; the model file is the generator alone."""
    write_vgg(bench)
    bench.trained("output=runs/a", "log.every=1", "train.schedule=constant", *SETUPS["single"], *GAN, *WARM)
    lines, summary = bench.metrics("a/t", 0), bench.summary("a/t")
    check(len(lines) == 60, f"{len(lines)} lines")
    for line in lines[3:]:
        rests = line["step"] - 3 < 7  # losses are known two steps late
        for name in ("content", "adversarial", "pixel"):
            check((line[f"loss.{name}"] is None) == rests, f"step {line['step']}: loss.{name} is {line[f'loss.{name}']}")
        check(line["loss.content"] == line["task_loss"], f"{line}")
        check(line["loss.d_real"] > 0 and line["loss.d_fake"] > 0, f"{line}")
        # ln(1 + e^x) is convex: the loss is at least that of the mean logit.
        check(line["loss.d_fake"] >= math.log1p(math.exp(line["logit.fake"])) - 1e-6, f"{line}")
        check(abs(line["lr.discriminator"] - (1e-4 if line["step"] <= 20 else 5e-5)) < 1e-12 and line["lr"] == 1e-3, f"{line}")
    check(sum(line["loss.content"] for line in lines[-10:]) < sum(line["loss.content"] for line in lines[9:19]), "the content was not learnt")
    check(summary["losses"] == ["adversarial", "content", "pixel", "d_real", "d_fake"], f"{summary['losses']}")
    sets = [(s["name"], s.get("optimiser"), s["travels"]) for s in summary["sets"]]
    check(sets == [("model", "adam", True), ("discriminator", "adam", False), ("perceptual", None, False)], f"{sets}")
    header, _ = parse_safetensors(bench.path("runs", "a", "t", "final.safetensors"))
    check("head.0.weight" in header and not any(name.startswith(("features", "classifier", "normalise")) for name in header), f"{header}")
    saved = [read_safetensors(bench.path("runs", "a", "t", "checkpoints", f"step-0000000{step}", "group-0.safetensors")) for step in (50, 60)]
    check(saved[0]["perceptual.values"] == saved[1]["perceptual.values"], "the frozen network moved")
    check(saved[0]["discriminator.values"] != saved[1]["discriminator.values"], "the discriminator stood still")


def judges(bench):
    """A discriminator that learns alone comes to tell the truth from what the generator gives."""
    bench.trained("output=runs/a", "train.recipe=srgan", "gan.features=8", "gan.hidden=16", "gan.rate=1e-3", "gan.warm_up=149",
                  "train.strategy=single", "train.schedule=constant", "train.steps=150", "data.batch=8", "train.deterministic=true")
    lines = bench.metrics("a/t", 0)
    check(lines[-1]["logit.real"] > lines[-1]["logit.fake"] + 1, f"{lines[-1]}")
    check(lines[-1]["loss.d_real"] + lines[-1]["loss.d_fake"] < 0.8 * 2 * math.log(2), f"{lines[-1]}")


def groups(bench):
    """Two groups: generators meet and teach each other, each discriminator stays at home."""
    write_vgg(bench)
    bench.trained("output=runs/a", "train.deterministic=true", *SETUPS["2x1"], *GAN, *WARM)
    saved = [read_safetensors(bench.path("runs", "a", "t", "checkpoints", "step-000000060", f"group-{g}.safetensors")) for g in range(2)]
    check(saved[0]["discriminator.values"] != saved[1]["discriminator.values"], "the discriminators are one")
    check(saved[0]["perceptual.values"] == saved[1]["perceptual.values"], "the perceptual networks differ")
    results = bench.summary("a/t")["group_results"]
    check(all(r["merges"] > 0 and r["teacher_switches"] > 0 for r in results), f"{results}")
    check(any(line["distill_loss"] for line in bench.metrics("a/t", 1)), "nothing was taught")


def squeezes(bench):
    """The content is that of two layers of SqueezeNet, which stays as it is."""
    write_network(bench)
    bench.trained("output=runs/a", "log.every=1", "train.schedule=constant", *SETUPS["single"], *SQUEEZED)
    lines, summary = bench.metrics("a/t", 0)[3:], bench.summary("a/t")
    check(summary["losses"] == ["adversarial", "content.squeeze1", "content.squeeze3", "pixel", "d_real", "d_fake"], f"{summary['losses']}")
    for name in ("content.squeeze1", "content.squeeze3"):
        first, last = (sum(line[f"loss.{name}"] for line in part) for part in (lines[:10], lines[-10:]))
        check(0 < last < first, f"{name} was {first} and is {last}")
    steps = [bench.path("runs", "a", "t", "checkpoints", f"step-0000000{step}", "group-0.safetensors") for step in (50, 60)]
    first, last = (read_safetensors(path)["perceptual.values"] for path in steps)
    check(first == last and len(first) > 4 * (64 * 27 + 3 * 64 * 16), "the frozen network moved")


def lessons(bench):
    """Two groups teach each other in the features of the frozen network, and are held against each other by pixels."""
    write_vgg(bench)
    write_network(bench)
    told = {}
    for name, gan in (("vgg", GAN), ("squeezed", SQUEEZED)):
        for loss in ("features", "l1"):
            output = f"{name}-{loss}"
            bench.trained(f"output=runs/{output}", "train.deterministic=true", "log.every=1", *SETUPS["2x1"], *gan, f"distill.loss={loss}",
                          "distill.weight=0.5")
            lines = bench.metrics(f"{output}/t", 1)
            told[output] = [line["distill_loss"] for line in lines if line["distill_loss"] is not None]
            check(len(told[output]) > 20 and all(value > 0 for value in told[output]), f"{output}: {told[output]}")
            peer, pixels = lines[-1]["peers"][0], [line["loss.pixel"] for line in lines[-15:]]
            for key in ("teacher_loss", "student_loss"):
                check(0.5 * min(pixels) < peer[key] < 2 * max(pixels), f"{output}: {key} is {peer[key]}, the losses of pixels {pixels}")
        check(told[f"{name}-features"][0] != told[f"{name}-l1"][0], f"{name}: features are compared as pixels: {told}")
        values = [read_safetensors(bench.path("runs", f"{name}-{loss}", "t", "checkpoints", "step-000000060", "group-0.safetensors"))["values"]
                  for loss in ("features", "l1")]
        check(values[0] != values[1], f"{name}: the lessons taught the same")
    result = bench.train("output=runs/b", *SETUPS["2x1"], "train.recipe=srgan", *LESSONS)
    check(result.code == 2 and "distill.loss: features: the content loss of recipe 'srgan' compares pixels" in result.err, "pixels", result)


def strategies(bench):
    """Each recipe where groups average: generators meet, discriminators do where they travel."""
    write_vgg(bench)
    recipes = {"srgan": GAN, "esrgan": [*GAN, "train.recipe=esrgan"], "real_esrgan": [*GAN, "train.recipe=real_esrgan", "gan.hidden=0"]}
    for recipe, gan in recipes.items():
        for strategy, travels in (("local_sgd", "true"), ("diloco", "false")):
            output = f"{recipe}-{strategy}"
            bench.trained(f"output=runs/{output}", f"train.strategy={strategy}", "cluster.groups=2", f"{strategy}.period=10", "train.steps=20", *gan,
                          "gan.warm_up=3", f"gan.discriminator_travels={travels}")
            saved = [read_safetensors(bench.path("runs", output, "t", "checkpoints", "step-000000020", f"group-{g}.safetensors")) for g in range(2)]
            check(saved[0]["values"] == saved[1]["values"], f"{output}: the generators did not meet")
            one = saved[0]["discriminator.values"] == saved[1]["discriminator.values"]
            check(one == (travels == "true"), f"{output}: whether the discriminators are one: {one}")


def checkpoints_are_models(bench):
    """A group's part of a checkpoint is exported, evaluated and upscales as the run's model of that step; to train on, it is refused."""
    write_vgg(bench)
    write_picture(bench, "photos/a.png", 48, 40, 1)
    for name, ema in (("average", "eval.ema=true"), ("plain", "eval.ema=false")):
        bench.trained(f"output=runs/{name}", *SETUPS["single"], *GAN, "train.ema=0.9", ema)
        files = [f"runs/{name}/t/final.safetensors", f"runs/{name}/t/checkpoints/step-000000060/group-0.safetensors"]
        for i, file in enumerate(files):
            bench.done("export", file, "-o", f"{name}{i}.safetensors")
            for command in (["upscale", file, "photos/a.png", "-o", f"{name}{i}.png"], ["eval", file, "--data", "photos", "--json"]):
                result = bench.done(*command)
            told = result.out if i == 0 else told
            check(result.out == told, "the checkpoint has other figures", result)
        for ending in ("safetensors", "png"):
            check(bench.read(f"{name}0.{ending}") == bench.read(f"{name}1.{ending}"), f"{name}: another .{ending}")
    check(bench.read("average0.safetensors") != bench.read("plain0.safetensors"), "the average is the model")
    result = bench.train("output=runs/c", *SETUPS["single"], *GAN, f"model.init={files[1]}")
    check(result.code == 1 and "is a checkpoint of a run, not a model file" in result.err, "training began with it", result)


GPU_STEPS = 8
SMALL = ["data.patch=4", "model.channels=4", "gan.features=2", f"train.steps={GPU_STEPS}", "train.schedule=constant", "train.deterministic=true",
         "exchange.period=2", "exchange.lag_steps=1", "distill.burn_in=1", "distill.ramp=1", "gan.warm_up=2", "eval.every=0", "checkpoint.every=4",
         "log.every=1", "log.tensorboard=false", "log.samples=0"]
# In f32 sums are rounded in another order, 1e-7 of each. Where that turns the sign of a value at LeakyReLU or of a difference in an L1 loss, that
# value's gradient is another: the discriminator's figures and the moments differ by more.
BOUNDS = {"values": 5e-5, "adam_m": 3e-3, "adam_v": 5e-4, "discriminator.values": 2e-3, "loss.content": 1e-5, "loss.pixel": 1e-5, "distill_loss": 1e-4,
          **dict.fromkeys(("loss.adversarial", "loss.d_real", "loss.d_fake"), 5e-4), "logit.real": 2e-3, "logit.fake": 2e-3}


def near_ref(bench, setup, groups, gan=GAN, bounds=BOUNDS):
    """A run on the emulated GPU that ends near the same run on `ref`."""
    write_vgg(bench)
    for output, device in (("ref", "train.backend=ref"), ("cuda", "cluster.device=cuda")):
        bench.trained(f"output=runs/{output}", *SETUPS[setup], *gan, *SMALL, device)
    for result in bench.summary("cuda/t")["group_results"]:
        check(result["device"].startswith("GPU 0 (GPU-00000000): emulated GPU"), f"another device: {result['device']}")
    check_near_ref(bench, "runs/ref/t", "runs/cuda/t", setup, GPU_STEPS, groups, bounds)


def on_a_gpu(bench):
    """Alone; killed after a checkpoint and resumed, it ends with the same bits."""
    near_ref(bench, "single", 1)
    arguments = ["train", "t.yaml", "output=runs/killed", *SETUPS["single"], *GAN, *SMALL, "cluster.device=cuda"]
    for _ in tries():  # the kill may come when the run is over
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "killed/t", 5)
        kill_job(process)
        process.communicate()
        if steps_saved(bench.path("runs/killed/t/checkpoints")) == [4]:
            break
        shutil.rmtree(bench.path("runs/killed"))
    result = bench.run(*arguments)
    check(result.code == 0 and "resumed at step 4" in result.err, "it did not go on", result)
    same_checkpoints(bench, "runs/cuda", "runs/killed", GPU_STEPS)


def groups_on_a_gpu(bench):
    """Two groups: generators meet and teach each other there as on `ref`."""
    near_ref(bench, "2x1", 2)
    results = bench.summary("cuda/t")["group_results"]
    check(all(r["merges"] > 0 and r["teacher_switches"] > 0 for r in results), f"{results}")
    check(any(line["distill_loss"] for line in bench.metrics("cuda/t", 1)), "nothing was taught")


CASES = {"trains": trains, "judges": judges, "groups": groups, "squeezes": squeezes, "lessons": lessons, "strategies": strategies,
         "checkpoints": checkpoints_are_models, "cuda": on_a_gpu, "cuda-2x1": groups_on_a_gpu,
         "killed-single": with_vgg(killed("single", 2, None, *GAN, *WARM)),
         "killed-accumulate": with_vgg(killed("allreduce", 2, None, *GAN, *ACCUMULATE)),
         "killed-2x1": with_vgg(killed("2x1", 2, None, *GAN, *WARM)),
         "killed-lessons": with_squeezenet(killed("2x1", 2, None, *SQUEEZED, *LESSONS, "distill.inputs=mixup", "train.accumulate=2")),
         "late-lessons": with_squeezenet(same("t.yaml", *SETUPS["2x1"], *SQUEEZED, *LESSONS)),
         "late-single": with_vgg(same("t.yaml", *SETUPS["single"], *GAN)),
         "late-2x1": with_vgg(same("t.yaml", *SETUPS["2x1"], *GAN)),
         "late-killed": with_vgg(goes_on("single", *GAN, *WARM))}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
