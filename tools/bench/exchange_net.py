"""See exchange_net.sh."""
import argparse
import json
import math
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import common
from common import Failure, say

WARM_UP_STEPS = 20
POLL_S = 0.01
GROUPS = 2
STRATEGIES = {"codistill": ["cluster.groups=2", "cluster.ranks_per_group=1"], "allreduce": ["cluster.groups=1", "cluster.ranks_per_group=2"]}
WHAT = """\
Trains a config on two hosts of a laboratory network (tools/netlab.sh), one rank each, at each of some link rates, as codistill (two
groups) and as allreduce (one group), each for --seconds. Reported over the steps after the first 20: the median and 99th percentile of a step, bytes
that crossed the link per step (counters of the interface, headers and acknowledgements included), processor time per second and rank, and the
time from a publication to its use by the other group. `wire` is the time that a ring all-reduce's bytes need at that rate, nothing else.
`fewer` is allreduce's bytes per step over codistill's; the goal is 0.9 x 2 x ratio x period / groups, with the ratio of 4 bytes a
weight to the bytes published. Teachers run from the first pull on (distill.burn_in=0), so that their cost is in the steps."""


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/bench/exchange_net.sh", description=WHAT, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="last line: `slowdown X fewer Y goal Z speedup W` at the lowest rate: codistill's median step there over "
                                "the one at the highest rate, the bytes, and allreduce's median step over codistill's")
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--config", default=str(common.ROOT / "configs/sr-demo.yaml"), help="what to train (configs/sr-demo.yaml)")
    p.add_argument("--rates", default="none,1gbit,100mbit,20mbit,10mbit", metavar="LIST",
                   help="of the links, highest first (none,1gbit,100mbit,20mbit,10mbit)")
    p.add_argument("--seconds", type=float, default=30, help="of training at each rate with each strategy (30)")
    p.add_argument("--json", metavar="FILE", help="also writes everything measured")
    p.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    p.add_argument("overrides", nargs="*", metavar="key.path=value", help="further settings")
    arguments = p.parse_args(argv)
    if arguments.seconds <= 0:
        p.error("--seconds is above 0")
    arguments.rates = arguments.rates.split(",")
    if not all(re.fullmatch("none|[0-9.]+(kbit|mbit|gbit)", rate) for rate in arguments.rates):
        p.error("there are rates such as none, 1gbit and 10mbit")
    return arguments


# On host0: starts the training and watches what it writes, and the interface.

def crossed_bytes():
    folder = pathlib.Path("/sys/class/net/eth0/statistics")
    return sum(int((folder / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


class Tail:
    """A file of JSON lines that grows; each line with the time when it was there, and the interface's counter."""

    def __init__(self, path):
        self.path, self.at, self.lines = path, 0, []

    def read(self, now, crossed):
        if self.path.exists() and self.path.stat().st_size > self.at:
            with open(self.path, encoding="utf-8") as file:
                file.seek(self.at)
                text = file.read()
            complete = text[:text.rfind("\n") + 1]
            self.at += len(complete)
            self.lines += [{**json.loads(line), "seen_s": now, "crossed": crossed} for line in complete.splitlines()]


def measure(run, command):
    """Runs `command`, which trains into the folder `run`; writes what it saw as JSON beside it."""
    tails = {f"{kind}.{group}": Tail(run / f"{kind}.{group}.jsonl") for kind in ("metrics", "exchange") for group in range(GROUPS)}
    process = subprocess.Popen(command)
    while process.poll() is None:
        now, crossed = time.monotonic(), crossed_bytes()
        for tail in tails.values():
            tail.read(now, crossed)
        time.sleep(POLL_S)
    (run / "seen.json").write_text(json.dumps({name: tail.lines for name, tail in tails.items()}))
    return process.returncode


# Outside: one laboratory a rate and strategy.

def train(arguments, program, folder, rate, strategy):
    """What was seen of one training, with the laboratory's own report."""
    name = f"{strategy}-{rate}"
    run, report = pathlib.Path(folder) / name, pathlib.Path(folder) / f"{name}.net.json"
    command = [str(program), "train", arguments.config, f"name={name}", f"output={folder}", f"train.strategy={strategy}", *STRATEGIES[strategy],
               f"train.max_time={arguments.seconds}", "distill.burn_in=0", "distill.ramp=1", "log.every=1", "log.samples=0", "log.tensorboard=false",
               "eval.every=0", "checkpoint.every=0", *arguments.overrides]
    lab = [str(common.ROOT / "tools/netlab.sh"), "--hosts", "2", "--rate", rate, "--json", str(report), "--", sys.executable, "-B", __file__,
           "--measure", str(run), "--", *command]
    with open(pathlib.Path(folder) / f"{name}.log", "w+") as log:
        job = subprocess.Popen(lab, stdout=log, stderr=log, cwd=common.ROOT)
        try:
            code = job.wait(arguments.seconds * 3 + 120)
        except BaseException as error:
            job.send_signal(signal.SIGKILL)
            job.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failure(f"`{' '.join(command)}` at {rate} did not end") from None
            raise
        if code != 0:
            log.seek(0)
            raise Failure(f"`{' '.join(command)}` at {rate} ended with {code}: {' / '.join(log.read().strip().splitlines()[-3:])}")
    return json.loads((run / "seen.json").read_text()), weights_of(run), json.loads(report.read_text())


def weights_of(run):
    """How many a group trains, from the checkpoint that --seconds ended with."""
    with open(next(run.glob("checkpoints/step-*/group-0.safetensors")), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return header["values"]["shape"][0]


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def delays(seen):
    """Seconds and steps of the user from each publication to its use by the other group."""
    found = []
    for group in range(GROUPS):
        published = {line["version"]: line for line in seen[f"exchange.{1 - group}"] if line["kind"] == "publish"}
        for line in seen[f"exchange.{group}"]:
            if line["kind"] == "switch" and line["version"] in published:
                found.append((line["seen_s"] - published[line["version"]]["seen_s"], line["step"] - line["peer_step"]))
    return found


def evaluate(strategy, rate, seen, weights, net):
    groups = GROUPS if strategy == "codistill" else 1
    lines = [[line for line in seen[f"metrics.{g}"] if line["step"] > WARM_UP_STEPS] for g in range(groups)]
    if any(len(found) < 3 for found in lines):
        raise Failure(f"{strategy} at {rate} made fewer than {WARM_UP_STEPS + 3} steps; give it more --seconds")
    times = [line["step_ms"] for found in lines for line in found]
    first, last = lines[0][0], lines[0][-1]
    result = {"strategy": strategy, "rate": rate, "steps": [len(found) for found in lines], "weights": weights,
              "step_ms": statistics.median(times), "step_ms_p99": percentile(times, 0.99), "step_ms_mean": statistics.fmean(times),
              "bytes_per_step": (last["crossed"] - first["crossed"]) / (last["step"] - first["step"]),
              "processors": net["processor_s"] / net["wall_s"] / GROUPS, "net": net}
    if strategy == "codistill":
        uses = delays(seen)
        publications = sum(line["kind"] == "publish" for g in range(groups) for line in seen[f"exchange.{g}"])
        published = sum(found[-1]["published_bytes"] for found in lines)
        result |= {"publications": publications, "uses": len(uses), "rejected": sum(found[-1]["rejected"] for found in lines)}
        result |= {"use_s": statistics.median(s for s, _ in uses), "use_s_p99": percentile([s for s, _ in uses], 0.99),
                   "use_steps": statistics.median(n for _, n in uses)} if uses else {}
        result |= {"ratio": 4 * weights * publications / published} if published else {}
    return result


def bits(rate):
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    return math.inf if rate == "none" else float(rate[:-4]) * units[rate[-4:]]


def compare(codistill, allreduce, period):
    """The row of a rate."""
    payload = 4 * allreduce["weights"]  # of two ranks each sends what it has once, at the same time as the other
    return {"rate": codistill["rate"], "codistill": codistill, "allreduce": allreduce, "wire_ms": 8e3 * payload / bits(codistill["rate"]),
            "allreduce_bytes_over_2s": allreduce["bytes_per_step"] / (2 * payload),
            "fewer": allreduce["bytes_per_step"] / codistill["bytes_per_step"], "goal": 0.9 * 2 * codistill.get("ratio", math.nan) * period / GROUPS,
            "speedup": allreduce["step_ms"] / codistill["step_ms"]}


HEADER = (f"{'rate':>8} | {'codistill':>9} {'p99 ms':>7} {'cpu':>5} {'B/step':>8} {'to use':>8} {'steps':>5} {'ratio':>6} | "
          f"{'allreduce':>9} {'p99 ms':>7} {'cpu':>5} {'B/step':>9} {'/2S':>5} {'wire ms':>8} | {'faster':>6} {'fewer':>6} {'goal':>6}")


def show(row):
    c, a = row["codistill"], row["allreduce"]
    say(f"{row['rate']:>8} | {c['step_ms']:9.1f} {c['step_ms_p99']:7.1f} {c['processors']:5.2f} {c['bytes_per_step']:8.0f} "
        f"{c.get('use_s', math.nan):6.2f} s {c.get('use_steps', math.nan):5.0f} {c.get('ratio', math.nan):6.2f} | "
        f"{a['step_ms']:9.1f} {a['step_ms_p99']:7.1f} {a['processors']:5.2f} {a['bytes_per_step']:9.0f} {row['allreduce_bytes_over_2s']:5.2f} "
        f"{row['wire_ms']:8.1f} | {row['speedup']:6.2f} {row['fewer']:6.0f} {row['goal']:6.0f}")


def period_of(run):
    """exchange.period as the run had it: its own record, defaults and overrides included."""
    section = ""
    for line in (run / "config.yaml").read_text().splitlines():
        section = line.rstrip(":") if line and not line[0].isspace() else section
        if section == "exchange" and line.strip().startswith("period:"):
            return int(line.split(":")[1].split()[0])
    raise Failure(f"{run}/config.yaml has no exchange.period")


def main(argv):
    if "--measure" in argv[:1]:
        sys.exit(measure(pathlib.Path(argv[1]), argv[3:]))
    arguments = parse(argv)
    program = pathlib.Path(arguments.codistill or common.ROOT / "build/release/codistill").absolute()
    if not os.access(program, os.X_OK):
        raise Failure(f"{program} is not there; build it: cmake --preset release && cmake --build --preset release")
    machine = common.describe_machine()
    rows = []
    with tempfile.TemporaryDirectory(prefix="codistill-net-") as folder:
        for rate in arguments.rates:
            both = {s: evaluate(s, rate, *train(arguments, program, folder, rate, s)) for s in STRATEGIES}
            rows.append(compare(both["codistill"], both["allreduce"], period_of(pathlib.Path(folder) / f"codistill-{rate}")))
            if len(rows) == 1:
                say(HEADER)
            show(rows[-1])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"machine": machine, "arguments": vars(arguments), "rates": rows}, indent=1) + "\n")
    last = rows[-1]
    slowdown = last["codistill"]["step_ms"] / rows[0]["codistill"]["step_ms"]
    say(f"slowdown {slowdown:.3f} fewer {last['fewer']:.0f} goal {last['goal']:.0f} speedup {last['speedup']:.2f}")


if __name__ == "__main__":
    sys.exit(common.run(main))
