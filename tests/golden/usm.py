"""Unsharp masking as BasicSR's USMSharp has it, in NumPy and f64, by the two-dimensional kernel."""

import numpy as np


def kernel(radius=50, sigma=0.0):
    size = radius + 1 - radius % 2
    sigma = sigma or 0.3 * ((size - 1) * 0.5 - 1) + 0.8  # cv2.getGaussianKernel()
    line = np.exp(-((np.arange(size) - size // 2) ** 2) / (2 * sigma**2))
    return np.outer(line, line) / line.sum() ** 2


def filter2d(plane, weights):
    half = weights.shape[0] // 2
    padded = np.pad(plane, half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape)
    return np.einsum("yxij,ij->yx", windows, weights)


def sharpen(plane, weight=0.5, threshold=10):
    """One channel of values 0 ... 255."""
    weights = kernel()
    residual = plane - filter2d(plane, weights)
    soft = filter2d((np.abs(residual) > threshold).astype(np.float64), weights)
    return soft * np.clip(plane + weight * residual, 0, 255) + (1 - soft) * plane
