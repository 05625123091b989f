#!/usr/bin/env python3
"""Classification by the command, end to end on tiny data: python3 test_classes.py CODISTILL [CASE ...]"""

import json
import os
import sys

from train_support import check, longer_and_longer, met_by_half, png, read_safetensors, run_cases, steps_saved, wait_for_steps

CONFIG = """\
name: c
cluster: {threads: 1, teardown_timeout_s: 600}
model: {name: mlp, hidden: [16]}
data: {kind: synthetic, synthetic_count: 210, synthetic_shape: [2, 3, 4], synthetic_classes: 3, batch: 8}
train: {strategy: single, steps: 120, rate: 1.0e-2, precision: f32}
distill: {weight: 1, burn_in: 10, ramp: 5, temperature: 2}
exchange: {period: 10, lag_steps: 5, min_interval_ms: 0}
eval: {every: 60}
checkpoint: {every: 60}
log: {every: 20}
"""


def csv(rows, classes=("left", "right", "uppermost")):
    """Points round three corners; every 17th is called wrongly."""
    lines = ["x,y,side"]
    for i in range(rows):
        k = i % len(classes)
        lines.append(f"{3 * (k == 1) + i % 5 / 5},{3 * (k == 2) + i % 7 / 7},{classes[(k + (i % 17 == 0)) % len(classes)]}")
    return "\n".join(lines) + "\n"


def train(bench, *overrides, **options):
    bench.write("c.yaml", CONFIG)
    result = bench.done("train", "c.yaml", *overrides, **options)
    return result


def trains(bench):
    result = train(bench, "name=s")
    check("group 0: 189 training and 21 held-out examples; left out: 0 broken" in result.err, "counts", result)
    check("accuracy " in result.err and "% on the held-out examples, always the most frequent class 33.33%" in result.err,
          "what was reached", result)
    summary, lines = bench.summary("s"), bench.metrics("s", 0)
    check(summary["task"] == "classification" and summary["figure"] == "accuracy", f"{summary}")
    check(summary["accuracy"] >= 90 and summary["cross_entropy"] < 0.5, f"it did not learn: {summary}")
    check(lines[-1]["accuracy"] == summary["accuracy"] and lines[0]["accuracy"] is None, f"{lines}")
    check(os.path.exists(bench.path("runs", "s", "checkpoints", "best.group-0.safetensors")), "no best model")
    again = train(bench, "name=s")
    check("nothing is left to do" in again.err and "another configuration" not in again.err, "the finished run", again)


def is_evaluated(bench):
    bench.write("points.csv", csv(120))
    train(bench, "name=p", "data.kind=iris", "data.path=points.csv", "train.steps=400", "data.val_fraction=0")
    model = "runs/p/final.safetensors"
    result = bench.done("eval", model, "--data", "points.csv", "--json")
    figures = json.loads(result.out)
    right = sum(figures["confusion"][k][k] for k in range(3))
    # 8 of the 120 are called wrongly: every 17th.
    check(figures["count"] == 120 and right in (112, 113) and abs(figures["accuracy"] - right / 1.2) < 1e-9, f"{figures}")
    check([c["class"] for c in figures["classes"]] == ["left", "right", "uppermost"], f"{figures}")
    check(sum(map(sum, figures["confusion"])) == 120, f"{figures}")
    result = bench.run("eval", model, "--data", "points.csv")
    check("120 examples: accuracy 9" in result.out and "taken for" in result.out, "the table", result)
    check("class      examples" in result.out, "the longest name makes the columns", result)
    bench.write("others.csv", csv(30, ("left", "right", "bottom")))
    bench.refused("class 0 of 'others.csv' is 'bottom', the model's is 'left'", "eval", model, "--data", "others.csv")
    bench.write("two.csv", csv(30, ("left", "right")))
    bench.refused("'two.csv' holds 2 classes, the model knows 3", "eval", model, "--data", "two.csv")
    bench.write("wide.csv", "x,y,z,side\n1,2,3,left\n2,3,4,right\n1,1,1,uppermost\n")
    bench.refused("normalisation of 2 channels does not fit data of 3", "eval", model, "--data", "wide.csv")
    bench.write("a.png", png(20, 20))
    bench.refused("mlp", "upscale", model, "a.png", "-o", "b.png")


def goes_on_within_an_epoch(bench):
    """Stopped at step 60, in the third epoch, and gone on with: the same weights as in one go, to the bit."""
    fixed = ["train.deterministic=true", "train.schedule=constant"]
    train(bench, "name=whole", *fixed)
    train(bench, "name=parts", *fixed, "train.steps=60")
    result = train(bench, "name=parts", *fixed)
    check("resumed at step 60" in result.err, "it did not go on", result)
    whole, parts = (read_safetensors(bench.path("runs", name, "final.safetensors")) for name in ("whole", "parts"))
    check(whole == parts, "the resumed run ends elsewhere")
    check(steps_saved(bench.path("runs", "parts", "checkpoints")) == [60, 120], "checkpoints")


def teaches_between_groups(bench):
    """Unlike classifiers, of half the examples each, distil by Kullback-Leibler divergence."""
    bench.write("groups.yaml", CONFIG.replace("{threads", "{groups: [{ranks: 1}, {ranks: 1, model: {name: logistic}}], threads"))
    for steps in longer_and_longer(3000):
        result = bench.run("train", "groups.yaml", "name=g", "train.strategy=codistill", "data.placement=disjoint",
                           "data.items_per_group=60", f"train.steps={steps}", "log.every=100", "checkpoint.resume=never")
        check(result.code == 0, "training failed", result)
        if met_by_half(bench, "g", 2):
            break
    for group in range(2):
        check(f"group {group}: 60 training and 21 held-out" in result.err, "placement", result)
        lines = bench.metrics("g", group)
        check(any(line["distill_loss"] is not None for line in lines), f"group {group} was taught nothing: {lines[-1]}")
        check(all(line["distill_loss"] is None or line["distill_loss"] >= 0 for line in lines), "a negative divergence")
        check(lines[-1]["accuracy"] >= 60, f"group {group} did not learn: {lines[-1]}")
    check([g["model"] for g in bench.summary("g")["group_results"]] == ["mlp", "logistic"], "models")


def corrects_for_shares(bench):
    """Groups of unequal classes: more is right with the correction; where classes are equal it is nothing, to the bit."""
    fixed = ["train.strategy=codistill", "cluster.groups=3", "train.deterministic=true", "data.synthetic_count=1200",
             "train.steps=120", "exchange.merge=none", "distill.teachers_per_step=2", "train.schedule=constant"]
    skewed = ["data.placement=dirichlet", "data.alpha=0.1"]

    def model(name, *overrides):
        result = train(bench, f"name={name}", *fixed, *overrides)
        said = "groups' shares of the classes differ and are corrected for" in result.err
        check(said == name.startswith("corrected"), "what is corrected", result)
        return [read_safetensors(bench.path("runs", name, f"group.{group}.safetensors")) for group in range(3)]

    check(model("equal") == model("equal-on", "train.prior_correction=true"), "it changes what is equal")
    plain = model("plain", *skewed)
    corrected = model("corrected", *skewed, "train.prior_correction=true")
    right = [sum(g["accuracy"] for g in bench.summary(name)["group_results"]) / 3 for name in ("plain", "corrected")]
    check(plain != corrected and right[1] > right[0] + 5, f"accuracies: {right}")
    model("corrected-parts", *skewed, "train.prior_correction=true", "train.steps=60")
    check(model("corrected-parts", *skewed, "train.prior_correction=true") == corrected, "the resumed run ends elsewhere")


def data_must_agree(bench):
    """Groups that find other data under the same name, as on machines of their own."""
    bench.write("0/points.csv", csv(60))
    bench.write("1/points.csv", csv(60, ("left", "right")))
    bench.write("c.yaml", CONFIG)
    script = bench.write("elsewhere.sh", '#!/bin/sh\ncd "$OMPI_COMM_WORLD_RANK" && exec "$@"\n')
    arguments = ["train", bench.path("c.yaml"), "name=d", f"output={bench.path('runs')}", "train.strategy=codistill",
                 "cluster.groups=2", "data.kind=iris", "data.path=points.csv"]
    command = ("mpirun", "--oversubscribe", "-n", "2", "sh", script)

    def expect(message):
        result = bench.wait(bench.start(*arguments, command=command), arguments)
        check(result.code == 2 and message in result.err, "no word of the difference", result)

    expect("groups must know the same classes, but their data have from 2 to 3")
    bench.write("1/points.csv", "x,side\n" + "1,left\n2,right\n3,uppermost\n" * 9)
    expect("groups must train on data of one shape")
    os.remove(bench.path("1", "points.csv"))
    expect("there is no 'points.csv'")


def photographs(bench):
    for split, count in (("train", 6), ("val", 2), ("test", 2)):
        for i in range(count):
            bench.write(f"photos/{split}/light/{i}.png", png(40, 30, i))
            bench.write(f"photos/{split}/dark/{i}.png", png(30, 50, 100 + i))
    bench.write("photos/train/dark/broken.png", png(40, 40)[:200])
    folders = ["data.kind=folder", "data.path=photos/train", "data.val_path=photos/val", "data.test_path=photos/test"]
    result = train(bench, "name=f", *folders, "data.size=16", "model.name=cnn", "model.hidden=0", "train.steps=20", "data.batch=4",
                   "model.stages=[4, 8]")
    check("12 training, 4 held-out and 4 test examples; left out: 1 broken" in result.err, "counts", result)
    check("broken.png" in result.err and "on the test examples" in result.err, "what it says", result)
    check(bench.summary("f")["test_accuracy"] is not None, "no figure on the test photographs")
    result = bench.done("eval", "runs/f/final.safetensors", "--data", "photos/test", "--json")
    check(abs(json.loads(result.out)["accuracy"] - bench.summary("f")["test_accuracy"]) < 1e-9, "another figure", result)


def compares(bench):
    bench.write("c.yaml", CONFIG)
    result = bench.run("compare", "c.yaml", "--strategies", "single", "train.steps=20")
    check(result.code == 0 and "accuracy" in result.out and "majority_accuracy" in result.out, "the table", result)
    check(bench.json("c-compare", "compare.json")["arms"][0]["runs"][0]["quality"] > 0, "compare.json")
    check(bench.run("compare", "c.yaml", "--strategies", "single", "train.steps=20").code == 0, "done before")
    plan = bench.run("plan", "c.yaml")
    check(plan.code == 0 and "model mlp: " in plan.out, "the plan", plan)


CASES = {
    "trains": trains,
    "is-evaluated": is_evaluated,
    "goes-on": goes_on_within_an_epoch,
    "teaches": teaches_between_groups,
    "corrects": corrects_for_shares,
    "data-must-agree": data_must_agree,
    "photographs": photographs,
    "compares": compares,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
