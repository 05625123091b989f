"""Comparisons made up for the tests of the report: compare.json with everything, and with hardly anything."""

import json
import math
import random

from train_support import png

ARMS = [  # name, strategy, groups, final quality, seconds of computing and bytes between groups a run, share of bytes inside
    ("single", "single", 1, 88.4, 20.0, 0),
    ("allreduce", "allreduce", 1, 92.7, 21.0, 0),
    ("local_sgd", "local_sgd", 4, 92.5, 20.5, 90e6),
    ("distil", "codistill", 4, 89.5, 26.0, 16e6),
    ("merge", "codistill", 4, 92.63, 21.0, 16e6),
    ("both", "codistill", 4, 92.6, 27.0, 16e6),
]
RATES = {"none": math.inf, "1gbit": 1e9, "200mbit": 200e6, "100mbit": 100e6, "50mbit": 50e6, "20mbit": 20e6}


def curve(rng, final, wall, between, steps=1000, every=50):
    """Quality as it approaches its end; the seed shifts it."""
    points = []
    for step in range(every, steps + 1, every):
        share = step / steps
        points.append({"step": step, "time_s": wall * share, "bytes_between": round(between * share),
                       "quality": final - (final - 15) * math.exp(-9 * share) + rng.gauss(0, 0.15)})
    return points


def reliability(rng, too_sure):
    bins = []
    for k in range(15):
        confidence = (k + 0.5) / 15
        bins.append({"confidence": confidence, "accuracy": min(1, max(0, confidence - too_sure * confidence * (1 - confidence) + rng.gauss(0, 0.02))),
                     "count": round(8 + 5000 * confidence**4)})
    return bins


def run(rng, arm, seed, rate):
    name, _, groups, final, compute, between = arm
    final += rng.gauss(0, 0.08)
    inside = 3e9 if name == "allreduce" else 0
    wall = compute + (inside + between * (0 if name != "local_sgd" else 1)) * 8 / RATES[rate] / 4
    return {"seed": seed, "rate": rate, "folder": f"runs/{name}-seed{seed}-{rate}", "state": "finished", "message": None, "steps": 1000,
            "samples": 400000, "wall_s": 1.1 * wall, "trained_s": wall, "core_s": 1.9 * compute, "quality": final, "final_quality": final + 0.25,
            "group_quality": [final - 0.1, final + 0.1],
            "metrics": {"test_accuracy": final, "cross_entropy": (101 - final) / 25, "test_cross_entropy": (100 - final) / 25, "test_calibration_error": 2.1},
            "step_ms": {"total": wall, "compute": 0.95 * min(compute, 20), "teacher": compute - 20 if name in ("distil", "both") else 0,
                        "wait": wall - compute, "exchange": 0.3 if between else 0},
            "bytes": {"inside": inside, "between": between}, "curve": curve(rng, final, wall, between),
            "disagreement": [{"step": step, "percent": (final - 84) * math.exp(-step / 700) + rng.gauss(1, 0.1)}
                             for step in range(250, 1001, 250)] if groups > 1 else None,
            "reliability": reliability(rng, 0.5 if name == "single" else 0.15)}


def tuned(name, final, only=False):
    """What was tried for an arm: with a failed candidate, and a choice at the edge; or one that leaves nothing to choose."""
    sets = [["train.rate=3.0e-4"], ["train.rate=1.0e-3"], ["train.rate=3.0e-3", "train.warmup=100", "train.clip_norm=1"], ["train.rate=3.0e-3", "train.loss=mse"]]
    tried = [{"set": one, "chosen": k == 2, "state": "finished", "folder": f"runs/{name}-tune{k + 1}", "quality": final - 2 + k} for k, one in enumerate(sets[:3])]
    tried.append({"set": sets[3], "chosen": False, "state": "failed", "folder": f"runs/{name}-tune4", "message": "the loss became NaN or infinite at step 40"})
    if only:
        return {"candidates": [{"set": [], "chosen": True, "state": "missing", "folder": ""}], "own": "train.rate=0.1 is set by the arm itself"}
    return {"candidates": tried, "edge": "train.rate=3.0e-3 is the highest tried; the best may lie beyond"}


def classification(seeds=3, rates=("none", "20mbit"), arms=ARMS):
    """A comparison of classifiers with everything that there can be."""
    rng = random.Random(1)
    return {"format": "codistill-compare-1", "title": "MNIST islands", "config": "configs/compare-mnist.yaml",
            "config_text": "name: mnist\ntrain: {steps: 1000}\n", "created": "2026-11-22T01:50:00Z", "version": "0.1.0-40-gabc",
            "machine": "AMD EPYC 9R14, 2 processors", "baseline": "single",
            "metric": {"name": "test_accuracy", "label": "accuracy on the test set", "unit": "%", "higher_is_better": True, "digits": 2},
            "budget": {"kind": "steps", "value": 1000, "text": "1000 steps each"},
            "tuning": {"seed": 0, "label": "accuracy on the held-out examples"}, "rates": list(rates),
            "arms": [{"name": arm[0], "strategy": arm[1], "set": ["distill.weight=0", "exchange.period=50"] if arm[0] == "merge" else [],
                      "tuned": tuned(arm[0], arm[3], arm[0] == "distil"), "groups": arm[2], "ranks": 4, "runs": [run(rng, arm, seed + 1, rate) for rate in rates for seed in range(seeds)]}
                     for arm in arms],
            "churn": {"between_seeds": [{"arm": arm[0], "percent": 9 - k} for k, arm in enumerate(arms)],
                      "between_groups": [{"arm": arm[0], "percent": 6 - k} for k, arm in enumerate(arms) if arm[2] > 1]}}


def pictures(bench, folder):
    """A comparison of super-resolution, with crops beside it; two seeds, lower loss as a further metric."""
    arms = [("single", "single", 1, 29.06, 20.0, 0), ("merge", "codistill", 2, 29.74, 21.0, 16e6)]
    document = classification(2, ("none",), arms)
    document.update(title="Super-resolution islands", churn=None,
                    metric={"name": "psnr_y", "label": "PSNR of luma on Set5", "unit": "dB", "higher_is_better": True, "digits": 2})
    document["tuning"]["label"] = document["metric"]["label"]
    crops = []
    for index, (title, side) in enumerate((("butterfly", 96), ("head", 48))):
        images = []
        for k, label in enumerate(("truth", "bicubic", "single", "merge")):
            name = f"crops/{index}-{k}.png"
            bench.write(f"{folder}/{name}", png(side, side, k))
            images.append({"label": label, "png": name, **({"psnr": 24 + k / 3} if k else {})})
        crops.append({"title": title, "size": [side, side], "images": images})
    document["crops"] = crops
    for arm in document["arms"]:
        for one in arm["runs"]:
            one.update(reliability=None, disagreement=None, metrics={"psnr_y": one["quality"], "psnr_rgb": one["quality"] - 1.5})
    return document


def incomplete():
    """Failed and missing runs, one seed, and as few members as there can be."""
    document = classification(1, ("none",), ARMS[:4])
    single, allreduce, local, distil = (arm["runs"][0] for arm in document["arms"])
    allreduce.update(state="failed", message="rank 2: cannot read 'data/mnist': No such file or directory", quality=None)
    local.update(state="missing", message=None)
    for key in ("curve", "step_ms", "bytes", "metrics", "reliability", "disagreement", "samples"):
        del single[key], distil[key]
    for key in ("machine", "version", "churn", "config_text", "budget", "tuning"):
        document[key] = None
    for arm, rest in zip(document["arms"], (None, {}, {"candidates": [{}, {"set": ["a=1"], "state": "missing"}]}, [])):
        arm["tuned"] = rest
    return document


def hostile():
    """Texts that would be markup, far too long, or no XML."""
    evil = "<script>alert(1)</script>"
    document = classification(2, ("none",), ARMS[:3])
    document.update(title=evil, config="a'b <i>.yaml", config_text=f"{evil}</pre></details>\u0001\u001b[31m", machine=evil, version=evil,
                    created=evil, budget={"text": evil}, rates=["none", "\"><img src=x onerror=alert(2)>"])
    document["metric"].update(label=evil, unit="<b>%</b>", name="x")
    document["tuning"] = {"label": evil, "seed": evil}
    names = [evil, "x" * 300, "\"'&<>\u0007\ufffe 一二三四五六七八九十一二三四五六七八九十一二三四五"]
    for arm, name in zip(document["arms"], names):
        arm.update(name=name, strategy=evil, set=[evil, "a" * 400], tuned={"own": evil, "edge": "b" * 300, "candidates": [
            {"set": [evil, "c" * 400], "chosen": True, "quality": 1e300}, {"set": [name], "message": evil * 9}]})
        for one in arm["runs"]:
            one["metrics"][evil] = 1.0
    document["arms"][0]["runs"][0].update(state="failed", message=evil * 20, folder=evil)
    document.update(baseline=names[1], churn={"between_seeds": [{"arm": evil, "percent": 5}]},
                    crops=[{"title": evil, "images": [{"label": evil, "png": "../../etc/passwd"}, {"label": evil, "png": evil}]}])
    return document


def store(bench, folder, document):
    return bench.write(f"{folder}/compare.json", json.dumps(document))
