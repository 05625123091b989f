#!/usr/bin/env python3
"""`codistill interpolate` on models that were just trained: python3 test_interpolate.py CODISTILL [CASE ...]"""

import os
import struct
import sys

from train_support import CONFIG, check, png, read_safetensors, run_cases


def lies_between(bench):
    """Every value is between those of the two models, which the ends give exactly; the result is evaluated as any model."""
    bench.write("t.yaml", CONFIG)
    for i in range(2):
        bench.write(f"photos/{i}.png", png(48, 40, i))
    bench.trained("name=m", "train.steps=10")
    bench.trained("name=n", "train.steps=10", "seed=2")
    models = ["runs/m/final.safetensors", "runs/n/final.safetensors"]

    def arrays(path):
        return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, data in read_safetensors(bench.path(path)).items()}

    first, second = (arrays(model) for model in models)
    check(first.keys() == second.keys() and first != second, "the two models are one")
    for text in ("0", "0.25", "1"):
        alpha = float(text)
        result = bench.run("interpolate", *models, "--alpha", text, "-o", "mixed.safetensors")
        check(result.code == 0 and f"{text} of {models[1]}" in result.out, f"alpha {text}", result)
        mixed = arrays("mixed.safetensors")
        check(mixed.keys() == first.keys(), f"tensors {mixed.keys()}")
        for name, values in mixed.items():
            for value, a, b in zip(values, first[name], second[name], strict=True):
                wanted = (1 - alpha) * a + alpha * b
                right = value == wanted if alpha in (0, 1) else abs(value - wanted) <= 1e-6 * max(1, abs(wanted))
                check(right, f"alpha {text}: {name} has {value}, not {wanted}")
    result = bench.run("eval", "mixed.safetensors", "--data", "photos")
    check(result.code == 0 and "mean" in result.out, "the mixture is evaluated", result)


def refuses_unlike(bench):
    """Models of other sizes or kinds do not mix, and nothing is written."""
    bench.write("t.yaml", CONFIG)
    names = {"small": [], "wide": ["model.channels=12"], "other": ["model={name: compact, num_feat: 8, num_conv: 1}"]}
    for name, overrides in names.items():
        bench.trained(f"name={name}", "train.steps=10", *overrides)
    for name, message in (("wide", "their options differ"), ("other", "only models of one architecture mix")):
        result = bench.run("interpolate", "runs/small/final.safetensors", f"runs/{name}/final.safetensors", "--alpha",
                           "0.5", "-o", "x.safetensors")
        check(result.code == 2 and message in result.err, f"{name} was mixed", result)
        check(not os.path.exists(bench.path("x.safetensors")), f"{name}: something was written")


CASES = {"lies-between": lies_between, "refuses-unlike": refuses_unlike}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
