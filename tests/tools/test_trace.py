#!/usr/bin/env python3
"""`codistill trace`: one trace of those of a run's ranks: python3 test_trace.py CODISTILL [CASE ...]"""

import json
import os
import signal
import subprocess
import sys

from train_support import check, kill_job, run_cases, wait_for_steps

TWO = ["train.strategy=codistill", "cluster.groups=2", "train.steps=20", "eval.every=0", "log.samples=0"]


def merged(bench, *arguments, path="runs/r/trace.json"):
    result = bench.done("trace", "runs/r", *arguments)
    return result, json.loads(bench.read(path))


def intervals(events):
    return [event for event in events if event["ph"] == "X"]


def write_trace(bench, rank, lines, end="\n]\n"):
    bench.write(f"runs/r/{rank}.trace.json", "[\n" + ",\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)


def described(rank, host, ahead_us, clock_of=0, group=0):
    return {"ph": "M", "name": "codistill_rank", "pid": rank, "args": {"rank": rank, "group": group, "host": host, "clock_of": clock_of,
                                                                     "clock_ahead_us": ahead_us, "clock_spread_us": 50}}


def interval(rank, start_us, name="step"):
    return {"ph": "X", "cat": "step", "name": name, "pid": rank, "tid": 7, "ts": start_us, "dur": 10}


def a_run(bench, ranks=3):
    """A folder with the configuration of a run of so many ranks, whose traces the case writes."""
    bench.write("runs/r/config.yaml", f"cluster: {{groups: {ranks}}}\ndata: {{kind: synthetic}}\nlog: {{trace: trace.json}}\n")


def whole(bench):
    """Every interval of every rank is there, in a process named after rank, group and host; clocks of one host stay."""
    bench.done("train", "t.yaml", "name=r", *TWO, "log.trace=trace.json")
    result, events = merged(bench)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    host = names[0].rpartition(" ")[2]
    check(names == {rank: f"rank {rank}, group {rank} on {host}" for rank in (0, 1)} and host in os.uname().nodename, f"processes are called {names}")
    parts = [json.loads(bench.read("runs", "r", f"{rank}.trace.json")) for rank in (0, 1)]
    check(intervals(events) == intervals(parts[0]) + intervals(parts[1]) and len(intervals(events)) > 100, "other events")
    facts = [event["args"] for event in parts[1] if event["name"] == "codistill_rank"][0]
    check(abs(facts["clock_ahead_us"]) <= facts["clock_spread_us"] + 100, f"two clocks of one host: {facts}")
    check("written to runs/r/trace.json: 2 ranks on 1 host;" in result.out and "clocks" not in result.out, "what it says", result)
    _, elsewhere = merged(bench, "-o", "all.json", path="all.json")
    check(elsewhere == events, "-o has another trace")


def hosts(bench):
    """Clocks of another host are set back by the median of what its ranks measured."""
    a_run(bench)
    write_trace(bench, 0, [described(0, "a", 0), interval(0, 1000)])
    write_trace(bench, 1, [described(1, "b", 5000, group=1), interval(1, 6000)])
    write_trace(bench, 2, [described(2, "b", 5100, group=1), interval(2, 6300)])
    result, events = merged(bench)
    check([(event["pid"], event["ts"]) for event in intervals(events)] == [(0, 1000), (1, 900), (2, 1200)], f"{intervals(events)}", result)
    check("3 ranks on 2 hosts, whose clocks are moved by at most 5.1 ms, known to 0.05 ms; 3 events" in result.out, "what it says", result)


def incomplete(bench):
    """Ranks that are missing are named; a trace is read as far as it goes; what is no event is left out."""
    a_run(bench, 4)
    write_trace(bench, 1, [described(1, "a", 0), interval(1, 5), '{"ph": "X", "na'], end="")
    write_trace(bench, 2, [described(2, "a", 0), "no event", "x" * 100000, interval(2, 6)])
    result, events = merged(bench)
    check("2 of 4 ranks have no trace.json here, and are missing in the trace: 0, 3" in result.err, "missing ranks", result)
    check("'runs/r/1.trace.json' ends in the middle" in result.err and ": 1 events are read" in result.err, "a trace that is cut off", result)
    check("'runs/r/2.trace.json': 2 lines are no events" in result.err, "damaged lines", result)
    check([event["ts"] for event in intervals(events)] == [5, 6], f"{events}")
    check([event["pid"] for event in events if event["name"] == "process_labels"] == [1], "the trace does not show that it is cut off")


def killed(bench):
    """What a killed rank has written so far."""
    process = bench.start("train", "t.yaml", "name=r", "train.steps=10000000", "eval.every=0", "log.trace=t.json")
    wait_for_steps(bench, process, "r", 30)
    os.killpg(process.pid, signal.SIGKILL)
    kill_job(process)
    result, events = merged(bench)
    check("'runs/r/0.t.json' ends in the middle, as its rank was killed" in result.err and len(intervals(events)) > 100, "nothing is read", result)


def nothing(bench):
    """Where there is nothing to merge, the message says how to trace."""
    bench.done("train", "t.yaml", "name=r", "train.steps=2", "eval.every=0")
    bench.refused("'runs/r' has no traces: train the run with log.trace=trace.json", "trace", "runs/r")
    bench.refused("'runs' is no folder of a training run", "trace", "runs")
    bench.refused("RUN is missing", "trace")
    write_trace(bench, 0, [interval(0, 5)])
    result, _ = merged(bench)
    check("says nothing of its rank, as those of earlier versions" in result.err, "an earlier version's trace", result)
    bench.refused("the output would replace a rank's trace", "trace", "runs/r", "-o", "runs/r/0.trace.json")


def large(bench):
    """A trace is not held in memory."""
    a_run(bench, 1)
    write_trace(bench, 0, [described(0, "a", 0), *(json.dumps(interval(0, 1.5 + i)) for i in range(150000))])
    measure = "import os, subprocess, sys\nprint(os.wait4(subprocess.Popen(sys.argv[1:], stdout=2).pid, 0)[2].ru_maxrss)"  # a small parent
    done = subprocess.run([sys.executable, "-c", measure, bench.program, "trace", "runs/r"], cwd=bench.folder, capture_output=True, text=True, check=True)
    check("150000 events" in done.stderr, f"it failed: {done.stderr}")
    size = os.path.getsize(bench.path("runs", "r", "0.trace.json"))
    check(int(done.stdout) * 1024 < 40e6 or "asan" in bench.program, f"{done.stdout} KiB for a trace of {size} bytes")


CASES = {"whole": whole, "hosts": hosts, "incomplete": incomplete, "killed": killed, "nothing": nothing, "large": large}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
