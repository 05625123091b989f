#!/usr/bin/env python3
"""Times training steps in bf16 on a GPU beside PyTorch's, in turns: eager, compiled, and compiled inside one CUDA graph.

Also: each op's share of what the card reaches in a large bf16 product and in a copy, the host's part of a step, memory, what a
teacher adds, and what coding for other groups takes. A short table comes last, and below it each goal of gpu_goals.py beside what was
measured. A missed goal is no failure. Without PyTorch it times ours alone. Exit code 0: all was measured, 1: something failed, 3: nothing
failed, but lines `not measured: …` say what is missing. That the tuner refused a library's results is a failure.
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
import time

import common
import gpu_goals

HERE = pathlib.Path(__file__).resolve().parent
FORMS = ("eager", "compile", "graph")


def mlp(layers):
    return f"height=28 width=28 channels=1 classes=10 hidden={','.join(['1024'] * layers)}"


# In the order in which they are measured: first those that most goals are about; last ResNet-50, which has the most to compile and to tune.
CASES = {
    "srresnet-16": ("srresnet", "blocks=16 channels=64", (16, 24, 24, 3)),
    "srresnet-256": ("srresnet", "blocks=16 channels=64", (256, 24, 24, 3)),
    "srresnet-64": ("srresnet", "blocks=16 channels=64", (64, 24, 24, 3)),
    "mlp4-100": ("mlp", mlp(4), (100, 28, 28, 1)),
    "mlp4-10000": ("mlp", mlp(4), (10000, 28, 28, 1)),
    "mlp10-100": ("mlp", mlp(10), (100, 28, 28, 1)),
    "mlp10-10000": ("mlp", mlp(10), (10000, 28, 28, 1)),
    "resnet50-64": ("resnet50", "height=224 width=224 channels=3 classes=1000", (64, 224, 224, 3)),
    "tiny": ("mlp", "height=1 width=1 channels=16 classes=4 hidden=16", (4, 1, 1, 16)),
}
TAUGHT = {"srresnet-16", "srresnet-256", "tiny"}
OP_TABLES = {"srresnet-16", "srresnet-64", "srresnet-256", "resnet50-64", "tiny"}
REFUSED = "is not used: its results"  # of the tuner's warning: a library and our kernels, which are its measure, do not agree

LEAST_S = 3.0  # in which nothing is begun any more
LIMITS = 0.15  # of all time, for the card's limits
READY = 0.45  # of the rest, for PyTorch's forms to be ready
TUNING = 0.4  # of a case's time, for timing implementations


def words(case):
    model, options, shape = CASES[case]
    return [model, options, *map(str, shape)]


def refusals(said):
    """Lines of what a process of ours said on standard error."""
    return [line for line in said.splitlines() if REFUSED in line]


def answer(command, budget, what, refused=None, **variables):
    """The last line that the command prints, which is JSON. `refused` receives its refusals of libraries' results."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=budget.left(), env={**os.environ, **variables})
    except subprocess.TimeoutExpired:
        raise common.OutOfTime(f"{what}: cut off") from None
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["?"]
    if done.returncode != 0:
        raise common.Failure(f"{what}: {lines[-1]}")
    if refused is not None:
        refused += refusals(done.stderr)
    return json.loads(lines[-1])


def limits(arguments, budget, unmeasured):
    """What the card reaches, as PyTorch measures it; {} where it does not."""
    try:
        return answer([sys.executable, "-B", arguments.pytorch, "limits"], common.Budget(LIMITS * budget.left()), "the card's limits")
    except common.OutOfTime as cut:
        unmeasured.append(str(cut))
    except common.Failure as failure:
        common.warn(str(failure))
    return {}


def start_pytorch(arguments, ready):
    """Servers by case that are being made ready side by side, because compilation takes long; {} where there is no PyTorch."""
    if not arguments.forms:
        return {}
    if not common.imports(sys.executable, ["torch"]):
        common.warn(f"{sys.executable} has no PyTorch: only our steps are timed")
        return {}

    def start(case):
        command = [sys.executable, "-B", arguments.pytorch, "steps", arguments.device, ",".join(arguments.forms), *words(case)]
        return common.Server(command, 2, False, budget=ready, TORCHINDUCTOR_COMPILE_THREADS="2")

    pool = concurrent.futures.ThreadPoolExecutor(len(arguments.cases))
    return {case: pool.submit(start, case) for case in arguments.cases}


def await_begin(path):
    """Seconds that all of it may take from then on, which are in the file that another process makes."""
    file = pathlib.Path(path)
    while not file.is_file() or not file.read_text().strip():
        time.sleep(0.1)
    return float(file.read_text())


def await_pytorch(starting, unmeasured):
    """Servers by case, of those that are ready in time."""
    rivals = {}
    for case, server in starting.items():
        try:
            rivals[case] = server.result()
        except common.Failure as failure:
            unmeasured.append(f"{case}: PyTorch's side: {failure}")
    return rivals


def check_optimisers(case, ours, forms):
    """Both sides' steps end with the same update."""
    for name, form in forms.items():
        if form.get("optimiser", ours["optimiser"]) != ours["optimiser"]:
            raise common.Failure(f"{case}: {name} trains with {form['optimiser']}, ours with {ours['optimiser']}")


def take_turns(arguments, result, server, rival):
    """Steps of both sides, in changing order."""
    runners = {"ours": lambda: server.turn("step")}
    for form in arguments.forms:
        if "first_s" in result["forms"].get(form, {}):
            runners[form] = lambda form=form: rival.turn(form)
    answers = {name: [] for name in runners}
    for r in range(-1, arguments.rounds):
        for name in list(runners) if r % 2 == 0 else reversed(list(runners)):
            given = runners[name]()
            if r >= 0:
                answers[name].append(given)
    result["ms"] = {name: [given["ms"] for given in of_one] for name, of_one in answers.items()}
    result["host_ms"] = statistics.median(given["host_ms"] for given in answers["ours"])


def measure(arguments, result, rival, budget):
    """Adds everything about one case to its result: the steps first, so that they are there where time ends."""
    case = result["case"]
    command = [arguments.bench, "serve", *words(case)]
    if rival:
        result["forms"] = rival.answers[0]["forms"]
    tuning = str(int(TUNING * budget.left()))
    server = common.Server(command, 2, False, budget=budget, COD_CUDA_TUNE_S=tuning)
    try:
        with server:
            result["ours"] = server.answers[0]
            check_optimisers(case, result["ours"], result["forms"])
            take_turns(arguments, result, server, rival)
            result["ops"] = server.turn("ops")["ops"]
    finally:
        result["refused"] += refusals(server.said)
    # A second process takes the choices that the first one timed and kept: its first step is without autotuning. Python's clock has what
    # comes before the step, too: the process's start and CUDA's context (and two steps more).
    with common.Server(command, 2, False, budget=budget, COD_CUDA_TUNE_S="0") as again:
        result["first_again_s"] = again.first_s
    if case in TAUGHT:
        tuning = str(int(TUNING * budget.left()))
        result["teacher"] = answer([arguments.bench, "teacher", *words(case)], budget, f"{case}, with a teacher", result["refused"],
                                   COD_CUDA_TUNE_S=tuning)


def by_kind(ops, card):
    """Rows (kind, calls, ms, gflop, gbyte, least ms that the card's limits allow), the slowest first."""
    rows = {}
    for op in ops:
        row = rows.setdefault(op["kind"], [op["kind"], 0, 0.0, 0.0, 0.0, 0.0])
        row[1] += 1
        row[2] += op["ms"]
        row[3] += op["gflop"]
        row[4] += op["gbyte"]
        row[5] += max(op["gflop"] / card["tflops"], 1e3 * op["gbyte"] / card["gbytes"]) if card else math.nan
    return sorted(rows.values(), key=lambda row: -row[2])


def share(part, whole):
    return "-" if math.isnan(part) or not whole > 0 or part == 0 else f"{100 * part / whole:.0f} %"


def print_ops(result, card):
    """Ops were timed one by one, ten times in a row: what fits into the card's cache is faster there than in a step."""
    step = statistics.median(result["ms"]["ours"])
    common.say(f"\n{result['case']}: ops by kind, timed one by one   [a step takes {step:.3f} ms]")
    common.say(f"{'kind':26} {'calls':>5} {'ms':>9} {'TFLOP/s':>8} {'of peak':>8} {'GB/s':>7} {'of copy':>8} {'of least time':>14}")
    rows = by_kind(result["ops"], card)
    rows.append(["sum", *(sum(row[i] for row in rows) for i in range(1, 6))])
    for kind, calls, ms, gflop, gbyte, least in rows:
        tflops, gbytes = gflop / ms, 1e3 * gbyte / ms
        common.say(f"{kind:26} {calls:5} {ms:9.4f} {f'{tflops:.1f}' if gflop else '-':>8} {share(tflops, card.get('tflops', 0)):>8} "
                   f"{gbytes:7.0f} {share(gbytes, card.get('gbytes', 0)):>8} {share(least, ms):>14}")


def spread(times):
    low, high = common.quartiles(times)
    return f"{statistics.median(times):9.4f} ({low:.4f} to {high:.4f})"


def print_spreads(results):
    common.say("\nmilliseconds of a step, median and quartiles; memory beyond the context; time to the first step (PyTorch's side by side)")
    for result in results:
        for name, times in result["ms"].items():
            form = result["forms"].get(name, {})
            first = result["ours"]["first_step_s"] if name == "ours" else form["first_s"]
            memory = result["ours"]["memory_mib"] if name == "ours" else form["peak_mib"]
            common.say(f"{result['case']:14} {name:8} {spread(times):36} {memory:8.0f} MiB  first {first:6.2f} s")
        for name, form in result["forms"].items():
            if "error" in form:
                common.say(f"{result['case']:14} {name:8} failed: {form['error']}")


def table(results, forms):
    """Lines of text. Ratios above 1: ours is faster. Busy: the ops' times, of the step's; host: until a step is queued, of the step's."""
    lines = [f"{'step, ms':14} {'ours':>9} " + " ".join(f"{form:>9}" for form in forms) + f" {'best/ours':>9} {'busy':>7} {'host':>7} {'teacher':>8}"]
    for result in results:
        if "ours" not in result["ms"]:
            lines.append(f"{result['case']:14} not measured")
            continue
        medians = {name: statistics.median(times) for name, times in result["ms"].items()}
        name, rival = gpu_goals.fastest(result)
        ratio = f"{rival / medians['ours']:.2f}" if name else "-"
        taught = result.get("teacher")
        added = f"{100 * (taught['taught_ms'] / taught['step_ms'] - 1):+.0f} %" if taught else "-"
        busy = sum(op["ms"] for op in result["ops"]) if "ops" in result else math.nan
        lines.append(f"{result['case']:14} {medians['ours']:9.4f} " +
                     " ".join(f"{medians[form]:9.4f}" if form in medians else f"{'-':>9}" for form in forms) +
                     f" {ratio:>9} {share(busy, medians['ours']):>7} {share(result['host_ms'], medians['ours']):>7} {added:>8}")
    return lines


def write_summary(arguments, results):
    """The short table and the goals, of as many cases as are measured."""
    summary = "\n".join([*table(results, arguments.forms), "", *gpu_goals.table(results)])
    if arguments.summary:
        pathlib.Path(arguments.summary).write_text(f"{summary}\n")
    return summary


def measure_codes(arguments, budget):
    """What the exchange between groups takes on the device, in microseconds; without codes, the f32 weights would be copied."""
    for weights in arguments.codes:
        if budget.left() < LEAST_S:
            raise common.OutOfTime(f"what coding {weights} weights for other groups takes: no time was left")
        yield answer([arguments.bench, "codes", weights], budget, f"what coding {weights} weights for other groups takes")


def print_codes(rows):
    common.say(f"\n{'exchange, us':>14} {'code key':>9} {'read key':>9} {'delta':>9} {'read':>9} {'copied':>9} {'delta':>9} {'f32':>9}")
    for row in rows:
        keys = ("key_us", "read_key_us", "delta_us", "read_delta_us", "copy_key_us", "copy_delta_us", "copy_f32_us")
        common.say(f"{1e-6 * row['weights']:12.2f} M " + " ".join(f"{row[key]:9.1f}" for key in keys))


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", required=True, metavar="FILE", help="bench_cuda_step")
    p.add_argument("--rounds", type=int, default=9, metavar="N", help="turns that count (9)")
    p.add_argument("--cases", default=",".join(case for case in CASES if case != "tiny"), metavar="LIST", help=f"of {', '.join(CASES)}")
    p.add_argument("--forms", default=",".join(FORMS), metavar="LIST", help="PyTorch's; an empty list = none")
    p.add_argument("--device", default="cuda", metavar="NAME", help="PyTorch's (cuda)")
    p.add_argument("--pytorch", default=HERE / "gpu_pytorch.py", metavar="FILE", help="PyTorch's side")
    p.add_argument("--seconds", type=float, default=400, metavar="S", help="for all of it; what has no time left is not measured (400)")
    p.add_argument("--begin", metavar="FILE", help="makes PyTorch's forms ready at once, but times when this file is there; --seconds stands in it")
    p.add_argument("--codes", default="1550000,25000000", metavar="LIST", help="weights of models that groups exchange (%(default)s)")
    p.add_argument("--json", metavar="FILE", help="also writes everything measured")
    p.add_argument("--summary", metavar="FILE", help="also writes the short table and the goals")
    p.add_argument("--commit", default="", metavar="TEXT", help="what is measured, for --json")
    arguments = p.parse_args(argv)
    arguments.cases = arguments.cases.split(",")
    arguments.codes = [int(count) for count in arguments.codes.split(",") if count]
    arguments.forms = [form for form in arguments.forms.split(",") if form]
    for given, known, name in ((arguments.cases, CASES, "cases"), (arguments.forms, FORMS, "forms")):
        if unknown := [word for word in given if word not in known]:
            p.error(f"--{name}: there is no {unknown[0]}; there are {', '.join(known)}")
    if arguments.rounds < 1:
        p.error("--rounds is at least 1")
    return arguments


def measure_case(arguments, result, rival, budget, cases_left):
    """What failed and what was not measured, each a list."""
    left, case = budget.left(), result["case"]
    # Cases share what is left, so that one that hangs does not take all of it.
    own = common.Budget(min(left, 1.5 * left / cases_left))
    if rival:
        rival.budget = own
    try:
        if left < LEAST_S:
            raise common.OutOfTime(f"{case}: no time was left")
        measure(arguments, result, rival, own)
    except common.OutOfTime as cut:
        return [], [str(cut)]
    except common.Failure as failure:
        if own.left() > 0:
            return [f"{case}: {failure}"], []
        done = " after its steps were timed" if "ours" in result["ms"] else ""
        return [], [f"{case}: cut off{done}"]
    finally:
        if rival:
            rival.__exit__()
    return [], []


def say_case(result, card):
    """What is known of a case as soon as it was measured."""
    ours, (form, rival), trial = gpu_goals.step_ms(result), gpu_goals.fastest(result), gpu_goals.TRIAL_MS.get(result["case"])
    if math.isnan(ours):
        return
    beside = f"; PyTorch's {form} form {rival:.4f} ms, {rival / ours:.2f} times as long" if form else \
        f"; PyTorch on an H100, in an earlier trial, {trial} ms, {trial / ours:.2f} times as long" if trial else ""
    common.say(f"{result['case']}: ours {ours:.4f} ms{beside}")
    if result["case"] in OP_TABLES and "ops" in result:
        print_ops(result, card)


def measure_all(arguments, rivals, card, budget, failures, unmeasured):
    """Results of all cases, said and written down after each."""
    results = [{"case": case, "ms": {}, "forms": {}, "refused": []} for case in arguments.cases]
    for i, result in enumerate(results):
        failed, missing = measure_case(arguments, result, rivals.get(result["case"]), budget, len(results) - i)
        failures += failed + [f"{result['case']}: a library's results are refused: {line}" for line in result["refused"]]
        unmeasured += missing
        say_case(result, card)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps({"commit": arguments.commit, "card": card, "results": results}))
        write_summary(arguments, results)
    return results


def main(argv):
    arguments = parse(argv)
    failures, unmeasured = [], []
    ready = common.Budget(math.inf)
    starting = start_pytorch(arguments, ready)
    budget = common.Budget(await_begin(arguments.begin) if arguments.begin else arguments.seconds)
    ready.end = time.monotonic() + READY * budget.left()
    rivals = await_pytorch(starting, unmeasured)
    card = limits(arguments, budget, unmeasured) if arguments.forms and arguments.device == "cuda" else {}
    if card:
        common.say(f"{card['card']}: {card['tflops']} TFLOP/s in a product of bf16 matrices, {card['gbytes']} GB/s read and written in a copy; "
                   f"PyTorch {card['version']}, cuDNN {card['cudnn']}")
    results = measure_all(arguments, rivals, card, budget, failures, unmeasured)
    timed = [result for result in results if "ours" in result["ms"]]
    codes = []
    try:
        codes.extend(measure_codes(arguments, budget))
    except common.OutOfTime as cut:
        unmeasured.append(str(cut))
    except common.Failure as failure:
        failures.append(str(failure))
    if timed:
        common.say(f"ours: {timed[0]['ours']['device']}")
    print_spreads(timed)
    if codes:
        print_codes(codes)
    for what in unmeasured:
        common.say(f"not measured: {what}")
    common.say(f"\n{write_summary(arguments, results)}")
    if failures:
        raise common.Failure("\n".join(failures))
    return 3 if unmeasured else 0


if __name__ == "__main__":
    sys.exit(common.run(main))
