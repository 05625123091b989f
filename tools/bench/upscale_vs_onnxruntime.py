"""See upscale_vs_onnxruntime.sh."""
import array
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from common import Failure, Server, check_realtime, check_threads, describe_machine, environment, largest, parse, parser, run, say, spread, take_turns

PRECISIONS = ("f32", "bf16", "int8")
TOLERANCE = 1e-3
WHAT = """\
Times SRResNet on one whole picture against ONNX Runtime in f32, which runs the same model as `codistill export` writes it. Our f32 result
must agree with ONNX Runtime's (largest difference 1e-3 of the largest value), else the comparison fails. All take turns, each in a process of its own;
only the forward pass is timed. With --model (trained) and --data (pictures, such as Set5's) `codistill eval` tells what bf16 and int8 lose
in PSNR. A precision that this build or processor does not have is shown as -. ONNX Runtime is installed by pip in
~/.cache/codistill/venv-onnx, or taken from the virtual environment COD_BENCH_VENV.

The last line: ratio_bf16 X ratio_int8 Y psnr_loss_int8 Z ratio_f32 W, ONNX Runtime's f32 median over ours, with the first of --threads; dB on Y."""


def command(arguments, *parts):
    """Runs codistill; its standard output."""
    done = subprocess.run([str(arguments.codistill), *map(str, parts)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"`codistill {' '.join(map(str, parts))}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def make_files(arguments, folder):
    """The model, its ONNX form and a random picture; a model with initial weights where none is given."""
    model = arguments.model
    if model is None:
        command(arguments, "bench", "step", "--device", "cpu", "--batch", 1, "--patch", 8, "--repeats", 1, "--export", folder)
        model = folder / "model.safetensors"
    command(arguments, "export", model, "-o", folder / "model.onnx")
    random.seed(1)
    picture = array.array("f", (random.random() for _ in range(arguments.width * arguments.height * 3)))
    (folder / "input.f32").write_bytes(picture.tobytes())
    return model


def largest_difference(first, second):
    """Of two raw f32 files, relative to the largest value of the first."""
    a, b = array.array("f", first.read_bytes()), array.array("f", second.read_bytes())
    if len(a) != len(b) or not a:
        raise Failure(f"the two results have {len(a)} and {len(b)} values")
    return largest(abs(x - y) for x, y in zip(a, b)) / max(1.0, largest(map(abs, a)))


def ours(arguments, model, folder, precision, threads):
    return Server([arguments.codistill, "bench", "upscale", model, "--device", "cpu", "--serve", "--precision", precision, "--threads", threads,
                   "--size", f"{arguments.width}x{arguments.height}", "--tile", max(arguments.width, arguments.height, 8),
                   "--input", folder / "input.f32", "--output", folder / f"{precision}.f32"], threads, arguments.realtime)


def measure(arguments, python, model, folder, threads):
    """Medians by name: "onnxruntime" and each precision that there is."""
    servers = {"onnxruntime": Server([python, pathlib.Path(__file__).with_name("upscale_onnxruntime.py"), folder / "model.onnx", threads,
                                      arguments.width, arguments.height, folder / "input.f32", folder / "onnxruntime.f32"],
                                     threads, arguments.realtime)}
    try:
        for precision in PRECISIONS:
            try:
                servers[precision] = ours(arguments, model, folder, precision, threads)
            except Failure as failure:
                if precision == "f32":
                    raise
                say(f"  {precision}: - ({failure.said or failure})")
        for precision in list(servers)[1:]:
            difference = largest_difference(folder / "onnxruntime.f32", folder / f"{precision}.f32")
            say(f"  {precision}: largest difference from ONNX Runtime {difference:.1e} of the largest value")
            if precision == "f32" and not difference <= TOLERANCE:
                raise Failure(f"our f32 result is not ONNX Runtime's: {difference:.2g}, allowed {TOLERANCE:.0e}")
        times = dict(zip(servers, take_turns(list(servers.values()), arguments.pairs)))
        version = servers["onnxruntime"].answers[0]["version"]
        reference = statistics.median(times["onnxruntime"])
        for name, values in times.items():
            label = f"ONNX Runtime {version} f32" if name == "onnxruntime" else f"Codistill {name}"
            ratio = "" if name == "onnxruntime" else f"; ratio {reference / statistics.median(values):.2f}"
            say(f"  {label:24s} {spread(values)}; peak RSS {servers[name].rss_mib():.0f} MiB; first after {servers[name].first_s:.2f} s{ratio}")
        return times
    finally:
        for server in servers.values():
            server.__exit__()


def psnr(arguments, model, precisions):
    """PSNR on Y of each precision, and what it loses against f32."""
    found = {}
    for precision in precisions:
        text = command(arguments, "eval", model, "--data", arguments.data, "--precision", precision, "--json")
        found[precision] = json.loads(text)["mean"]["psnr_y"]
        say(f"  {precision}: {found[precision]:.3f} dB, {found['f32'] - found[precision]:.3f} less than f32")
    return found


def last_line(times, quality):
    """Of times by name and PSNR by precision; - stands for what there is none of."""
    ratios = {name: f"{statistics.median(times['onnxruntime']) / statistics.median(values):.2f}" for name, values in times.items()}
    loss = f"{quality['f32'] - quality['int8']:.3f}" if "int8" in quality else "-"
    return f"ratio_bf16 {ratios.get('bf16', '-')} ratio_int8 {ratios.get('int8', '-')} psnr_loss_int8 {loss} ratio_f32 {ratios['f32']}"


def main(argv):
    p = parser("upscale_vs_onnxruntime.sh", WHAT)
    p.add_argument("--size", default="150x100", metavar="WxH", help="of the low-resolution picture (150x100)")
    p.add_argument("--model", type=pathlib.Path, metavar="FILE", help="a model (.safetensors); without: SRResNet 16 x 64 with initial weights")
    p.add_argument("--data", type=pathlib.Path, metavar="DIR", help="pictures to evaluate --model on")
    arguments = parse(p, argv)
    try:
        arguments.width, arguments.height = map(int, arguments.size.split("x"))
    except ValueError:
        p.error(f"--size: '{arguments.size}' is no WIDTHxHEIGHT")
    if arguments.data and not arguments.model:
        p.error("--data needs --model: initial weights restore nothing")
    report = {"machine": describe_machine(), "results": []}
    check_realtime(arguments)
    counts = check_threads(arguments)
    python = environment("onnx", ["onnxruntime", "numpy"], "/opt/codonnx")
    with tempfile.TemporaryDirectory(prefix="cod-bench-") as name:
        folder = pathlib.Path(name)
        model = make_files(arguments, folder)
        say(f"{model if arguments.model else 'SRResNet 16 x 64, initial weights'}, a picture of {arguments.size}; {arguments.codistill}")
        for threads in counts:
            say(f"{threads} thread{'s' if threads > 1 else ''}")
            report["results"].append({"threads": threads, "ms": measure(arguments, python, model, folder, threads)})
        times = report["results"][0]["ms"]
        quality = {}
        if arguments.data:
            say(f"PSNR on {arguments.data}")
            quality = report["psnr"] = psnr(arguments, model, list(times)[1:])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    say(last_line(times, quality))


if __name__ == "__main__":
    sys.exit(run(main))
