#!/usr/bin/env python3
"""Writes RECIPE.bin for each adversarial recipe: twenty steps trained by PyTorch in f64 and in f32, for tests/gan/small_gan.c.

    python3 tests/golden/make_gan.py [RECIPE ...]

The format is that of models.bin (make_models.py). A case's kind is the recipe, its options are "key=value …" of a run's configuration,
its loss is the names of the losses, separated by blanks. Tensors: "input.B" and "target.B" of the batches, which come in turn, and "sharp.B",
sharpened targets, where losses take these;
"start.SET.NAME" of both networks; "end.SET.NAME"; "losses" {steps, names}, 0 where the generator rests; "logits" {steps, 2}: means of
real and fake. The last three are of the run in f64; those of the run in f32 have "f32." before their names. Weights of the perceptual
network are not stored: both sides make them by known_values().
"""

import copy
import pathlib
import struct
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from usm import sharpen
from gan_networks import VGG, Discriminator, UNetDiscriminator, VGGStyleDiscriminator, f32

torch.set_default_dtype(torch.float64)

STEPS, BATCHES, N = 20, 4, 3


class Generator(nn.Module):
    """SRResNet of one block, scale 4, with kernels of 3."""

    def __init__(self, c=4):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1), nn.PReLU())
        block = nn.Module()
        block.f = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.PReLU(),
                                nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.body = nn.Sequential(block, nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(c, 4 * c, 3, 1, 1),
                                  nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(c, 3, 3, 1, 1))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body[2](self.body[1](x + self.body[0].f(x))))


def known_values(count, layer, scale):
    """Element i is (h/2^32 - 1/2)·scale with h = 2654435761·i + 40503·layer modulo 2^32."""
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(40503 * layer)) % np.uint64(1 << 32)
    return torch.from_numpy(((h.astype(np.float64) / 2**32 - 0.5) * scale).astype(np.float32).astype(np.float64))


def known_vgg(layers):
    vgg = VGG(64, layers)
    with torch.no_grad():
        for p in vgg.normalise.parameters():
            p.copy_(p.float().double())
        for index, layer in enumerate(vgg.features):
            if isinstance(layer, nn.Conv2d):
                scale = 4 / np.sqrt(9 * layer.in_channels)
                layer.weight.copy_(known_values(layer.weight.numel(), index, scale).view_as(layer.weight))
                layer.bias.copy_(known_values(layer.bias.numel(), index + 100, 0.2))
    vgg.requires_grad_(False)
    nets = {torch.float64: vgg, torch.float32: copy.deepcopy(vgg).float()}
    return lambda pictures: nets[pictures.dtype](pictures)


def sharpened(pictures):
    """BasicSR's USMSharp, rounded to f32: what the loader gives is."""
    return torch.from_numpy(np.stack([[sharpen(channel * 255) / 255 for channel in picture] for picture in pictures.numpy()])).float().double()


class Frozen:
    """Keeps a network's running statistics where they are."""

    def __init__(self, net):
        self.net = net

    def __enter__(self):
        self.kept = {name: buffer.clone() for name, buffer in self.net.named_buffers()}

    def __exit__(self, *_):
        for name, buffer in self.net.named_buffers():
            buffer.copy_(self.kept[name])


def bce(logits, label):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, f32(label)))


def r1_penalty(truth, logits, gamma):
    """Mescheder et al. 2018, as a mean over elements with its weight."""
    gradient, = torch.autograd.grad(logits.sum(), truth, create_graph=True)
    return {"r1": (gamma / 2 * truth[0].numel(), gradient.pow(2).mean())}


class Plain:
    """Losses of Ledig et al. 2017."""

    def __init__(self, weight):
        self.weight = weight

    def generator(self, d, real, fake):
        return {"adversarial": (self.weight, bce(d(fake), 1))}

    def discriminator(self, real, fake, smoothing):
        return {"d_real": (1, bce(real, 1 - smoothing)), "d_fake": (1, bce(fake, 0))}


class Relativistic:
    """Losses of BasicSR's ESRGANModel."""

    def __init__(self, weight):
        self.weight = weight / 2

    def generator(self, d, real, fake):
        real, fake = d(real).detach(), d(fake)
        return {"adversarial.real": (self.weight, bce(real - fake.mean(), 0)), "adversarial.fake": (self.weight, bce(fake - real.mean(), 1))}

    def discriminator(self, real, fake, smoothing):
        return {"d_real": (0.5, bce(real - fake.mean().detach(), 1 - smoothing)), "d_fake": (0.5, bce(fake - real.mean().detach(), 0))}


def weighted(losses):
    return sum(f32(weight) * loss for weight, loss in losses.values())


def case(name, recipe, low, options, content, adversarial, discriminator, usm=False, **how):
    """content: {name: (weight, function of the made pictures and the truth)}; adversarial: Plain or Relativistic; discriminator: makes
    one; usm: whether `content` compares with sharpened truth; how: as train()."""
    tensors = {}

    def put(key, tensor):
        tensors[key] = tensor.detach().to(torch.float32).numpy().copy()

    nets = {"model": Generator(), "discriminator": discriminator()}
    batches = [(torch.rand(N, 3, low, low).float().double(), torch.rand(N, 3, 4 * low, 4 * low).float().double()) for _ in range(BATCHES)]
    batches = [(x, y, sharpened(y) if usm else y) for x, y in batches]
    for b, (x, y, sharp) in enumerate(batches):
        put(f"input.{b}", x)
        put(f"target.{b}", y)
        if usm:
            put(f"sharp.{b}", sharp)
    for key, net in nets.items():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = f32(1e-5), f32(0.1)
        with torch.no_grad():
            for parameter, value in net.state_dict().items():
                if value.is_floating_point():
                    value.copy_(value.float().double())
                    put(f"start.{key}.{parameter}", value)
    for prefix, dtype in (("", torch.float64), ("f32.", torch.float32)):
        own = {key: copy.deepcopy(net).to(dtype) for key, net in nets.items()}
        names, losses, logits = train(*own.values(), [[t.to(dtype) for t in batch] for batch in batches], content, adversarial, **how)
        put(f"{prefix}losses", torch.tensor(losses))
        put(f"{prefix}logits", torch.tensor(logits))
        for key, net in own.items():
            for parameter, value in net.state_dict().items():
                if value.is_floating_point():
                    put(f"{prefix}end.{key}.{parameter}", value)
    cases.append((name, recipe, options, " ".join(names), "", tensors))


def train(g, d, batches, content, adversarial, warm_up=0, every=1, smoothing=0.0, milestone=None, together=False, r1=0.0, r1_every=1):
    """Returns the losses' names, their values of each step, and the mean logits; together: d judges both kinds of pictures in one pass,
    with one step of its power iteration; r1, r1_every: the penalty, which has an update of its own unless it counts in each step."""
    optimisers = [torch.optim.Adam(net.parameters(), lr=1, betas=(f32(0.9), f32(0.999)), eps=f32(1e-8)) for net in (g, d)]
    rows, logits = [], []
    for step in range(STEPS):
        x, y, sharp = batches[step % BATCHES]
        row = {}
        optimisers[0].param_groups[0]["lr"] = f32(1e-3)
        optimisers[1].param_groups[0]["lr"] = f32(5e-4 * (0.5 if milestone is not None and step >= milestone else 1))
        if step >= warm_up and step % every == 0:
            optimisers[0].zero_grad()
            fake = g(x)
            with Frozen(d):
                losses = {key: (weight, function(fake, sharp)) for key, (weight, function) in content.items()}
                losses |= adversarial.generator(d, y, fake)
                weighted(losses).backward()
            optimisers[0].step()
            row |= losses
        if step < warm_up or every > 1:
            with Frozen(g), torch.no_grad():
                fake = g(x)
        optimisers[1].zero_grad()
        truth = y.clone().requires_grad_(r1 > 0)
        if together:
            real, judged = d(torch.cat([truth, fake.detach()])).chunk(2)
        elif isinstance(adversarial, Relativistic):
            real, judged = d(truth), d(fake.detach())
        else:  # the generator's sub-step computes the latter, and moves the running statistics
            judged, real = d(fake.detach()), d(truth)
        losses = adversarial.discriminator(real, judged, smoothing)
        if r1 > 0 and r1_every == 1:
            losses |= r1_penalty(truth, real, r1)
        weighted(losses).backward()
        optimisers[1].step()
        if r1 > 0 and r1_every > 1 and step % r1_every == 0:
            optimisers[1].zero_grad()
            again = d(truth)
            penalty = r1_penalty(truth, again, r1 * r1_every)
            (weighted(penalty) + 0 * again.sum()).backward()  # biases have a gradient of 0, not none, as in BasicSR
            optimisers[1].step()
            losses |= penalty
        rows.append(row | losses)
        logits.append([real.mean().item(), judged.mean().item()])
    names = list(max(rows, key=len))
    return names, [[row[n][1].item() if n in row else 0.0 for n in names] for row in rows], logits


def srgan():
    def one(name, options, content, weight=1e-3, **more):
        case(name, "srgan", 6, options, content, Plain(weight), lambda: Discriminator(24, 24, 2, 4), **more)

    one("pixels", "gan.adversarial_weight=0.1", {"content": (1, F.l1_loss)}, weight=0.1)
    one("warm-up, smoothed labels, a schedule",
        "gan.warm_up=3 gan.label_smoothing=0.1 gan.schedule=step gan.milestones=8 train.loss=mse", {"content": (1, F.mse_loss)},
        warm_up=3, smoothing=0.1, milestone=8)
    vgg = known_vgg(9)
    one("features and pixels", "gan.content=vgg22 gan.pixel_weight=0.01",
        {"content": (1, lambda fake, y: F.mse_loss(vgg(fake), vgg(y))), "pixel": (0.01, F.l1_loss)})
    early = known_vgg(3)
    one("features before their activation", "gan.content=vgg12 gan.before_activation=true gan.feature_loss=l1",
        {"content": (1, lambda fake, y: F.l1_loss(early(fake), early(y)))})


def esrgan():
    def one(name, options, content, weight=5e-3, **more):
        case(name, "esrgan", 4, options, content, Relativistic(weight), lambda: VGGStyleDiscriminator(16, 2, 4), **more)

    first, second, last = known_vgg(1), known_vgg(3), known_vgg(8)
    one("as published, but for the layer", "gan.content=vgg12",
        {"content": (1, lambda fake, y: F.l1_loss(second(fake), second(y))), "pixel": (0.01, F.l1_loss)})
    one("layers with weights, and a generator that rests",
        "gan.content=[vgg22,0.1*vgg11] gan.content_weight=0.5 gan.pixel_weight=0 gan.adversarial_weight=0.1 gan.every=2 gan.warm_up=3 "
        "gan.label_smoothing=0.1",
        {"content.vgg22": (0.5, lambda fake, y: F.l1_loss(last(fake), last(y))),
         "content.vgg11": (0.5 * 0.1, lambda fake, y: F.l1_loss(first(fake), first(y)))},
        weight=0.1, every=2, warm_up=3, smoothing=0.1)


def real_esrgan():
    def one(name, options, content, weight=0.1, **more):
        case(name, "real_esrgan", 6, options, content, Plain(weight), lambda: UNetDiscriminator(2), together=True, **more)

    first, second = known_vgg(3), known_vgg(8)
    one("as published, but for the layers", "gan.content=[0.1*vgg12,vgg22]",
        {"content.vgg12": (0.1, lambda fake, y: F.l1_loss(first(fake), first(y))),
         "content.vgg22": (1, lambda fake, y: F.l1_loss(second(fake), second(y))), "pixel": (1, F.l1_loss)})
    one("pixels, and a generator that rests", "gan.content=pixel gan.every=2 gan.warm_up=3 gan.label_smoothing=0.1",
        {"content": (1, F.l1_loss)}, every=2, warm_up=3, smoothing=0.1)
    one("the R1 penalty", "gan.content=pixel gan.r1=2", {"content": (1, F.l1_loss)}, r1=2)
    one("the R1 penalty in one of three steps", "gan.content=pixel gan.r1=0.5 gan.r1_every=3", {"content": (1, F.l1_loss)}, r1=0.5, r1_every=3)
    one("sharpened truth, but for the discriminator", "gan.content=[0.1*vgg12] gan.l1_gt_usm=auto gan.percep_gt_usm=auto",
        {"content": (0.1, lambda fake, y: F.l1_loss(first(fake), first(y))), "pixel": (1, F.l1_loss)}, usm=True)


def text(value):
    return struct.pack("<B", len(value)) + value.encode()


torch.backends.mkldnn.enabled = False  # whose rounding in f32 depends on the processor

RECIPES = {"srgan": srgan, "esrgan": esrgan, "real_esrgan": real_esrgan}
for recipe in sys.argv[1:] or RECIPES:
    cases = []
    torch.manual_seed(20261126 if recipe == "srgan" else 20260924)  # with others PyTorch's own f32 leaves its f64 in most cases
    RECIPES[recipe]()
    with open(pathlib.Path(__file__).parent / f"{recipe}.bin", "wb") as file:
        file.write(b"CODM" + struct.pack("<II", 2, len(cases)))
        for name, kind, options, loss_name, optimiser_name, tensors in cases:
            file.write(b"".join(map(text, (name, kind, options, loss_name, optimiser_name))) + struct.pack("<I", len(tensors)))
            for key, array in tensors.items():
                file.write(text(key) + struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + array.astype("<f4").tobytes())
