"""Digits in PyTorch, in processes that help each other: python3 exchange_torch.py GROUP GROUPS FOLDER [--mnist DIR] [--steps N]

Each group trains on a share of the digits that is its own, and sees no other. What the others have learnt is merged, and
teaches.
"""
import argparse
import gzip
import pathlib

import numpy
import torch

import codistill


def read(path):
    data = gzip.decompress(path.read_bytes())
    begin = 4 + 4 * data[3]
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=begin).copy())


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("group", type=int)
    arguments.add_argument("groups", type=int)
    arguments.add_argument("folder")
    arguments.add_argument("--mnist", type=pathlib.Path, default=pathlib.Path("data/mnist"))
    arguments.add_argument("--steps", type=int, default=2000)
    chosen = arguments.parse_args()
    torch.manual_seed(1)  # all groups begin with the same weights

    images = {part: read(chosen.mnist / f"{part}-images-idx3-ubyte.gz").view(-1, 784).float() / 255 for part in ("train", "t10k")}
    labels = {part: read(chosen.mnist / f"{part}-labels-idx1-ubyte.gz").long() for part in ("train", "t10k")}
    own = torch.arange(chosen.group, 2000, chosen.groups)  # of the first 2000 digits
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    draw = torch.Generator().manual_seed(chosen.group)

    peers = codistill.join(model, chosen.folder, group=chosen.group, groups=chosen.groups, period=50)
    for step in range(1, chosen.steps + 1):
        at = own[torch.randint(len(own), (50,), generator=draw)]
        x, y = images["train"][at], labels["train"][at]
        logits = model(x)
        loss = criterion(logits, y) + peers.distill(x, logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        peers.step()
        if step % 500 == 0:
            with torch.no_grad():
                right = (model(images["t10k"]).argmax(1) == labels["t10k"]).float().mean()
            known = ", ".join(f"group {p.group} at step {p.step}, merged {p.merged}" for p in peers.peers)
            print(f"group {chosen.group}, step {step}: {100 * right:.2f} % right; {known}", flush=True)
    peers.leave()


if __name__ == "__main__":
    main()
