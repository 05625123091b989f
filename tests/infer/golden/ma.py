"""Writes ma.txt, which test_ma.c compares with: the features of Ma's score by NumPy, by the steps of the authors' MATLAB release.

usage: python3 ma.py [DATA]     DATA: the folder of the data sets (data/ of the checkout); needs numpy, scipy and pillow
"""
import math
import pathlib
import sys

import numpy as np
import scipy.fft
import scipy.ndimage
import scipy.signal
import scipy.special
from PIL import Image

import niqe

SHAPES = 0.03 + 0.001 * np.arange(9971)
RATIOS = scipy.special.gamma(1 / SHAPES) * scipy.special.gamma(3 / SHAPES) / scipy.special.gamma(2 / SHAPES) ** 2


def shape(values):
    values = values.ravel()
    ratio = values.var(ddof=1) / (np.abs(values - values.mean()).mean() ** 2 + 1e-7)
    return SHAPES[np.argmin(np.abs(RATIOS - ratio))]


def variation(values, least):
    return np.abs(values).std(ddof=1) / (np.abs(values).mean() + least)


def orientations(dct):
    first = [dct[0, 1:], dct[1, 2:], dct[2, 4:], dct[3, 5:]]
    second = [dct[1, 1:2], dct[2, 2:4], dct[3, 2:5], dct[4, 3:], dct[5, 4:], dct[6, 4:]]
    third = [dct[1:, 0], dct[2:, 1], dct[4:, 2], dct[5:, 3]]
    return np.var([variation(np.concatenate(part), 1e-8) for part in (first, second, third)], ddof=1)


def block_features(plane):
    height, width = plane.shape
    padded = np.pad(plane, 8)
    shapes, variations, oriented = [], [], []
    for top in range(0, height, 3):
        for left in range(0, width, 3):
            dct = scipy.fft.dctn(padded[top + 6:top + 13, left + 6:left + 13], norm="ortho")
            shapes.append(shape(dct.ravel()[1:]))
            variations.append(variation(dct.ravel()[1:], 1e-7))
            oriented.append(orientations(dct))
    count = len(shapes)
    least, greatest = math.ceil(count * 0.1), int(count * 0.9) - 1
    features = [np.mean(np.sort(shapes)[:least]), np.mean(shapes)]
    for values in (variations, oriented):
        features += [np.mean(np.sort(values)[greatest:]), np.mean(values)]
    return features


def patch_features(plane):
    height, width = plane.shape
    plane = np.pad(plane, ((0, -height % 5), (0, -width % 5)))
    patches = plane.reshape(plane.shape[0] // 5, 5, plane.shape[1] // 5, 5).swapaxes(1, 2).reshape(-1, 25)
    return list(np.linalg.svd(patches, compute_uv=False))


def table(places, values, at):
    """pointOp of matlabPyrTools: linear interpolation, and extrapolation at both ends."""
    step = places[1] - places[0]
    index = np.clip(np.trunc((at - places[0]) / step), 0, len(values) - 2).astype(int)
    return values[index] + (values[index + 1] - values[index]) * ((at - places[0]) / step - index)


def pyramid(plane):
    """buildSFpyr(plane, 2, 5), as written there: centred spectra that are cut from level to level."""
    dims = np.array(plane.shape)
    centre = np.ceil((dims + 0.5) / 2).astype(int)
    x, y = np.meshgrid((np.arange(1, dims[1] + 1) - centre[1]) / (dims[1] / 2), (np.arange(1, dims[0] + 1) - centre[0]) / (dims[0] / 2))
    angle, radius = np.arctan2(y, x), np.sqrt(x**2 + y**2)
    radius[centre[0] - 1, centre[1] - 1] = radius[centre[0] - 1, centre[1] - 2]
    radius = np.log2(radius)
    places = math.pi * np.arange(-257, 2) / 512
    rising = np.cos(places) ** 2
    rising[0], rising[-1] = rising[1], rising[-2]
    places = -0.5 + 2 / math.pi * (places + math.pi / 4)
    rising = np.sqrt(rising)
    falling = np.sqrt(1 - rising**2)
    spectrum = np.fft.fftshift(np.fft.fft2(plane))

    def band(values):
        return np.fft.ifft2(np.fft.ifftshift(values)).real

    high = band(spectrum * table(places, rising, radius))
    spectrum = spectrum * table(places, falling, radius)
    turns = math.pi * np.arange(-2049, 1026) / 1024
    cosines = math.sqrt(2**10 * math.factorial(5) ** 2 / (6 * math.factorial(10))) * np.cos(turns) ** 5
    levels = []
    for _ in range(2):
        places = places - 1
        own = table(places, rising, radius)
        levels.append([band((-1j) ** 5 * spectrum * table(turns + math.pi * b / 6, cosines, angle) * own) for b in range(6)])
        dims = np.array(spectrum.shape)
        low = np.ceil((dims - 0.5) / 2).astype(int)
        start = np.ceil((dims + 0.5) / 2).astype(int) - np.ceil((low + 0.5) / 2).astype(int)
        part = tuple(slice(s, s + n) for s, n in zip(start, low))
        radius, angle = radius[part], angle[part]
        spectrum = spectrum[part] * table(places, falling, radius)
    return high, levels


def resizing(size, out):
    """The matrix by which MATLAB's imresize brings a side from `size` to `out`, which is larger."""
    places = (np.arange(out) + 0.5) * size / out - 0.5
    taps = np.floor(places)[:, None] + np.arange(-2, 4)
    weights = niqe.cubic(places[:, None] - taps)
    weights /= weights.sum(1, keepdims=True)
    mirrored = np.r_[np.arange(size), np.arange(size)[::-1]]
    matrix = np.zeros((out, size))
    for row, (tap, weight) in enumerate(zip(mirrored[(taps % (2 * size)).astype(int)], weights)):
        np.add.at(matrix[row], tap, weight)
    return matrix


def resize(plane, height, width):
    return resizing(plane.shape[0], height) @ plane @ resizing(plane.shape[1], width).T


def normalised(levels, level, band):
    own = levels[level][band]
    height, width = own.shape
    columns = [own[i:height - 2 + i, j:width - 2 + j] for i in range(3) for j in range(3)]
    if 6 * level + band + 2 < 7:  # nband < Nband - Nor
        small = levels[level + 1][band]
        columns.append(resize(small, 2 * small.shape[0], 2 * small.shape[1])[1:height - 1, 1:width - 1])
    divisor = len(columns)
    columns += [other[1:-1, 1:-1] for b, other in enumerate(levels[level]) if b != band]
    y = np.stack([column.ravel() for column in columns], 1)
    values, vectors = np.linalg.eigh(y.T @ y / len(y))
    positive = values * (values > 0)
    covariance = vectors @ np.diag(positive * values.sum() / positive.sum()) @ vectors.T
    deviation = np.sqrt(((y @ np.linalg.pinv(covariance, rcond=len(values) * 2.0**-52)) * y / divisor).sum(1))
    own = own[1:-1, 1:-1]
    divided = (own - own.mean()) / deviation.reshape(own.shape)
    guard = 16 >> level
    divided = divided[guard:-guard, guard:-guard]
    return divided - divided.mean()


def structure(a, b):
    x, y = np.mgrid[-5:6, -5:6]
    window = np.exp(-(x**2 + y**2) / (2 * 1.5**2))
    window /= window.sum()

    def means(plane):
        return scipy.signal.convolve(plane, window, mode="valid", method="direct")

    mean_a, mean_b, c2 = means(a), means(b), (0.03 * 255) ** 2
    covariance = means(a * b) - mean_a * mean_b
    return np.mean((2 * covariance + c2) / (means(a * a) - mean_a**2 + means(b * b) - mean_b**2 + c2))


def band_features(plane):
    high, levels = pyramid(plane)
    normal = [[normalised(levels, level, band) for band in range(6)] for level in range(2)]
    features = [shape(band) for level in normal for band in level]
    features += [shape(np.r_[a.ravel(), b.ravel()]) for a, b in zip(*normal)]
    features += [structure(resize(band, *high.shape), high) for level in levels for band in level]
    return features + [structure(normal[0][i], normal[0][j]) for i in range(6) for j in range(i + 1, 6)]


def halve(plane):
    y, x = np.mgrid[-1:2, -1:2]
    window = np.exp(-(x**2 + y**2) / (2 * 0.5**2))
    return scipy.ndimage.correlate(plane, window / window.sum(), mode="constant")[1::2, 1::2]


def features_of(gray, crop):
    gray = gray[crop:gray.shape[0] - crop, crop:gray.shape[1] - crop]
    planes = [gray / 255]
    planes += [halve(planes[0])]
    planes += [halve(planes[1])]
    return (sum((block_features(plane) for plane in planes), []), band_features(gray), sum((patch_features(plane) for plane in planes), []))


def pattern(height, width):
    """test_ma.c has the same."""
    y, x = np.mgrid[:height, :width]
    return np.stack([(x * x * 7 + y * 13 + x * y % 31 * 5 + c * 40) % 256 for c in range(3)], 2).astype(float)


def main():
    data = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[3] / "data")
    pictures = {"pattern": (pattern(84, 128), 0), "pattern-cropped": (pattern(120, 97), 5)}
    butterfly = "set5/img_003_SRF_4_HR.png"
    pictures[butterfly] = (np.asarray(Image.open(data / butterfly).convert("RGB")).astype(float), 4)
    lines = []
    for name, (rgb, crop) in pictures.items():
        lines.append(f"{name} {crop}")
        lines += [" ".join(f"{value:.12g}" for value in group) for group in features_of(niqe.gray(rgb), crop)]
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
