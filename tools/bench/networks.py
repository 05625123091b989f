"""Our networks in PyTorch as a good user writes them, with our names of parameters, and what the benches train them with."""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/infer"))
from torch_networks import EDSR, Compact, MSRResNet, RRDBNet  # noqa: E402


class ResidualBlock(nn.Module):
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
        self.body = nn.Sequential(*[ResidualBlock(c) for _ in range(n)], nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(*up(), *up(), nn.Conv2d(c, 3, 9, padding=4))

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


class MLP(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        sizes = [inputs, *hidden]
        pairs = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
        self.layers = nn.Sequential(*pairs, nn.Linear(sizes[-1], classes))

    def forward(self, x):
        return self.layers(x.flatten(1))


class Block(nn.Module):
    """Of ResNet-18 and ResNet-50 (He et al. 2016), with torchvision's names."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)] if bottleneck else \
            [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        self.depth = len(shapes)
        for i, (a, b, kernel, step) in enumerate(shapes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(b))
        same = stride == 1 and inputs == outputs
        self.downsample = None if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = F.relu(y) if i < self.depth else y
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, channels, features, classes, small_stem, blocks, bottleneck):
        super().__init__()
        kernel, stride = (3, 1) if small_stem else (7, 2)
        self.conv1 = nn.Conv2d(channels, features, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(features)
        self.small_stem = small_stem
        inputs = features
        for stage, count in enumerate(blocks):
            width, layers = features << stage, []
            for i in range(count):
                layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small_stem else F.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class Logistic(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


class CNN(nn.Module):
    def __init__(self, channels, stages, convolutions, classes):
        super().__init__()
        layers = []
        for stage, width in enumerate(stages):
            layers += [nn.MaxPool2d(2)] if stage > 0 else []
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Options:
    """A model's options as texts. A network takes each of them, or refuses a value that it is not written for."""

    def __init__(self, model, given):
        self.model = model
        self.given = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in dict(given).items()}

    def number(self, name, default=0):
        return int(self.given.pop(name, default))

    def numbers(self, name, default=""):
        return [int(n) for n in self.given.pop(name, default).split(",")]

    def text(self, name, default):
        return self.given.pop(name, default)

    def fixed(self, **values):
        for name, value in values.items():
            if (given := self.given.pop(name, value)) != value:
                raise ValueError(f"PyTorch's side of '{self.model}' is written for {name}={value}, not {given}")

    def inputs(self):
        return self.number("height") * self.number("width") * self.number("channels")


def srresnet(o):
    o.fixed(scale="4", norm="batch", activation="prelu", skip="none", upsampler="steps", head_kernel="9", tail_kernel="9", zero_init_tail="false")
    return SRResNet(o.number("channels", 64), o.number("blocks", 16))


def rrdb(o):
    return RRDBNet(o.number("num_feat", 64), o.number("num_block", 23), o.number("num_grow_ch", 32), o.number("scale", 4))


def edsr(o):
    o.fixed(img_range="255", rgb_mean="0.4488,0.4371,0.404", res_scale="auto")
    width = o.number("num_feat", 64)
    return EDSR(width, o.number("num_block", 16), o.number("scale", 4), 0.1 if width >= 256 else 1)


def mlp(o):
    o.fixed(activation="relu", output="none")
    return MLP(o.inputs(), o.numbers("hidden", "256,256"), o.number("classes"))


def cnn(o):
    o.fixed(norm="batch", halve="max", hidden="0")
    o.number("height"), o.number("width")
    return CNN(o.number("channels"), o.numbers("stages", "16,32,64"), o.number("convolutions", 2), o.number("classes"))


def resnet(o, blocks, bottleneck):
    o.number("height"), o.number("width")
    small = o.text("stem", "large") == "small"
    return ResNet(o.number("channels", 3), o.number("features", 64), o.number("classes"), small, blocks, bottleneck)


NETWORKS = {
    "srresnet": srresnet,
    "msrresnet": lambda o: MSRResNet(o.number("num_feat", 64), o.number("num_block", 16), o.number("scale", 4)),
    "rrdb": rrdb,
    "edsr": edsr,
    "compact": lambda o: Compact(o.number("num_feat", 64), o.number("num_conv", 16), o.number("scale", 4)),
    "logistic": lambda o: Logistic(o.inputs(), o.number("classes")),
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": lambda o: resnet(o, (2, 2, 2, 2), False),
    "resnet50": lambda o: resnet(o, (3, 4, 6, 3), True),
}
CLASSIFIERS = {"logistic", "mlp", "cnn", "resnet18", "resnet50"}


def make(model, options):
    """The network that `model` is with `options`, which is a dictionary of texts and lists or "key=value key=value"."""
    if model not in NETWORKS:
        raise ValueError(f"there is no model '{model}' on PyTorch's side")
    given = Options(model, options if isinstance(options, dict) else [pair.split("=") for pair in options.split()])
    net = NETWORKS[model](given)
    if given.given:
        raise ValueError(f"PyTorch's side of '{model}' does not know {', '.join(given.given)}")
    return net


def loss_of(model, output, target):
    return F.cross_entropy(output.float(), target) if model in CLASSIFIERS else F.l1_loss(output.float(), target)


def optimiser(model, net, device):
    """Ours in the same steps: Adam of super-resolution networks, SGD with momentum of classifiers."""
    if model not in CLASSIFIERS:
        return torch.optim.Adam(net.parameters(), 1e-4, fused=True, capturable=device == "cuda")
    return torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9, fused=True)


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)
