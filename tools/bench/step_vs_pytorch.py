"""See step_vs_pytorch.sh."""
import json
import pathlib
import statistics
import sys
import tempfile

from common import (Failure, Server, check_realtime, check_threads, describe_machine, environment, largest, median_of, parse, parser, quartiles,
                    run, say, spread, take_turns, warn)

VARIANTS = ("f32-eager", "f32-compile", "bf16-eager", "bf16-compile")
CHECKED_STEPS = 3
# f32 differs by the order of sums alone, over three updates too; a mean of bf16 predictions by far less than one's rounding, 2^-9.
TOLERANCE = {"f32": 1e-5, "bf16": 2e-3}
WHAT = """\
Times a training step (forward, L1, backward, Adam) of SRResNet against PyTorch on this machine. Both start from the same weights and the
same batch, and their losses over three steps must agree (relative difference 1e-5 in f32, 2e-3 in bf16), else the comparison fails.
PyTorch's best of {f32, bf16 autocast} x {eager, torch.compile}, all channels-last with fused Adam, is chosen by a first pass; then it and
`codistill bench step` take turns step by step, each in a process of its own. bf16 is left out on a processor that has no such numbers. PyTorch is installed by pip (90 s) in
~/.cache/codistill/venv-torch, or taken from the virtual environment COD_BENCH_VENV.

The last line: ratio_1t X ratio_2t Y, PyTorch's median over ours with 1 and 2 threads."""


def ours(arguments, precision, threads, export=None):
    command = [arguments.codistill, "bench", "step", "--device", "cpu", "--serve", "--precision", precision, "--threads", threads,
               "--batch", arguments.batch, "--patch", arguments.patch]
    command += ["--export", export] if export else []
    return Server([*command, f"blocks={arguments.blocks}", f"channels={arguments.channels}"], threads, arguments.realtime)


def theirs(arguments, python, folder, variant, threads, realtime):
    cache = pathlib.Path.home() / ".cache/codistill/inductor"
    return Server([python, pathlib.Path(__file__).with_name("step_pytorch.py"), folder, variant, threads], threads, realtime,
                  TORCHINDUCTOR_CACHE_DIR=str(cache))


def losses(server):
    while len(server.answers) < CHECKED_STEPS:
        server.turn()
    return [answer["loss"] for answer in server.answers[:CHECKED_STEPS]]


def our_losses(arguments, folder):
    """Of each precision that the processor has; leaves weights and batch in `folder`."""
    found = {}
    with ours(arguments, "f32", 1, folder) as server:
        found["f32"] = losses(server)
    try:
        with ours(arguments, "bf16", 1) as server:
            found["bf16"] = losses(server)
    except Failure as failure:
        warn(f"no bf16 on our side: {failure.said or failure}")
    return found


def check_losses(name, actual, expected, tolerance):
    worst = largest(abs(a - e) / abs(e) for a, e in zip(actual, expected))
    if not worst <= tolerance:
        raise Failure(f"{name} computes other losses than codistill: {actual} against {expected}; largest relative difference "
                      f"{worst:.2g}, allowed {tolerance:.0e}: the two are not the same step")
    return worst


def first_pass(arguments, python, folder, expected, threads):
    """PyTorch's fastest variant, after checking that each computes what we do."""
    medians = {}
    for variant in arguments.variants:
        precision = variant.split("-")[0]
        if arguments.realtime and "compile" in variant:
            with theirs(arguments, python, folder, variant, threads, False):
                pass  # compiles at ordinary priority, into the cache
        with theirs(arguments, python, folder, variant, threads, arguments.realtime) as server:
            worst = check_losses(f"PyTorch {variant}", losses(server), expected.get(precision, expected["f32"]), TOLERANCE[precision])
            medians[variant] = statistics.median(median_of(server, 5))
            say(f"  PyTorch {server.answers[0]['version']} {variant:13s} {medians[variant]:8.1f} ms; losses agree to {worst:.1e}; "
                f"peak RSS {server.rss_mib():.0f} MiB; first step after {server.first_s:.1f} s")
    return min(medians, key=medians.get), medians


def compare(arguments, python, folder, best, threads):
    with ours(arguments, "auto", threads) as us, theirs(arguments, python, folder, best, threads, arguments.realtime) as them:
        times = take_turns([us, them], arguments.pairs)
        ratio = statistics.median(times[1]) / statistics.median(times[0])
        pairs = [b / a for a, b in zip(*times)]
        low, high = quartiles(pairs)
        for name, server, values in ((f"Codistill {us.answers[0]['precision']}", us, times[0]), (f"PyTorch {best}", them, times[1])):
            say(f"  {name:21s} {spread(values)}; peak RSS {server.rss_mib():.0f} MiB; first step after {server.first_s:.2f} s")
        say(f"  ratio {ratio:.2f} (of single pairs: quartiles {low:.2f} and {high:.2f}, from {min(pairs):.2f} to {max(pairs):.2f}), "
            f"peak RSS {us.rss_mib() / them.rss_mib():.2f} of PyTorch's")
        return {"threads": threads, "best": best, "ratio": ratio, "ours_ms": times[0], "pytorch_ms": times[1],
                "rss_mib": [us.rss_mib(), them.rss_mib()], "first_step_s": [us.first_s, them.first_s]}


def variants_of(wanted, machine):
    """PyTorch's variants to try, as --variants lists them; without such a list all but those that this processor would only emulate, for minutes."""
    if wanted is not None:
        return wanted.split(",")
    emulated = [] if machine["bf16"] else [name for name in VARIANTS if name.startswith("bf16")]
    if emulated:
        warn(f"{', '.join(emulated)}: left out, because this processor has no bf16 and PyTorch would emulate it; --variants tries them")
    return [name for name in VARIANTS if name not in emulated]


def main(argv):
    p = parser("step_vs_pytorch.sh", WHAT)
    for name, default, what in (("batch", 16, "pictures a step"), ("patch", 24, "side of the low-resolution crops"),
                                ("blocks", 16, "SRResNet's blocks"), ("channels", 64, "and channels")):
        p.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} ({default})")
    p.add_argument("--variants", metavar="LIST", help=f"PyTorch's variants to try ({','.join(VARIANTS)}, of which the processor has the type)")
    arguments = parse(p, argv)
    if unknown := set((arguments.variants or VARIANTS[0]).split(",")) - set(VARIANTS):
        p.error(f"there is no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    report = {"machine": describe_machine(), "results": []}
    arguments.variants = variants_of(arguments.variants, report["machine"])
    check_realtime(arguments)
    counts = check_threads(arguments)
    python = environment("torch", ["torch", "numpy"], "/opt/codvenv")
    say(f"SRResNet {arguments.blocks} x {arguments.channels}, batch {arguments.batch} of {arguments.patch}x{arguments.patch}; {arguments.codistill}")
    with tempfile.TemporaryDirectory(prefix="cod-bench-") as folder:
        expected = our_losses(arguments, folder)
        for threads in counts:
            say(f"{threads} thread{'s' if threads > 1 else ''}")
            best, medians = first_pass(arguments, python, folder, expected, threads)
            report["results"].append({**compare(arguments, python, folder, best, threads), "first_pass_ms": medians})
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    say(" ".join(f"ratio_{r['threads']}t {r['ratio']:.2f}" for r in report["results"]))


if __name__ == "__main__":
    sys.exit(run(main))
