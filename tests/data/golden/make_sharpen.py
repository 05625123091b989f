"""Writes sharpen.bin beside this file: the picture of test_sharpen.c, sharpened. Needs numpy."""

import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "golden"))
from usm import filter2d, kernel, sharpen

W, H = 61, 40  # lower than the kernel: reflected twice
x, y = numpy.meshgrid(numpy.arange(W), numpy.arange(H))
picture = numpy.stack([(x // 9 + y // 7) % 2 * 150 + x, (x // 20 % 2) * 9 + 100 + 0 * y, (x * 7 + y * 13) % 256], axis=-1).astype(numpy.float64)
for c in range(3):
    residual = numpy.abs(picture[..., c] - filter2d(picture[..., c], kernel()))
    assert numpy.abs(residual - 10).min() > 1e-4, "a pixel lies at the threshold, where rounding would decide"
sharp = numpy.stack([sharpen(picture[..., c]) for c in range(3)], axis=-1)
print("changed by at most", numpy.abs(sharp - picture).max(axis=(0, 1)))
(pathlib.Path(__file__).parent / "sharpen.bin").write_bytes(sharp.astype("<f4").tobytes())
