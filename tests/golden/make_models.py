#!/usr/bin/env python3
"""Writes models.bin: whole models trained for three steps by PyTorch in f64, for tests/nn/test_torch.c.

    /opt/codvenv/bin/python tests/golden/make_models.py

Tensors have PyTorch's names and layout (OIHW, NCHW). Starting values and batches are rounded to f32 first; all are stored as f32.

Format, little endian, no padding:
    "CODM", u32 version = 2, u32 number of cases; then for each case
    string name, string kind ("flat" is built by the test), string options ("key=value …"), string loss, string optimiser,
    u32 number of tensors, each: string name, u32 rank, u32 dimensions, f32 elements
    string = u8 length, bytes
Tensors: "input", "target"; "losses" of the three steps; "start.NAME"; "grad.NAME" and "stat.NAME" of the first step;
"end.NAME" after the third; "output" of the model in eval mode after the third.
"""

import pathlib
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from gan_networks import VGG, Discriminator, UNetDiscriminator, f32

torch.set_default_dtype(torch.float64)
torch.manual_seed(20240229)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c), nn.PReLU(),
                               nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return x + self.f(x)


class SRResNet(nn.Module):
    """Ledig et al. 2017, scale 2."""

    def __init__(self, c=8, blocks=2):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, c, 5, 1, 2), nn.PReLU())
        self.body = nn.Sequential(*[Block(c) for _ in range(blocks)], nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.tail = nn.Sequential(nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU(), nn.Conv2d(c, 3, 5, 1, 2))

    def forward(self, x):
        x = self.head(x)
        return self.tail(x + self.body(x))


class ResidualBlockNoBN(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x)))


class MSRResNet(nn.Module):
    """BasicSR's, scale 4."""

    def __init__(self, c=8, blocks=2):
        super().__init__()
        self.conv_first = nn.Conv2d(3, c, 3, 1, 1)
        self.body = nn.Sequential(*[ResidualBlockNoBN(c) for _ in range(blocks)])
        self.upconv1, self.upconv2 = nn.Conv2d(c, 4 * c, 3, 1, 1), nn.Conv2d(c, 4 * c, 3, 1, 1)
        self.conv_hr, self.conv_last = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1)

    def forward(self, x):
        def lrelu(t):
            return F.leaky_relu(t, float(np.float32(0.1)))
        out = self.body(lrelu(self.conv_first(x)))
        out = lrelu(F.pixel_shuffle(self.upconv1(out), 2))
        out = lrelu(F.pixel_shuffle(self.upconv2(out), 2))
        return self.conv_last(lrelu(self.conv_hr(out))) + F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)


class ScaledBlock(ResidualBlockNoBN):
    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x))) * 0.5


class EDSR(nn.Module):
    """BasicSR's, scale 4, with res_scale 0.5."""

    def __init__(self, c=6, blocks=2):
        super().__init__()
        self.conv_first, self.body = nn.Conv2d(3, c, 3, 1, 1), nn.Sequential(*[ScaledBlock(c) for _ in range(blocks)])
        self.conv_after_body = nn.Conv2d(c, c, 3, 1, 1)
        self.upsample = nn.Sequential(nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(c, 4 * c, 3, 1, 1), nn.PixelShuffle(2))
        self.conv_last = nn.Conv2d(c, 3, 3, 1, 1)

    def forward(self, x):
        mean = torch.tensor((0.4488, 0.4371, 0.4040)).view(1, 3, 1, 1)
        x = self.conv_first((x - mean) * 255)
        return self.conv_last(self.upsample(x + self.conv_after_body(self.body(x)))) * f32(1 / 255) + mean


class DenseBlock(nn.Module):
    def __init__(self, c, grow):
        super().__init__()
        for i in range(5):
            setattr(self, f"conv{i + 1}", nn.Conv2d(c + i * grow, c if i == 4 else grow, 3, 1, 1))

    def forward(self, x):
        seen = [x]
        for i in range(4):
            seen.append(F.leaky_relu(getattr(self, f"conv{i + 1}")(torch.cat(seen, 1)), f32(0.2)))
        return self.conv5(torch.cat(seen, 1)) * f32(0.2) + x


class RRDB(nn.Module):
    def __init__(self, c, grow):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = DenseBlock(c, grow), DenseBlock(c, grow), DenseBlock(c, grow)

    def forward(self, x):
        return self.rdb3(self.rdb2(self.rdb1(x))) * f32(0.2) + x


class RRDBNet(nn.Module):
    """BasicSR's; before it enlarges by 4, it makes channels of squares."""

    def __init__(self, c=6, grow=4, scale=4):
        super().__init__()
        self.squares = 4 // scale
        self.conv_first, self.body = nn.Conv2d(3 * self.squares ** 2, c, 3, 1, 1), nn.Sequential(RRDB(c, grow))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(c, c, 3, 1, 1) for _ in range(4))
        self.conv_last = nn.Conv2d(c, 3, 3, 1, 1)

    def forward(self, x):
        x = self.conv_first(F.pixel_unshuffle(x, self.squares))
        x = x + self.conv_body(self.body(x))
        for up in (self.conv_up1, self.conv_up2):
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), f32(0.2))
        return self.conv_last(F.leaky_relu(self.conv_hr(x), f32(0.2)))


class MLP(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x.flatten(1))


class Logistic(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


class Flat(nn.Module):
    """A linear layer behind images: its columns are in C, H, W order here and in H, W, C order in the flat buffer."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(4 * 3 * 2, 5)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)).flatten(1))


class CNN(nn.Module):
    def __init__(self, classifier, *features):
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), classifier

    def forward(self, x):
        x = self.features(x)
        pooled = x.mean((2, 3)) if isinstance(self.classifier, nn.Linear) else x.flatten(1)
        return self.classifier(pooled)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, i, c, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, c, 3, stride, 1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c)

    def branch(self, x):
        return self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))

    def forward(self, x):
        return F.relu(self.branch(x) + (self.downsample(x) if hasattr(self, "downsample") else x))


class Bottleneck(BasicBlock):
    expansion = 4

    def __init__(self, i, c, stride):
        nn.Module.__init__(self)
        self.conv1, self.bn1 = nn.Conv2d(i, c, 1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, stride, 1, bias=False), nn.BatchNorm2d(c)
        self.conv3, self.bn3 = nn.Conv2d(c, 4 * c, 1, bias=False), nn.BatchNorm2d(4 * c)

    def branch(self, x):
        return self.bn3(self.conv3(F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))))


class ResNet(nn.Module):
    """torchvision's with `features` channels in the first stage; `small`: He et al.'s stem for CIFAR."""

    def __init__(self, block, counts, features=64, small=False, classes=1000):
        super().__init__()
        i = features
        self.small, self.bn1 = small, nn.BatchNorm2d(i)
        self.conv1 = nn.Conv2d(3, i, 3, 1, 1, bias=False) if small else nn.Conv2d(3, i, 7, 2, 3, bias=False)
        for stage, count in enumerate(counts):
            blocks, c = [], features << stage
            for b in range(count):
                stride = 2 if stage > 0 and b == 0 else 1
                blocks.append(block(i, c, stride))
                if stride != 1 or i != c * block.expansion:
                    blocks[-1].downsample = nn.Sequential(nn.Conv2d(i, c * block.expansion, 1, stride, bias=False),
                                                          nn.BatchNorm2d(c * block.expansion))
                i = c * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(i, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small else F.max_pool2d(x, 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


def check_against_torchvision():
    """That ResNet, at full width, has torchvision's tensors and computes what its networks compute."""
    for ours, theirs in ((ResNet(BasicBlock, (2, 2, 2, 2)), torchvision.models.resnet18()),
                         (ResNet(Bottleneck, (3, 4, 6, 3)), torchvision.models.resnet50())):
        ours.load_state_dict(theirs.state_dict())
        x = torch.rand(1, 3, 64, 64)
        assert torch.equal(ours.eval()(x), theirs.eval()(x)) or torch.allclose(ours(x), theirs(x), rtol=1e-9)


def check_vgg_against_torchvision():
    """That VGG has torchvision's tensors, and computes what its network computes of normalised pictures."""
    ours, theirs = VGG(64, 36).eval(), torchvision.models.vgg19().features[:36].eval()
    assert list(ours.features.state_dict()) == list(theirs.state_dict())
    ours.features.load_state_dict(theirs.state_dict())
    x = torch.rand(1, 3, 32, 32)
    normalised = torchvision.transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(x)
    assert torch.allclose(ours(x), theirs(normalised), rtol=1e-9)


def bce(logits, target):
    return F.binary_cross_entropy_with_logits(logits, target)


LOSSES = {"mse": F.mse_loss, "l1": F.l1_loss, "cross_entropy": F.cross_entropy, "bce": bce}


def case(name, kind, options, model, x, target, loss_name, optimiser_name, optimiser, clip=0):
    tensors = {}

    def put(key, tensor):
        tensors[key] = tensor.detach().to(torch.float32).numpy().copy()

    x = x.float().double()
    target = target.float().double()
    put("input", x)
    put("target", target)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps, module.momentum = f32(1e-5), f32(0.1)
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(value.float().double())
                put("start." + key, value)
    model.train()
    losses = []
    for step in range(3):
        optimiser.zero_grad()
        loss = LOSSES[loss_name](model(x), target)
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            for key, value in model.named_parameters():
                put("grad." + key, value.grad)
            for key, value in model.named_buffers():
                if value.is_floating_point():
                    put("stat." + key, value)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
    put("losses", torch.tensor(losses))
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            put("end." + key, value)
    model.eval()
    put("output", model(x))
    cases.append((name, kind, options, loss_name, optimiser_name, tensors))


def one_hot(*labels):
    return F.one_hot(torch.tensor(labels)).double()


def adam(model, kind=torch.optim.Adam, **more):
    return kind(model.parameters(), lr=f32(1e-3), betas=(f32(0.9), f32(0.999)), eps=f32(1e-8), **more)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=f32(0.1), momentum=f32(0.9), nesterov=True, weight_decay=f32(1e-3))


def small_residual(net):
    """Blocks that add a little to what they get, so that depth does not amplify differences of rounding."""
    for module in net.modules():
        if isinstance(module, BasicBlock):
            nn.init.constant_(module.bn3.weight if isinstance(module, Bottleneck) else module.bn2.weight, 0.25)
    return net


def convolution(i, o, stride=1):
    return nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()


cases = []
check_against_torchvision()
m = SRResNet()
case("srresnet", "srresnet", "blocks=2 channels=8 scale=2 head_kernel=5 tail_kernel=5", m, torch.rand(2, 3, 6, 5),
     torch.rand(2, 3, 12, 10), "mse", "adam", adam(m))
m = MSRResNet()
case("msrresnet", "msrresnet", "num_feat=8 num_block=2 scale=4", m, torch.rand(1, 3, 4, 5), torch.rand(1, 3, 16, 20),
     "l1", "adamw", adam(m, torch.optim.AdamW, weight_decay=f32(0.01)))
m = MLP(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 5))
case("mlp", "mlp", "height=1 width=1 channels=12 classes=5 hidden=16,9", m, torch.randn(6, 12), one_hot(0, 4, 2, 1, 3, 2),
     "cross_entropy", "sgd", sgd(m), clip=f32(0.3))
m = Flat()
case("flat", "flat", "", m, torch.randn(3, 3, 6, 4), one_hot(0, 4, 2), "cross_entropy", "adam", adam(m))
m = MLP(nn.Linear(24, 7), nn.PReLU(), nn.Linear(7, 4), nn.PReLU(), nn.Linear(4, 3), nn.Sigmoid())
case("mlp of pictures", "mlp", "height=3 width=4 channels=2 classes=3 hidden=7,4 activation=prelu output=sigmoid", m,
     torch.randn(4, 2, 3, 4), one_hot(0, 2, 1, 2), "mse", "adam", adam(m))
m = MLP(nn.Linear(4, 30), nn.Sigmoid(), nn.Linear(30, 20), nn.Sigmoid(), nn.Linear(20, 3), nn.Sigmoid())
case("iris", "mlp", "height=1 width=1 channels=4 classes=3 hidden=30,20 activation=sigmoid output=sigmoid", m,
     torch.rand(4, 4) * 7, one_hot(0, 2, 1, 2), "mse", "sgd", sgd(m), clip=f32(0.3))
m = Logistic(12, 5)
case("logistic", "logistic", "height=3 width=4 channels=1 classes=5", m, torch.rand(5, 1, 3, 4),
     torch.randn(5, 5).softmax(1), "cross_entropy", "adam", adam(m))
m = CNN(nn.Sequential(nn.Linear(5 * 3 * 2, 6), nn.ReLU(), nn.Linear(6, 4)), *convolution(2, 3), *convolution(3, 3),
        nn.MaxPool2d(2), *convolution(3, 5), *convolution(5, 5))
case("cnn", "cnn", "height=7 width=5 channels=2 classes=4 stages=3,5 hidden=6", m, torch.rand(3, 2, 7, 5), one_hot(3, 0, 1),
     "cross_entropy", "adam", adam(m))
m = CNN(nn.Linear(6, 4), nn.Conv2d(1, 3, 3, 1, 1), nn.ReLU(), nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(4, 6, 3, 2, 1), nn.ReLU())
case("cnn with strides", "cnn", "height=9 width=6 channels=1 classes=4 stages=3,4,6 convolutions=1 norm=none halve=stride", m,
     torch.rand(3, 1, 9, 6), one_hot(3, 0, 1), "cross_entropy", "sgd", sgd(m), clip=f32(0.3))
m = small_residual(ResNet(BasicBlock, (2, 2, 2, 2), 2, classes=3))
case("resnet18", "resnet18", "height=37 width=43 channels=3 classes=3 features=2", m, torch.rand(4, 3, 37, 43),
     one_hot(2, 0, 1, 0), "cross_entropy", "sgd", sgd(m), clip=f32(0.3))
m = small_residual(ResNet(Bottleneck, (3, 4, 6, 3), 1, small=True, classes=3))
case("resnet50", "resnet50", "height=24 width=17 channels=3 classes=3 features=1 stem=small", m, torch.rand(4, 3, 24, 17),
     one_hot(2, 0, 1, 0), "cross_entropy", "sgd", sgd(m), clip=f32(0.3))

m = RRDBNet()
case("rrdb", "rrdb", "num_feat=6 num_block=1 num_grow_ch=4", m, torch.rand(1, 3, 4, 3), torch.rand(1, 3, 16, 12), "l1",
     "adam", adam(m))

# These draw from the generator last, so that the cases before them keep their bytes.
m = Discriminator(19, 17, 2, 5)
case("srgan discriminator", "srgan_discriminator", "height=19 width=17 features=2 hidden=5", m, torch.rand(3, 3, 19, 17),
     torch.tensor([[0.9], [0.0], [1.0]]), "bce", "sgd", sgd(m), clip=f32(0.3))
check_vgg_against_torchvision()
m = VGG(3, 9)
case("vgg19 to conv2_2", "vgg19", "block=2 convolution=2 before=0 input=0 channels=3", m, torch.rand(2, 3, 7, 6),
     torch.rand(2, 6, 3, 3), "mse", "adam", adam(m))
m = VGG(2, 31, caffe=True)
case("vgg19 to conv5_2, before its activation", "vgg19", "block=5 convolution=2 before=1 input=1 channels=2", m,
     torch.rand(1, 3, 17, 34), torch.rand(1, 16, 1, 2), "l1", "adam", adam(m))
m = UNetDiscriminator(3)
case("unet discriminator", "unet_discriminator", "features=3", m, torch.rand(2, 3, 16, 8), torch.rand(2, 1, 16, 8), "bce", "adam",
     adam(m))
m = EDSR()
case("edsr", "edsr", "num_feat=6 num_block=2 scale=4 res_scale=0.5", m, torch.rand(1, 3, 4, 5), torch.rand(1, 3, 16, 20), "l1",
     "adam", adam(m))
torch.manual_seed(20261125)
m = RRDBNet(5, 3, 2)
case("rrdb by 2", "rrdb", "num_feat=5 num_block=1 num_grow_ch=3 scale=2", m, torch.rand(2, 3, 4, 8), torch.rand(2, 3, 8, 16), "l1",
     "adam", adam(m))


def text(value):
    return struct.pack("<B", len(value)) + value.encode()


with open(pathlib.Path(__file__).parent / "models.bin", "wb") as file:
    file.write(b"CODM" + struct.pack("<II", 2, len(cases)))
    for name, kind, options, loss_name, optimiser_name, tensors in cases:
        file.write(b"".join(map(text, (name, kind, options, loss_name, optimiser_name))) + struct.pack("<I", len(tensors)))
        for key, array in tensors.items():
            file.write(text(key) + struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape) + array.astype("<f4").tobytes())
