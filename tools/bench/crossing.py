"""See crossing.sh."""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import common
import exchange_net
from common import Failure, say
from crossing_plot import draw
from reach import curve_of

WHAT = """\
At which link rate codistill and allreduce, with the same ranks and the same number of samples a step, reach a held-out PSNR equally soon.

  quality   trains --steps steps with each strategy on this machine without a laboratory, and notes the PSNR after every --eval-every steps:
            how many steps each needs to --target, the mean of its groups. Both strategies see the same pictures a step; the link has no part in it.
  net       the time of a step at each rate, read from what `codistill bench exchange --net --json FILE` wrote.
  plot      multiplies the two: time to the target against the rate, as SVG, with the rate where the curves cross. A computed
            figure, as all that the link does is to change a step's time; codistill's staleness in steps at each rate is in FILE.
  confirm   the direct test at one rate: trains with each strategy in the laboratory until the target, by the clock.

Each part writes a JSON file that the next one reads, so that they can be run one by one on an idle machine."""


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/bench/crossing.sh", description=WHAT, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("part", choices=["quality", "plot", "confirm"])
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--config", default=str(common.ROOT / "configs/sr-demo.yaml"), help="what to train (configs/sr-demo.yaml)")
    p.add_argument("--groups", type=int, default=2, metavar="N", help="ranks, and codistill's groups (2)")
    p.add_argument("--steps", type=int, default=6000, metavar="N", help="quality: of each training (6000); confirm: at most")
    p.add_argument("--eval-every", type=int, default=200, metavar="N", help="steps from one PSNR to the next (200)")
    p.add_argument("--target", type=float, metavar="DB", help="PSNR (plot: the best that both reach; confirm: needed)")
    p.add_argument("--rate", default="10mbit", help="confirm: of the link (10mbit)")
    p.add_argument("--seconds", type=float, default=3600, help="confirm: at most, with each strategy (3600)")
    p.add_argument("--quality", metavar="FILE", default="quality.json", help="written by quality, read by plot (quality.json)")
    p.add_argument("--net", metavar="FILE", default="net.json", help="read by plot (net.json)")
    p.add_argument("--confirmed", metavar="FILE", default="confirm.json", help="written by confirm; plot marks it when it is there (confirm.json)")
    p.add_argument("--svg", metavar="FILE", default="crossing.svg", help="written by plot (crossing.svg)")
    p.add_argument("overrides", nargs="*", metavar="key.path=value", help="further settings")
    arguments = p.parse_intermixed_args(argv)
    if arguments.part == "confirm" and arguments.target is None:
        p.error("confirm needs --target")
    if min(arguments.groups, arguments.steps, arguments.eval_every) < 1 or arguments.groups < 2:
        p.error("--groups is 2 or more, --steps and --eval-every are 1 or more")
    return arguments


def command_of(arguments, program, folder, strategy):
    """A training whose metrics tell the PSNR."""
    return [str(program), "train", arguments.config, f"name={strategy}", f"output={folder}", *exchange_net.layout(strategy, arguments.groups),
            f"train.steps={arguments.steps}", f"eval.every={arguments.eval_every}", f"log.every={arguments.eval_every}", "log.samples=0",
            "log.tensorboard=false", "checkpoint.every=0", *arguments.overrides]


def steps_to(curve, target):
    """The first step, between two evaluations by a straight line, at which the target is reached; None = never."""
    for (before, low), (after, high) in zip([(0, -math.inf), *curve], curve):
        if high >= target:
            return after if math.isinf(low) else before + (after - before) * (target - low) / (high - low)
    return None


def quality(arguments, program):
    curves = {}
    for strategy in exchange_net.STRATEGIES:
        with tempfile.TemporaryDirectory(prefix="codistill-quality-") as folder:
            command = command_of(arguments, program, folder, strategy)
            done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True)
            if done.returncode != 0:
                raise Failure(f"`{' '.join(command)}` ended with {done.returncode}: {' / '.join((done.stdout + done.stderr).strip().splitlines()[-3:])}")
            curves[strategy] = curve_of(pathlib.Path(folder) / strategy)
        say(f"{strategy}: {curves[strategy][-1][1]:.3f} dB after {curves[strategy][-1][0]} steps")
    pathlib.Path(arguments.quality).write_text(json.dumps({"arguments": vars(arguments), "curves": curves}, indent=1) + "\n")


def crossing_of(points):
    """The rate at which the quotient of the two times is 1, between two measured rates by a straight line in logarithms; None = none."""
    shaped = sorted((bits, math.log(other / ours)) for bits, ours, other in points if math.isfinite(bits))
    for (low, more), (high, less) in zip(shaped, shaped[1:]):
        if more >= 0 > less:
            return low * (high / low) ** (more / (more - less))
    return None


def read(path, made_by):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: {error}; {made_by} writes it") from None


def plot(arguments, _):
    curves = read(arguments.quality, "`crossing.sh quality`")["curves"]
    net = read(arguments.net, "`codistill bench exchange --net --json FILE`")
    confirmed = read(arguments.confirmed, "`crossing.sh confirm`") if os.path.exists(arguments.confirmed) else None
    best = min(max(db for _, db in curve) for curve in curves.values())
    target = arguments.target or math.floor(100 * best) / 100
    needed = {strategy: steps_to(curves[strategy], target) for strategy in exchange_net.STRATEGIES}
    if None in needed.values():
        raise Failure(f"{target} dB is not reached by both: {best:.3f} dB is; train longer or lower --target")
    say(f"steps to {target:.2f} dB: " + ", ".join(f"{strategy} {steps:.0f}" for strategy, steps in needed.items()))
    rows = [(exchange_net.bits(row["rate"]), row["rate"], *(row[s]["step_ms"] for s in exchange_net.STRATEGIES)) for row in net["rates"]]
    points = [(bits, needed["codistill"] * ours, needed["allreduce"] * other) for bits, _, ours, other in rows]
    for (bits, rate, ours, other), (_, mine, theirs) in zip(rows, points):
        say(f"{rate:>8}: codistill {ours:7.1f} ms a step, {mine / 1e3:8.1f} s to the target; allreduce {other:7.1f} ms, {theirs / 1e3:8.1f} s; "
            f"{theirs / mine:.2f} times sooner")
    crossing = crossing_of(points)
    step_crossing = crossing_of([(bits, ours, other) for bits, _, ours, other in rows])
    say("they cross at " + (f"{crossing / 1e6:.0f} Mbit/s" if crossing else "no rate between those measured"))
    pathlib.Path(arguments.svg).write_text(draw(rows, needed, target, crossing, step_crossing, confirmed))


def confirm(arguments, program):
    results = {}
    for strategy in exchange_net.STRATEGIES:
        with tempfile.TemporaryDirectory(prefix="codistill-confirm-") as folder:
            results[strategy] = reach(arguments, command_of(arguments, program, folder, strategy), pathlib.Path(folder), strategy)
        say(f"{strategy}: {arguments.target:.2f} dB after {results[strategy]['seconds']:.1f} s of training, step {results[strategy]['step']}")
    ratio = results["allreduce"]["seconds"] / results["codistill"]["seconds"]
    pathlib.Path(arguments.confirmed).write_text(json.dumps({"rate": arguments.rate, "target": arguments.target, **results}, indent=1) + "\n")
    say(f"codistill reaches it {ratio:.2f} times sooner")


def reach(arguments, command, folder, strategy):
    """Trains in a laboratory until the target; seconds from the first step on, its evaluations included."""
    run, seen = folder / strategy, folder / strategy / "reached.json"
    lab = [str(common.ROOT / "tools/netlab.sh"), "--hosts", str(arguments.groups), "--rate", arguments.rate, "--", sys.executable, "-B",
           str(pathlib.Path(__file__).with_name("reach.py")), str(run), str(arguments.target), str(arguments.seconds), "--", *command]
    done = subprocess.run(lab, cwd=common.ROOT, capture_output=True, text=True)
    if not seen.exists():
        raise Failure(f"{strategy} at {arguments.rate} did not reach {arguments.target} dB: {' / '.join((done.stdout + done.stderr).strip().splitlines()[-3:])}")
    return json.loads(seen.read_text())


def main(argv):
    arguments = parse(argv)
    program = common.find_program(arguments.codistill) if arguments.part != "plot" else None
    if arguments.part != "plot":
        common.describe_machine()
    {"quality": quality, "plot": plot, "confirm": confirm}[arguments.part](arguments, program)


if __name__ == "__main__":
    sys.exit(common.run(main))
