#!/usr/bin/env python3
"""`codistill compare` with its section of the configuration, on tiny data: python3 test_compare.py CODISTILL [CASE ...]"""

import csv
import json
import math
import os
import re
import signal
import struct
import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/bench"))
import peak_bytes
from test_netlab import needs_a_laboratory
from train_support import MPI, STOPPED, Skip, check, floats, png, read_safetensors, run_cases, steps_saved, wait_for_steps

CONFIG = """\
name: c
cluster: {threads: 1, teardown_timeout_s: 600, groups: 2}
model: {name: mlp, hidden: [16]}
data: {kind: synthetic, synthetic_count: 210, synthetic_shape: [2, 3, 4], synthetic_classes: 3, batch: 8}
train: {strategy: codistill, steps: 120, rate: 1.0e-2, precision: f32}
distill: {weight: 1, burn_in: 10, ramp: 5, temperature: 2}
exchange: {period: 10, lag_steps: 5, min_interval_ms: 0}
local_sgd: {period: 10}
eval: {every: 30}
checkpoint: {every: 60}
log: {every: 20, tensorboard: false}
compare:
  arms: ARMS
"""


def compare(bench, arms, *arguments, code=0):
    bench.write("c.yaml", CONFIG.replace("ARMS", arms))
    result = bench.run("compare", "c.yaml", *arguments)
    check(result.code == code, f"compare did not end with {code}", result)
    return result


def report(bench, name="c"):
    return bench.json(f"{name}-compare", "compare.json")


def runs(bench, name="c"):
    """Runs by arm, in their order."""
    return {arm["name"]: arm["runs"] for arm in report(bench, name)["arms"]}


def arms(bench):
    """Each arm once for each seed, in the order of the file; what compare.json says of them is what the runs say."""
    listed = ["single", "single_long", "sharing", "distil", "merge", "both", "neither"]
    result = compare(bench, "[single, {name: single_long, strategy: single, set: [train.steps=240]}, {name: sharing, strategy: local_sgd}, "
                     "codistill_rows]", "compare.seeds=[1, 2]", "compare.baseline=sharing")
    found = report(bench)
    page = bench.read("runs", "c-compare", "report.html").decode()
    check(re.search(r"\n\w+ has the best mean: [\d.]+ ± [\d.]+ % \(± standard deviation, 2 seeds\)", result.out) and
          len(re.findall(r"^[?~▲▼] \w+( is|:) ", result.out, re.MULTILINE)) == 6, "the verdict", result)
    check("left" in result.err.split("== c-single_long-seed1 (2 of 14)")[1].splitlines()[0], "no time left", result)
    table = list(csv.DictReader(bench.read("runs", "c-compare", "compare.csv").decode().splitlines()))
    check([(row["arm"], row["seed"]) for row in table] == [(arm["name"], str(run["seed"])) for arm in found["arms"] for run in arm["runs"]], f"{table}")
    check("final accuracy" in result.out and "groups' accuracy" in result.out, "two figures of one name", result)
    check(all(abs(float(row["groups_mean_accuracy"]) - run["quality"]) < 1e-6 and abs(float(row["final_accuracy"]) - run["final_quality"]) < 1e-6 for row, run in
              zip(table, (run for arm in found["arms"] for run in arm["runs"]))), f"{table}")
    check(all(f"<b>{name}</b>" in page for name in listed) and "the report: runs/c-compare/report.html" in result.out, "the report", result)
    check(b" points better than the most frequent class, which has " in bench.read("runs", "c-single-seed1", "report.html"), "the run's page", result)
    check([arm["name"] for arm in found["arms"]] == listed and found["baseline"] == "sharing", f"{found['arms']}", result)
    check([arm["strategy"] for arm in found["arms"]] == ["single"] * 2 + ["local_sgd"] + ["codistill"] * 4, "strategies", result)
    check([arm["groups"] for arm in found["arms"]] == [1, 1, 2, 2, 2, 2, 2], "groups", result)
    check(found["metric"]["name"] == "accuracy" and found["metric"]["higher_is_better"] and found["budget"]["value"] == 120, f"{found['metric']}")
    check("single_long has 240 steps" in found["budget"]["text"], found["budget"]["text"])
    page = bench.read("runs", "c-compare", "report.html").decode()
    check(all(name in page for name in listed), "the report lacks an arm", result)
    check(found["format"] == "codistill-compare-1" and "steps: 120" in found["config_text"], "what was compared")
    for arm in found["arms"]:
        check([run["seed"] for run in arm["runs"]] == [1, 2] and all(run["state"] == "finished" for run in arm["runs"]), arm["name"], result)
        for run in arm["runs"]:
            check_run(bench, arm, run)
    effects = {arm["name"]: [summed(bench, run, key) for run in arm["runs"] for key in ("merges", "pulls")] for arm in found["arms"]}
    check(effects["neither"] == [0] * 4 and effects["distil"][0] == 0 and effects["merge"][0] > 0, f"{effects}")
    # A line of a step that no integer holds, or of none, is no point of a curve.
    run = runs(bench)["single"][0]
    with open(bench.path("runs", os.path.basename(run["folder"]), "metrics.0.jsonl"), "a") as metrics:
        metrics.writelines(f'{{"step": {step}, "accuracy": 50}}\n' for step in ("1e300", "-1e300", "-1", "30.5", "null"))
    # The same again is done already; without the section's arms there are those of the command line.
    again = compare(bench, "[single]", "compare.seeds=[1, 2]")
    check(again.err.count("done before") == 2 and sorted(runs(bench)) == sorted(listed), "not done before", again)
    check(runs(bench)["single"][0]["curve"] == run["curve"], f"impossible steps: {runs(bench)['single'][0]['curve']}", again)
    compare(bench, "[single]", "--strategies", "codistill_rows", "--seeds", "2")
    check(list(runs(bench))[:4] == listed[3:], f"{list(runs(bench))}")
    check(bench.run("train", "c.yaml", "name=plain", "train.steps=10").code == 0, "training with the section in the file")


def summed(bench, run, key):
    return sum(group[key] for group in bench.summary(os.path.basename(run["folder"]))["group_results"])


def check_run(bench, arm, run):
    """Against the run's own files."""
    name = os.path.basename(run["folder"])
    summary, groups = bench.summary(name), range(arm["groups"])
    own = [group["accuracy"] for group in summary["group_results"]]
    check(run["group_quality"] == own and abs(run["quality"] - sum(own) / len(own)) < 1e-9, f"{run['quality']} of {own}")
    check(run["steps"] == (240 if arm["name"] == "single_long" else 120) and run["samples"] == 8 * arm["ranks"] * run["steps"], f"{run}")
    parts = dict(run["step_ms"])
    check(abs(parts.pop("total") - sum(parts.values())) < 1e-6 and min(parts.values()) >= 0, f"{run['step_ms']}")
    check((run["step_ms"]["teacher"] > 0) == (arm["name"] in ("distil", "both")), f"{arm['name']}: {run['step_ms']}")
    check((run["bytes"]["between"] > 0) == (arm["strategy"] != "single" and arm["name"] != "neither"), f"{arm['name']}: {run['bytes']}")
    check([point["step"] for point in run["curve"]] == list(range(30, run["steps"] + 1, 30)), f"{run['curve']}")
    for before, after in zip(run["curve"], run["curve"][1:]):
        check(before["time_s"] < after["time_s"] and before["bytes_between"] <= after["bytes_between"], f"{run['curve']}")
    for point in run["curve"]:
        lines = [line for g in groups for line in bench.metrics(name, g) if line["step"] == point["step"]]
        check(abs(point["quality"] - sum(line["accuracy"] for line in lines) / len(lines)) < 1e-9, f"{point} of {lines}")


def predictions(bench, name, step, part):
    """Class, confidence and truth of each example."""
    arrays = read_safetensors(bench.path("runs", name, "predictions", f"step-{step:09}", f"{part}.safetensors"))
    return [floats(arrays[key]) for key in ("predicted", "confidence", "truth")]


def percent_apart(a, b):
    return 100 * sum(x != y for x, y in zip(a, b)) / len(a)


def churn(bench):
    """Where no weight moves, groups of one start agree and others do not; all figures follow from what was kept."""
    still = ["train.rate=1e-12", "distill.weight=0", "exchange.merge=none"]
    compare(bench, "[{name: alike, strategy: codistill}, {name: unlike, strategy: codistill, set: [model.init=own]}]",
            "compare.seeds=[1, 2, 3]", *still)
    found = report(bench)
    apart = {entry["arm"]: entry["percent"] for entry in found["churn"]["between_groups"]}
    check(apart["alike"] == 0 and apart["unlike"] > 5, f"{apart}")
    again = {entry["arm"]: entry["percent"] for entry in found["churn"]["between_seeds"]}
    for arm in ("alike", "unlike"):
        said = {(seed, g): predictions(bench, f"c-{arm}-seed{seed}", 120, f"val-{g}")[0] for seed in (1, 2, 3) for g in (0, 1)}
        pairs = [percent_apart(said[a, g], said[b, g]) for a, b in ((1, 2), (1, 3), (2, 3)) for g in (0, 1)]
        check(abs(again[arm] - sum(pairs) / 6) < 1e-9 and again[arm] > 0, f"{arm}: {again} of {pairs}")
        groups = [percent_apart(said[seed, 0], said[seed, 1]) for seed in (1, 2, 3)]
        check(abs(apart[arm] - sum(groups) / 3) < 1e-9, f"{arm}: {apart} of {groups}")
        for run in runs(bench)[arm]:
            check_predictions(bench, run, said[run["seed"], 0], said[run["seed"], 1])


def check_predictions(bench, run, first, second):
    name = os.path.basename(run["folder"])
    check([entry["step"] for entry in run["disagreement"]] == [30, 60, 90, 120], f"{run['disagreement']}")
    check(abs(run["disagreement"][-1]["percent"] - percent_apart(first, second)) < 1e-9, f"{run['disagreement']}")
    bins = run["reliability"]
    right = sum(round(b["accuracy"] * b["count"]) for b in bins if b["count"])
    check(len(bins) == 15 and sum(b["count"] for b in bins) == 42, f"{bins}")  # 21 held-out examples, two groups
    for g in (0, 1):
        said, confidence, truth = predictions(bench, name, 120, f"val-{g}")
        right -= sum(a == b for a, b in zip(said, truth))
        accuracy = 100 * sum(a == b for a, b in zip(said, truth)) / len(truth)
        check(abs(accuracy - run["group_quality"][g]) < 1e-4 and 1 / 3 - 1e-6 <= min(confidence) and max(confidence) <= 1, f"{accuracy}")
    check(right == 0, f"{bins}")


def budgets(bench):
    """Equal samples, time and bytes: steps follow from what the first arm used."""
    group = "{name: group, strategy: local_sgd}"
    compare(bench, f"[single, {group}, allreduce]", "compare.budget=samples", "name=samples")
    check([run[0]["samples"] for run in runs(bench, "samples").values()] == [960] * 3, "samples")
    check([run[0]["steps"] for run in runs(bench, "samples").values()] == [120, 60, 60], "steps of equal samples")
    compare(bench, f"[single, {group}]", "compare.budget=steps", "compare.budget_value=30", "name=steps")
    check([run[0]["steps"] for run in runs(bench, "steps").values()] == [30, 30], "steps")

    result = compare(bench, f"[{group}, single, {{name: short, strategy: local_sgd, set: [local_sgd.period=5]}}, "
                     "{name: as_it_is, strategy: single, set: [train.steps=7]}]", "compare.budget=bytes", "name=bytes")
    found = runs(bench, "bytes")
    sent = {name: run[0]["bytes"]["between"] for name, run in found.items()}
    check(found["short"][0]["steps"] == 60 and sent["short"] == sent["group"] > 0, f"{sent}", result)
    check(found["single"][0]["steps"] == 120 and "single sends nothing" in report(bench, "bytes")["budget"]["text"], "no bytes", result)
    check(found["as_it_is"][0]["steps"] == 7, "steps of its own", result)
    again = compare(bench, f"[{group}, single]", "compare.budget=bytes", "name=bytes")
    check(again.err.count("done before") == 2 and "pilot: how" not in again.err, "not done before", again)
    result = compare(bench, f"[single, {group}]", "compare.budget=bytes", "name=none", code=2)
    check("what arm 'single' uses, which is none; put another arm first" in result.err, "no budget", result)

    compare(bench, f"[single, {group}]", "compare.budget=time", "compare.budget_value=0.5", "name=time")
    found = runs(bench, "time")
    for name, run in found.items():  # as many steps as the pilot says that half a second has, on whatever machine
        pilot = json.loads(bench.read("runs", f"time-{name}-pilot", "metrics.0.jsonl").decode().splitlines()[-1])
        steps = max(1, math.floor(0.5 * pilot["step"] / pilot["trained_s"] + 1e-9))
        check(abs(run[0]["steps"] - steps) <= max(1, 1e-3 * steps), f"half a second: {run[0]['steps']}, and {steps} by the pilot")
    check(report(bench, "time")["budget"]["text"].startswith("0.5 s of training each"), "the text")
    # What the first arm uses is measured anew for another seed, and earlier runs stay all the same.
    for seed in ("1", "2"):
        result = compare(bench, f"[single, {group}]", "compare.budget=time", "name=used", "--seeds", seed)
    check("2 runs of an earlier comparison stay" in result.err and not os.path.exists(bench.path("runs/used-compare/compare-1.json")), "not kept", result)
    check(all(sorted(run["seed"] for run in found) == [1, 2] for found in runs(bench, "used").values()), "the runs", result)


def traffic(bench):
    """What one group of all ranks sends counts as between groups to the share that crosses from one configured group to another."""
    coded = "{name: coded, strategy: allreduce, set: [train.allreduce=auto, train.allreduce_codec=int8]}"
    compare(bench, f"[allreduce, {coded}, parameter_server, central_storage, model_parallel]", "model.hidden=[256, 8, 8, 8]", "cluster.ranks_per_group=2", "train.steps=20", "train.allreduce=flat")
    found = {name: run[0]["bytes"] for name, run in runs(bench).items()}
    weights = 24 * 256 + 256 + 256 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 3 + 3
    ring = found["allreduce"]  # two of the ring's four links
    check(ring["inside"] == ring["between"] and 4 * weights * 2 * 3 * 20 <= 2 * ring["between"] < 4 * weights * 2 * 3 * 20 * 1.02, f"{ring}")
    pairs = found["coded"]  # two of the three that each rank sends to
    check(abs(pairs["between"] - 2 * pairs["inside"]) < 1e-3 and 3.5 < 2 * ring["between"] / (pairs["between"] + pairs["inside"]) < 3.97, f"{pairs}")
    star = found["parameter_server"]  # two of the three workers
    check(abs(star["between"] - 2 * star["inside"]) < 1e-3 and 4 * weights * 2 * 2 * 20 <= star["between"] < 4 * weights * 2 * 2 * 20 * 1.02, f"{star}")
    # Stages on four ranks: one of three hand-overs; a step has the samples of one rank.
    stages = found["model_parallel"]
    check(runs(bench)["model_parallel"][0]["samples"] == 8 * 20 and abs(stages["inside"] - 2 * stages["between"]) < 1e-3, f"{stages}")
    check(found["central_storage"]["inside"] == 0 and found["central_storage"]["between"] < 0.05 * ring["between"], f"{found}")


def goes_on(bench):
    """Interrupted while its second run is under way: the same command goes on from there."""
    pair = "[{name: first, strategy: single, set: [train.steps=20]}, {name: second, strategy: single, set: [train.steps=1000000]}]"
    bench.write("c.yaml", CONFIG.replace("ARMS", pair))
    for number in (signal.SIGTERM, signal.SIGINT):
        process = bench.start("compare", "c.yaml")
        lines = len(bench.metrics("c-second-seed1", 0)) if os.path.exists(bench.path("runs", "c-second-seed1", "metrics.0.jsonl")) else 0
        wait_for_steps(bench, process, "c-second-seed1", lines + 2)
        process.send_signal(number)
        result = bench.wait(process, ["compare"], 300)
        check(result.code == STOPPED and re.search(r"run 'c-second-seed1' stopped at step [1-9]\d* of 1000000; the same", result.err), "a signal", result)
    check("c-first-seed1 (1 of 2): done before" in result.err and "resumed at step" in result.err, "it did not go on", result)
    found = runs(bench)
    check([found[name][0]["state"] for name in found] == ["finished", "missing"] and "quality" not in found["second"][0], f"{found}", result)
    check(steps_saved(bench.path("runs", "c-second-seed1", "checkpoints")), "nothing is saved", result)


def stays(bench):
    """What an earlier comparison of that name found stays, in compare.json or, where it does not compare, beside it."""
    both, short = "[single, {name: sharing, strategy: local_sgd}]", ["train.steps=20"]
    compare(bench, both, *short, "--seeds", "1,2")
    before = runs(bench)
    bench.write("c.yaml", CONFIG.replace("ARMS", both))
    result = bench.done("compare", "c.yaml", *short, "--seeds", "1,3", "--dry-run")
    check("c-sharing-seed1: 20 steps, finished\nc-single-seed3: 20 steps, to be trained\n" in result.out and
          "2 runs are finished, 2 are to be trained; if they take as long, in 0:00:" in result.out, "what would be done", result)
    check(runs(bench) == before and not os.path.exists(bench.path("runs", "c-single-seed3")), "something was done", result)
    result = compare(bench, "[single]", *short, "--seeds", "1")
    check(runs(bench) == before and "3 runs of an earlier comparison stay in runs/c-compare/compare.json" in result.err, "lost", result)
    check("<b>sharing</b>" in bench.read("runs", "c-compare", "report.html").decode(), "the report", result)
    compare(bench, both, *short, "--seeds", "3")
    check([[run["seed"] for run in found] for found in runs(bench).values()] == [[3, 1, 2], [3, 1, 2]], f"{runs(bench)}")
    result = compare(bench, "[{name: sharing, strategy: local_sgd, set: [local_sgd.period=5]}]", *short, "--seeds", "4")
    check("is kept as runs/c-compare/compare-1.json: its arms differ from this one's" in result.err, "not told", result)
    check([run["seed"] for run in runs(bench)["sharing"]] == [4] and os.path.exists(bench.path("runs/c-compare/compare-1.json")), "joined", result)
    bench.write("runs/c-compare/compare.json", "{")
    result = bench.done("compare", "c.yaml", *short, "--seeds", "4")
    check("compare-2.json: it cannot be read" in result.err and bench.read("runs/c-compare/compare-2.json") == b"{", "not kept", result)


def failing(bench):
    """A run that fails is noted with its reason; the others go on, and it is tried again."""
    result = compare(bench, "[{name: bad, strategy: single, set: [train.rate=1000, train.loss=mse, train.optimiser=sgd]}, single]",
                     code=1)
    found = runs(bench)
    check(found["bad"][0]["state"] == "failed" and "became NaN or infinite at step" in found["bad"][0]["message"], f"{found['bad']}", result)
    check(found["single"][0]["state"] == "finished" and "quality" not in found["bad"][0], f"{found}", result)
    check("1 of 2 runs failed, the first 'c-bad-seed1': the " in result.err and "failed: the " in result.out, "what it says", result)
    again = bench.run("compare", "c.yaml")
    check(again.code == 1 and again.err.count("done before") == 1, "tried again", again)


GOOD, BAD = "[train.rate=1e-2, train.warmup=5]", "[train.rate=1000, train.loss=mse, train.optimiser=sgd]"


def tune(bench, arms_text, *candidates, options=(), code=0):
    """A comparison with these candidates; how often something was done before, and what was tuned by arm."""
    result = compare(bench, arms_text, f"compare.tune=[{', '.join(candidates)}]", "train.steps=40", *options, code=code)
    return result, {arm["name"]: arm["tuned"] for arm in report(bench)["arms"]}


def setting(bench, run, key):
    """The first option of this name in a run's resolved configuration."""
    return re.search(rf"^ *{key}: (\S+)", bench.read("runs", run, "config.yaml").decode(), re.MULTILINE).group(1)


def chosen(tuned):
    return [candidate["set"] for candidate in tuned["candidates"] if candidate["chosen"]]


def tunes(bench):
    """Each arm takes the candidate that is best on held-out data, trained with a seed of its own, and its runs have it."""
    pair = "[single, {name: sharing, strategy: local_sgd}]"
    result, found = tune(bench, pair, "train.rate=1e-12", GOOD)
    check(report(bench)["tuning"] == {"seed": 0, "label": "accuracy on the held-out examples"}, f"{report(bench)['tuning']}", result)
    for arm, tuned in found.items():
        first, second = tuned["candidates"]
        check(chosen(tuned) == [["train.rate=1e-2", "train.warmup=5"]] and second["quality"] > first["quality"] + 20, f"{tuned}", result)
        check(tuned["edge"] == "train.rate=1e-2 is the highest tried; the best may lie beyond" and "own" not in tuned, f"{tuned}")
        for candidate in tuned["candidates"]:
            groups = bench.summary(os.path.basename(candidate["folder"]))["group_results"]
            check(abs(candidate["quality"] - sum(group["accuracy"] for group in groups) / len(groups)) < 1e-9, f"{candidate}")
        settings = [[setting(bench, f"c-{arm}-{run}", key) for key in ("seed", "rate", "warmup")] for run in ("tune1", "tune2", "seed1")]
        check(settings == [["0", "1e-12", "0"], ["0", "0.01", "5"], ["1", "0.01", "5"]], f"{settings}", result)
        check("train.rate=1e-2 train.warmup=5 (chosen); train.rate=1e-2 is the highest" in result.out, "the table", result)
    # Done already; what a test set would say has no part in it.
    for name, value in (("c-single-tune1", 100), ("c-single-tune2", 0)):
        summary = bench.summary(name)
        summary["group_results"][0]["test_accuracy"] = value
        bench.write(f"runs/{name}/summary.json", json.dumps(summary))
    again, same = tune(bench, pair, "train.rate=1e-12", GOOD)
    check(again.err.count("done before") == 6 and same == found, "not done before, or chosen otherwise", again)


def tunes_anew(bench):
    """A changed grid keeps what was trained of it and decides again; a run that has other settings then is not mixed in."""
    tune(bench, "[single]", "train.rate=1e-12", GOOD)
    result, found = tune(bench, "[single]", GOOD, "train.rate=1e-12", "train.rate=1e-11")
    check(result.err.count("done before") == 3 and "c-single-tune3 (3 of 3, tuning): train.rate=1e-11\n" in result.err, "trained anew", result)
    check([os.path.basename(one["folder"]) for one in found["single"]["candidates"]] == ["c-single-tune2", "c-single-tune1", "c-single-tune3"], f"{found}")
    grid = ["compare.tune=[train.rate=1e-11, train.rate=1e-12]", "train.steps=40"]  # equally good: the first
    result = compare(bench, "[single]", *grid, code=2)
    check("'runs/c-single-seed1' is a run of another configuration (train.rate: 0.01 there, 1e-11 here, train.warmup: 5 there, 0 here; "
          "compare.tune chooses train.rate=1e-11)"
          in result.err, "a run with other settings", result)
    result = compare(bench, "[single]", *grid, "--seeds", "2")
    check(chosen(report(bench)["arms"][0]["tuned"]) == [["train.rate=1e-11"]] and result.err.count("done before") == 2, "decided again", result)


def tunes_what_it_can(bench):
    """Candidates that fail are never chosen; what an arm sets itself it keeps; an arm for which all fail has failed."""
    result, found = tune(bench, "[single, {name: hot, strategy: single, set: [train.rate=2e-2]}]", BAD, GOOD, "train.rate=1e-2",
                         options=["compare.tune_seed=7"])
    states = [one["state"] for one in found["single"]["candidates"]]
    check(states == ["failed", "finished", "finished"] and "became NaN or infinite" in found["single"]["candidates"][0]["message"], f"{found}", result)
    check(chosen(found["single"]) == [["train.rate=1e-2", "train.warmup=5"]] and "seed 7" in result.out, f"{found['single']}", result)
    check([one["set"] for one in found["hot"]["candidates"]] == [["train.loss=mse", "train.optimiser=sgd"], ["train.warmup=5"], []], f"{found['hot']}")
    check(found["hot"]["own"] == "train.rate=2e-2 is set by the arm itself", f"{found['hot']}")
    # Nothing is left to choose: nothing is trained.
    result, found = tune(bench, "[{name: still, strategy: single, set: [train.rate=2e-2]}]", "train.rate=1", "train.rate=2")
    check(chosen(found["still"]) == [[]] and result.err.count("== c-") == 1, f"{found}", result)
    result, found = tune(bench, "[{name: lost, strategy: single}]", BAD, BAD.replace("1000", "900"), code=1)
    lost = runs(bench)["lost"][0]
    check(chosen(found["lost"]) == [] and lost["state"] == "failed" and lost["message"].startswith("no candidate of compare.tune could be trained, "
          "the first: the loss became NaN"), f"{lost}", result)
    check("1 of 1 runs failed, the first 'c-lost-seed1': no candidate" in result.err, "what it says", result)


def tunes_on(bench):
    """Interrupted while a candidate is under way: the same command goes on from there."""
    bench.write("c.yaml", CONFIG.replace("ARMS", "[single]"))
    command = ["compare", "c.yaml", "compare.tune=[train.rate=1e-3, train.rate=1e-2]", "train.steps=300000"]
    process = bench.start(*command)
    wait_for_steps(bench, process, "c-single-tune1", 2)
    process.send_signal(signal.SIGTERM)
    result = bench.wait(process, command, 300)
    check(result.code == STOPPED and re.search(r"run 'c-single-tune1' stopped at step [1-9]\d* of 300000; the same", result.err), "a signal", result)
    tuned = report(bench)["arms"][0]["tuned"]
    check([(one["state"], one["chosen"]) for one in tuned["candidates"]] == [("missing", False)] * 2, f"{tuned}", result)
    process = bench.start(*command)
    wait_for_steps(bench, process, "c-single-tune1", len(bench.metrics("c-single-tune1", 0)) + 1)
    process.send_signal(signal.SIGTERM)
    result = bench.wait(process, command, 300)
    check("resumed at step" in result.err and "c-single-tune2" not in result.err, "it did not go on", result)


def tunes_pilots(bench):
    """Where steps are measured, they are those of what was chosen; candidates have the configuration's."""
    result, found = tune(bench, "[single]", "train.rate=1e-12", GOOD, options=["compare.budget=time", "compare.budget_value=0.2"])
    rates = [setting(bench, f"c-single-{run}", "rate") for run in ("pilot", "seed1")]
    check(rates == ["0.01"] * 2 and chosen(found["single"]) == [["train.rate=1e-2", "train.warmup=5"]], f"{rates}, {found}", result)
    check([bench.summary(f"c-single-tune{k}")["steps"] for k in (1, 2)] == [40, 40], "steps of candidates", result)


def refusals(bench):
    """What is wrong with the section is said with its line, all at once, before anything is trained."""
    many = ("[singel, {name: a, strategy: gossip}, {nam: b}, {name: a/b, strategy: single}, {strategy: allreduce, set: [steps]}, single, single, "
            "[single]]")
    result = compare(bench, many, "compare.baseline=singel", "compare.rates=[fast]", "compare.seeds=[1, 1]", code=2)
    for words in ("c.yaml:13:10: there is no strategy 'singel'; did you mean 'single'?", "c.yaml:13:28: there is no strategy 'gossip'",
                  "unknown key 'nam' in an arm; did you mean 'name'?", "an arm needs a name", "an arm's name is made of letters",
                  "set takes key.path=value", "there are two arms 'single'", "an arm is a strategy's name or a mapping",
                  "there is no arm 'singel'; did you mean 'single'?", "'fast' is no rate such as 10mbit", "seed 1 is there twice"):
        check(words in result.err, f"'{words}' is missing", result)
    for arms_text, arguments, words in (
            ("[{name: a, strategy: single, set: [train.stepz=3]}]", [], "c.yaml:13:10: arm 'a': train.stepz=3: unknown key 'stepz' in 'train'; did"),
            ("[single]", ["compare.budget=stepz"], "did you mean 'steps'?"), ("[single]", ["compare.bugdet=steps"], "did you mean 'budget'?"),
            ("[single]", ["compare.budget_value=1.5"], "a whole number of steps"),
            ("[single]", ["compare.budget=samples", "cluster.groups=by_node"], "with cluster.groups: by_node"),
            ("[{name: a, strategy: single, set: [seed=3]}]", [], "c.yaml:13:44: an arm cannot set name, output, seed"),
            ("[]", [], "is an empty list"), ("{a: 1}", [], "arms is a list"),
            ("[single]", ["compare.rates=[1kbit]"], "at least 10kbit"),
            ("[single]", ["compare.rates=[10mbit]", "cluster.groups=1"], "cluster.groups must be 2 or more"),
            ("[single]", ["--strategies", "singel"], "--strategies: there is no strategy 'singel'; did you mean 'single'?"),
            ("[single]", ["compare.tune=[train.rate=1]"], "compare.tune is a list of two or more candidates"),
            ("[single]", ["compare.tune=train.rate=1"], "compare.tune is a list of two or more candidates"),
            ("[single]", ["compare.tune=[train.rate=1, []]"], "an empty candidate; for the configuration as it stands"),
            ("[single]", ["compare.tune=[train.rate=1, {a: 1}]"], "a candidate is key.path=value, or a list of such"),
            ("[single]", ["compare.tune=[train.rate=1, [train.rate=2, data.batch=4]]"], "a candidate cannot set name, output, seed"),
            ("[single, allreduce]", ["compare.tune=[train.rate=1, train.ratez=2]"], "candidate in arm 'single': train.ratez=2: unknown key 'ratez' in 'train'; did"),
            ("[single]", ["compare.tune=[train.rate=1, train.rate=2]", "compare.tune_seed=1"], "compare.tune_seed: 1 is one of the seeds"),
            ("[single]", ["compare.tune=[train.rate=1, train.rate=2]", "--seeds", "3,0"], "0 is one of the seeds"),
            ("[single]", ["compare.tune=[train.rate=1, train.rate=2]", "data.val_fraction=0"], "no data are held out to choose by"),
            ("[single]", ["--seeds", "x"], "'x' is no seed"), ("[single]", ["compare.baseline=allreduce"], "there is no arm 'allreduce'")):
        result = compare(bench, arms_text, *arguments, code=2)
        check(words in result.err, f"'{words}' is missing", result)
    check(not os.path.exists(bench.path("runs")), "something was trained")


def over_links(bench):
    """Each arm also between hosts of a laboratory; one rank alone is trained once."""
    if MPI != "openmpi4":
        raise Skip("netlab tells its hosts to Open MPI 4's launcher only")
    needs_a_laboratory()
    result = compare(bench, "[single, {name: group, strategy: local_sgd}]", "compare.rates=[none, 50mbit]", "train.steps=20")
    found = runs(bench)
    check([run["rate"] for run in found["group"]] == ["none", "50mbit"] and report(bench)["rates"] == ["none", "50mbit"], "rates", result)
    check([os.path.basename(run["folder"]) for run in found["group"]] == ["c-group-seed1", "c-group-50mbit-seed1"], "folders", result)
    check(found["single"][0]["folder"] == found["single"][1]["folder"] and result.err.count("at 50 Mbit/s") == 1, "single", result)
    check(found["group"][0]["bytes"] == found["group"][1]["bytes"], f"{found['group']}", result)
    both = [bench.read("runs", name, "final.safetensors") for name in ("c-group-seed1", "c-group-50mbit-seed1")]
    check(both[0] == both[1], "the link changed what was learnt", result)


def unfiltered(data):
    """The samples of an 8-bit RGB picture in a PNG file (PNG specification, clause 9)."""
    width, height = struct.unpack(">II", data[16:24])
    check(data[24:29] == bytes([8, 2, 0, 0, 0]), f"8-bit RGB, not interlaced: {data[24:29]}")
    packed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        packed += data[at + 8:at + 8 + size] if data[at + 4:at + 8] == b"IDAT" else b""
        at += size + 12
    raw, line, rows = zlib.decompress(packed), 3 * width, [bytes(3 * width)]
    for y in range(height):
        kind, row = raw[y * (line + 1)], bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)])
        for x in range(line):
            a, b, c = (row[x - 3] if x > 2 else 0), rows[-1][x], (rows[-1][x - 3] if x > 2 else 0)
            nearest = min((a, b, c), key=lambda v, p=a + b - c: abs(p - v))  # the first of equals, as min() gives
            row[x] = row[x] + (0, a, b, (a + b) // 2, nearest)[kind] & 255
        rows.append(bytes(row))
    return b"".join(rows[1:])


def psnr(a, b):
    return 10 * math.log10(255 ** 2 * len(a) / sum((x - y) ** 2 for x, y in zip(a, b)))


def pictures(bench):
    """Super-resolution: the same parts of held-out pictures by each arm."""
    text = bench.read("t.yaml").decode() + "compare: {arms: [single, {name: pair, strategy: codistill}]}\n"
    bench.write("p.yaml", text)
    result = bench.done("compare", "p.yaml", "cluster.groups=2", "train.steps=20", "eval.every=10")
    found = report(bench, "t")
    check(found["metric"]["name"] == "psnr_y" and found["metric"]["unit"] == "dB" and "churn" not in found, f"{found['metric']}", result)
    check(len(found["crops"]) == 1 and [image["label"] for image in found["crops"][0]["images"]] == ["low", "bicubic", "single", "pair", "truth"],
          f"{found['crops']}", result)
    size, images = found["crops"][0]["size"], found["crops"][0]["images"]
    truth = unfiltered(bench.read("runs", "t-compare", images[-1]["png"]))
    for image in images:
        data = bench.read("runs", "t-compare", image["png"])
        scale = 4 if image["label"] == "low" else 1
        check(list(struct.unpack(">II", data[16:24])) == [side // scale for side in size], f"{image}", result)
        check((image["label"] in ("low", "truth")) != (image.get("psnr", 0) > 5), f"{image}", result)
        check("psnr" not in image or abs(image["psnr"] - psnr(unfiltered(data), truth)) < 1e-9, f"{image}", result)
    bench.write("mine/a.png", png(90, 70))
    bench.done("report", "runs/t-compare", "--low", "mine")
    labels = [image["label"] for image in bench.json("t-compare", "photographs.json")["crops"][0]["images"]]
    check(labels == ["low", "bicubic", "single", "pair"] and b"Photographs without truth" in bench.read("runs/t-compare/report.html"), f"{labels}")
    check("disagreement" not in found["arms"][1]["runs"][0] and "reliability" not in found["arms"][0]["runs"][0], "of classes", result)


PEAKS = """[allreduce, local_sgd, {name: waiting, strategy: diloco}, {name: stream, strategy: diloco, set: [diloco.fragments=5, diloco.overlap_steps=2]},
    noloco, {name: merge, strategy: codistill, set: [distill.weight=0]}, {name: ring, strategy: codistill, set: [exchange.peers=ring]},
    {name: key, strategy: codistill, set: [train.steps=40]},
    {name: alone, strategy: codistill, set: [distill.weight=0, exchange.merge=none, exchange.codec=none]}]"""


def peaks(bench):
    """What tools/bench/peak_bytes.py says of a meeting's bytes, times the meetings, is what the groups counted."""
    compare(bench, PEAKS, "cluster.groups=4", "model.hidden=[128, 128]", "train.deterministic=true", "exchange.period=20", "exchange.lag_steps=4",
            "local_sgd.period=20", "diloco.period=20", "noloco.period=20", "eval.every=120")
    found = report(bench)
    for arm in found["arms"]:
        for run in arm["runs"]:
            run["folder"] = bench.path(run["folder"])
    publication = peak_bytes.largest_publication(found)
    weights = 4 * json.loads(bench.read("runs", "c-merge-seed1", "summary.json"))["parameters"]
    ring = 2 * weights * 3 / 4
    #            bytes of a meeting, steps that they may take, meetings in 120 steps (the last of `stream` is of all five fragments)
    expected = {"allreduce": (ring, 1, 120), "local_sgd": (ring, 1, 6), "waiting": (ring, 1, 6), "stream": (ring / 5, 2, 29 + 5),
                "noloco": (2 * weights, 1, 6), "key": (3 * publication, 4, 1), "merge": (3 * publication, 4, None),
                "ring": (publication, 4, None), "alone": (0, 4, 0)}
    for arm in found["arms"]:
        data, steps, meetings = expected[arm["name"]]
        total, peak = peak_bytes.columns(arm, arm["runs"][0], publication)
        check(abs(peak * 1e3 - data / steps) < 1e-6 * weights, f"{arm['name']}: {peak} kB a step in place of {data / steps / 1e3}")
        if meetings is None:  # deltas, which are shorter than the key, and five of them, as the sixth publication comes too late
            check(data < total * 1e6 < 5 * data, f"{arm['name']}: {total} MB in all, {data} bytes a key")
        else:
            check(abs(total * 1e6 - meetings * data) < 0.02 * weights * max(1, meetings), f"{arm['name']}: {total * 1e6} bytes, not {meetings * data}")


CASES = {
    "arms": arms,
    "churn": churn,
    "budgets": budgets,
    "traffic": traffic,
    "goes-on": goes_on,
    "stays": stays,
    "failing": failing,
    "tunes": tunes,
    "tunes-anew": tunes_anew,
    "tunes-what-it-can": tunes_what_it_can,
    "tunes-on": tunes_on,
    "tunes-pilots": tunes_pilots,
    "refusals": refusals,
    "over-links": over_links,
    "peaks": peaks,
    "pictures": pictures,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
