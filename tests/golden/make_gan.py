#!/usr/bin/env python3
"""Writes gan.bin: twenty steps of SRGAN trained by PyTorch in f64, for tests/gan/test_srgan.c.

    /opt/codvenv/bin/python tests/golden/make_gan.py

The format is that of models.bin (make_models.py). A case's options are "key=value …" of a run's configuration. Tensors: "input.B" and
"target.B" of the batches, which come in turn; "start.SET.NAME" and "end.SET.NAME" of both networks; "losses" {steps, 4}: content,
adversarial, d_real and d_fake, 0 where the generator rests; "logits" {steps, 2}: means of real and fake.
Weights of the perceptual network are not stored: both sides make them by known_values().
"""

import pathlib
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from gan_networks import VGG, Discriminator, f32

torch.set_default_dtype(torch.float64)
torch.manual_seed(20260924)

STEPS, BATCHES, N, LOW, HIGH = 20, 4, 3, 6, 24


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
    return vgg.requires_grad_(False)


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


def case(name, options, content, warm_up=0, smoothing=0.0, milestone=None, pixel_weight=0.0, adversarial_weight=1e-3):
    tensors = {}

    def put(key, tensor):
        tensors[key] = tensor.detach().to(torch.float32).numpy().copy()

    nets = {"model": Generator(), "discriminator": Discriminator(HIGH, HIGH, 2, 4)}
    g, d = nets.values()
    batches = [(torch.rand(N, 3, LOW, LOW).float().double(), torch.rand(N, 3, HIGH, HIGH).float().double()) for _ in range(BATCHES)]
    for b, (x, y) in enumerate(batches):
        put(f"input.{b}", x)
        put(f"target.{b}", y)
    for key, net in nets.items():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = f32(1e-5), f32(0.1)
        with torch.no_grad():
            for parameter, value in net.state_dict().items():
                if value.is_floating_point():
                    value.copy_(value.float().double())
                    put(f"start.{key}.{parameter}", value)
    optimisers = [torch.optim.Adam(net.parameters(), lr=1, betas=(f32(0.9), f32(0.999)), eps=f32(1e-8)) for net in (g, d)]
    losses, logits = [], []
    for step in range(STEPS):
        x, y = batches[step % BATCHES]
        optimisers[0].param_groups[0]["lr"] = f32(1e-3)
        optimisers[1].param_groups[0]["lr"] = f32(5e-4 * (0.5 if milestone is not None and step >= milestone else 1))
        row = [0.0, 0.0]
        if step < warm_up:
            with Frozen(g), torch.no_grad():
                fake = g(x)
        else:
            optimisers[0].zero_grad()
            fake = g(x)
            with Frozen(d):
                loss, adversarial = content(fake, y), bce(d(fake), 1)
                total = loss + f32(adversarial_weight) * adversarial
                if pixel_weight:
                    total = total + f32(pixel_weight) * F.l1_loss(fake, y)
                total.backward()
            optimisers[0].step()
            row = [loss.item(), adversarial.item()]
        optimisers[1].zero_grad()
        real, judged = d(y), d(fake.detach())
        d_real, d_fake = bce(real, 1 - smoothing), bce(judged, 0)
        (d_real + d_fake).backward()
        optimisers[1].step()
        losses.append(row + [d_real.item(), d_fake.item()])
        logits.append([real.mean().item(), judged.mean().item()])
    put("losses", torch.tensor(losses))
    put("logits", torch.tensor(logits))
    for key, net in nets.items():
        for parameter, value in net.state_dict().items():
            if value.is_floating_point():
                put(f"end.{key}.{parameter}", value)
    cases.append((name, "srgan", options, "", "", tensors))


cases = []
case("pixels", "gan.adversarial_weight=0.1", F.l1_loss, adversarial_weight=0.1)
case("warm-up, smoothed labels, a schedule", "gan.warm_up=3 gan.label_smoothing=0.1 gan.schedule=step gan.milestones=8 train.loss=mse",
     F.mse_loss, warm_up=3, smoothing=0.1, milestone=8)
vgg = known_vgg(9)
case("features and pixels", "gan.content=vgg22 gan.pixel_weight=0.01", lambda fake, y: F.mse_loss(vgg(fake), vgg(y)), pixel_weight=0.01)
early = known_vgg(3)
case("features before their activation", "gan.content=vgg12 gan.before_activation=true gan.feature_loss=l1",
     lambda fake, y: F.l1_loss(early(fake), early(y)))


def text(value):
    return struct.pack("<B", len(value)) + value.encode()


with open(pathlib.Path(__file__).parent / "gan.bin", "wb") as file:
    file.write(b"CODM" + struct.pack("<II", 2, len(cases)))
    for name, kind, options, loss_name, optimiser_name, tensors in cases:
        file.write(b"".join(map(text, (name, kind, options, loss_name, optimiser_name))) + struct.pack("<I", len(tensors)))
        for key, array in tensors.items():
            file.write(text(key) + struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + array.astype("<f4").tobytes())
