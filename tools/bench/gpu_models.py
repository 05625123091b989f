"""PyTorch's twins of the networks that the GPU's checks train, with our names of parameters, and what both sides train them with."""
import torch
import torch.nn.functional as F
from torch import nn

from step_pytorch import SRResNet


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


def make(model, options):
    """The network that `model` with `options` ("key=value key=value") is here; options that it does not know are not passed over."""
    given = dict(pair.split("=") for pair in options.split())

    def take(key, default):
        return int(given.pop(key, default))

    if model == "srresnet":
        net = SRResNet(take("channels", 64), take("blocks", 16))
    elif model == "mlp":
        inputs = take("height", 0) * take("width", 0) * take("channels", 0)
        net = MLP(inputs, [int(n) for n in given.pop("hidden").split(",")], take("classes", 0))
    elif model in ("resnet18", "resnet50"):
        given.pop("height"), given.pop("width")
        small = given.pop("stem", "large") == "small"
        deep = model == "resnet50"
        net = ResNet(take("channels", 3), take("features", 64), take("classes", 0), small, (3, 4, 6, 3) if deep else (2, 2, 2, 2), deep)
    else:
        raise ValueError(f"there is no twin of model '{model}'")
    if given:
        raise ValueError(f"the twin of '{model}' does not know {', '.join(given)}")
    return net


def loss_of(model, output, target):
    return F.l1_loss(output.float(), target) if model == "srresnet" else F.cross_entropy(output.float(), target)


def optimiser(model, net, device):
    """Ours in the same steps: Adam of super-resolution networks, SGD with momentum of classifiers."""
    if model == "srresnet":
        return torch.optim.Adam(net.parameters(), 1e-4, fused=True, capturable=device == "cuda")
    return torch.optim.SGD(net.parameters(), 1e-4, momentum=0.9, fused=True)


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)
