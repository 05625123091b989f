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
