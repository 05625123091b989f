"""See exchange_net.sh."""
import argparse
import contextlib
import json
import math
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import common
from common import Failure

WARM_UP_STEPS = 20
POLL_S = 0.01
STRATEGIES = ("codistill", "allreduce")
TCP_SHARE = 1.07  # what crosses over what is sent, Ethernet's, IP's and TCP's headers and acknowledgements included
WHAT = """\
Trains a configuration on the hosts of a laboratory network (tools/netlab.sh), one rank on each, at each of some link
rates: as codistill (each host is a group) and as allreduce (one group), each for --seconds. Reports, over all steps but
the first 20, the median and 99th percentile of a step, the bytes that crossed host0's link in a step (counters of the
interface, with headers and acknowledgements), the processor time of a rank in a second, that of its progress thread in
a step (`lost`, ms), and the time from a publication to its use by another group.
`expected` is computed. Codistill's step is the one at the highest rate; allreduce's is that step plus the time that
a ring's bytes need if no computing hides it; a publication has the bytes of its chunks alone.
`fewer` is allreduce's bytes in a step over codistill's. The goal is 0.9 x 2 x ratio x period / groups, where ratio is
4 bytes a weight over the bytes published. Teachers run from the first pull on (distill.burn_in=0), so that the steps
include their cost."""


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/bench/exchange_net.sh", description=WHAT, formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="The last line is `slowdown X fewer Y goal Z speedup W` for the lowest rate. "
                                "slowdown: codistill's median step there "
                                "over the one at the highest rate. speedup: allreduce's median step over codistill's.")
    p.add_argument("--codistill", metavar="FILE", help="program to run (build/release/codistill)")
    p.add_argument("--config", default=str(common.ROOT / "configs/sr-demo.yaml"),
                   help="configuration to train (configs/sr-demo.yaml)")
    p.add_argument("--rates", default="none,1gbit,100mbit,20mbit,10mbit", metavar="LIST",
                   help="rates of the links, highest first (none,1gbit,100mbit,20mbit,10mbit)")
    p.add_argument("--seconds", type=float, default=30, help="seconds of training at each rate with each strategy (30)")
    p.add_argument("--groups", type=int, default=2, metavar="N", help="number of hosts, and of codistill's groups (2)")
    p.add_argument("--period", type=int, metavar="STEPS",
                   help="steps from one publication to the next (the configuration's)")
    p.add_argument("--json", metavar="FILE", nargs="?", const="-",
                   help="also write all measurements to FILE; as the last option without a FILE, "
                   "write only them, to standard output")
    p.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    p.add_argument("overrides", nargs="*", metavar="key.path=value", help="further options of the configuration")
    arguments = p.parse_intermixed_args(argv)
    if arguments.seconds <= 0:
        p.error("--seconds is above 0")
    if arguments.groups < 2:
        p.error("--groups is 2 or more")
    if arguments.period is not None:
        arguments.overrides.append(f"exchange.period={arguments.period}")
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


def progress_s():
    """Processor seconds of all ranks' progress threads; hosts of a laboratory see each other's processes."""
    total = 0
    for thread in pathlib.Path("/proc").glob("[0-9]*/task/*"):
        with contextlib.suppress(OSError):
            if (thread / "comm").read_text() == "cod-progress\n":
                total += int((thread / "schedstat").read_text().split()[0])
    return 1e-9 * total


def measure(run, groups, command):
    """Runs `command`, which trains into the folder `run`; writes what it saw as JSON beside it."""
    tails = {f"{kind}.{group}": Tail(run / f"{kind}.{group}.jsonl") for kind in ("metrics", "exchange") for group in range(groups)}
    progress, process = [], subprocess.Popen(command)
    while process.poll() is None:
        now, crossed = time.monotonic(), crossed_bytes()
        for tail in tails.values():
            tail.read(now, crossed)
        if not progress or now - progress[-1][0] > 1:
            progress.append((now, progress_s()))
        time.sleep(POLL_S)
    (run / "seen.json").write_text(json.dumps({"progress": progress, **{name: tail.lines for name, tail in tails.items()}}))
    return process.returncode


# Outside: one laboratory a rate and strategy.

def layout(strategy, groups):
    """The same ranks, as groups or as one."""
    return [f"train.strategy={strategy}", f"cluster.groups={groups if strategy == 'codistill' else 1}",
            f"cluster.ranks_per_group={1 if strategy == 'codistill' else groups}"]


def train(arguments, program, folder, rate, strategy):
    """What was seen of one training, with the laboratory's own report."""
    name = f"{strategy}-{rate}"
    run, report, said = (pathlib.Path(folder) / f"{name}{end}" for end in ("", ".net.json", ".said"))
    # What ranks say goes to a file: by way of mpirun the line that each step makes here would cross the link.
    launch = ["mpirun", "-n", str(arguments.groups), "sh", "-c", 'exec "$@" >>"$0" 2>&1', str(said)]
    command = [*launch, str(program), "train", arguments.config, f"name={name}", f"output={folder}", *layout(strategy, arguments.groups),
               f"train.max_time={arguments.seconds}", "distill.burn_in=0", "distill.ramp=1", "log.every=1", "log.samples=0", "log.tensorboard=false",
               "eval.every=0", "checkpoint.every=0", *arguments.overrides]
    lab = [str(common.ROOT / "tools/netlab.sh"), "--hosts", str(arguments.groups), "--rate", rate, "--json", str(report), "--", sys.executable, "-B",
           __file__, "--measure", str(run), str(arguments.groups), "--", *command]
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
        if code not in (0, 75):  # 75: saved and stopped after --seconds
            log.seek(0)
            words = (said.read_text() if said.exists() else "") or log.read()
            raise Failure(f"`{' '.join(command)}` at {rate} ended with {code}: {' / '.join(words.strip().splitlines()[-3:])}")
    return json.loads((run / "seen.json").read_text()), weights_of(run), json.loads(report.read_text())


def weights_of(run):
    """How many a group trains, from the checkpoint that --seconds ended with."""
    with open(next(run.glob("checkpoints/step-*/group-0.safetensors")), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return header["values"]["shape"][0]


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def delays(seen, groups):
    """Seconds and steps of the user from each publication to its use by another group."""
    published = {(group, line["version"]): line for group in range(groups) for line in seen[f"exchange.{group}"] if line["kind"] == "publish"}
    found = []
    for group in range(groups):
        for line in seen[f"exchange.{group}"]:
            if line["kind"] == "switch" and (line["peer"], line["version"]) in published:
                found.append((line["seen_s"] - published[line["peer"], line["version"]]["seen_s"], line["step"] - line["peer_step"]))
    return found


def progress_ms(samples, first, last):
    """Of the progress threads between two lines of the metrics."""
    inside = [used for at, used in samples if first["seen_s"] <= at <= last["seen_s"]]
    return 1e3 * (inside[-1] - inside[0]) if len(inside) > 1 else math.nan


def evaluate(strategy, rate, hosts, seen, weights, net):
    groups = hosts if strategy == "codistill" else 1
    lines = [[line for line in seen[f"metrics.{g}"] if line["step"] > WARM_UP_STEPS] for g in range(groups)]
    if any(len(found) < 3 for found in lines):
        raise Failure(f"{strategy} at {rate} made fewer than {WARM_UP_STEPS + 3} steps; give it more --seconds")
    times = [line["step_ms"] for found in lines for line in found]
    first, last = lines[0][0], lines[0][-1]
    steps = last["step"] - first["step"]
    result = {"strategy": strategy, "rate": rate, "steps": [len(found) for found in lines], "weights": weights,
              "step_ms": statistics.median(times), "step_ms_p99": percentile(times, 0.99), "step_ms_mean": statistics.fmean(times),
              "bytes_per_step": (last["crossed"] - first["crossed"]) / steps, "progress_ms": progress_ms(seen["progress"], first, last) / steps / hosts,
              "processors": net["processor_s"] / net["wall_s"] / hosts, "net": net}
    if strategy == "codistill":
        uses = delays(seen, hosts)
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


def ring_bytes(weights, hosts):
    """Those that a rank sends, and at the same time receives, in a ring all-reduce of the gradients."""
    return 4 * weights * 2 * (hosts - 1) / hosts


def expected(strategy, rate, weights, hosts, compute_ms, ratio, period):
    """A step in ms and bytes across a host's link, both ways, by arithmetic."""
    if strategy == "allreduce":
        sent = ring_bytes(weights, hosts) * TCP_SHARE
        return compute_ms + 8e3 * sent / bits(rate), 2 * sent
    return compute_ms, 2 * (hosts - 1) * 4 * weights / (ratio * period)


def compare(codistill, allreduce, hosts, period, compute_ms):
    """The row of a rate. `compute_ms`: a step of each strategy where the link costs least."""
    ratio, weights, rate = codistill.get("ratio", math.nan), codistill["weights"], codistill["rate"]
    for result in (codistill, allreduce):
        result["expected_ms"], result["expected_bytes"] = expected(result["strategy"], rate, weights, hosts, compute_ms[result["strategy"]], ratio, period)
    return {"rate": rate, "codistill": codistill, "allreduce": allreduce, "fewer": allreduce["bytes_per_step"] / codistill["bytes_per_step"],
            "goal": 0.9 * 2 * ratio * period / hosts, "speedup": allreduce["step_ms"] / codistill["step_ms"]}


HEADER = (f"{'':>8} | {'codistill: step ms':^23} {'':>5} {'':>6} {'B a step':^13} {'publication to use':^21} {'':>5} | {'allreduce: step ms':^24} {'':>5} "
          f"{'':>6} {'B a step':^17} |\n"
          f"{'rate':>8} | {'median':>7} {'expect.':>7} {'p99':>7} {'cpu':>5} {'lost':>6} {'':>6} {'expect.':>6} {'median':>8} {'p99':>6} {'steps':>5} {'ratio':>5} | "
          f"{'median':>8} {'expect.':>7} {'p99':>7} {'cpu':>5} {'lost':>6} {'':>8} {'expect.':>8} | {'faster':>6} {'fewer':>6} {'goal':>6}")


def show(row, out):
    c, a = row["codistill"], row["allreduce"]
    print(f"{row['rate']:>8} | {c['step_ms']:7.1f} {c['expected_ms']:7.1f} {c['step_ms_p99']:7.1f} {c['processors']:5.2f} {c['progress_ms']:6.3f} "
          f"{c['bytes_per_step']:6.0f} {c['expected_bytes']:6.0f} {c.get('use_s', math.nan):6.2f} s {c.get('use_s_p99', math.nan):6.2f} "
          f"{c.get('use_steps', math.nan):5.0f} {c.get('ratio', math.nan):5.2f} | {a['step_ms']:8.1f} {a['expected_ms']:7.1f} {a['step_ms_p99']:7.1f} "
          f"{a['processors']:5.2f} {a['progress_ms']:6.3f} {a['bytes_per_step']:8.0f} {a['expected_bytes']:8.0f} | {row['speedup']:6.2f} "
          f"{row['fewer']:6.0f} {row['goal']:6.0f}", file=out, flush=True)


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
        sys.exit(measure(pathlib.Path(argv[1]), int(argv[2]), argv[4:]))
    arguments = parse(argv)
    program = common.find_program(arguments.codistill)
    out = sys.stderr if arguments.json == "-" else sys.stdout
    with contextlib.redirect_stdout(out):
        machine = common.describe_machine()
    rows, compute_ms = [], {}
    with tempfile.TemporaryDirectory(prefix="codistill-net-") as folder:
        for rate in arguments.rates:
            both = {s: evaluate(s, rate, arguments.groups, *train(arguments, program, folder, rate, s)) for s in STRATEGIES}
            compute_ms = compute_ms or {"codistill": both["codistill"]["step_ms"],
                                        "allreduce": both["allreduce"]["step_ms"] - expected("allreduce", rate, both["allreduce"]["weights"],
                                                                                             arguments.groups, 0, 1, 1)[0]}
            rows.append(compare(both["codistill"], both["allreduce"], arguments.groups, period_of(pathlib.Path(folder) / f"codistill-{rate}"),
                                compute_ms))
            if len(rows) == 1:
                print(HEADER, file=out)
            show(rows[-1], out)
    if arguments.json:
        text = json.dumps({"machine": machine, "arguments": vars(arguments), "rates": rows}, indent=1) + "\n"
        sys.stdout.write(text) if arguments.json == "-" else pathlib.Path(arguments.json).write_text(text)
    last = rows[-1]
    slowdown = last["codistill"]["step_ms"] / rows[0]["codistill"]["step_ms"]
    print(f"slowdown {slowdown:.3f} fewer {last['fewer']:.0f} goal {last['goal']:.0f} speedup {last['speedup']:.2f}", file=out)


if __name__ == "__main__":
    sys.exit(common.run(main))
