#!/usr/bin/env python3
"""Trains networks from the same initial weights on the same batches, on our backends and in PyTorch, and compares the losses.

PyTorch in f32 is what all are measured against. The comparison fails where our bf16 is more than twice as far from it as PyTorch's
own autocast, or where what we compute in f32 is farther from it than --f32 allows. Without PyTorch, ref in f32 takes its place.
Exit code 0: all were compared, 1: something failed, 3: nothing failed, but lines `not measured: …` say what is missing.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import common

CASES = {
    "srresnet-small": ("srresnet", "blocks=2 channels=64", (2, 8, 8, 3)),
    "mlp": ("mlp", "height=28 width=28 channels=1 classes=10 hidden=256,256,256,256", (32, 28, 28, 1)),
    "resnet18-small": ("resnet18", "height=32 width=32 channels=3 classes=10 stem=small features=16", (8, 32, 32, 3)),
    "srresnet": ("srresnet", "blocks=16 channels=64", (16, 24, 24, 3)),
    "tiny": ("srresnet", "blocks=1 channels=16", (2, 4, 4, 3)),
}
OURS = 0.7  # of all time, for our losses; the rest is PyTorch's
WITHOUT_REF = {"srresnet"}  # takes ref many minutes
KNOWN = ("ref f32", "PyTorch f32", "autocast")  # what --known may have: none of it is ours on a GPU
FLOOR = {"largest": 1e-3, "mean": 3e-4}  # autocast may be nearer than that by chance
WITHOUT_AUTOCAST = {"largest": 5e-2, "mean": 1e-2}  # about twice what autocast has on these networks


class Failed(Exception):
    """Of one of our runs."""


def ours(arguments, budget, case, backend, kind, folder):
    model, options, shape = CASES[case]
    command = [arguments.bench, "losses", model, options, *map(str, shape), backend, kind, str(arguments.steps), folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=budget.left(), env={**os.environ, "COD_CUDA_TUNE_S": "0"})
    except subprocess.TimeoutExpired:
        raise common.OutOfTime(f"losses of {case} on {backend} in {kind}") from None
    if done.returncode != 0:
        raise Failed(f"{case} on {backend} in {kind}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return json.loads(done.stdout)


def read(path, shape):
    import torch
    data = bytearray(path.read_bytes())
    return torch.frombuffer(data, dtype=torch.float32).reshape(shape).clone()


def pytorch(case, folder, device, autocast, arguments, rate, batches):
    """The losses of PyTorch's twin on the weights and batches in `folder`."""
    import torch

    import networks
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, options, (n, h, w, c) = CASES[case]
    net = networks.make(model, options)
    weights = torch.frombuffer(bytearray((folder / "weights.f32").read_bytes()), dtype=torch.float32)
    state = {}
    for entry in json.loads((folder / "weights.json").read_text()):
        state[entry["name"]] = weights[entry["offset"]:entry["offset"] + math.prod(entry["shape"])].reshape(entry["shape"]).clone()
    state.update({name: value for name, value in net.state_dict().items() if name.endswith("num_batches_tracked")})
    net.load_state_dict(state, strict=True)
    net = net.to(device).train()
    data = []
    for i in range(batches):
        x = read(folder / f"input{i}.f32", (n, h, w, c)).permute(0, 3, 1, 2).to(device)
        target = (folder / f"target{i}.f32")
        y = read(target, (n, 4 * h, 4 * w, c)).permute(0, 3, 1, 2) if model == "srresnet" else read(target, (n, -1))
        data.append((x, y.to(device)))
    optimiser = torch.optim.Adam(net.parameters(), rate)
    losses = []
    for step in range(arguments.steps):
        if arguments.budget.left() == 0:
            raise common.OutOfTime(f"losses of {case} in PyTorch")
        x, y = data[step % batches]
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            output = net(x)
        loss = networks.loss_of(model, output, y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def distance(losses, base):
    """Relative distances of the losses; NaN where one of them is."""
    each = [abs(a / b - 1) for a, b in zip(losses, base, strict=True)]
    return {"largest": common.largest(each), "mean": statistics.mean(each)}


def verdicts(case, far, f32_bound):
    """What is too far."""
    for name in ("ref f32", "cuda f32"):
        if name in far and not far[name]["mean"] <= f32_bound:
            yield f"{case}: {name} is {far[name]['mean']:.1e} from what it is compared with, more than {f32_bound:.0e}"
    for measure in FLOOR if "cuda bf16" in far else ():
        bound = max(2 * far["autocast"][measure], FLOOR[measure]) if "autocast" in far else WITHOUT_AUTOCAST[measure]
        if not far["cuda bf16"][measure] <= bound:
            yield f"{case}: cuda bf16's {measure} distance is {far['cuda bf16'][measure]:.1e}, more than {bound:.1e}, twice autocast's"


def read_known(path, steps):
    """Losses by case and run that an earlier process wrote by --json, as far as they reach; {} where there is no such file."""
    if not path or not pathlib.Path(path).is_file():
        return {}
    written = json.loads(pathlib.Path(path).read_text())
    return {case: {run: losses[:steps] for run, losses in written[case]["losses"].items() if run in KNOWN and len(losses) >= steps}
            for case in CASES if case in written}


def run_ours(arguments, root):
    """Losses by (case, backend, type), what failed, and what was not measured; those on ref side by side, since each has one thread."""
    wanted = [(case, backend, kind) for case in arguments.cases for backend, kind in arguments.runs
              if not (backend == "ref" and case in WITHOUT_REF) and f"{backend} {kind}" not in arguments.known.get(case, {})]
    found, failures, unmeasured = {}, [], []
    budget = common.Budget(OURS * arguments.budget.left())

    def one(key):
        case, backend, kind = key
        folder = root / "-".join(key)
        folder.mkdir()
        return key, ours(arguments, budget, case, backend, kind, str(folder))

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        on_ref = [pool.submit(one, key) for key in wanted if key[1] == "ref"]
        for job in [lambda key=key: one(key) for key in wanted if key[1] != "ref"] + [future.result for future in on_ref]:
            try:
                key, answer = job()
                found[key] = answer
            except Failed as failure:
                failures.append(str(failure))
            except common.OutOfTime as cut:
                unmeasured.append(str(cut))
    return found, failures, unmeasured


def compare(arguments, case, found, root, device):
    """Distances by run, from PyTorch's f32, or from ref's where there is no PyTorch."""
    mine = {f"{backend} {kind}": (answer, root / "-".join((case, backend, kind))) for (c, backend, kind), answer in found.items() if c == case}
    if not mine:
        return {}, None
    answer, folder = next(iter(mine.values()))
    losses = {**arguments.known.get(case, {}), **{name: entry[0]["losses"] for name, entry in mine.items()}}
    for name, autocast in (("PyTorch f32", False), ("autocast", True)) if device else ():
        if name not in losses:
            losses[name] = pytorch(case, folder, device, autocast, arguments, answer["rate"], answer["batches"])
    base = losses.get("PyTorch f32", losses.get("ref f32"))
    if base is None:
        return {}, None
    return {name: distance(values, base) for name, values in losses.items() if name != "PyTorch f32"}, (base[0], base[-1], losses)


def pytorch_device(wanted):
    """Where PyTorch computes; None where there is none."""
    try:
        import torch
    except ImportError:
        return None
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", required=True, metavar="FILE", help="bench_cuda_step, or bench_cuda_emulated")
    p.add_argument("--steps", type=int, default=100, metavar="N", help="(100)")
    p.add_argument("--cases", default="srresnet-small,mlp,resnet18-small,srresnet", metavar="LIST", help=f"of {', '.join(CASES)}")
    p.add_argument("--runs", default="ref-f32,cuda-f32,cuda-bf16", metavar="LIST", help="ours, as BACKEND-TYPE")
    p.add_argument("--device", metavar="NAME", help="PyTorch's: cuda (where it finds one), cpu, or none = without PyTorch")
    p.add_argument("--f32", type=float, default=2e-3, metavar="X", help="largest mean distance in f32 (2e-3)")
    p.add_argument("--json", metavar="FILE", help="also writes all losses")
    p.add_argument("--known", metavar="FILE", help="losses of ref and PyTorch that --json wrote earlier, of which none are computed again")
    p.add_argument("--commit", default="", metavar="TEXT", help="what is measured, for --json")
    p.add_argument("--seconds", type=float, default=190, metavar="S", help="for all of it; what has no time left is not compared (190)")
    arguments = p.parse_args(argv)
    arguments.budget = common.Budget(arguments.seconds)
    arguments.known = read_known(arguments.known, arguments.steps)
    arguments.cases = arguments.cases.split(",")
    arguments.runs = [tuple(run.split("-")) for run in arguments.runs.split(",")]
    if unknown := [case for case in arguments.cases if case not in CASES]:
        p.error(f"--cases: there is no {unknown[0]}; there are {', '.join(CASES)}")
    if any(len(run) != 2 for run in arguments.runs):
        p.error("--runs is a list such as ref-f32,cuda-bf16")
    return arguments


def main(argv):
    arguments = parse(argv)
    device, everything = None if arguments.device == "none" else pytorch_device(arguments.device), {"commit": arguments.commit}
    beside = "PyTorch in f32" if device or any("PyTorch f32" in runs for runs in arguments.known.values()) else "ref"
    common.say(f"{'losses of ' + str(arguments.steps) + ' steps':24} {'run':10} largest and mean distance from {beside}")
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        found, failures, unmeasured = run_ours(arguments, root)
        for case in arguments.cases:
            try:
                far, trained = compare(arguments, case, found, root, device)
            except common.OutOfTime as cut:
                unmeasured.append(str(cut))
                continue
            for run, values in far.items():
                common.say(f"{case:24} {run:10} {values['largest']:.1e} {values['mean']:.1e}")
            if trained:
                common.say(f"{case:24} {'':10} the loss goes from {trained[0]:.4f} to {trained[1]:.4f}")
                everything[case] = {"distances": far, "losses": trained[2]}
            failures += verdicts(case, far, arguments.f32)
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(everything))
    for what in unmeasured:
        common.say(f"not measured: {what}")
    if beside == "ref":
        common.say("without PyTorch: the losses were compared with ref's alone")
    if failures:
        raise common.Failure("\n".join(failures))
    return 3 if unmeasured else 0


if __name__ == "__main__":
    sys.exit(common.run(main))
