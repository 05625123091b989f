"""See gan_vs_pytorch.sh."""
import json
import os
import pathlib
import statistics
import sys
import tempfile

from common import (ROOT, Failure, Server, check_realtime, check_threads, describe_machine, environment, largest, median_of, parse, parser,
                    quartiles, run, say, spread, take_turns, warn)
from step_vs_pytorch import VARIANTS

CHECKED_STEPS = 3
VGG_FILE = "weights/vgg19_conv1_1_to_conv3_4.safetensors"
# f32 differs by the order of sums, which Adam's first updates enlarge where gradients are small; bf16 by each side's roundings.
TOLERANCE = {"f32": 1e-3, "bf16": 5e-2}
WHAT = """\
Times a step of SRGAN (Ledig et al. 2017) against PyTorch on this machine: SRResNet, the discriminator of 8 convolutions and a fully
connected layer of 1024, the content loss between features of VGG-19 behind conv2_2, Adam for both networks. Both sides start from the
same weights and the same batch. Their losses must agree over three steps (relative difference 1e-3 in f32, 5e-2 in bf16), else the
comparison fails. PyTorch's best of {f32, bf16 autocast} x {eager, torch.compile}, all channels-last with fused Adam, is chosen by a first
pass; then it and `codistill bench step --recipe srgan` take turns step by step, each in a process of its own. VGG's part is what a step
takes longer than one whose content loss is between pixels. PyTorch is installed by pip in ~/.cache/codistill/venv-torch, or taken from the
virtual environment COD_BENCH_VENV.

The last line: ratio_1t X ratio_2t Y, PyTorch's median over ours with 1 and 2 threads."""


def ours(arguments, precision, threads, vgg, export=None):
    command = [arguments.codistill, "bench", "step", "--recipe", "srgan", "--device", "cpu", "--serve", "--precision", precision,
               "--threads", threads, "--batch", arguments.batch, "--patch", arguments.patch]
    command += ["--export", export] if export else []
    command += ["gan.content=vgg22", f"gan.perceptual_file={vgg}"] if vgg else []
    return Server([*command, f"blocks={arguments.blocks}", f"channels={arguments.channels}"], threads, arguments.realtime)


def theirs(arguments, python, folder, variant, threads, vgg, realtime):
    cache = pathlib.Path.home() / ".cache/codistill/inductor"
    return Server([python, pathlib.Path(__file__).with_name("gan_pytorch.py"), folder, variant, threads, vgg or "none"], threads, realtime,
                  TORCHINDUCTOR_CACHE_DIR=str(cache))


def losses(server):
    while len(server.answers) < CHECKED_STEPS:
        server.turn()
    return [answer["losses"] for answer in server.answers[:CHECKED_STEPS]]


def our_losses(arguments, folder):
    """Of each precision that the processor has; leaves weights and batch in `folder`."""
    found = {}
    with ours(arguments, "f32", max(arguments.threads), arguments.vgg, folder) as server:
        found["f32"] = losses(server)
    try:
        with ours(arguments, "bf16", max(arguments.threads), arguments.vgg) as server:
            found["bf16"] = losses(server)
    except Failure as failure:
        warn(f"no bf16 on our side: {failure.said or failure}")
    return found


def check_losses(name, actual, expected, tolerance):
    """The largest relative difference of any loss in any step."""
    differences = {(step, loss): abs(a[loss] - e[loss]) / abs(e[loss])
                   for step, (a, e) in enumerate(zip(actual, expected)) for loss in e}
    worst = largest(differences.values())
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
            with theirs(arguments, python, folder, variant, threads, arguments.vgg, False):
                pass  # compiles at ordinary priority, into the cache
        with theirs(arguments, python, folder, variant, threads, arguments.vgg, arguments.realtime) as server:
            worst = check_losses(f"PyTorch {variant}", losses(server), expected.get(precision, expected["f32"]), TOLERANCE[precision])
            medians[variant] = statistics.median(median_of(server, 3))
            say(f"  PyTorch {server.answers[0]['version']} {variant:13s} {medians[variant]:8.1f} ms; losses agree to {worst:.1e}; "
                f"peak RSS {server.rss_mib():.0f} MiB; first step after {server.first_s:.1f} s")
    return min(medians, key=medians.get), medians


def take_pairs(arguments, python, folder, best, threads, vgg):
    """Times of both in turns, ours first; and largest resident memory, and our precision."""
    with ours(arguments, "auto", threads, vgg) as us, \
            theirs(arguments, python, folder, best, threads, vgg, arguments.realtime) as them:
        times = take_turns([us, them], arguments.pairs)
        return times, [us.rss_mib(), them.rss_mib()], us.answers[0]["precision"]


def compare(arguments, python, folder, best, threads):
    times, rss, precision = take_pairs(arguments, python, folder, best, threads, arguments.vgg)
    pixels, _, _ = take_pairs(arguments, python, folder, best, threads, None)
    medians, without = [statistics.median(t) for t in times], [statistics.median(t) for t in pixels]
    low, high = quartiles([b / a for a, b in zip(*times)])
    for i, name in enumerate((f"Codistill {precision}", f"PyTorch {best}")):
        vgg = medians[i] - without[i]
        say(f"  {name:21s} {spread(times[i])}; VGG's part {vgg:.1f} ms ({100 * vgg / medians[i]:.0f} %); peak RSS {rss[i]:.0f} MiB")
    say(f"  ratio {medians[1] / medians[0]:.2f} (of single pairs: quartiles {low:.2f} and {high:.2f}), without VGG {without[1] / without[0]:.2f}, "
        f"VGG's part alone {(medians[1] - without[1]) / (medians[0] - without[0]):.2f}")
    return {"threads": threads, "best": best, "ratio": medians[1] / medians[0], "ours_ms": times[0], "pytorch_ms": times[1],
            "ours_pixels_ms": pixels[0], "pytorch_pixels_ms": pixels[1], "rss_mib": rss}


def find_vgg(given):
    data = pathlib.Path(os.environ.get("COD_DATA", ROOT / "data"))
    path = pathlib.Path(given or data / VGG_FILE).absolute()
    if not path.is_file():
        raise Failure(f"{path} is not there: name a file of VGG-19 by torchvision's names with --vgg, or the shared data in COD_DATA")
    return path


def main(argv):
    p = parser("gan_vs_pytorch.sh", WHAT)
    for name, default, what in (("batch", 16, "pictures a step"), ("patch", 24, "side of the low-resolution crops"),
                                ("blocks", 16, "SRResNet's blocks"), ("channels", 64, "and channels")):
        p.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} ({default})")
    p.add_argument("--variants", default=",".join(VARIANTS), metavar="LIST", help=f"PyTorch's variants to try ({','.join(VARIANTS)})")
    p.add_argument("--vgg", metavar="FILE", help=f"VGG-19's weights, trained on Caffe's input ({VGG_FILE} of the shared data)")
    arguments = parse(p, argv)
    arguments.variants = arguments.variants.split(",")
    if unknown := set(arguments.variants) - set(VARIANTS):
        p.error(f"there is no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    arguments.vgg = find_vgg(arguments.vgg)
    report = {"machine": describe_machine(), "results": []}
    check_realtime(arguments)
    counts = check_threads(arguments)
    python = environment("torch", ["torch", "numpy"], "/opt/codvenv")
    say(f"SRGAN, SRResNet {arguments.blocks} x {arguments.channels}, batch {arguments.batch} of {arguments.patch}x{arguments.patch}; {arguments.codistill}")
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
