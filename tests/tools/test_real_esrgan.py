#!/usr/bin/env python3
"""The recipe real_esrgan, end to end: python3 test_real_esrgan.py CODISTILL [CASE ...]; cases that begin with `late` take codistill_late, `cuda` codistill_emulated."""

import math
import sys

from test_esrgan import floats, saved
from test_late import same
from test_srgan import near_ref, with_vgg, write_vgg
from test_train import SETUPS, killed
from train_support import check, parse_safetensors, run_cases

GAN = ["train.recipe=real_esrgan", "gan.features=3", "model.norm=batch", "gan.content=[vgg11]", "gan.content_weight=0.1",
       "gan.perceptual_file=vgg.safetensors"]
PENALISED = [*GAN, "gan.r1=0.1", "gan.r1_every=2"]  # the discriminator has two updates in every second step
# {outputs, inputs of an output} of the convolutions that are spectrally normalised.
NORMALISED = [(6, 48), (12, 96), (24, 192), (12, 216), (6, 108), (3, 54), (3, 27), (3, 27)]


def trains(bench):
    """Losses are of all pixels, the exported model is the generator, the content is learnt, the power iteration goes on."""
    write_vgg(bench)
    bench.trained("output=runs/a", "log.every=1", *SETUPS["single"], *GAN, "train.schedule=constant")
    lines, summary = bench.metrics("a/t", 0)[3:], bench.summary("a/t")  # losses are known some steps late
    check(summary["losses"] == ["adversarial", "content", "pixel", "d_real", "d_fake"], f"{summary['losses']}")
    for line in lines:  # ln(1 + e^x) is convex: the loss is at least that of the mean logit
        for name, mean in (("d_fake", line["logit.fake"]), ("d_real", -line["logit.real"])):
            check(line[f"loss.{name}"] >= math.log1p(math.exp(mean)) - 1e-6, f"{name} in {line}")
    check(sum(line["loss.content"] for line in lines[-10:]) < sum(line["loss.content"] for line in lines[:10]), "the content was not learnt")
    room = sum(-(-count // 16) * 16 for layer in NORMALISED for count in layer)  # arrays begin at multiples of 64 bytes
    states = floats(saved(bench, "a", 60)["discriminator.values"])[-room:]
    squares = sum(value ** 2 for value in states)  # of the vectors u and v, which have length 1 behind a step
    check(abs(squares - 2 * len(NORMALISED)) < 1e-4, f"the squares of u and v add up to {squares}")
    header, _ = parse_safetensors(bench.path("runs", "a", "t", "final.safetensors"))
    check("head.0.weight" in header and not any(name.startswith(("conv", "features", "normalise")) for name in header), f"{header}")


def on_a_gpu(bench):
    """Two groups on the emulated GPU, which merge and teach, end near those on `ref`: normalised weights within recordings."""
    near_ref(bench, "2x1", 2, [*GAN, "gan.r1=0.1"])


CASES = {"trains": trains, "cuda-2x1": on_a_gpu,
         "killed-2x1": with_vgg(killed("2x1", 2, None, *PENALISED, "gan.every=2", "gan.discriminator_travels=true")),
         "late-2x1": with_vgg(same("t.yaml", *SETUPS["2x1"], *PENALISED, "gan.discriminator_travels=true"))}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
