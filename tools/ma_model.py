#!/usr/bin/env python3
"""Makes the file that `--ma-model` and `eval.ma_model` read of the forests that the authors of Ma's score publish.

usage: python3 tools/ma_model.py model.mat ma.safetensors

model.mat lies in github.com/chaoma99/sr-metric. src/infer/ma_model.h says what the file holds. Needs numpy and scipy.
"""
import json
import struct
import sys

GROUPS = ("blocks", "bands", "patches")


def scalar(value):
    """What MATLAB's loadmat wraps in arrays of one element."""
    while getattr(value, "dtype", None) is not None and value.dtype == object and value.size == 1:
        value = value.ravel()[0]
    return value


def field(struct_array, name):
    if struct_array.dtype.names is None or name not in struct_array.dtype.names:
        raise ValueError(f"it has no field '{name}': it is no model of Ma's score")
    return scalar(struct_array[name].ravel()[0])


def forest_of(forest, group):
    """The trees one after another, their nodes in the order of MATLAB's, children counted from 0 over the whole forest."""
    import numpy

    left, right, feature = (numpy.asarray(field(forest, name), "i8") for name in ("lDau", "rDau", "mbest"))
    threshold, prediction = (numpy.asarray(field(forest, name), "f8") for name in ("upper", "avnode"))
    counts = numpy.asarray(field(forest, "ndtree"), "i8").ravel()
    if "coef" in forest.dtype.names and numpy.any(field(forest, "coef")):
        raise ValueError(f"the forest of {group} has a correction of bias, which the published one has not")
    if left.ndim != 2 or left.shape[1] != len(counts) or any(a.shape != left.shape for a in (right, feature, threshold, prediction)):
        raise ValueError(f"the arrays of the forest of {group} are not all of one shape, nodes by trees")
    roots = numpy.concatenate([[0], numpy.cumsum(counts)])
    parts = []
    for tree, count in enumerate(counts):
        children, split = left[:count, tree], left[:count, tree] > 0
        if not numpy.array_equal(right[:count, tree][split], children[split] + 1):
            raise ValueError(f"tree {tree} of {group} has children that are not side by side, as randomForest puts them")
        parts.append((numpy.where(split, threshold[:count, tree], prediction[:count, tree]),
                      numpy.where(split, feature[:count, tree] - 1, -1), numpy.where(split, children - 1 + roots[tree], 0)))
    value, feature, left = (numpy.concatenate(part) for part in zip(*parts))
    return {"value": value.astype("<f8"), "roots": roots[:-1].astype("<i4"), "feature": feature.astype("<i4"), "left": left.astype("<i4")}


def model_of(path):
    import numpy
    import scipy.io

    contents = scipy.io.loadmat(path)
    if "model" not in contents:
        raise ValueError("it has no variable 'model': it is no model of Ma's score")
    model = contents["model"]
    forests, linear = numpy.asarray(field(model, "rf")).ravel(), numpy.asarray(field(model, "linear"), "<f8").ravel()
    if len(forests) != len(GROUPS) or len(linear) != 1 + len(GROUPS):
        raise ValueError(f"it has {len(forests)} forests and {len(linear)} factors, not {len(GROUPS)} and {1 + len(GROUPS)}")
    tensors = {"linear": linear}
    for group, forest in zip(GROUPS, forests):
        tensors.update({f"{group}.{name}": values for name, values in forest_of(forest, group).items()})
    return tensors


def write(path, tensors):
    """safetensors: the length of a header in JSON, the header, and the values, wider ones first so that all are aligned."""
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))
    header, at = {"__metadata__": {"format": "forests of Ma's score"}}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": {"<f8": "F64", "<i4": "I32"}[values.dtype.str], "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        write(sys.argv[2], model_of(sys.argv[1]))
    except ImportError as error:
        sys.exit(f"ma_model.py needs numpy and scipy: {error}")
    except (OSError, ValueError, NotImplementedError) as error:
        sys.exit(f"ma_model.py: {sys.argv[1]}: {error}")


if __name__ == "__main__":
    main()
