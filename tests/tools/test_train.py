#!/usr/bin/env python3
"""`codistill train` and the other commands, end to end on tiny models: python3 test_train.py CODISTILL [CASE ...]"""

import json
import os
import random
import re
import signal
import struct
import sys
import time

from train_support import (MPIEXEC, STOPPED, TCP, Skip, check, floats, kill_job, longer_and_longer, met_by_half, parts_saved, png, rank_process, read_metadata, read_safetensors,
                           run_cases, steps_saved, wait_for_steps)

# Ranks of the groups -> overrides. Four ranks on two cores take turns: fewer steps.
SETUPS = {
    "single": ["train.strategy=single"],
    "allreduce": ["train.strategy=allreduce", "cluster.ranks_per_group=2"],
    "2x1": ["train.strategy=codistill", "cluster.groups=2"],
    "2x2": ["train.strategy=codistill", "cluster.groups=2", "cluster.ranks_per_group=2"],
    "3x1": ["train.strategy=codistill", "cluster.groups=3"],
    # `ref` has 8-bit integers everywhere. A checkpoint may lie between a switch and the step that observes ranges.
    "int8": ["train.strategy=codistill", "cluster.groups=2", "train.backend=ref", "model.channels=16", "distill.every=3",
             "distill.teacher_precision=int8"],
}


def check_peers(result, lines, groups):
    """What a group says of its peers adds up, and the summary repeats the last line."""
    if groups == 1:
        check("peers" not in result and "peers" not in lines[-1], f"a lone group has peers: {result}")
        check("entropy" not in result, f"a lone group publishes: {result}")
        return
    peers = result["peers"]
    check(peers == lines[-1]["peers"], f"the summary says {peers}, the last line of metrics {lines[-1]['peers']}")
    check(result["entropy"] == lines[-1]["entropy"] == "zstd", f"coded by {result['entropy']}")
    check(sorted(peer["group"] for peer in peers) == [g for g in range(groups) if g != result["group"]], f"peers: {peers}")
    check(sum(peer["pulled"] for peer in peers) == result["pulls"], f"{result['pulls']} pulls, {peers}")
    check(sum(peer["rejected"] for peer in peers) == 0 and result["exchange_share"] > 0, f"{result}")
    for peer in peers:
        check(peer["version"] > 0 and peer["step"] == peer["version"] * 10 and peer["pulled_bytes"] > 1000 and
              peer["bytes_per_s"] > 0 and peer["age_s"] >= 0, f"{peer}")
        too_old = peer["staleness_steps"] > 200  # twenty periods, where a teacher's weight begins to fall
        check(0 < peer["teacher_loss"] < 1 and 0 < peer["student_loss"] < 1 and (peer["weight"] > 0 or too_old), f"{peer}")
    measured = [line["peers"][0]["teacher_loss"] for line in lines]
    check(len(set(measured)) > 1, f"a teacher's loss never changes: {measured}")


def trains(setup, environment=None, *overrides):
    def case(bench):
        name = setup
        groups = {"2x1": 2, "2x2": 2, "3x1": 3}.get(setup, 1)
        ranks = {"single": 1, "allreduce": 2, "2x1": 2, "2x2": 4, "3x1": 3}[setup]
        for every in [10] if groups == 1 else longer_and_longer(50):
            result = bench.trained(f"name={name}", *SETUPS[setup], *overrides, f"train.steps={6 * every}", f"log.every={every}",
                                   "checkpoint.resume=never", environment=environment)
            if met_by_half(bench, name, groups):
                break
        check(result.err.count("MB for the exchange: checkpoints of ") == (groups if groups > 1 else 0), "memory", result)
        summary = bench.summary(name)
        expected = {"strategy": setup if groups == 1 else "codistill", "groups": groups, "ranks": ranks,
                    "ranks_per_group": ranks // groups, "steps": 6 * every}
        for key, value in expected.items():
            check(summary[key] == value, f"summary.json: {key} is {summary[key]}, not {value}")
        for key in ("wall_s", "step_ms_median", "psnr_y", "bicubic_psnr_y"):
            check(isinstance(summary[key], (int, float)), f"summary.json: {key} is {summary[key]}")
        check(len(summary["group_results"]) == groups, "summary.json: group_results")
        check((summary["intergroup_bytes"] > 0) == (groups > 1), f"intergroup_bytes {summary['intergroup_bytes']}")
        check((summary["intragroup_bytes"] > 1e4) == (ranks > groups), f"intragroup_bytes {summary['intragroup_bytes']}")
        tensors = read_safetensors(bench.path("runs", name, "final.safetensors"))
        check(len(tensors) > 4, "final.safetensors has too few tensors")
        for group in range(groups):
            lines = bench.metrics(name, group)
            check([line["step"] for line in lines] == sorted({*range(every, 6 * every + 1, every), *range(30, 6 * every, 30)}), f"steps of metrics.{group}: {lines}")
            check(all(line["group"] == group and line["loss"] > 0 for line in lines), f"metrics.{group}: {lines}")
            check(groups == 1 or lines[-1]["published_bytes"] > 0, "nothing was published")
            check(groups == 1 or lines[-1]["pulled_bytes"] > 0, "nothing was pulled")
            check_peers(summary["group_results"][group], lines, groups)
            events = bench.events(name, group)
            for kind, key in (("switch", "teacher_switches"), ("merge", "merges"), ("publish", "publications")):
                count = sum(event["kind"] == kind for event in events)
                expected = summary["group_results"][group][key]
                check(count == expected, f"{count} of {expected} events of kind {kind} in exchange.{group}: {events}")
            for event in events:
                check((event["peer"] == group) == (event["kind"] == "publish") and event["version"] * 10 == event["peer_step"] and
                      (event["alpha"] is None) == (event["kind"] != "merge"), f"exchange.{group}: {event}")
            check([e["step"] for e in events] == sorted(e["step"] for e in events), f"exchange.{group}: {events}")
            check(set(read_safetensors(bench.path("runs", name, f"group.{group}.safetensors"))) == set(tensors),
                  f"group.{group}.safetensors has other tensors")
        check(os.listdir(bench.path("runs", name, "samples")), "no samples")
        check(os.path.isdir(bench.path("runs", name, "tensorboard", "group0")), "no TensorBoard events")
        bench.done("train", f"runs/{name}/config.yaml", f"name={name}-again", environment=environment)
    return case


def same_checkpoints(bench, a, b, step=60, but=()):
    folders = [bench.path(name, "t", "checkpoints", f"step-{step:09d}") for name in (a, b)]
    files = sorted(os.listdir(folders[0]))
    check(files == sorted(os.listdir(folders[1])), f"other files: {files} and {sorted(os.listdir(folders[1]))}")
    for file in files:
        first, second = (read_safetensors(os.path.join(folder, file)) for folder in folders)
        check(first.keys() == second.keys(), f"{file}: other tensors")
        for tensor in first:
            check(tensor in but or first[tensor] == second[tensor], f"{file}: '{tensor}' differs")
    finals = [read_safetensors(bench.path(name, "t", "final.safetensors")) for name in (a, b)]
    check(finals[0] == finals[1], "final.safetensors differs")
    logs = [{name: open(bench.path(run, "t", name), encoding="utf-8").read()
             for name in os.listdir(bench.path(run, "t")) if name.startswith("exchange.")} for run in (a, b)]
    check(logs[0] == logs[1], f"teachers and merges differ: {logs}")


def killed(setup, kills=3, environment=None, *overrides):
    """A job killed at random moments and resumed must end with the same bits as one that was left alone."""
    def case(bench):
        seed = int(os.environ.get("COD_SEED") or random.SystemRandom().randrange(1 << 30))
        chance = random.Random(seed)
        print(f"seed {seed} (COD_SEED={seed} replays the moments)", flush=True)
        fixed = [*SETUPS[setup], *overrides, "train.deterministic=true", "train.ema=0.9", "log.tensorboard=false", "log.samples=0",
                 "checkpoint.keep=1"]
        bench.trained("name=t", "output=A", *fixed, environment=environment)
        whole, folder = bench.path("A", "t", "checkpoints"), bench.path("B", "t", "checkpoints")
        last = max(steps_saved(whole))
        parts = parts_saved(whole, last)
        resumed = []
        arguments = ["train", "t.yaml", "name=t", "output=B", *fixed]
        for _ in range(kills):
            # Wait for the first figures, so that most kills fall into the training and not before it.
            process = bench.start(*arguments, environment=environment)
            metrics, begin = bench.path("B", "t", "metrics.0.jsonl"), time.monotonic()
            target = chance.randrange(1, 5) + (resumed[-1] // 10 if resumed else 0)
            while process.poll() is None and time.monotonic() - begin < 300:
                if os.path.exists(metrics) and os.path.getsize(metrics) > 0:
                    with open(metrics, encoding="utf-8") as file:
                        if len(file.readlines()) >= target:
                            break
                time.sleep(0.0005)
            time.sleep(chance.random() * 0.01)
            kill_job(process)
            process.communicate()
            # One that a kill left without some of its parts counts for nothing: where it is the first, the run begins anew.
            resumed.append(max((step for step in steps_saved(folder) if parts_saved(folder, step) == parts), default=0))
        print(f"newest checkpoints at the kills: {resumed}", flush=True)
        result = bench.trained("name=t", "output=B", *fixed, environment=environment)
        check(max(resumed) == 0 or re.search("resumed at step|is finished: all 60 steps", result.err), "it started anew", result)
        # Which older versions are still files depends on when the job was killed; nobody waits for those.
        same_checkpoints(bench, "A", "B", last, but=["exchange.slots.0"] if "exchange.transport=file" in overrides else [])
    return case


def stops(setup, number):
    def case(bench):
        arguments = ["train", "t.yaml", "name=s", *SETUPS[setup], "train.steps=1000000"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "s", 2)
        process.send_signal(number)
        result = bench.wait(process, arguments, 300)
        check(result.code == STOPPED, "a stop is neither the end nor a failure", result)
        check("stopped and saved at step" in result.err, "it does not say that it saved", result)
        check(not os.path.exists(bench.path("runs", "s", "final.safetensors")), "a stopped run has no final model")
        saved = steps_saved(bench.path("runs", "s", "checkpoints"))
        result = bench.trained("name=s", *SETUPS[setup], f"train.steps={saved[-1] + 40}", "--resume")
        check("resumed at step" in result.err, "it did not go on", result)
        check(bench.summary("s")["resumed_from"] > 0, "resumed_from is 0")
        steps = [line["step"] for line in bench.metrics("s", 0)]
        check(steps == sorted(set(steps)), f"metrics repeat themselves: {steps}")
    return case


def stops_in_step(setup, number, rank=None, switch="train.deterministic=true", *overrides):
    """In deterministic mode groups stop at one step, though only one rank may be asked to, and a resume replays the rest."""
    def case(bench):
        fixed = [*SETUPS[setup], *overrides, switch, "train.schedule=constant", "checkpoint.every=1000000",
                 "log.tensorboard=false", "log.samples=0"]
        arguments = ["train", "t.yaml", "name=t", "output=runs", *fixed, "train.steps=1000000"]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "t", 2)
        os.kill(process.pid if rank is None else rank_process(process, rank), number)
        result = bench.wait(process, arguments, 300)
        check(result.code == STOPPED, "a stop is neither the end nor a failure", result)
        groups = {"2x1": 2, "2x2": 2, "3x1": 3}[setup]
        stopped = re.findall(r"group (\d): stopped and saved at step (\d+)", result.err)
        check(sorted(group for group, _ in stopped) == [str(g) for g in range(groups)], "not every group saved", result)
        check(len({step for _, step in stopped}) == 1, "groups stopped at different steps", result)
        step = int(stopped[0][1])
        check(steps_saved(bench.path("runs", "t", "checkpoints")) == [step], "other steps are saved", result)
        result = bench.trained("name=t", "output=runs", *fixed, f"train.steps={step + 20}")
        check(result.err.count(f"resumed at step {step}") == groups, "groups did not resume there", result)
        bench.trained("name=t", "output=whole", *fixed, f"train.steps={step + 20}")
        same_checkpoints(bench, "runs", "whole", step + 20)
    return case


def max_time(bench):
    for setup in ("single", "2x1"):
        fixed = [f"name={setup}", *SETUPS[setup], "train.steps=10000000"]
        _, result = (bench.stopped(*fixed, "train.max_time=1s") for _ in range(2))
        check("resumed at step" in result.err, "it did not go on", result)


def not_a_number(bench):
    for setup in ("single", "allreduce", "2x1"):
        result = bench.train(f"name={setup}", *SETUPS[setup], "train.optimiser=sgd", "train.rate=1e3",
                             "train.loss=mse", "train.steps=1000", "checkpoint.every=2", "train.schedule=constant",
                             "train.warmup=100")  # so that there is a checkpoint before it
        check(result.code == 1, "NaN must end with exit code 1", result)
        check("NaN or infinite at step" in result.err and "first bad" in result.err, "no step or tensor named", result)
        check(result.err.count("codistill: ") == 1, "said more than once", result)
        group = re.search(r"codistill: rank (\d)", result.err)[1] if setup == "2x1" else "0"
        step = int(re.search(r"infinite at step (\d+)", result.err)[1])
        folder = bench.path("runs", setup, "checkpoints")
        good = [saved for saved in steps_saved(folder)
                if saved < step and os.path.exists(os.path.join(folder, f"step-{saved:09d}", f"group-{group}.safetensors"))]
        check(good, "it diverged before the first checkpoint: the test shows nothing", result)
        check(f"the last good checkpoint is of step {good[-1]};" in result.err, f"not named: step {good[-1]}", result)


def totals_saved(bench, name, step, groups):
    """What the groups' checkpoints of a step say of the run so far, as its summary adds it up."""
    parts = [read_metadata(bench.path("runs", name, "checkpoints", f"step-{step:09d}", f"group-{group}.safetensors"))
             for group in range(groups)]
    return {key: add(float(part[f"total.{key}"]) for part in parts)
            for key, add in (("wall_s", max), ("core_s", sum), ("intragroup_bytes", sum))}


def finished(bench):
    """A finished run stays as it is, and a summary tells of all processes of a run, not of the last one."""
    def contents(folder):
        files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names if name != ".lock"]
        return {file: open(file, "rb").read() for file in files}

    for setup, groups in (("allreduce", 1), ("2x1", 2)):
        fixed = [f"name={setup}", *SETUPS[setup], "train.schedule=constant", "train.deterministic=true"]
        bench.trained(*fixed)
        first, before = bench.summary(setup), contents(bench.path("runs", setup))
        again = bench.trained(*fixed)
        check("nothing is left to do" in again.err, "it does not say that it is finished", again)
        for words in ("another configuration", "resumed", "final.safetensors is"):
            check(words not in again.err, f"'{words}' sees a difference where there is none, or looks as if it had trained", again)
        again = bench.trained(*fixed, "train.rate=0.5", "train.weight_decay=0.25")
        check("was trained with another configuration (train.rate: 0.001 there, 0.5 here, train.weight_decay: 0 there, 0.25 here), and stays as it is: another name="
              in again.err and "resumed" not in again.err, "it does not say that it was made otherwise, and what to do", again)
        check(contents(bench.path("runs", setup)) == before, "a finished run was changed", again)
        os.remove(bench.path("runs", setup, "summary.json"))  # as a kill in the last moment does
        bench.trained(*fixed)
        second = bench.summary(setup)
        for key in ("step_ms_median", "teacher_ms_median", "intergroup_bytes", "psnr_y"):
            check(second[key] == first[key], f"{setup}: {key} was {first[key]} and is {second[key]}")
        kept = totals_saved(bench, setup, 60, groups)
        for key in ("wall_s", "core_s", "intragroup_bytes"):
            check(kept[key] <= second[key] and (kept[key] > 0 or key == "intragroup_bytes"),
                  f"{setup}: {key} was {kept[key]} at the last checkpoint and is {second[key]}")
        check(bench.metrics(setup, 0)[-1]["step"] == 60, "the last line is missing or repeated")
        check(bench.metrics(setup, 0)[-1]["psnr_y"] == first["group_results"][0]["psnr_y"], "the last line has no psnr_y")
        bench.trained(*fixed, "train.steps=120")
        third = bench.summary(setup)
        bench.trained(*fixed, "train.steps=120", "output=whole")
        with open(bench.path("whole", setup, "summary.json"), encoding="utf-8") as file:
            whole = json.load(file)
        check(third["resumed_from"] == 60, f"resumed_from {third['resumed_from']}")
        check(abs(third["intragroup_bytes"] - whole["intragroup_bytes"]) < 0.05 * whole["intragroup_bytes"] + 1,
              f"{third['intragroup_bytes']} bytes inside, {whole['intragroup_bytes']} when not interrupted")
        for key in ("intergroup_bytes", "allreduce_intergroup_bytes", "samples_per_group"):
            check(third[key] == whole[key], f"{setup}: {key} is {third[key]}, {whole[key]} when not interrupted")
        for group in range(groups):
            for key in ("pulls", "publications", "teacher_switches", "merges", "rejected"):
                a, b = third["group_results"][group][key], whole["group_results"][group][key]
                check(a == b, f"{setup}: group {group}'s {key} are {a}, {b} when not interrupted")
        for key in ("wall_s", "core_s"):
            check(third[key] > totals_saved(bench, setup, 120, groups)[key] > kept[key], f"{setup}: {key} does not add up")


def no_held_out(bench):
    """Without held-out pictures there is no quality to tell: null, not 0 or NaN."""
    for setup in ("single", "2x1"):
        result = bench.trained(f"name={setup}", *SETUPS[setup], "data.val_count=0", "data.val_fraction=0")
        check("no pictures are held out" in result.err and "nan" not in result.err, "not said, or as nan", result)
        summary = bench.summary(setup)
        values = [summary["psnr_y"], summary["bicubic_psnr_y"], *(group["psnr_y"] for group in summary["group_results"])]
        check(all(value is None for value in values), f"quality from nothing: {values}")
        check(read_safetensors(bench.path("runs", setup, "final.safetensors")), "no final model")


def one_group_has_none(bench):
    """A group that was killed before its first checkpoint begins anew; the others go on, also where --resume must."""
    fixed = ["name=o", *SETUPS["2x1"], "train.schedule=constant", "train.steps=20"]
    bench.trained(*fixed)
    for step in steps_saved(bench.path("runs", "o", "checkpoints")):
        for part in ("group-1", "rank-1"):
            os.remove(bench.path("runs", "o", "checkpoints", f"step-{step:09d}", f"{part}.safetensors"))
    result = bench.trained(*fixed, "train.steps=40", "--resume")
    check("group 0: resumed at step 20" in result.err and "group 1: has no checkpoint" in result.err, "not so", result)
    check(bench.metrics("o", 1)[0]["step"] == 10 and bench.metrics("o", 1)[-1]["step"] == 40, "group 1 began elsewhere", result)


def other_layout(bench):
    """A resume with ranks divided otherwise is refused by the name of what to change; it never starts anew in silence."""
    for switch in ("train.deterministic=false", "train.deterministic=true"):
        name = f"name=l-{switch[-5:]}"
        bench.trained(name, *SETUPS["2x2"], switch, "train.steps=20", "train.schedule=constant")
        for groups, ranks, words in ((4, 1, "cluster.groups"), (1, 4, "cluster.groups"), (3, 1, "cluster.groups"),
                                     (2, 1, "cluster.ranks_per_group"), ("[{ranks: 1}, {ranks: 3}]", 1, "its ranks in cluster.groups")):
            result = bench.train(name, *SETUPS["2x2"], switch, f"cluster.groups={groups}", f"cluster.ranks_per_group={ranks}",
                                 "train.steps=40", "train.schedule=constant")
            check(result.code == 2, f"groups={groups} of {ranks}: exit code {result.code}", result)
            check(words in result.err and "as " in result.err, f"'{words}' is not named", result)
        result = bench.trained(name, *SETUPS["2x2"], switch, "train.steps=40", "train.schedule=constant")
        check(result.err.count("resumed at step 20") == 2, "the refusals broke it", result)


def damaged(bench):
    """The newest checkpoint is damaged: it is named, and the one before is used."""
    for number, damage in enumerate(("flip", "cut")):
        name = f"name={damage}"
        bench.trained(name, *SETUPS["2x1"], "train.deterministic=true")
        part = bench.path("runs", damage, "checkpoints", "step-000000060", ["rank-1", "group-0"][number] + ".safetensors")
        size = os.path.getsize(part)
        if damage == "cut":
            os.truncate(part, size - 1)
        else:
            with open(part, "r+b") as file:
                file.seek(size // 2)
                byte = file.read(1)
                file.seek(size // 2)
                file.write(bytes([byte[0] ^ 16]))
        result = bench.trained(name, *SETUPS["2x1"], "train.deterministic=true", "--resume")
        check(os.path.relpath(part, bench.folder) in result.err, "the damaged file is not named", result)
        check(result.err.count("resumed at step 50") == 2, "it did not go on from the one before", result)
        result = bench.trained(name, *SETUPS["2x1"], "train.deterministic=true", "train.steps=70", "--resume")
        check(result.err.count("resumed at step 60") == 2, "the damaged file was not replaced", result)


def buckets(bench):
    """Gradients may be cut into any number of buckets."""
    blocks = 150  # of two convolutions
    fixed = [*SETUPS["allreduce"], f"model.blocks={blocks}", "train.steps=2", "log.every=1", "eval.every=0", "checkpoint.every=0",
             "log.tensorboard=false", "log.samples=0"]
    models = []
    for kb in (1, 0):
        bench.trained(*fixed, f"name=kb{kb}", f"train.bucket_kb={kb}")
        models.append(read_safetensors(bench.path("runs", f"kb{kb}", "final.safetensors")))
    check(sum(name.endswith("weight") for name in models[0]) > 2 * blocks, "layers are missing")
    check(models[0] == models[1], "buckets change what comes out")


def accumulates(bench):
    """A step of 4 crops is the same however ranks and accumulated mini-batches divide it, but for the order of sums."""
    fixed = ["train.steps=1", "train.optimiser=sgd", "train.momentum=0", "train.rate=0.1", "train.schedule=constant",
             "train.backend=ref", "log.tensorboard=false", "log.samples=0"]
    divisions = {"whole": [*SETUPS["single"], "data.batch=4"],
                 "halves": [*SETUPS["single"], "data.batch=2", "train.accumulate=2"],
                 "quarters": [*SETUPS["single"], "data.batch=1", "train.accumulate=4"],
                 "ranks": [*SETUPS["allreduce"], "data.batch=2"],
                 "both": [*SETUPS["allreduce"], "data.batch=1", "train.accumulate=2"]}
    models = {}
    for name, division in divisions.items():
        bench.trained(f"name={name}", *fixed, *division)
        model = read_safetensors(bench.path("runs", name, "final.safetensors"))
        models[name] = [value for tensor in sorted(model) for value in floats(model[tensor])]
    bench.trained("name=start", *fixed, *divisions["whole"], "train.rate=1e-12")
    start = read_safetensors(bench.path("runs", "start", "final.safetensors"))
    moved = max(abs(a - b) for a, b in zip(models["whole"], [v for t in sorted(start) for v in floats(start[t])]))
    check(moved > 1e-3, f"the step moved nothing ({moved})")
    for name, values in models.items():
        difference = max(abs(a - b) for a, b in zip(values, models["whole"]))
        check(difference < 1e-7, f"{name} differs by {difference} from one batch of 4; the step is {moved}")


def locked(bench):
    arguments = ["train", "t.yaml", "name=l", "train.steps=10000000"]
    process = bench.start(*arguments)
    wait_for_steps(bench, process, "l", 1)
    result = bench.train("name=l")
    kill_job(process)
    process.communicate()
    check(result.code == 1 and "'runs/l/.lock' is in use by process " in result.err and "give this run another name=" in result.err, "two runs in one folder", result)
    bench.trained("name=l", "train.steps=10", "checkpoint.resume=never")
    check(steps_saved(bench.path("runs", "l", "checkpoints")) == [10], "an older run's checkpoints would be taken for newer")
    bench.trained("name=l", "train.steps=20", "--resume")


def commands(bench):
    def expect(code, phrase, *arguments):
        result = bench.run(*arguments)
        check(result.code == code, f"exit code {result.code}, not {code}", result)
        check(phrase in (result.out if code == 0 else result.err), f"'{phrase}' is missing", result)
        return result

    usage = " ".join(expect(0, "usage: codistill COMMAND", "--help").out.split())
    for part in ("classification", "--version", "a classifier's accuracy", "codings, averages, the exchange"):
        check(part in usage, f"--help does not say {part}:\n{usage}")
    version = expect(0, "codistill 0.", "--version").out
    for part in ("oneDNN", "libpng", "libjpeg", "libyaml", "LZ4", "xxHash", "cJSON", "processor: ", "backend ref: plain C"):
        check(part in version, f"--version does not name {part}:\n{version}")
    expect(2, "usage", *[])
    expect(2, "did you mean 'train'", "trian")
    for command in ("train", "compare", "plan", "data", "eval", "upscale", "gallery", "export", "import", "interpolate", "models", "config", "bench", "completion"):
        expect(0, f"usage: codistill {command}", command, "--help")
    for command in ("train", "compare", "plan", "data", "eval", "upscale", "gallery", "export", "import", "interpolate", "bench", "completion"):
        expect(2, f"codistill {command}", command)
    expect(0, "srresnet", "models")
    expect(0, "train.steps", "config")
    plan = expect(0, "group 1: ranks 2 to 3", "plan", "t.yaml", *SETUPS["2x2"])
    check("publication" in plan.out and not os.path.exists(bench.path("runs")), "plan created something", plan)

    bench.trained("name=m", "train.steps=10")
    model = "runs/m/final.safetensors"
    for i in range(2):
        bench.write(f"photos/{i}.png", png(48, 40, i))
    for name in ("bicubic", model):
        figures = json.loads(expect(0, "mean", "eval", name, "--data", "photos", "--json").out)
        check(len(figures["images"]) == 2 and figures["mean"]["psnr_y"] > 5, f"{figures}")
        check(set(figures["images"][0]) >= {"file", "psnr_y", "ssim_y", "psnr_rgb"}, f"{figures}")
    expect(1, "absent", "eval", "absent.safetensors", "--data", "photos")
    expect(0, "", "upscale", model, "photos/0.png", "-o", "big")
    with open(bench.path("big", os.listdir(bench.path("big"))[0]), "rb") as file:
        check(struct.unpack(">II", file.read(24)[16:]) == (192, 160), "the picture is not 4 times as large")
    expect(0, "", "export", model, "-o", "m.onnx")
    expect(0, "", "export", model, "-o", "m.safetensors")
    check(os.path.getsize(bench.path("m.onnx")) > 1000, "m.onnx is small")
    expect(2, "", "export", model, "-o", "m.docx")
    expect(0, "codistill", "compare", "t.yaml", "train.steps=20", "--strategies", "single,codistill",
           "cluster.groups=2")
    expect(2, "nothing", "bench", "nothing")

def compares(bench):
    """One table of one configuration: other runs are refused, and a stop goes on with the same command."""
    arguments = ["compare", "t.yaml", "--strategies", "single,codistill", "cluster.groups=2"]
    first = bench.run(*arguments, "train.steps=20", "log.every=5")
    check(first.code == 0 and "t-single_long-seed1" in first.out, "no table", first)
    check([arm["runs"][0]["steps"] for arm in bench.json("t-compare", "compare.json")["arms"]] == [20, 40, 20], "steps", first)
    again = bench.run(*arguments, "train.steps=20", "log.every=10", "train.max_time=1h")
    check(again.code == 0 and again.err.count("done before") == 3, "not done before", again)
    for change, words in (("train.steps=40", "train.steps: 20 there, 40 here"), ("distill.burn_in=7", "distill.burn_in: 5 there, 7 here"),
                          ("model={name: msrresnet, num_feat: 8}", "model.name: srresnet there, msrresnet here"),
                          ("cluster.groups=[{}, {}]", "cluster.groups: 2 there, [{}, {}] here")):
        other = bench.run(*arguments, "train.steps=20", change)
        check(other.code == 2 and words in other.err and "t-single-seed1" in other.err, f"'{words}' is missing", other)

    arguments = ["compare", "t.yaml", "--strategies", "codistill", "cluster.groups=2", "name=s", "train.steps=1000000"]
    result = bench.run(*arguments, "train.max_time=1s")
    check(result.code == STOPPED and re.search(r"run 's-codistill-seed1' stopped at step [1-9]\d* of 1000000; the same", result.err),
          "a run that ran out of time", result)
    for number in (signal.SIGINT, signal.SIGTERM):
        process = bench.start(*arguments)
        lines = len(bench.metrics("s-codistill-seed1", 0))
        wait_for_steps(bench, process, "s-codistill-seed1", lines + 2)
        process.send_signal(number)
        result = bench.wait(process, arguments, 300)
        check(result.code == STOPPED and "the same command goes on" in result.err, "a signal", result)
        check("resumed at step" in result.err and "stopped and saved at step" in result.err, "it did not wait for its run", result)


def replays(setup):
    """An asynchronous run is repeated from its record: the same teachers and merges at the same steps, the same bits."""
    def case(bench):
        groups = {"2x2": 2, "3x1": 3, "int8": 2}[setup]
        fixed = {"COD_CPU_CONVOLUTION": "fixed"}
        # Where other processes take the cores, one group may do hundreds of steps before the other has done one.
        for steps in longer_and_longer(200):
            overrides = [f"train.steps={steps}", f"checkpoint.every={steps}", "log.every=50", "exchange.min_interval_ms=3"]
            bench.trained("name=first", *SETUPS[setup], *overrides, "checkpoint.resume=never", environment=fixed)
            taken = [sum(event["kind"] == "switch" for event in bench.events("first", group)) for group in range(groups)]
            if min(taken) > 2:
                break
        bench.trained("name=again", *SETUPS[setup], *overrides, "exchange.replay=runs/first", environment=fixed)
        for group in range(groups):
            files = [f"exchange.{group}.jsonl", f"group.{group}.safetensors"]
            first, again = ([bench.read("runs", name, file) for file in files] for name in ("first", "again"))
            check(taken[group] > 2, f"group {group} took over too little to repeat: {taken} in {steps} steps")
            check(first == again, f"group {group} went another way: {[a == b for a, b in zip(first, again)]}")
        bench.write("runs/first/exchange.0.jsonl", '{"step": 5, "kind": "switch"}\n')
        result = bench.train("name=third", *SETUPS[setup], *overrides, "exchange.replay=runs/first")
        check(result.code == 1 and "exchange.0.jsonl: line 1: step, peer or version is missing" in result.err,
              "a record that is none", result)
    return case


def unlike_groups(bench):
    """Groups of different sizes and architectures teach each other; neither merges, each keeps its own model."""
    groups = "[{ranks: 1, model: {channels: 12}}, {ranks: 2, model: {name: msrresnet, num_feat: 8, num_block: 1}}]"
    for steps in longer_and_longer(300):
        result = bench.trained("name=unlike", "train.strategy=codistill", f"train.steps={steps}", "log.every=50",
                               "checkpoint.resume=never", f"cluster.groups={groups}")
        if met_by_half(bench, "unlike", 2):
            break
    check("trains another model" in result.err, "nothing is said of merging", result)
    groups = bench.summary("unlike")["group_results"]
    check([(g["model"], g["ranks"]) for g in groups] == [("srresnet", 1), ("msrresnet", 2)], f"groups {groups}")
    check(groups[0]["parameters"] != groups[1]["parameters"], f"parameters {groups}")
    check(all(g["teacher_switches"] > 0 and g["merges"] == 0 for g in groups), f"switches and merges {groups}")
    for group in (0, 1):
        check(any(line["distill_loss"] for line in bench.metrics("unlike", group)), f"group {group} distilled nothing")


def bound(bench):
    """Ranks of a machine compute on cores of their own; those that were bound by hand stay."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise Skip("one processor only")
    first, second = allowed[:2]

    def processors(name, *overrides, command=()):
        """Where the ranks' first threads may run, and the end of the run."""
        arguments = ["train", "t.yaml", f"name={name}", "cluster.groups=2", "train.strategy=codistill",
                     "train.steps=1000000", *overrides]
        process = bench.start(*arguments, command=command)
        try:
            for group in (0, 1):
                wait_for_steps(bench, process, name, 1, group)
            found = [os.sched_getaffinity(rank_process(process, rank)) for rank in (0, 1)]
        finally:
            process.send_signal(signal.SIGUSR1)
        return found, bench.wait(process, arguments)

    sets, result = processors("own")
    check(sets[0].isdisjoint(sets[1]) and sets[0] | sets[1] == set(allowed), f"processors {sets}", result)
    check("cluster.bind: 2 ranks" in result.err and "warning" not in result.err, "not told", result)
    sets, result = processors("none", "cluster.bind=none")
    check(sets == [set(allowed)] * 2 and "cluster.bind" not in result.err, f"processors {sets}", result)
    sets, result = processors("narrow", command=("taskset", "-c", str(first)))
    check(sets == [{first}] * 2, f"processors {sets}", result)
    check("warning: cluster.bind: 2 ranks on" in result.err and "taskset" in result.err, "no warning", result)
    # By hand: each rank through a script that binds it, the other way round.
    by_hand = bench.write("by_hand.sh", '#!/bin/sh\nif [ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" = 0 ]; then p=%d; else p=%d; fi\n'
                          'exec taskset -c $p "$@"\n' % (second, first))
    os.chmod(by_hand, 0o755)
    mpirun = (MPIEXEC, "--bind-to", "none", "-n", "2", by_hand)
    sets, result = processors("by-hand", command=mpirun)
    check(sets == [{second}, {first}] and "cluster.bind" not in result.err, f"processors {sets}", result)


def control(bench):
    """A run that loses to its control says so and ramps its teachers away, at the same step on all ranks; without auto_off it only says so."""
    os.makedirs(bench.path("better"))
    with open(bench.path("better", "metrics.0.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"step": step, "psnr_y": 99}) + "\n" for step in range(0, 121, 10))
    fixed = [*SETUPS["2x2"], f"distill.control={bench.path('better')}", "train.deterministic=true", "train.steps=120", "eval.every=10",
             "log.every=1", "distill.every=1", "distill.fade=false", "distill.burn_in=20", "distill.ramp=20"]
    for switch, last in (("true", 0), ("false", 1)):
        result = bench.trained(f"name=c-{switch}", *fixed, f"distill.auto_off={switch}")
        check(result.err.count("three evaluations running are behind") == 2, "each group says so once", result)
        weights = [line["distill_weight"] for line in bench.metrics(f"c-{switch}", 0) if line["distill_weight"]]
        check((weights[-1] == max(weights)) == bool(last), f"weights {weights}", result)
        check(last or (sorted(weights[weights.index(max(weights)):], reverse=True) == weights[weights.index(max(weights)):] and
                       min(weights) <= max(weights) / 10), f"it does not fall to nothing: {weights}", result)
    result = bench.train("name=none", *SETUPS["2x1"], "distill.control=nowhere")
    check(result.code != 0 and "distill.control: cannot open 'nowhere/metrics.0.jsonl'" in result.err, "a missing control", result)


CASES = {
    "trains-single": trains("single"),
    "trains-allreduce": trains("allreduce"),
    "trains-2x1": trains("2x1"),
    "trains-2x1-mixup": trains("2x1", None, "distill.inputs=mixup", "train.accumulate=2"),
    "trains-2x2": trains("2x2"),
    "trains-3x1": trains("3x1", None, "distill.teachers_per_step=2"),
    "trains-2x2-tcp": trains("2x2", TCP),
    "trains-3x1-tcp": trains("3x1", TCP),
    "trains-2x2-file": trains("2x2", None, "exchange.transport=file"),
    "control": control,
    "unlike-groups": unlike_groups,
    "replays-2x2": replays("2x2"),
    "replays-3x1": replays("3x1"),
    "replays-int8": replays("int8"),
    "compares": compares,
    "killed-allreduce": killed("allreduce"),
    "killed-2x1": killed("2x1"),
    "killed-2x1-inputs": killed("2x1", 2, None, "distill.inputs=no_reference"),
    "killed-2x2": killed("2x2"),
    "killed-int8": killed("int8"),
    "killed-2x2-file": killed("2x2", 2, None, "exchange.transport=file"),
    "killed-2x2-tcp": killed("2x2", 2, TCP),
    "killed-3x1-tcp": killed("3x1", 2, TCP, "exchange.peers=random(1)"),
    "stops-single": stops("single", signal.SIGTERM),
    "stops-2x1": stops("2x1", signal.SIGTERM),
    "stops-2x2": stops("2x2", signal.SIGUSR1),
    "stops-in-step-2x1": stops_in_step("2x1", signal.SIGTERM, 1),
    # Each rank of a group has running statistics of its own.
    "stops-in-step-2x2": stops_in_step("2x2", signal.SIGINT, None, "train.deterministic=true", "model.norm=batch", "train.ema=0.9",
                                       "exchange.publish=ema"),
    "stops-in-step-3x1": stops_in_step("3x1", signal.SIGUSR1, 2),
    "stops-in-step-exchange": stops_in_step("2x1", signal.SIGUSR1, 0, "exchange.deterministic=true"),
    "max-time": max_time,
    "nan": not_a_number,
    "finished": finished,
    "no-held-out": no_held_out,
    "one-group-has-none": one_group_has_none,
    "other-layout": other_layout,
    "damaged": damaged,
    "buckets": buckets,
    "accumulates": accumulates,
    "locked": locked,
    "bound": bound,
    "commands": commands,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
