#!/usr/bin/env python3
"""What PyTorch's eager training steps in bf16 hold at most, counted without a GPU: live tensors of a step on tensors without data.

usage: gpu_memory.py      (needs PyTorch)

The networks are those of gpu_steps.py's goals, with SGD and momentum, SRResNet with Adam. Workspaces of cuDNN are not counted, nor what torch.compile would save.
"""
import pathlib
import sys
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools/bench"))
import networks

WIDE = ",".join(["1024"] * 10)
CASES = [("srresnet", "", (16, 24, 24, 3)), ("srresnet", "", (64, 24, 24, 3)), ("srresnet", "", (256, 24, 24, 3)),
         ("resnet50", "height=224 width=224 channels=3 classes=1000", (64, 224, 224, 3)),
         ("mlp", f"height=28 width=28 channels=1 classes=10 hidden={WIDE[:19]}", (100, 28, 28, 1)),
         ("mlp", f"height=28 width=28 channels=1 classes=10 hidden={WIDE[:19]}", (10000, 28, 28, 1)),
         ("mlp", f"height=28 width=28 channels=1 classes=10 hidden={WIDE}", (100, 28, 28, 1)),
         ("mlp", f"height=28 width=28 channels=1 classes=10 hidden={WIDE}", (10000, 28, 28, 1))]


class Live(TorchDispatchMode):
    """Counts the bytes of all tensors that live, each storage once."""

    def __init__(self):
        super().__init__()
        self.sizes, self.now, self.peak = {}, 0, 0

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.sizes:
            return
        self.sizes[key] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.drop, key)

    def drop(self, key):
        self.now -= self.sizes.pop(key, 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


def peak(model, options, shape):
    """The largest sum of live tensors in the second step, in bytes."""
    n, h, w, c = shape
    with FakeTensorMode(allow_non_fake_inputs=True):
        live = Live()
        net = networks.make(model, options)
        for tensor in (*net.parameters(), *net.buffers()):
            live.add(tensor)
        with live:
            x = networks.channels_last(torch.rand(n, c, h, w))
            y = torch.rand(n, 3, 4 * h, 4 * w) if model == "srresnet" else torch.rand(n, 1000 if model == "resnet50" else 10)
            optimiser = torch.optim.Adam(net.parameters()) if model == "srresnet" else torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
            for _ in range(2):
                live.peak = live.now
                optimiser.zero_grad(set_to_none=True)
                with torch.autocast("cpu", torch.bfloat16):
                    output = net(x)
                loss = networks.loss_of(model, output, y)
                loss.backward()
                del output, loss
                optimiser.step()
        return live.peak


if __name__ == "__main__":
    for case in CASES:
        print(f"{case[0]:9} {case[2][0]:6}  {1e-6 * peak(*case):8.1f} MB", flush=True)
