#!/usr/bin/env python3
"""tools/ma_model.py: python3 test_ma_model.py MA_MODEL.PY. Skips itself where Python has no scipy."""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import scipy.io
except ImportError:
    sys.exit(77)

NODES, TREES = 31, 4
GROUPS = {"blocks": 18, "bands": 45, "patches": 75}


def tree(draw, features):
    """One as randomForest grows them: children side by side behind all that is there, counted from 1; leaves have none."""
    left, right, feature, threshold, prediction = ([0] * NODES for _ in range(5))
    open_nodes, count = [0], 1
    while open_nodes and count + 2 <= NODES and (count < 3 or draw.random() < 0.9):
        node = open_nodes.pop(0)
        left[node], right[node], feature[node], threshold[node] = count + 1, count + 2, draw.randrange(features) + 1, draw.random()
        open_nodes += [count, count + 1]
        count += 2
    for node in open_nodes:
        prediction[node] = draw.uniform(0, 10)
    return left, right, feature, threshold, prediction, count


def forest(draw, features):
    *arrays, counts = zip(*(tree(draw, features) for _ in range(TREES)))
    left, right, feature, threshold, prediction = (numpy.array(array).T for array in arrays)
    return {"lDau": left.astype("i4"), "rDau": right.astype("i4"), "nodestatus": numpy.zeros((NODES, TREES), "i1"), "nrnodes": float(NODES),
            "upper": threshold.astype("f8"), "avnode": prediction.astype("f8"), "mbest": feature.astype("i4"),
            "ndtree": numpy.array(counts, "i4"), "ntree": float(TREES), "coef": numpy.zeros(2)}


def predict(forest, features):
    """regRF_predict of randomforest-matlab."""
    sum = 0
    for t in range(TREES):
        k = 0
        while forest["lDau"][k, t] != 0:
            k = (forest["lDau"] if features[forest["mbest"][k, t] - 1] <= forest["upper"][k, t] else forest["rDau"])[k, t] - 1
        sum += forest["avnode"][k, t]
    return sum / TREES


def predict_converted(tensors, group, features):
    value, feature, left = (tensors[f"{group}.{name}"] for name in ("value", "feature", "left"))
    sum = 0
    for k in tensors[f"{group}.roots"]:
        while feature[k] >= 0:
            k = left[k] + (0 if features[feature[k]] <= value[k] else 1)
        sum += value[k]
    return sum / len(tensors[f"{group}.roots"])


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    types = {"F64": "<f8", "I32": "<i4"}
    return {name: numpy.frombuffer(data[8 + size:][slice(*tensor["data_offsets"])], types[tensor["dtype"]])
            for name, tensor in header.items() if name != "__metadata__"}


def convert(folder, contents):
    scipy.io.savemat(folder / "model.mat", contents)
    return subprocess.run([sys.executable, sys.argv[1], folder / "model.mat", folder / "ma.safetensors"], capture_output=True, text=True)


def cell(forests):
    array = numpy.empty((len(forests), 1), object)
    array[:, 0] = forests
    return array


def main():
    draw = random.Random(3)
    forests = {group: forest(draw, features) for group, features in GROUPS.items()}
    linear = numpy.array([[1.0], [2.0], [3.0], [-4.0]])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = convert(folder, {"model": {"rf": cell(list(forests.values())), "linear": linear}})
        assert result.returncode == 0, result.stderr
        tensors = read(folder / "ma.safetensors")
        assert list(tensors["linear"]) == [1, 2, 3, -4], tensors["linear"]
        for group, features in GROUPS.items():
            for _ in range(50):
                x = [draw.random() for _ in range(features)]
                expected, converted = predict(forests[group], x), predict_converted(tensors, group, x)
                assert abs(expected - converted) < 1e-12, f"{group}: {converted}, not {expected}"
        forests["bands"]["rDau"][0, 0] += 1
        corrected = dict(forests["blocks"], coef=numpy.array([1.0, 2.0]))
        for contents, part in (({"other": 1.0}, "no variable 'model'"), ({"model": {"rf": cell(list(forests.values()))}}, "no field 'linear'"),
                               ({"model": {"rf": cell(list(forests.values())), "linear": linear}}, "tree 0 of bands has children that are not side by side"),
                               ({"model": {"rf": cell([corrected] * 3), "linear": linear}}, "correction of bias"),
                               ({"model": {"rf": cell([corrected] * 2), "linear": linear}}, "2 forests and 4 factors, not 3 and 4")):
            result = convert(folder, contents)
            assert result.returncode == 1 and part in result.stderr, f"'{part}' is not said: {result.stderr}"


if __name__ == "__main__":
    main()
