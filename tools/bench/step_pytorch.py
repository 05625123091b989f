"""PyTorch's side of step_vs_pytorch: a training step of SRResNet as a good user writes it, on our weights and our batch.

step_pytorch.py FOLDER VARIANT THREADS: FOLDER holds model.safetensors and batch.safetensors as `codistill bench step --export` writes
them; VARIANT is {f32,bf16}-{eager,compile}. Runs a step at once and then one for each line read; each is answered by {"ms", "loss"}.
"""
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def read_safetensors(path):
    """(tensors by name, metadata); a format simple enough not to need its library."""
    data = bytearray(pathlib.Path(path).read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        first, last = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[end + first:end + last], dtype=torch.float32).reshape(entry["shape"])
    return tensors, metadata


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.PReLU(),
            nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return x + self.f(x)


class SRResNet(nn.Module):
    def __init__(self, c, n):
        super().__init__()
        up = lambda: [nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()]
        self.head = nn.Sequential(nn.Conv2d(3, c, 9, padding=4), nn.PReLU())
        self.body = nn.Sequential(*[Block(c) for _ in range(n)], nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(*up(), *up(), nn.Conv2d(c, 3, 9, padding=4))

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


def main(folder, variant, threads):
    torch.set_num_threads(int(threads))
    precision, mode = variant.split("-")
    weights, metadata = read_safetensors(f"{folder}/model.safetensors")
    options = json.loads(metadata["codistill.options"])
    net = SRResNet(int(options["channels"]), int(options["blocks"]))
    net.load_state_dict(weights, strict=True)
    net = net.to(memory_format=torch.channels_last).train()
    batch, _ = read_safetensors(f"{folder}/batch.safetensors")
    # Our pictures are NHWC: seen as NCHW they are channels-last, without a copy.
    low, high = batch["input"].permute(0, 3, 1, 2), batch["target"].permute(0, 3, 1, 2)
    assert low.is_contiguous(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), 1e-4, fused=True)
    forward = torch.compile(net) if mode == "compile" else net

    def step():
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.l1_loss(forward(low), high)
        loss.backward()
        adam.step()
        return loss

    while True:
        start = time.perf_counter()
        loss = step()
        ms = 1e3 * (time.perf_counter() - start)
        print(json.dumps({"ms": ms, "loss": loss.item(), "version": torch.__version__}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
