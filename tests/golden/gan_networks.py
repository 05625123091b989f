"""Networks of adversarial training in PyTorch, for make_models.py and make_gan.py."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def f32(value):
    """What the ops' attributes make of a number."""
    return float(np.float32(value))


class Discriminator(nn.Module):
    """Ledig et al. 2017: eight convolutions of which every second one halves the picture, and two fully connected layers."""

    def __init__(self, height, width, features, hidden):
        super().__init__()
        layers, i = [nn.Conv2d(3, features, 3, 1, 1), nn.LeakyReLU(f32(0.2))], features
        for k in range(1, 8):
            o = features << k // 2
            layers += [nn.Conv2d(i, o, 3, 1 + k % 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(f32(0.2))]
            i = o
        self.features = nn.Sequential(*layers)
        inputs = i * -(-height // 16) * -(-width // 16)
        self.classifier = nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(f32(0.2)), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class UNetDiscriminator(nn.Module):
    """BasicSR's UNetDiscriminatorSN (Wang et al. 2021), spectrally normalised by PyTorch."""

    def __init__(self, c):
        super().__init__()
        self.conv0, self.conv9 = nn.Conv2d(3, c, 3, 1, 1), nn.Conv2d(c, 1, 3, 1, 1)
        for i, (inputs, outputs) in enumerate(((1, 2), (2, 4), (4, 8), (8, 4), (4, 2), (2, 1), (1, 1), (1, 1)), 1):
            down = i < 4
            conv = nn.Conv2d(inputs * c, outputs * c, 4 if down else 3, 2 if down else 1, 1, bias=False)
            setattr(self, f"conv{i}", nn.utils.spectral_norm(conv))

    def eval(self):
        """Our programs that do not train take a step of the power iteration, too, which PyTorch does in training mode alone."""
        return self

    def forward(self, x):
        def lrelu(t):
            return F.leaky_relu(t, f32(0.2))
        x0 = lrelu(self.conv0(x))
        x1 = lrelu(self.conv1(x0))
        x2 = lrelu(self.conv2(x1))
        x = lrelu(self.conv3(x2))
        for conv, skip in ((self.conv4, x2), (self.conv5, x1), (self.conv6, x0)):
            x = lrelu(conv(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))) + skip
        return self.conv9(lrelu(self.conv8(lrelu(self.conv7(x)))))


class VGGStyleDiscriminator(nn.Module):
    """BasicSR's, which has it for 128 and 256 pixels a side, for any size that halvings lead to 4."""

    def __init__(self, side, features, hidden):
        super().__init__()
        i, self.blocks = 3, (side // 4).bit_length() - 1
        for b in range(self.blocks):
            o = features << min(b, 3)
            setattr(self, f"conv{b}_0", nn.Conv2d(i, o, 3, 1, 1, bias=b == 0))
            if b > 0:
                setattr(self, f"bn{b}_0", nn.BatchNorm2d(o))
            setattr(self, f"conv{b}_1", nn.Conv2d(o, o, 4, 2, 1, bias=False))
            setattr(self, f"bn{b}_1", nn.BatchNorm2d(o))
            i = o
        self.linear1, self.linear2 = nn.Linear(i * 16, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        for b in range(self.blocks):
            for k in range(2):
                x = getattr(self, f"conv{b}_{k}")(x)
                x = F.leaky_relu(getattr(self, f"bn{b}_{k}")(x) if b + k > 0 else x, f32(0.2))
        return self.linear2(F.leaky_relu(self.linear1(x.flatten(1)), f32(0.2)))


class VGG(nn.Module):
    """torchvision's VGG-19 up to `layers` of its features; `caffe`: pictures as 255 BGR less the mean."""

    def __init__(self, channels, layers, caffe=False):
        super().__init__()
        self.normalise = nn.Conv2d(3, 3, 1)
        scale, mean = torch.tensor([0.229, 0.224, 0.225]), torch.tensor([0.485, 0.456, 0.406])
        weight, bias = torch.diag(1 / scale), -mean / scale
        if caffe:
            weight, bias = 255 * torch.eye(3).flip(0), -torch.tensor([103.939, 116.779, 123.68])
        with torch.no_grad():
            self.normalise.weight.copy_(weight[:, :, None, None])
            self.normalise.bias.copy_(bias)
        features, i = [], 3
        for block, count in enumerate((2, 2, 4, 4, 4)):
            for _ in range(count):
                o = channels * min(1 << block, 8)
                features += [nn.Conv2d(i, o, 3, 1, 1), nn.ReLU()]
                i = o
            features.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*features[:layers])

    def forward(self, x):
        return self.features(self.normalise(x))
