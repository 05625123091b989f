#!/usr/bin/env python3
"""Early stopping by eval.patience: python3 test_early_end.py CODISTILL [CASE ...]"""

import json
import os
import sys

from train_support import check, run_cases, steps_saved

# Nothing changes after step 20: the evaluation of that step is the best, and the third without a new best is that of step 35.
SETTINGS = ["train.schedule=step", "train.milestones=[20]", "train.gamma=0", "train.deterministic=true", "eval.every=5", "eval.patience=3",
            "log.tensorboard=false", "log.samples=0", "checkpoint.every=15"]
TWO = ["train.strategy=codistill", "cluster.groups=2"]


def train(bench, name, *settings):
    result = bench.train(*SETTINGS, *settings, f"name={name}")
    check(result.code == 0, "it failed", result)
    return result


def summary(bench, name):
    return json.loads(bench.read("runs", name, "summary.json"))


def model(bench, name):
    return bench.read("runs", name, "final.safetensors")


def ends(bench):
    """The training finishes as one whose last step has come does; the same command leaves it, a larger patience goes on."""
    result = train(bench, "e", "train.steps=1000")
    check("group 0: ends early, at step 35 of 1000: 3 evaluations in a row had no better psnr than " in result.err, "it does not say so", result)
    found = summary(bench, "e")
    check((found["steps"], found["ended_early"]) == (35, True) and found["group_results"][0]["steps"] == 35, f"summary.json has {found}")
    check("3 evaluations in a row" in found["ended_because"] and found["samples_per_group"] == 70, f"summary.json has {found}")
    check(b"Finished after 35 steps, early: 3 evaluations in a row" in bench.read("runs", "e", "report.html"), "the report does not say so")
    check(os.path.exists(bench.path("runs", "e", "checkpoints", "best.group-0.safetensors")), "the best model is not kept")
    train(bench, "whole", "train.steps=35", "eval.patience=0")
    check("ended_early" not in summary(bench, "whole"), "a run of all steps did not end early")
    check(model(bench, "e") == model(bench, "whole"), "the final model is not the one of that step")
    again = train(bench, "e", "train.steps=1000")
    check("ended early before, at step 35 of 1000" in again.err and "nothing is left to do" in again.err, "it goes on", again)
    check(model(bench, "e") == model(bench, "whole"), "a repeated command changed the model")
    more = train(bench, "e", "train.steps=1000", "eval.patience=6")
    check("resumed at step 35" in more.err and summary(bench, "e")["steps"] == 50, "a larger patience does not go on", more)
    train(bench, "e", "train.steps=60", "eval.patience=0")
    check(summary(bench, "e")["steps"] == 60 and "ended_early" not in summary(bench, "e"), "patience 0 does not go on")


def resumes(bench):
    """The checkpoint has the count: after an interruption, the run ends at the same step with the same bits."""
    train(bench, "once", "train.steps=1000")
    train(bench, "twice", "train.steps=33")
    result = train(bench, "twice", "train.steps=1000")
    check("resumed at step 33" in result.err and "ends early, at step 35 of 1000" in result.err, "it ends elsewhere", result)
    check(model(bench, "once") == model(bench, "twice"), "other bits")


def together(bench):
    """Groups that wait for each other end together, once for each of them; the last step is one in which they meet."""
    for name, strategy in (("c", "codistill"), ("l", "local_sgd"), ("d", "diloco")):
        settings = ["cluster.groups=2", f"train.strategy={strategy}", "train.steps=1000"]
        train(bench, name, *settings)
        found = summary(bench, name)
        steps = found["steps"]
        check(found["ended_early"] and steps >= 36 and steps % 5 == 1, f"{strategy}: ended at {steps}")
        check([group["steps"] for group in found["group_results"]] == [steps] * 2, f"{strategy}: {found['group_results']}")
        again = train(bench, name, *settings)
        check("nothing is left to do" in again.err, "it goes on", again)
        if strategy == "codistill":  # groups of the others would meet once more, at the interruption
            train(bench, "again", *settings[:2], f"train.steps={steps - 3}")
            train(bench, "again", *settings)
            check(model(bench, name) == model(bench, "again"), "a resumed run ends otherwise")


def all_ranks(bench):
    """The ranks of a group end at one step."""
    train(bench, "r", "train.strategy=allreduce", "cluster.groups=2", "train.steps=1000")
    check(summary(bench, "r")["steps"] == 35, "ended elsewhere")
    check(max(steps_saved(bench.path("runs", "r", "checkpoints"))) == 35, "the last checkpoint is of another step")


def one_by_one(bench):
    """Groups that are separate jobs end at steps of their own, and the last one finds what the first has left."""
    apart = [*TWO, "exchange.transport=file", "train.deterministic=false", "exchange.merge=none", "distill.burn_in=1000", "distill.ramp=0"]
    early = bench.run("train", "t.yaml", *SETTINGS, *apart, "name=o", "train.steps=50", "--group", "0")
    check(early.code == 0 and "its 35 steps are done" in early.err, "group 0", early)
    late = bench.run("train", "t.yaml", *SETTINGS, *apart, "name=o", "train.steps=50", "eval.patience=0", "--group", "1")
    check(late.code == 0 and "final.safetensors is" in late.err, "group 1 does not find the results of group 0", late)
    found = summary(bench, "o")
    check(found["steps"] == 50 and "ended_early" not in found, f"summary.json has {found}")
    check([(group["steps"], group.get("ended_early")) for group in found["group_results"]] == [(35, True), (50, None)], str(found["group_results"]))
    on = bench.run("train", "t.yaml", *SETTINGS, *apart, "name=o", "train.steps=50", "eval.patience=0", "--group", "0")
    check(on.code == 0 and [group["steps"] for group in summary(bench, "o")["group_results"]] == [50, 50], "group 0 does not go on", on)


def refused(bench):
    bench.refused("'-1' is not a whole number", "train", "t.yaml", "eval.patience=-1")
    bench.refused("eval.patience: counts evaluations during training, and eval.every=0", "train", "t.yaml", "eval.patience=2", "eval.every=0")
    bench.refused("nothing is held out", "train", "t.yaml", "eval.patience=2", "data.val_count=0", "data.val_fraction=0")
    for setting in (["eval.patience=2"], ["compare.arms=[single, {name: s, strategy: single, set: [eval.patience=2]}]"]):
        bench.refused("equal budgets", "compare", "t.yaml", *setting)
    check(not os.path.exists(bench.path("runs")), "something was trained")


CASES = {"ends": ends, "resumes": resumes, "together": together, "all-ranks": all_ranks, "one-by-one": one_by_one, "refused": refused}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
