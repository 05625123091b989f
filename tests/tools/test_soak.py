#!/usr/bin/env python3
"""tools/soak.sh: that it holds, that it ends cleanly when interrupted, and that it would notice: python3 test_soak.py CODISTILL [CASE ...]"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from train_support import check, run_cases

SOAK = pathlib.Path(__file__).resolve().parents[2] / "tools/soak.sh"

# The command, as a soak starts it, with something else for one group.
CHANGED = """\
#!/bin/sh
case "$*" in *"--group {group}"*) exec {program} "$@" {override} ;; esac
exec {program} "$@"
"""


def start(bench, *arguments, program=None):
    return subprocess.Popen([SOAK, "--codistill", program or bench.program, *arguments], cwd=bench.folder, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def kills(bench):
    """Ten kills, one after the other: nothing is lost, and the counts add up."""
    process = start(bench, "--kills", "10", "--json", "soak.json")
    result = bench.wait(process, ["soak", "--kills", "10"], 540)
    print(result.out)
    check(result.code == 0, "it did not hold", result)
    told = json.loads(bench.read("soak.json"))
    check((told["kills"], told["lost"]) == (10, 0), f"counts: {told}", result)
    check(sum(g["kills"] for g in told["groups"]) == 10 and all(g["steps"] > 0 for g in told["groups"]), f"groups: {told}", result)
    check(len([line for line in result.out.splitlines() if line.startswith("kill ")]) >= told["stops"] + 5, "rounds are not told", result)


def users_of(folder):
    """Processes that work in a folder, or below it."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(folder)):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def ctrl_c(bench):
    """Interrupted, twice: a table, exit code 130, and no process left."""
    os.mkdir(bench.path("kept"))
    process = start(bench, "--minutes", "10", "--folder", "kept")
    check(any(line.startswith("kill ") for line in process.stdout), "no kill")
    deadline = time.monotonic() + 300
    while len(users_of(bench.path("kept"))) < 3:  # one group may just have been killed
        check(time.monotonic() < deadline, "the groups' processes are not found")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    result = bench.wait(process, ["soak"], 300)
    check(result.code == 130 and "interrupted" in result.out and "kills, " in result.out, "not a clean end", result)
    check(not users_of(bench.path("kept")), "processes are left", result)


def notices(bench):
    """What a soak is for: a job that ends by itself, and one that does not go on from its checkpoint."""
    for group, override, words in ((2, "train.max_time=3s", "group 2, which nobody killed, ended with exit code 75"),
                                   (0, "checkpoint.resume=never", "but its newest checkpoint is of step")):
        program = bench.write("changed", CHANGED.format(program=bench.program, group=group, override=override))
        os.chmod(program, 0o755)
        result = bench.wait(start(bench, "--minutes", "5", "--groups", "1,1,1", program=program), ["soak", override], 300)
        check(result.code == 1 and words in result.err, f"not noticed: {override}", result)


CASES = {"kills": kills, "ctrl-c": ctrl_c, "notices": notices}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
