"""What both checks share: the files of export_files, and how results are compared."""
import pathlib, re, subprocess, sys, tempfile

import numpy as np

SKIP = 77


def export(program, backend):
    """Runs export_files into a temporary folder that lives as long as the returned object; .name is its path."""
    folder = tempfile.TemporaryDirectory(prefix="cod-export-")
    done = subprocess.run([program, folder.name, backend], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout}{done.stderr}")
    return folder


def cases(folder, name):
    """(input, expected output) of a model as arrays [N, H, W, C]; the output's height and width are inferred by the caller."""
    found = sorted(pathlib.Path(folder).glob(f"{name}.*.input.f32"))
    assert found, f"no inputs of {name}"
    for path in found:
        n, h, w = map(int, re.search(r"\.(\d+)x(\d+)x(\d+)\.input", path.name).groups())
        x = np.fromfile(path, np.float32).reshape(n, h, w, -1)
        yield x, np.fromfile(str(path).replace(".input.", ".output."), np.float32)


def check(what, actual_nchw, expected, tolerance):
    """Compares an NCHW (or [N, C]) result with our NHWC values; returns whether they agree. NaN never does."""
    actual = np.moveaxis(actual_nchw, 1, -1).reshape(-1)
    worst = np.abs(actual - expected).max() if actual.size == expected.size else np.nan
    good = bool(worst <= tolerance)
    print(f"{'ok  ' if good else 'FAIL'} {what}: {actual_nchw.shape}, largest difference {worst:.3g}, scale {np.abs(expected).max():.3g}")
    return good
