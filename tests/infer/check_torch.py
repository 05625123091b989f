"""Loads our safetensors files into PyTorch, strictly, and compares what the networks compute with our own inference.

A plain SRResNet (with and without folded normalisation) is written out here, BasicSR's networks in torch_networks.py.
check_torch.py EXPORT_FILES [BACKEND] -> exit 0 when all agree, 77 where torch or safetensors is not installed.
"""
import sys

try:
    import numpy as np, torch, torch.nn as nn
    from safetensors.torch import load_file
    from torch_networks import Compact, EDSR, MSRResNet, RRDBNet
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import exported

TOLERANCE = 1e-4


class Block(nn.Module):
    def __init__(self, c, norm):
        super().__init__()
        conv = lambda: [nn.Conv2d(c, c, 3, padding=1, bias=not norm)] + ([nn.BatchNorm2d(c)] if norm else [])
        self.f = nn.Sequential(*conv(), nn.PReLU(), *conv())

    def forward(self, x):
        return x + self.f(x)


class SRResNet(nn.Module):
    """As anybody would write it; nothing in it knows of us."""

    def __init__(self, c, n, norm):
        super().__init__()
        end = [nn.Conv2d(c, c, 3, padding=1, bias=not norm)] + ([nn.BatchNorm2d(c)] if norm else [])
        up = lambda: [nn.Conv2d(c, 4 * c, 3, padding=1), nn.PixelShuffle(2), nn.PReLU()]
        self.head = nn.Sequential(nn.Conv2d(3, c, 9, padding=4), nn.PReLU())
        self.body = nn.Sequential(*[Block(c, norm) for _ in range(n)], *end)
        self.tail = nn.Sequential(*up(), *up(), nn.Conv2d(c, 3, 9, padding=4))

    def forward(self, x):
        h = self.head(x)
        return self.tail(h + self.body(h))


def main(program, backend="ref"):
    folder, good = exported.export(program, backend), True
    models = {"srresnet.safetensors": SRResNet(16, 3, True), "srresnet.folded.safetensors": SRResNet(16, 3, False)}
    models |= {f"msrresnet_{scale}.safetensors": MSRResNet(12, 2, scale) for scale in (2, 3, 4)}
    models |= {f"compact_{scale}.safetensors": Compact(12, 3, scale) for scale in (2, 3, 4)}
    models |= {f"edsr_{scale}.safetensors": EDSR(12, 2, scale, 0.1) for scale in (2, 3, 4)}
    models |= {"rrdb.safetensors": RRDBNet(12, 2, 32), "rrdb_2.safetensors": RRDBNet(12, 1, 32, 2)}
    for name, model in models.items():
        # Strict; PyTorch itself forgives a missing num_batches_tracked.
        model.load_state_dict(load_file(f"{folder.name}/{name}"), strict=True)
        ran = 0
        for x, expected in exported.cases(folder.name, name.split(".")[0]):
            with torch.no_grad():
                y = model.eval()(torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1))))
            good &= exported.check(name, y.numpy(), expected, TOLERANCE)
            ran += 1
        assert ran == 2, name
    return 0 if good else 1


sys.exit(main(*sys.argv[1:]))
