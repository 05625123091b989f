#!/usr/bin/env python3
"""What `codistill plan` says against what runs do: python3 test_plan.py CODISTILL [CASE ...]"""

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys

from train_support import Skip, check, run_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]

MODEL = ["model.blocks=2", "model.channels=16", "train.strategy=codistill"]


def planned(bench, *overrides, code=0):
    result = bench.run("plan", "t.yaml", *overrides)
    check(result.code == code, f"exit code {result.code}, not {code}", result)
    check(not os.path.exists(bench.path("runs")), "plan created something", result)
    return result


def the_map(bench):
    """Each rank with its group, its node, its device and its threads."""
    result = planned(bench, *MODEL, "cluster.groups=[{ranks: 2}, {ranks: 1}]", "cluster.threads=3")
    rows = re.findall(r"^ +(\d+) +(\d+) +(\S+) +(\S+) +(\d+)  \S", result.out, re.MULTILINE)
    check(rows == [(str(rank), str(group), socket.gethostname(), f"cpu:{rank}", "3") for rank, group in enumerate([0, 0, 1])],
          f"{rows}", result)
    check("group 0: ranks 0 to 1\n" in result.out and "group 1: rank 2\n" in result.out, "groups", result)
    check("oneDNN" in result.out, "no word on the device", result)


def shared_cores(bench):
    """Without cluster.threads one rank takes all cores that this process may use, and two share them."""
    cores = len(os.sched_getaffinity(0))
    def threads(*overrides):
        found = re.search(r"^ +0 +0 +\S+ +\S+ +(\d+)  ", planned(bench, *overrides, "cluster.threads=0").out, re.MULTILINE)
        return int(found[1])
    alone, two = threads("train.strategy=single"), threads(*MODEL, "cluster.groups=2")
    check(1 <= alone <= cores and max(1, alone // 2) == two, f"{alone} threads alone, {two} each for two, {cores} processors")


def by_node(bench):
    result = planned(bench, "train.strategy=allreduce", "cluster.groups=by_node")
    check("group 0: all ranks that the launcher starts" in result.out, "groups", result)
    result = planned(bench, *MODEL, "cluster.groups=by_node")
    check("a group a node" in result.out, "groups", result)


def traffic(bench):
    """Only what exchanges shows a publication, of the configured coding and of the size that a run publishes."""
    for overrides in (["train.strategy=single"], ["train.strategy=allreduce", "cluster.ranks_per_group=2"]):
        result = planned(bench, *overrides)
        check("publication" not in result.out and "exchange" not in result.out.split("\n", 1)[1], "nothing is exchanged", result)
    result = planned(bench, *MODEL, "cluster.groups=2", "exchange.codec=none")
    check("nothing (exchange.codec: none)" in result.out and not re.search(r"^    weights .*, exchange ", result.out, re.MULTILINE), "codec none", result)
    result = planned(bench, *MODEL, "cluster.groups=1")
    check("nothing (there is one group)" in result.out and ", exchange " not in result.out, "one group", result)
    for codec in ("f32", "int8"):
        overrides = [*MODEL, "cluster.groups=2", f"exchange.codec={codec}", "exchange.entropy=none"]
        result = bench.run("plan", "t.yaml", *overrides)
        told = re.search(rf"each 10 steps: a publication of at most ([\d.]+) MB \({codec}\); 1 peer pulled, ([\d.]+) MB", result.out)
        check(told is not None and told[1] == told[2], "publication", result)
        bench.trained(f"name={codec}", *overrides, "train.steps=50")
        one = float(told[1]) * 1e6
        published = bench.metrics(codec, 0)[-1]["published_bytes"]
        count = round(published / one)
        check(1 <= count <= 5 and abs(published - count * one) <= count * 5000, f"{published} bytes published, {one} planned", result)


def fragments(bench):
    """How large a fragment is, how often there is one and what the exchange holds: as the run says and does, in groups of two ranks."""
    fixed = [*MODEL, "model.channels=48", "cluster.groups=2", "cluster.ranks_per_group=2", "exchange.codec=f32", "exchange.entropy=none", "exchange.chunk_values=256"]
    held = {}
    for count, what, every in ((1, "publication", 10), (5, "fragment", 2)):
        overrides = [*fixed, f"exchange.fragments={count}"]
        result = bench.run("plan", "t.yaml", *overrides)
        told = re.search(rf"each {every} steps: a {what} of at most ([\d.]+) MB \(f32\); 1 peer pulled(?:, {count} at a time)?, ([\d.]+) MB", result.out)
        check(told is not None and told[1] == told[2], f"{count} fragments", result)
        held[count] = re.search(r", exchange ([\d.]+)", result.out)[1]
        run = bench.trained(f"name=f{count}", *overrides, "train.steps=60", "eval.every=0", "checkpoint.every=0")
        publications = sum(event["kind"] == "publish" for event in bench.events(f"f{count}", 0))
        # Of the first of two ranks; the last publication may not be encoded when the run ends. Fragments differ by a chunk.
        most, bytes_told = publications * 1e6 * float(told[1]) / 2, bench.metrics(f"f{count}", 0)[-1]["published_bytes"]
        check(publications > 60 // every - 3 and 0.85 * (most - most / publications) <= bytes_told <= 1.02 * most,
              f"{publications} publications of {bytes_told} bytes, {most} planned", run)
        check(f"a rank holds {held[count]} MB for the exchange" in run.err, f"plan says {held[count]} MB", run)
    check(float(held[5]) < float(held[1]), f"{held} MB")


def followed(bench):
    """How many peers a period allows is said of few peers and of many; not where groups wait for each other."""
    two = [*MODEL, "cluster.groups=2"]
    for period, fragments, allowed in ((10, 1, 16), (50, 1, 72), (50, 5, 14)):
        result = planned(bench, *two, f"exchange.period={period}", f"exchange.fragments={fragments}")
        check(re.findall(r"with exchange.period (\d+) a group can follow about (\d+) peers\n", result.out) == [(str(period), str(allowed))],
              f"period {period}", result)
    result = planned(bench, *MODEL, "cluster.groups=18")
    check("a group reads 17 peers, and with exchange.period 10 about 16 have" in result.out and "can follow about 16 peers" in result.out,
          "18 groups", result)
    result = planned(bench, *two, "exchange.deterministic=true", "exchange.lag_steps=5")
    check("can follow" not in result.out and "1 peer pulled" in result.out, "deterministic", result)
    result = bench.run("train", "t.yaml", "train.strategy=codistill", "cluster.groups=2", "train.steps=4", "exchange.period=4")
    check(result.code == 0 and "a pull takes 8 steps at least" in result.err, "the run does not say so", result)


def chosen_coder(bench):
    """codec auto publishes what delta does; its entropy coder is its own, so that `entropy` says nothing of it."""
    figures = {}
    for codec, entropy in (("delta", "zstd"), ("auto", "zstd"), ("auto", "none")):
        result = planned(bench, *MODEL, "cluster.groups=3", f"exchange.codec={codec}", f"exchange.entropy={entropy}")
        told = re.search(rf"a publication of at most ([\d.]+) MB \({codec} before compression\); 2 peers pulled(?:, 2 at a time)?, ([\d.]+) MB", result.out)
        check(told is not None, f"{codec} with entropy {entropy}", result)
        figures[codec, entropy] = told.groups()
    check(len(set(figures.values())) == 1 and float(told[2]) > float(told[1]) > 0, f"{figures}")


def memory(bench):
    """The parts of a rank's memory are there when they are used, and add up."""
    result = planned(bench, *MODEL, "cluster.groups=3", "train.ema=0.99", "distill.weight=1")
    total = float(re.search(r"memory of a rank: ([\d.]+) MB", result.out)[1])
    parts = dict(re.findall(r" ([a-z][a-z ]*) ([\d.]+)(?=,|\n)", result.out.split("not counted\n")[1].split("\n")[0] + "\n"))
    check(set(parts) == {"weights", "gradients", "optimiser", "moving average", "activations", "teachers", "exchange",
                         "batches made ahead"}, f"{parts}", result)
    check(abs(sum(float(part) for part in parts.values()) - total) < 0.5, f"{parts}", result)
    held = {ranks: re.search(r"own publications: ([\d.]+) MB, held together by the group's (\d) ranks", planned(
        bench, *MODEL, "cluster.groups=2", f"cluster.ranks_per_group={ranks}").out) for ranks in (1, 2, 4)}
    check(held[1] is None and [held[n][2] for n in (2, 4)] == ["2", "4"], f"{held}")
    check(abs(float(held[2][1]) - float(held[4][1])) < 0.11 and float(held[2][1]) > 0, f"{held}")
    result = planned(bench, *MODEL, "cluster.groups=3", "distill.weight=0")
    check("teachers" not in result.out and "moving average" not in result.out, "unused parts", result)


def servers(bench):
    """A rank that serves holds what updates the weights and what the workers send; one that trains holds activations and batches."""
    def parts(kind, *overrides):
        result = planned(bench, "train.ema=0.99", *overrides)
        told = re.search(rf"memory of a rank that {kind}: ([\d.]+) MB, validation not counted\n(.*)\n", result.out)
        check(told is not None and "memory of a rank:" not in result.out, f"no memory of a rank that {kind}", result)
        return {name: float(megabytes) for name, megabytes in re.findall(r" ([a-z][a-z ]*) ([\d.]+)", told[2])}
    large = ["model.blocks=8", "model.channels=64"]
    weights = parts("serves", *large, "train.strategy=parameter_server", "cluster.ranks_per_group=3")["weights"]
    for strategy, servers in (("parameter_server", 1), ("async_parameter_server", 2)):
        options = [*large, f"train.strategy={strategy}"] + ([f"{strategy}.servers={servers}"] if servers > 1 else [])
        for workers in (2, 4):
            ranks = f"cluster.ranks_per_group={servers + workers}"
            serves, trains = parts("serves", *options, ranks), parts("trains", *options, ranks)
            check(set(serves) == {"weights", "gradients", "optimiser", "moving average", "exchange"}, f"{strategy}: a server holds {serves}")
            check({"weights", "gradients", "activations", "batches made ahead"} <= set(trains) and not {"optimiser", "moving average"} & set(trains),
                  f"{strategy}: a worker holds {trains}")
            check(abs(serves["optimiser"] - 2 * weights / servers) < 0.2, f"{strategy}: moments {serves}")
            check(abs(serves["exchange"] - workers * weights / servers) < 0.2, f"{strategy}: messages of {workers} workers {serves}")


def crowded(bench):
    """With more ranks than processors a step takes as many times longer as there are threads for each of them."""
    cores = len(os.sched_getaffinity(0))
    for ranks in (2 * cores, 3 * cores):
        result = planned(bench, *MODEL, f"cluster.groups={ranks}", "cluster.threads=1", "distill.weight=0")
        told = re.search(rf"about ([\d.]+) ms, as {ranks} ranks with {ranks} threads share (\d+) processors? \(([\d.]+) in this process\)", result.out)
        check(told is not None, "nothing of sharing", result)
        whole, shared, alone = map(float, told.groups())
        check(shared <= cores and abs(whole / alone - ranks / shared) < 0.02 * ranks / shared + 0.2 / alone, f"{told.groups()}", result)
        total, unit = re.search(r"all (?:\d+) steps: about (\d+) (s|min)", result.out).groups()
        steps = int(re.search(r"all (\d+) steps", result.out)[1])
        check(abs(float(total) * (60 if unit == "min" else 1) - steps * whole / 1e3) <= (31 if unit == "min" else 1), f"{total} {unit}", result)
    result = planned(bench, "train.strategy=single", "cluster.threads=1")
    check("share" not in result.out.split("a step:")[1] and re.search(r"about [\d.]+ ms in this process", result.out), "one rank alone", result)


def unlike_groups(bench):
    """Each kind of group once; in a ring also what a group reads tells them apart."""
    groups = "cluster.groups=[{ranks: 1}, {ranks: 1, model: {channels: 24}}, {ranks: 1}]"
    for peers, heads in (("all", ["group 0, 2: ", "group 1: "]), ("ring", ["group 0: ", "group 1: ", "group 2: "])):
        result = planned(bench, *MODEL, groups, f"exchange.peers={peers}")
        check(re.findall(r"^group [\d, ]+: (?=model)", result.out, re.MULTILINE) == heads, peers, result)


def other_task(bench):
    bench.write("mlp.yaml", "model: {name: mlp}\ndata: {kind: pictures, path: .}\n")
    result = bench.run("plan", "mlp.yaml")
    check(result.code == 2 and result.out == "" and "data.kind: model 'mlp' is for classification" in result.err, "mlp", result)


def configs(bench):
    """Each configuration that comes with the project runs from a checkout by the commands in its header, on what get-data.sh brings there."""
    if not pathlib.Path(os.environ.get("COD_DATA", "/nowhere")).is_dir():
        raise Skip("COD_DATA is not there")
    checkout = pathlib.Path(bench.path("."))
    (checkout / "tools").mkdir()
    shutil.copy(ROOT / "tools/get-data.sh", checkout / "tools")
    shutil.copytree(ROOT / "tools/data", checkout / "tools/data")
    shutil.copytree(ROOT / "configs", checkout / "configs")
    texts = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "configs").glob("**/*.yaml"))}
    brought = set()
    for path, text in texts.items():
        commands = re.findall(r"^#   ((?:codistill|tools/get-data\.sh) .*)", text, re.MULTILINE)
        named = set(re.findall(r"^ +\w+: data/([\w-]+)", text, re.MULTILINE))
        check("../" not in re.sub(r"#.*", "", text), f"{path}: names a path outside the checkout")
        listed = {name for command in commands if command.startswith("tools/") for name in command.split()[1:]}
        check(listed == named, f"{path}: its header brings {sorted(listed)}, but it names {sorted(named)}")
        for name in sorted(listed - brought):
            subprocess.run(["tools/get-data.sh", name], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
        brought |= listed
        own = [shlex.split(command, comments=True) for command in commands if re.match(rf"codistill (train|compare) {path}\b", command)]
        check(own != [], f"{path}: no command in its header runs it")
        for command in own:
            check(all(re.match(r"[\w.]+=", word) and "FOLDER" not in word for word in command[3:]), f"{path}: {command} is not a whole command")
            bench.done("plan", *command[2:])
        for place in re.findall(r"^ +\w+: (data/\S+)", text, re.MULTILINE):
            check((checkout / place).exists(), f"{path}: get-data.sh brings no {place}")


CASES = {"map": the_map, "cores": shared_cores, "by-node": by_node, "traffic": traffic, "fragments": fragments, "followed": followed,
         "chosen-coder": chosen_coder, "memory": memory, "servers": servers, "crowded": crowded, "unlike-groups": unlike_groups, "other-task": other_task, "configs": configs}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
