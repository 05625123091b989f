"""Writes degrade.txt beside this file: blur kernels and resampled pictures that test_degrade_parts.c compares with. Needs numpy, scipy and opencv-python.

Kernels follow the formulas in src/data/blur_kernel.h; bilinear and bicubic are OpenCV's, whose conventions are PyTorch's.
"""
import pathlib

import cv2
import numpy
from scipy.special import j1

W, H = 23, 17
SIZES = [(11, 9), (23, 17), (31, 40), (1, 2)]
KERNELS = [  # family, side, sigma_x, sigma_y, theta, beta, cutoff
    ("iso", 7, 0.2, 0, 0, 0, 0), ("iso", 9, 1.7, 0, 0, 0, 0), ("aniso", 9, 2.5, 0.6, 0.7, 0, 0), ("generalized_iso", 7, 1.3, 0, 0, 0.6, 0),
    ("generalized_aniso", 9, 2.1, 0.9, -2.3, 3.1, 0), ("plateau_iso", 7, 0.8, 0, 0, 1.9, 0), ("plateau_aniso", 9, 2.8, 1.1, 1.2, 1.4, 0),
    ("sinc", 7, 0, 0, 0, 0, 1.1), ("sinc", 21, 0, 0, 0, 0, 2.9),
]


def kernel(family, side, sigma_x, sigma_y, theta, beta, cutoff):
    at = numpy.arange(side) - side // 2
    x, y = numpy.meshgrid(at, at)
    if family == "sinc":
        r = numpy.hypot(x, y)
        r[side // 2, side // 2] = 1
        out = cutoff * j1(cutoff * r) / (2 * numpy.pi * r)
        out[side // 2, side // 2] = cutoff**2 / (4 * numpy.pi)
        return out / out.sum()
    if family.endswith("iso") and not family.endswith("aniso"):
        sigma_y, theta = sigma_x, 0
    turn = numpy.array([[numpy.cos(theta), -numpy.sin(theta)], [numpy.sin(theta), numpy.cos(theta)]])
    inverse = numpy.linalg.inv(turn @ numpy.diag([sigma_x**2, sigma_y**2]) @ turn.T)
    grid = numpy.stack([x, y], axis=-1).astype(float)
    squared = numpy.einsum("yxi,ij,yxj->yx", grid, inverse, grid)
    if family.startswith("generalized"):
        out = numpy.exp(-0.5 * squared**beta)
    elif family.startswith("plateau"):
        out = 1 / (1 + squared**beta)
    else:
        out = numpy.exp(-0.5 * squared)
    return out / out.sum()


def area(picture, size, axis):
    count = picture.shape[axis]
    parts = [(o * count // size, -(-(o + 1) * count // size)) for o in range(size)]
    return numpy.stack([picture.take(range(*part), axis).mean(axis) for part in parts], axis)


x, y = numpy.meshgrid(numpy.arange(W), numpy.arange(H))
picture = numpy.stack([x * 11 % 256, y * 15 % 256, (x * 7 + y * 13) % 256], axis=-1).astype(numpy.float64)
lines = []
for case in KERNELS:
    lines.append(" ".join(["kernel", *map(str, case), *(f"{w:.9g}" for w in kernel(*case).ravel())]))
for width, height in SIZES:
    made = {"area": area(area(picture, height, 0), width, 1), "bilinear": cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR),
            "bicubic": cv2.resize(picture, (width, height), interpolation=cv2.INTER_CUBIC)}
    for mode, result in made.items():
        # One line of the middle row and one of the middle column's first channel are enough to tell every weight.
        shown = [*result[height // 2].ravel(), *result[:, width // 2, 0]]
        lines.append(" ".join(["resize", mode, str(width), str(height), *(f"{v:.7g}" for v in shown)]))
pathlib.Path(__file__).with_name("degrade.txt").write_text("\n".join(lines) + "\n")
