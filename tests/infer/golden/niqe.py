"""Writes niqe.txt, the values that test_niqe.c compares with: NIQE by NumPy, SciPy and Pillow, by the steps of the authors' MATLAB release.

usage: python3 niqe.py [DATA]     DATA: the folder of the data sets (data/ of the checkout); needs numpy, scipy and pillow
"""
import pathlib
import sys

import numpy as np
import scipy.io
import scipy.ndimage
import scipy.special
from PIL import Image

SHAPES = np.arange(0.2, 10.0005, 0.001)
RATIOS = scipy.special.gamma(2 / SHAPES) ** 2 / (scipy.special.gamma(1 / SHAPES) * scipy.special.gamma(3 / SHAPES))


def cubic(x):
    x = np.abs(x)
    return np.where(x <= 1, 1.5 * x**3 - 2.5 * x**2 + 1, np.where(x <= 2, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2, 0))


def halving(size):
    """The matrix by which MATLAB's imresize(…, 0.5) halves a side."""
    out, scale, width = size // 2, 0.5, 8
    places = np.arange(1, out + 1) / scale + 0.5 * (1 - 1 / scale)
    taps = np.floor(places - width / 2)[:, None] + np.arange(width + 2)
    weights = scale * cubic(scale * (places[:, None] - taps))
    weights /= weights.sum(1, keepdims=True)
    mirrored = np.r_[np.arange(size), np.arange(size)[::-1]]
    matrix = np.zeros((out, size))
    for row, (tap, weight) in enumerate(zip(mirrored[((taps - 1) % (2 * size)).astype(int)], weights)):
        np.add.at(matrix[row], tap, weight)
    return matrix


def fit(values):
    values = values.ravel()
    if not (values < 0).any() or not (values > 0).any():
        return np.nan, np.nan, np.nan
    left, right = np.sqrt(np.mean(values[values < 0] ** 2)), np.sqrt(np.mean(values[values > 0] ** 2))
    g = left / right
    ratio = np.mean(np.abs(values)) ** 2 / np.mean(values**2) * (g**3 + 1) * (g + 1) / (g**2 + 1) ** 2
    shape = SHAPES[np.argmin((RATIOS - ratio) ** 2)]
    width = np.sqrt(scipy.special.gamma(1 / shape) / scipy.special.gamma(3 / shape))
    return shape, left * width, right * width


def block_features(block):
    shape, left, right = fit(block)
    features = [shape, (left + right) / 2]
    for shift in ((0, 1), (1, 0), (1, 1), (-1, 1)):
        shape, left, right = fit(block * np.roll(block, shift, (0, 1)))
        features += [shape, (right - left) * scipy.special.gamma(2 / shape) / scipy.special.gamma(1 / shape), left, right]
    return features


def gray(rgb):
    return np.floor(rgb @ np.array([0.298936021293775, 0.587043074451121, 0.114020904255103]) + 0.5)


def luma(rgb):
    """MATLAB's rgb2ycbcr of 8 bits, its first channel: what PIRM 2018 takes NIQE of."""
    return np.floor(rgb @ np.array([65.481, 128.553, 24.966]) / 255 + 16 + 0.5)


def picture_features(plane, crop):
    plane = plane[crop:plane.shape[0] - crop, crop:plane.shape[1] - crop]
    rows, columns = plane.shape[0] // 96, plane.shape[1] // 96
    plane = plane[:rows * 96, :columns * 96]
    y, x = np.mgrid[-3:4, -3:4]
    window = np.exp(-(x**2 + y**2) / (2 * (7 / 6) ** 2))
    window /= window.sum()
    scales = []
    for size in (96, 48):
        mean = scipy.ndimage.convolve(plane, window, mode="nearest")
        deviation = np.sqrt(np.abs(scipy.ndimage.convolve(plane**2, window, mode="nearest") - mean**2))
        normal = (plane - mean) / (deviation + 1)
        normal[np.abs(normal) < 1e-9] = 0
        scales.append([block_features(normal[r * size:(r + 1) * size, c * size:(c + 1) * size])
                       for r in range(rows) for c in range(columns)])
        plane = halving(plane.shape[0]) @ plane @ halving(plane.shape[1]).T
    features = np.concatenate(scales, 1)
    whole = features[~np.isnan(features).any(1)]
    return np.nanmean(features, 0), np.cov(whole, rowvar=False)


def niqe(plane, mean, covariance, crop=0):
    own_mean, own_covariance = picture_features(plane, crop)
    difference = mean - own_mean
    return float(np.sqrt(difference @ np.linalg.pinv((covariance + own_covariance) / 2) @ difference))


def pattern(height, width):
    """test_niqe.c has the same; its upper left block is flat."""
    y, x = np.mgrid[:height, :width]
    rgb = np.stack([(x * x * 7 + y * 13 + x * y % 31 * 5 + c * 40) % 256 for c in range(3)], 2)
    rgb[:110, :110] = 77
    return rgb


def main():
    data = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[3] / "data")
    made = pattern(200, 300).astype(float)
    lines = [f"{of}pattern 0 {niqe(plane(made), np.zeros(36), np.eye(36)):.12g}" for of, plane in (("", gray), ("pi:", luma))]
    model = scipy.io.loadmat(data / "niqe/modelparameters.mat")
    for name in [f"set5/img_{i:03}_SRF_4_HR.png" for i in range(1, 6)]:
        rgb = np.asarray(Image.open(data / name).convert("RGB"))
        rgb = rgb.astype(float)
        for of, plane, crop in (("", gray, 0), ("", gray, 4), ("pi:", luma, 4)):
            value = niqe(plane(rgb), model["mu_prisparam"].ravel(), model["cov_prisparam"], crop)
            lines.append(f"{of}{name} {crop} {value:.12g}")
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
