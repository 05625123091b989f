"""See step_vs_pytorch.sh."""
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from common import (Failure, Server, check_realtime, check_threads, describe_machine, environment, largest, median_of, parse, parser, quartiles,
                    run, say, spread, take_turns, warn)

VARIANTS = ("f32-eager", "f32-compile", "bf16-eager", "bf16-compile")
CHECKED_STEPS = 3
# f32 differs by the order of sums alone, over three updates too; a mean of bf16 predictions by far less than one's rounding, 2^-9.
TOLERANCE = {"f32": 1e-5, "bf16": 2e-3}
# Of losses after updates. Adam's first updates are as large as the rate whatever the gradient is, so that rounding decides the sign of small
# ones, and normalisation over few pictures enlarges that: after two updates of ResNet-50 on 4 pictures of 64x64 PyTorch in f32, channels-last
# or not, and Codistill are 0.3 to 0.5 % from the same steps in f64.
AFTER_UPDATES = {"resnet18": 5e-3, "resnet50": 2e-2}
# Batch, side of the crops or pictures, and options: a step of PyTorch's takes less than a second with one thread. networks.py has the networks.
SIZES = {
    "srresnet": (16, 24, ()),
    "msrresnet": (8, 24, ()),
    "edsr": (8, 24, ()),
    "rrdb": (1, 24, ()),
    "compact": (16, 24, ()),
    "resnet50": (8, 112, ()),
    "resnet18": (16, 112, ()),
    "cnn": (100, 28, ("channels=1",)),
    "mlp": (100, 28, ("channels=1", "hidden=1024,1024,1024,1024")),
    "logistic": (100, 28, ("channels=1",)),
}
WHAT = """\
Times a training step (forward, loss, backward, Adam) of networks against PyTorch on this machine. Both start from the same weights and
the same batch, and their losses over three steps must agree (relative difference 1e-5 in f32, 2e-3 in bf16; ResNets' after updates 5e-3
and 2e-2), else the comparison fails.
The loss is L1, or cross-entropy for classifiers. PyTorch's best of {f32, bf16 autocast} x {eager, torch.compile}, all channels-last with
fused Adam, is chosen by a first pass; then it and `codistill bench step` take turns step by step, each in a process of its own. bf16 is
left out on a processor that has no such numbers. PyTorch is installed by pip (90 s) in ~/.cache/codistill/venv-torch, or taken from the
virtual environment COD_BENCH_VENV.

At the end there is a table of all networks. The last line: ratio_1t X ratio_2t Y, PyTorch's median over ours with 1 and 2 threads; with
several networks a line for each, which begins with its name. Exit code 1: a comparison failed."""


@dataclasses.dataclass
class Case:
    """A network, and what is put into it."""
    model: str
    batch: int
    patch: int
    options: tuple

    def words(self):
        return f"{self.batch} of {self.patch}x{self.patch}" + "".join(f", {option}" for option in self.options)


def ours(arguments, case, precision, threads, export=None):
    command = [arguments.codistill, "bench", "step", "--device", "cpu", "--serve", "--model", case.model, "--precision", precision,
               "--threads", threads, "--batch", case.batch, "--patch", case.patch]
    command += ["--export", export] if export else []
    return Server([*command, *case.options], threads, arguments.realtime)


def theirs(arguments, python, folder, variant, threads, realtime):
    cache = pathlib.Path.home() / ".cache/codistill/inductor"
    return Server([python, pathlib.Path(__file__).with_name("step_pytorch.py"), folder, variant, threads], threads, realtime,
                  ready_s=arguments.compile_s if "compile" in variant else 300, TORCHINDUCTOR_CACHE_DIR=str(cache))


def losses(server):
    while len(server.answers) < CHECKED_STEPS:
        server.turn()
    return [answer["loss"] for answer in server.answers[:CHECKED_STEPS]]


def our_losses(arguments, case, folder):
    """Of each precision that is asked for and that the processor has; leaves weights and batch in `folder`."""
    found = {}
    for precision in ("f32", "bf16") if arguments.precision == "auto" else (arguments.precision,):
        try:
            with ours(arguments, case, precision, 1, folder) as server:
                found[precision] = losses(server)
        except Failure as failure:
            if precision != "bf16" or not found:
                raise
            warn(f"no bf16 on our side: {failure.said or failure}")
    return found


def check_losses(name, actual, expected, tolerance, after_updates=0.0):
    """The largest relative difference; `after_updates` may be larger than `tolerance`, which the first loss must keep."""
    differences = [abs(a - e) / abs(e) for a, e in zip(actual, expected)]
    for difference, allowed in zip(differences, [tolerance] + [max(tolerance, after_updates)] * len(differences)):
        if not difference <= allowed:
            raise Failure(f"{name} computes other losses than codistill: {actual} against {expected}; relative difference "
                          f"{difference:.2g}, allowed {allowed:.0e}: the two are not the same step")
    return largest(differences)


def start_compiled(arguments, python, folder, variant, threads):
    """Whether torch.compile comes to an end; what it compiled lies in the cache then. At ordinary priority."""
    try:
        with theirs(arguments, python, folder, variant, threads, False):
            return True
    except Failure as failure:
        warn(f"PyTorch {variant} is left out: {failure}")
        return False


def first_pass(arguments, case, python, folder, expected, threads):
    """PyTorch's fastest variant, after checking that each computes what we do, and the medians of all."""
    medians = {}
    for variant in arguments.variants:
        precision = variant.split("-")[0]
        if "compile" in variant and not start_compiled(arguments, python, folder, variant, threads):
            continue
        with theirs(arguments, python, folder, variant, threads, arguments.realtime) as server:
            wanted = expected.get(precision) or next(iter(expected.values()))
            worst = check_losses(f"PyTorch {variant}", losses(server), wanted, TOLERANCE[precision], AFTER_UPDATES.get(case.model, 0))
            medians[variant] = statistics.median(median_of(server, min(5, arguments.pairs)))
            say(f"  PyTorch {server.answers[0]['version']} {variant:13s} {medians[variant]:8.1f} ms; losses agree to {worst:.1e}; "
                f"peak RSS {server.rss_mib():.0f} MiB; first step after {server.first_s:.1f} s")
    if not medians:
        raise Failure("none of PyTorch's variants is left to compare with")
    return min(medians, key=medians.get), medians


def compare(arguments, case, python, folder, best, threads):
    with ours(arguments, case, arguments.precision, threads) as us, \
            theirs(arguments, python, folder, best, threads, arguments.realtime) as them:
        times = take_turns([us, them], arguments.pairs)
        ratio = statistics.median(times[1]) / statistics.median(times[0])
        pairs = [b / a for a, b in zip(*times)]
        low, high = quartiles(pairs)
        for name, server, values in ((f"Codistill {us.answers[0]['precision']}", us, times[0]), (f"PyTorch {best}", them, times[1])):
            say(f"  {name:21s} {spread(values)}; peak RSS {server.rss_mib():.0f} MiB; first step after {server.first_s:.2f} s")
        say(f"  ratio {ratio:.2f} (of single pairs: quartiles {low:.2f} and {high:.2f}, from {min(pairs):.2f} to {max(pairs):.2f}), "
            f"peak RSS {us.rss_mib() / them.rss_mib():.2f} of PyTorch's")
        return {"model": case.model, "batch": case.words(), "threads": threads, "best": best, "precision": us.answers[0]["precision"],
                "pytorch": them.answers[0]["version"], "ratio": ratio, "ours_ms": times[0], "pytorch_ms": times[1],
                "rss_mib": [us.rss_mib(), them.rss_mib()], "first_step_s": [us.first_s, them.first_s]}


def compare_network(arguments, case, python, counts, results):
    """Appends a result for each number of threads."""
    say(f"{case.model}, batch {case.words()}")
    with tempfile.TemporaryDirectory(prefix="cod-bench-") as folder:
        expected = our_losses(arguments, case, folder)
        for threads in counts:
            say(f"{threads} thread{'s' if threads > 1 else ''}")
            best, medians = first_pass(arguments, case, python, folder, expected, threads)
            results.append({**compare(arguments, case, python, folder, best, threads), "first_pass_ms": medians,
                            "without": [variant for variant in arguments.variants if variant not in medians]})


def ms(times):
    median = statistics.median(times)
    return f"{median:.0f}" if median >= 100 else f"{median:.1f}" if median >= 10 else f"{median:.2f}"


def table(results, missing):
    """Markdown; `missing`: why a network has no figures, by its name."""
    lines = ["| network | batch | threads | PyTorch's best | ms | Codistill | ms | ratio |", "| --- | --- | ---: | --- | ---: | --- | ---: | ---: |"]
    for r in results:
        best = r["best"] + (f" (without {', '.join(r['without'])})" if r["without"] else "")
        lines.append(f"| {r['model']} | {r['batch']} | {r['threads']} | {best} | {ms(r['pytorch_ms'])} | {r['precision']} | {ms(r['ours_ms'])} | "
                     f"{r['ratio']:.2f} |")
    return "\n".join(lines + [f"| {name} | | | not compared: {why} | | | | |" for name, why in missing.items()])


def variants_of(wanted, machine, precision="auto"):
    """PyTorch's variants to try, as --variants lists them; without such a list all of the precision but those that this processor would only
    emulate, for minutes."""
    if wanted is not None:
        return wanted.split(",")
    asked = [name for name in VARIANTS if precision in ("auto", name.split("-")[0])]
    emulated = [name for name in asked if name.startswith("bf16")] if not machine["bf16"] and precision == "auto" else []
    if emulated:
        warn(f"{', '.join(emulated)}: left out, because this processor has no bf16 and PyTorch would emulate it; --variants tries them")
    return [name for name in asked if name not in emulated]


def our_models(codistill):
    """The names that `codistill models` lists."""
    done = subprocess.run([codistill, "models"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"`{codistill} models` failed: {done.stderr.strip()}")
    return re.findall(r"^(\w+): ", done.stdout, re.MULTILINE)


def choose(arguments):
    """What is compared, and why others are not, by name."""
    there = our_models(arguments.codistill)
    wanted = list(dict.fromkeys(name for model in arguments.model or ["srresnet"] for name in (there if model == "all" else [model])))
    missing = {}
    for name in wanted:
        if name not in there:
            raise Failure(f"there is no model '{name}'; `codistill models` lists {', '.join(there)}")
        if name not in SIZES:
            missing[name] = "PyTorch's side does not know it: tools/bench/networks.py and SIZES in step_vs_pytorch.py lack it"
            warn(f"{name} is not compared: {missing[name]}")
    cases = [Case(name, arguments.batch or SIZES[name][0], arguments.patch or SIZES[name][1], SIZES[name][2])
             for name in wanted if name not in missing]
    if arguments.options:
        given = {option.split("=")[0] for option in arguments.options}
        cases[0].options = (*[o for o in cases[0].options if o.split("=")[0] not in given], *arguments.options)
    return cases, missing


def read_arguments(argv):
    p = parser("step_vs_pytorch.sh", WHAT)
    p.add_argument("--model", action="append", metavar="NAME",
                   help=f"network to compare (srresnet); may be repeated; all = every one that `codistill models` lists. PyTorch's side knows "
                        f"{', '.join(SIZES)}")
    p.add_argument("--batch", type=int, metavar="N", help="pictures a step (what is usual for the network, such as 16 for srresnet)")
    p.add_argument("--patch", type=int, metavar="N", help="side of the low-resolution crops or the pictures (likewise; 24 for srresnet)")
    p.add_argument("--precision", default="auto", choices=("auto", "f32", "bf16"), help="ours; PyTorch's variants are of the same, or of both (auto)")
    p.add_argument("--variants", metavar="LIST", help=f"PyTorch's variants to try ({','.join(VARIANTS)}, of which the processor has the type)")
    p.add_argument("--compile-s", type=int, default=600, metavar="N", help="seconds for one torch.compile, which is left out if it takes longer (600)")
    p.add_argument("options", nargs="*", metavar="option=value", help="options of the model, such as blocks=8, where one network is compared")
    arguments = parse(p, argv)
    if unknown := set((arguments.variants or VARIANTS[0]).split(",")) - set(VARIANTS):
        p.error(f"there is no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    if any("=" not in option for option in arguments.options):
        p.error(f"'{' '.join(arguments.options)}' is no list of option=value")
    if arguments.options and (len(arguments.model or [""]) > 1 or arguments.model == ["all"]):
        p.error("options of a model go with one --model")
    return arguments


def main(argv):
    arguments = read_arguments(argv)
    cases, missing = choose(arguments)
    report = {"machine": describe_machine(), "results": [], "missing": missing}
    arguments.variants = variants_of(arguments.variants, report["machine"], arguments.precision)
    if not cases:
        raise Failure("no network is left to compare")
    check_realtime(arguments)
    counts = check_threads(arguments)
    python = environment("torch", ["torch", "numpy"], "/opt/codvenv")
    say(f"{arguments.codistill}")
    failed = False
    for case in cases:
        try:
            compare_network(arguments, case, python, counts, report["results"])
        except Failure as failure:
            if len(cases) == 1:
                raise
            failed = True
            missing[case.model] = "failed, see above"
            warn(f"{case.model}: {failure}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    say()
    say(table(report["results"], missing))
    say()
    for case in cases:
        ratios = [f"ratio_{r['threads']}t {r['ratio']:.2f}" for r in report["results"] if r["model"] == case.model]
        if ratios:
            say(" ".join(([case.model] if len(cases) > 1 else []) + ratios))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(main))
