"""Writes lpips.txt, the values that test_lpips.c compares with: LPIPS on SqueezeNet 1.1 by PyTorch, by the formula of the package lpips.

usage: python3 lpips.py [DATA]     DATA: the folder of the data sets (data/ of the checkout); needs torch, safetensors, numpy and pillow
"""
import pathlib
import sys

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

FIRES = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
STAGES = [2, 5, 8, 10, 11, 12, 13]  # ends of the slices of torchvision's features that LPIPS takes
CHANNELS = [64, 128, 256, 384, 384, 512, 512]


class Fire(nn.Module):
    def __init__(self, before, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Conv2d(before, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1x1(x)), torch.relu(self.expand3x3(x))], 1)


def squeezenet():
    layers, before = [nn.Conv2d(3, 64, 3, stride=2), nn.ReLU()], 64
    for i, (squeezed, expanded) in enumerate(FIRES):
        if i in (0, 2, 4):
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        layers.append(Fire(before, squeezed, expanded))
        before = 2 * expanded
    return nn.Sequential(*layers).double().eval()


def hashed(count, seed):
    """`count` numbers in 0 ... 1; test_lpips.c has the same."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + seed * 40503 + 12345) % 2**32
    x = ((x ^ (x >> 15)) * 2246822519) % 2**32
    return ((x ^ (x >> 13)) >> 8) / 2**24


def made_network():
    net = squeezenet()
    for seed, (name, values) in enumerate(net.state_dict().items()):
        scale = 0.1 if values.dim() == 1 else 2 * (6 / values[0].numel()) ** 0.5
        made = (hashed(values.numel(), seed) - 0.5) * scale
        values.copy_(torch.from_numpy(made.astype(np.float32)).reshape(values.shape))
    return net


def shared_network(path):
    net, state = squeezenet(), {}
    with safe_open(path, "np") as file:
        for name in net.state_dict():
            number, rest = name.split(".", 1)
            fire = sum(isinstance(layer, Fire) for layer in net[:int(number)]) + 2
            theirs = "conv1." + rest if number == "0" else f"fire{fire}/" + rest.replace("squeeze.", "squeeze1x1.")
            state[name] = torch.from_numpy(file.get_tensor(theirs))
    net.load_state_dict(state)
    return net


def present(rgb, caffe):
    x = torch.from_numpy(rgb.astype(np.float64)).permute(2, 0, 1)[None]
    if caffe:
        return x.flip(1) - torch.tensor([103.939, 116.779, 123.68]).double()[:, None, None]
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).double()[:, :, None, None]
    return (x / 255 - mean) / deviation


def lpips(net, a, b, linear, caffe):
    total, start = 0.0, 0
    a, b = present(a, caffe), present(b, caffe)
    for stage, end in enumerate(STAGES):
        a, b = net[start:end](a), net[start:end](b)
        units = [x / (x.pow(2).sum(1, keepdim=True).sqrt() + 1e-10) for x in (a, b)]
        weights = torch.ones(CHANNELS[stage]) if linear is None else torch.from_numpy(linear[stage])
        total += float(((units[0] - units[1]) ** 2 * weights[None, :, None, None]).sum(1).mean())
        start = end
    return total


def pattern(height, width, seed):
    return np.floor(hashed(height * width * 3, seed) * 256).reshape(height, width, 3)


@torch.no_grad()
def main():
    data = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[3] / "data")
    linear = [hashed(channels, 100 + stage).astype(np.float32) for stage, channels in enumerate(CHANNELS)]
    net, lines = made_network(), []
    for height, width in ((25, 25), (46, 61), (64, 48)):
        a, b = pattern(height, width, 1000), pattern(height, width, 1001)
        for weights in (None, linear):
            name = f"made {height} {width} {'unweighted' if weights is None else 'weighted'}"
            lines.append(f"{name} {lpips(net, a, b, weights, False):.12g}")
    net = shared_network(data / "weights/squeezenet_v1.1_features.safetensors")
    for i in (2, 5):
        truth = Image.open(data / f"set5/img_{i:03}_SRF_4_HR.png").convert("RGB")
        truth = np.asarray(truth)[:truth.height // 4 * 4, :truth.width // 4 * 4]
        low = np.asarray(Image.open(data / f"set5/img_{i:03}_SRF_4_LR.png").convert("RGB"))
        near = low.repeat(4, 0).repeat(4, 1)
        lines.append(f"set5 {i} 0 unweighted {lpips(net, near, truth, None, True):.12g}")
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
