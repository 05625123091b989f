"""BasicSR's and Real-ESRGAN's networks in PyTorch, for check_torch.py and for tools/bench/networks.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x)))


class MSRResNet(nn.Module):
    """The names and the computation of BasicSR's."""

    def __init__(self, c, n, scale):
        super().__init__()
        self.scale, self.factors = scale, (2, 2) if scale == 4 else (scale,)
        self.conv_first = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.Sequential(*[Residual(c) for _ in range(n)])
        for i, f in enumerate(self.factors):
            setattr(self, f"upconv{i + 1}", nn.Conv2d(c, c * f * f, 3, padding=1))
        self.conv_hr, self.conv_last = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x):
        leaky = lambda t: F.leaky_relu(t, 0.1)
        y = self.body(leaky(self.conv_first(x)))
        for i, f in enumerate(self.factors):
            y = leaky(F.pixel_shuffle(getattr(self, f"upconv{i + 1}")(y), f))
        base = F.interpolate(x, scale_factor=self.scale, mode="bilinear", align_corners=False)
        return self.conv_last(leaky(self.conv_hr(y))) + base


class DenseBlock(nn.Module):
    def __init__(self, c, grow):
        super().__init__()
        for i in range(5):
            setattr(self, f"conv{i + 1}", nn.Conv2d(c + i * grow, c if i == 4 else grow, 3, padding=1))

    def forward(self, x):
        seen = [x]
        for i in range(4):
            seen.append(F.leaky_relu(getattr(self, f"conv{i + 1}")(torch.cat(seen, 1)), 0.2))
        return self.conv5(torch.cat(seen, 1)) * 0.2 + x


class RRDB(nn.Module):
    def __init__(self, c, grow):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = DenseBlock(c, grow), DenseBlock(c, grow), DenseBlock(c, grow)

    def forward(self, x):
        return self.rdb3(self.rdb2(self.rdb1(x))) * 0.2 + x


class RRDBNet(nn.Module):
    """The names and the computation of BasicSR's."""

    def __init__(self, c, n, grow, scale=4):
        super().__init__()
        self.squares = 4 // scale
        self.conv_first = nn.Conv2d(3 * self.squares ** 2, c, 3, padding=1)
        self.body = nn.Sequential(*[RRDB(c, grow) for _ in range(n)])
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(c, c, 3, padding=1) for _ in range(4))
        self.conv_last = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x):
        leaky = lambda t: F.leaky_relu(t, 0.2)
        y = self.conv_first(F.pixel_unshuffle(x, self.squares))
        y = y + self.conv_body(self.body(y))
        for up in (self.conv_up1, self.conv_up2):
            y = leaky(up(F.interpolate(y, scale_factor=2, mode="nearest")))
        return self.conv_last(leaky(self.conv_hr(y)))


class ScaledBlock(nn.Module):
    def __init__(self, c, scale):
        super().__init__()
        self.conv1, self.conv2, self.scale = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1), scale

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x))) * self.scale


class EDSR(nn.Module):
    """The names and the computation of BasicSR's."""

    def __init__(self, c, n, scale, res_scale):
        super().__init__()
        self.conv_first = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.Sequential(*[ScaledBlock(c, res_scale) for _ in range(n)])
        self.conv_after_body = nn.Conv2d(c, c, 3, padding=1)
        factor = 3 if scale == 3 else 2
        stage = lambda: [nn.Conv2d(c, factor ** 2 * c, 3, padding=1), nn.PixelShuffle(factor)]
        self.upsample = nn.Sequential(*stage(), *(stage() if scale == 4 else []))
        self.conv_last = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x):
        mean = torch.tensor((0.4488, 0.4371, 0.4040)).view(1, 3, 1, 1)
        y = self.conv_first((x - mean) * 255)
        return self.conv_last(self.upsample(y + self.conv_after_body(self.body(y)))) / 255 + mean


class Compact(nn.Module):
    """The names and the computation of Real-ESRGAN's SRVGGNetCompact."""

    def __init__(self, c, n, scale):
        super().__init__()
        self.scale, layers = scale, [nn.Conv2d(3, c, 3, padding=1), nn.PReLU(c)]
        for _ in range(n):
            layers += [nn.Conv2d(c, c, 3, padding=1), nn.PReLU(c)]
        self.body = nn.Sequential(*layers, nn.Conv2d(c, 3 * scale * scale, 3, padding=1))

    def forward(self, x):
        return F.pixel_shuffle(self.body(x), self.scale) + F.interpolate(x, scale_factor=self.scale, mode="nearest")
