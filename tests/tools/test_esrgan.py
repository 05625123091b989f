#!/usr/bin/env python3
"""The recipe esrgan, end to end: python3 test_esrgan.py CODISTILL [CASE ...]; cases that begin with `late` take codistill_late, `cuda` codistill_emulated."""

import json
import math
import os
import struct
import sys

from test_late import same
from test_srgan import BOUNDS, near_ref, with_vgg, write_vgg
from test_train import SETUPS, killed, steps_saved
from train_support import check, parse_safetensors, read_safetensors, run_cases

SMALL = ["train.recipe=esrgan", "gan.features=3", "gan.hidden=5"]
GAN = [*SMALL, "model.norm=batch", "gan.content=[vgg11]", "gan.content_weight=0.1", "gan.perceptual_file=vgg.safetensors"]
LOSSES = ["adversarial.real", "adversarial.fake", "content", "pixel", "d_real", "d_fake"]


def saved(bench, name, step, group=0):
    return read_safetensors(bench.path("runs", name, "t", "checkpoints", f"step-{step:09d}", f"group-{group}.safetensors"))


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def trains(bench):
    """Losses are those of the paper, the exported model is the generator, the content is learnt."""
    write_vgg(bench)
    bench.trained("output=runs/a", "log.every=1", *SETUPS["single"], *GAN, "data.batch=1", "train.schedule=constant")
    lines, summary = bench.metrics("a/t", 0), bench.summary("a/t")
    check(summary["losses"] == LOSSES, f"{summary['losses']}")
    for line in lines[3:-1]:  # losses are known two steps late, the last ones together; of one picture, a mean is its own logit
        lead = line["logit.real"] - line["logit.fake"]
        for name, sign in (("d_real", -1), ("d_fake", -1)):
            expected = math.log1p(math.exp(sign * lead))
            check(abs(line[f"loss.{name}"] - expected) < 1e-4 * (1 + expected), f"{name}: {expected} in {line}")
    check(sum(line["loss.content"] for line in lines[-10:]) < sum(line["loss.content"] for line in lines[3:13]), "the content was not learnt")
    check(all(line["guard.pictures_noisy"] == 0 and line["detail.fake"] > 0 for line in lines[3:]), "details")
    header, _ = parse_safetensors(bench.path("runs", "a", "t", "final.safetensors"))
    check("head.0.weight" in header and not any(name.startswith(("conv", "bn", "linear", "features")) for name in header), f"{header}")


def write_discriminator(bench, value):
    """As BasicSR's net_d for 32 pixels a side."""
    shapes, before = {}, 3
    for block, channels in enumerate((3, 6, 12)):
        shapes |= {f"conv{block}_0.weight": [channels, before, 3, 3], f"conv{block}_1.weight": [channels, channels, 4, 4]}
        for norm in [f"bn{block}_1"] + ([f"bn{block}_0"] if block else []):
            shapes |= {f"{norm}.{what}": [channels] for what in ("weight", "bias", "running_mean", "running_var")}
        before = channels
    shapes |= {"conv0_0.bias": [3], "linear1.weight": [5, 192], "linear1.bias": [5], "linear2.weight": [1, 5], "linear2.bias": [1]}
    header, data = {}, b""
    for name, shape in shapes.items():
        count = math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack("<f", value) * count
    header = json.dumps(header).encode()
    bench.write("net_d.safetensors", struct.pack("<Q", len(header)) + header + data)


def begins(bench):
    """A discriminator begins with a file's weights; NaN among them is refused."""
    write_discriminator(bench, 0.5)
    bench.trained("output=runs/a", *SETUPS["single"], *SMALL, "gan.content=pixel", "gan.discriminator_init=net_d.safetensors",
                  "gan.rate=1e-12", "train.steps=10")
    values = floats(saved(bench, "a", 10)["discriminator.values"])
    check(sum(abs(v - 0.5) < 1e-5 for v in values) > 4000, f"{values[:20]} of {len(values)}")
    # What the run leaves begins another one.
    left, given = (read_safetensors(bench.path(*path)) for path in (("runs", "a", "t", "discriminator.0.safetensors"), ("net_d.safetensors",)))
    check(left.keys() == given.keys(), f"another discriminator was left: {left.keys()}")
    bench.trained("output=runs/c", *SETUPS["single"], *SMALL, "gan.content=pixel", "gan.discriminator_init=runs/a/t/discriminator.0.safetensors",
                  "gan.warm_up=9", "gan.rate=1e-12", "train.steps=10")
    values = floats(saved(bench, "c", 10)["discriminator.values"])
    check(sum(abs(v - 0.5) < 1e-5 for v in values) > 4000, f"it began elsewhere: {values[:20]} of {len(values)}")
    write_discriminator(bench, math.nan)
    result = bench.train("output=runs/b", *SETUPS["single"], *SMALL, "gan.content=pixel", "gan.discriminator_init=net_d.safetensors")
    check(result.code == 1 and "net_d.safetensors: tensor 'conv0_0.weight' holds NaN" in result.err, "NaN was taken", result)


def travels(bench):
    """Two groups' discriminators are merged where they travel; the generators teach each other all the same."""
    apart = {}
    for name in ("home", "away"):
        bench.trained(f"output=runs/{name}", "train.deterministic=true", *SETUPS["2x1"], *SMALL, "gan.content=pixel",
                      f"gan.discriminator_travels={str(name == 'away').lower()}")
        check([s["travels"] for s in bench.summary(f"{name}/t")["sets"]] == [True, name == "away"], f"{name}: what travels")
        check(any(line["distill_loss"] for line in bench.metrics(f"{name}/t", 1)), "nothing was taught")
        first, second = (floats(saved(bench, name, 60, group)["discriminator.values"]) for group in range(2))
        apart[name] = math.dist(first, second)
    print(apart)
    check(0 < apart["away"] < 0.75 * apart["home"], f"the discriminators lie {apart} apart")


def diverges(bench):
    """A discriminator whose weights are no numbers any more ends the run; nothing of such a step is saved or exported."""
    result = bench.train("output=runs/a", *SETUPS["single"], *SMALL, "gan.content=pixel", "train.optimiser=sgd", "train.schedule=constant",
                         "train.rate=1e-3", "gan.rate=1000", "train.steps=1000", "checkpoint.every=1")
    check(result.code == 1 and "became NaN or infinite at step" in result.err, "it went on", result)
    check("first bad weight: " in result.err and "try a lower train.rate or gan.rate" in result.err, "not said", result)
    check("; the last good checkpoint" in result.err or "; no checkpoint" in result.err, "not said", result)
    check(not os.path.exists(bench.path("runs", "a", "t", "final.safetensors")), "a model was exported")
    for step in steps_saved(bench.path("runs", "a", "t", "checkpoints")):
        check(all(math.isfinite(v) for v in floats(saved(bench, "a", step)["discriminator.values"])), f"step {step} was saved")


def wild(bench):
    """Guards warn of a generator that makes noise, and nothing of it is kept: neither as the best nor at the end."""
    result = bench.train("output=runs/a", *SETUPS["single"], *SMALL, "gan.content=pixel", "train.rate=0.3", "train.schedule=constant",
                         "log.every=5", "eval.every=20", "checkpoint.every=20")
    lines = bench.metrics("a/t", 0)
    check(result.code == 1 and "the model has diverged and is neither saved nor exported: detail.fake - detail.real is" in result.err, "not told", result)
    check(result.err.count("guard pictures_noisy: ") == 1, "not one warning", result)
    check(lines[-1]["guard.pictures_noisy"] == 1 and lines[-1]["detail.fake"] > lines[-1]["detail.real"] + 0.4, f"{lines[-1]}")
    check(steps_saved(bench.path("runs", "a", "t", "checkpoints")) == [], "a checkpoint was saved")
    for name in ("final.safetensors", "group.0.safetensors", "checkpoints/best.group-0.safetensors"):
        check(not os.path.exists(bench.path("runs", "a", "t", name)), f"{name} was written")


def on_a_gpu(bench):
    """Some steps on the emulated GPU end near those on `ref`."""
    bounds = {**BOUNDS, **dict.fromkeys(("loss.adversarial.real", "loss.adversarial.fake"), BOUNDS["loss.adversarial"])}
    del bounds["loss.adversarial"]
    near_ref(bench, "single", 1, GAN, bounds)


CASES = {"trains": trains, "cuda": on_a_gpu, "begins": begins, "travels": travels, "diverges": diverges, "wild": wild,
         "killed-2x1": with_vgg(killed("2x1", 2, None, *GAN, "gan.every=2", "gan.discriminator_travels=true")),
         "late-2x1": with_vgg(same("t.yaml", *SETUPS["2x1"], *GAN, "gan.discriminator_travels=true"))}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
