#!/usr/bin/env python3
"""Writes models.bin: whole models trained for three steps by PyTorch in f64, for tests/nn/test_torch.c.

    /opt/codvenv/bin/python tests/golden/make_models.py

Tensors have PyTorch's names and layout (OIHW, NCHW). Starting values and batches are rounded to f32 first; all are stored as f32.

Format, little endian, no padding:
    "CODM", u32 version = 1, u32 number of cases; then for each case
    string name, string kind ("flat" is built by the test), string options ("key=value …"), string optimiser,
    u32 number of tensors, each: string name, u32 rank, u32 dimensions, f32 elements
    string = u8 length, bytes
Tensors: "input", "target"; "losses" of the three steps; "start.NAME"; "grad.NAME" and "stat.NAME" of the first step;
"end.NAME" after the third; "output" of the model in eval mode after the third.
"""

import pathlib
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(20240229)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.PReLU(),
                               nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return x + self.f(x)


class SRResNet(nn.Module):
    """Ledig et al. 2017, scale 2."""

    def __init__(self, c=8, blocks=2):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, c, 5, 1, 2), nn.PReLU())
        self.body = nn.Sequential(*[Block(c) for _ in range(blocks)], nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(c, 3, 5, 1, 2))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body(x))


class ResidualBlockNoBN(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x)))


class MSRResNet(nn.Module):
    """BasicSR's, scale 4."""

    def __init__(self, c=8, blocks=2):
        super().__init__()
        self.conv_first = nn.Conv2d(3, c, 3, 1, 1)
        self.body = nn.Sequential(*[ResidualBlockNoBN(c) for _ in range(blocks)])
        self.upconv1, self.upconv2 = nn.Conv2d(c, 4 * c, 3, 1, 1), nn.Conv2d(c, 4 * c, 3, 1, 1)
        self.conv_hr, self.conv_last = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1)

    def forward(self, x):
        def lrelu(t):
            return F.leaky_relu(t, float(np.float32(0.1)))
        out = self.body(lrelu(self.conv_first(x)))
        out = lrelu(F.pixel_shuffle(self.upconv1(out), 2))
        out = lrelu(F.pixel_shuffle(self.upconv2(out), 2))
        return self.conv_last(lrelu(self.conv_hr(out))) + F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 5))

    def forward(self, x):
        return self.layers(x)


class Flat(nn.Module):
    """A linear layer behind images: its columns are in C, H, W order here and in H, W, C order in the flat buffer."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(4 * 3 * 2, 5)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)).flatten(1))


def case(name, kind, options, model, x, target, loss_of, optimiser_name, optimiser, clip=0):
    tensors = {}

    def put(key, tensor):
        tensors[key] = tensor.detach().to(torch.float32).numpy().copy()

    x = x.float().double()
    target = target.float().double()
    put("input", x)
    put("target", target)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.float().double())
                put("start." + key, value)
    model.train()
    losses = []
    for step in range(3):
        optimiser.zero_grad()
        loss = loss_of(model(x), target)
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            for key, value in model.named_parameters():
                put("grad." + key, value.grad)
            for key, value in model.named_buffers():
                if value.is_floating_point():
                    put("stat." + key, value)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
    put("losses", torch.tensor(losses))
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            put("end." + key, value)
    model.eval()
    put("output", model(x))
    cases.append((name, kind, options, optimiser_name, tensors))


cases = []
srresnet, msrresnet, mlp, flat = SRResNet(), MSRResNet(), MLP(), Flat()
adam = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
case("srresnet", "srresnet", "blocks=2 channels=8 scale=2 head_kernel=5 tail_kernel=5", srresnet, torch.rand(2, 3, 6, 5),
     torch.rand(2, 3, 12, 10), F.mse_loss, "adam", torch.optim.Adam(srresnet.parameters(), **adam))
case("msrresnet", "msrresnet", "num_feat=8 num_block=2 scale=4", msrresnet, torch.rand(1, 3, 4, 5), torch.rand(1, 3, 16, 20),
     F.l1_loss, "adamw", torch.optim.AdamW(msrresnet.parameters(), weight_decay=0.01, **adam))
case("mlp", "mlp", "inputs=12 hidden=16,9 classes=5", mlp, torch.randn(6, 12), F.one_hot(torch.tensor([0, 4, 2, 1, 3, 2])).double(), F.cross_entropy,
     "sgd", torch.optim.SGD(mlp.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3), clip=0.3)
case("flat", "flat", "", flat, torch.randn(3, 3, 6, 4), F.one_hot(torch.tensor([0, 4, 2])).double(), F.cross_entropy, "adam",
     torch.optim.Adam(flat.parameters(), **adam))


def text(value):
    return struct.pack("<B", len(value)) + value.encode()


with open(pathlib.Path(__file__).parent / "models.bin", "wb") as file:
    file.write(b"CODM" + struct.pack("<II", 1, len(cases)))
    for name, kind, options, optimiser_name, tensors in cases:
        file.write(text(name) + text(kind) + text(options) + text(optimiser_name) + struct.pack("<I", len(tensors)))
        for key, array in tensors.items():
            file.write(text(key) + struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + array.astype("<f4").tobytes())
