#!/usr/bin/env python3
"""PyTorch's training step of SRResNet 16 x 64, batch 16 of 24x24 -> 96x96 on the CPU: eager, channels-last, f32 and bf16.

usage: step_pytorch.py [THREADS]; prints median ms of 5 steps for each precision. For comparison with `codistill bench step`.
"""
import statistics
import sys
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.PReLU(),
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return x + self.f(x)


class SRResNet(nn.Module):
    def __init__(self, c=64, n=16):
        super().__init__()
        up = [nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()]
        up2 = [nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()]
        self.head = nn.Sequential(nn.Conv2d(3, c, 9, padding=4), nn.PReLU())
        self.body = nn.Sequential(*[Block(c) for _ in range(n)], nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(*up, *up2, nn.Conv2d(c, 3, 9, padding=4))

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


def median_ms(bf16):
    torch.manual_seed(1)
    net = SRResNet().to(memory_format=torch.channels_last)
    low = torch.rand(16, 3, 24, 24).contiguous(memory_format=torch.channels_last)
    high = torch.rand(16, 3, 96, 96).contiguous(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = net(low)
        nn.functional.l1_loss(out.float(), high).backward()
        adam.step()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name, bf16 in (("f32", False), ("bf16", True)):
        print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} thread(s), {name}: {median_ms(bf16):.0f} ms")
