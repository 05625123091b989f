"""PyTorch's side of tools/gpu-check.sh: training steps in bf16 as a good user writes them, eager and in PyTorch's strongest form:
torch.compile with the whole step in one CUDA graph. Prints a line of JSON for each."""
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

from step_pytorch import SRResNet

ROUNDS, STEPS = 15, 4


class Bottleneck(nn.Module):
    """ResNet-50's block (He et al. 2016)."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.f = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.f(x) + self.skip(x))


def resnet50():
    layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def mlp():
    sizes = [784, 1024, 1024, 1024]
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(1024, 10))


CASES = [("srresnet", lambda: SRResNet(64, 16), (batch, 3, 24, 24)) for batch in (16, 64, 256)]
CASES += [("mlp", mlp, (batch, 1, 28, 28)) for batch in (100, 10000)] + [("resnet50", resnet50, (64, 3, 224, 224))]


def timed(run, count):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / count


def measure(make, shape, strongest):
    """(milliseconds of a step, MiB) with one fixed batch on the device."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = make().cuda().to(memory_format=torch.channels_last)
    x = torch.rand(shape, device="cuda").contiguous(memory_format=torch.channels_last)
    pictures = len(model(x[:2]).shape) == 4
    y = torch.rand(shape[0], 3, 4 * shape[2], 4 * shape[3], device="cuda") if pictures else torch.randint(10, (shape[0],), device="cuda")
    optimiser = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)
    forward = torch.compile(model) if strongest else model

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = forward(x)
        (F.l1_loss if pictures else F.cross_entropy)(out.float(), y).backward()
        optimiser.step()

    for _ in range(5):
        step()
    run, inside = step, 1
    if strongest:
        torch.cuda.synchronize()
        graph, inside = torch.cuda.CUDAGraph(), STEPS
        with torch.cuda.graph(graph):
            for _ in range(STEPS):
                step()
        run = graph.replay
    times = [timed(run, 3) / inside for _ in range(ROUNDS)]
    return statistics.median(times), torch.cuda.max_memory_allocated() / 2**20


def main():
    torch.cuda.set_stream(torch.cuda.Stream())  # captures may not touch the legacy stream
    torch.backends.cudnn.benchmark = True
    for name, make, shape in CASES:
        for form in ("eager", "compiled, one graph"):
            torch._dynamo.reset()
            ms, mib = measure(make, shape, form != "eager")
            print(json.dumps({"model": name, "batch": shape[0], "pytorch": form, "step_ms": round(ms, 4), "peak_mib": round(mib)}), flush=True)


if __name__ == "__main__":
    main()
