"""pyiqa's side of niqe_vs_pyiqa: niqe_pyiqa.py MODEL THREADS PICTURE ...

MODEL is modelparameters.mat of the authors' release. Computes NIQE of all pictures at once and then for each line read; each time
answered by {"ms", "niqe", "mended"}: `mended` is by pyiqa's code with three of its steps replaced, see mend().
"""
import importlib.metadata
import json
import sys
import time

import numpy as np
import torch
from PIL import Image
from pyiqa.archs import func_util, niqe_arch


def matlab_gray(rgb):
    """rgb2gray of 8 bits, which rounds halves up; as a picture of one channel from 0 to 1."""
    gray = np.floor(rgb.astype(np.float64) @ np.array([0.298936021293775, 0.587043074451121, 0.114020904255103]) + 0.5)
    return torch.from_numpy(gray / 255).float()[None, None]


def window(size, sigma, channels):
    """fspecial() in f64; pyiqa's is rounded to f32, so that its sum differs from 1 and flat windows keep a rest of their value."""
    steps = np.arange(size) - (size - 1) / 2
    w = np.exp(-(steps[:, None] ** 2 + steps ** 2) / (2 * sigma * sigma))
    return torch.from_numpy(w / w.sum()).repeat(channels, 1, 1, 1)


def mend(normalise):
    """As MATLAB has them: gray by its coefficients, the window in f64; and what is left of flat windows by rounding is 0, not a sign."""
    def normalised(*arguments, **options):
        values = normalise(*arguments, **options)
        return torch.where(values.abs() < 1e-9, 0.0, values)
    return normalised


def main(model, threads, *paths):
    torch.set_num_threads(int(threads))
    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    inputs = [torch.from_numpy(rgb / 255).float().permute(2, 0, 1)[None] for rgb in pictures]
    niqe = niqe_arch.NIQE(pretrained_model_path=model)
    kept = func_util.fspecial, niqe_arch.normalize_img_with_gauss
    with torch.no_grad():
        func_util.fspecial, niqe_arch.normalize_img_with_gauss = window, mend(kept[1])
        mended = [niqe(matlab_gray(rgb)).item() for rgb in pictures]
        func_util.fspecial, niqe_arch.normalize_img_with_gauss = kept
        while True:
            start = time.perf_counter()
            values = [niqe(x).item() for x in inputs]
            ms = 1e3 * (time.perf_counter() - start)
            print(json.dumps({"ms": ms, "niqe": values, "mended": mended, "version": importlib.metadata.version("pyiqa")}), flush=True)
            if not sys.stdin.readline():
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
