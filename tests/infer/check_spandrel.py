"""Opens our msrresnet files with spandrel and compares what it computes with our own inference.

check_spandrel.py EXPORT_FILES [BACKEND] -> exit 0 when all agree, 77 where spandrel is not installed or does not have the
architecture: 0.4.2, the newest when this was written, has 42 of them, and BasicSR's MSRResNet is not among them.
"""
import sys

try:
    import numpy as np, spandrel, torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import exported


def main(program, backend="ref"):
    folder, good = exported.export(program, backend), True
    for scale in (2, 3, 4):
        name = f"msrresnet_{scale}"
        try:
            descriptor = spandrel.ModelLoader().load_from_file(f"{folder.name}/{name}.safetensors")
        except spandrel.UnsupportedModelError:
            print(f"skipped: spandrel {spandrel.__version__} has no architecture for {name}.safetensors")
            return 77
        good &= descriptor.scale == scale
        for x, expected in exported.cases(folder.name, name):
            with torch.no_grad():
                y = descriptor.model.eval()(torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1))))
            good &= exported.check(name, y.numpy(), expected, 1e-4)
    return 0 if good else 1


sys.exit(main(*sys.argv[1:]))
