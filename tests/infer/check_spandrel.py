"""Opens our files with spandrel and compares what it computes with our own inference.

check_spandrel.py EXPORT_FILES [BACKEND] -> exit 0 when all agree, 77 where spandrel is not installed. Of our models spandrel
0.4.2, the newest when this was written, has "compact" and "rrdb" (its ESRGAN; 42 architectures, BasicSR's MSRResNet not among them); what a later
one has as well is compared too.
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
    for name in ["rrdb", "rrdb_2"] + [f"{kind}_{scale}" for kind in ("compact", "msrresnet") for scale in (2, 3, 4)]:
        try:
            descriptor = spandrel.ModelLoader().load_from_file(f"{folder.name}/{name}.safetensors")
        except spandrel.UnsupportedModelError:
            print(f"spandrel {spandrel.__version__} has no architecture for {name}.safetensors")
            good &= name.startswith("msrresnet")
            continue
        good &= descriptor.scale == int((name + "_4").split("_")[1])
        for x, expected in exported.cases(folder.name, name):
            with torch.no_grad():
                y = descriptor.model.eval()(torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1))))
            good &= exported.check(name, y.numpy(), expected, 1e-4)
    return 0 if good else 1


sys.exit(main(*sys.argv[1:]))
