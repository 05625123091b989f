#!/usr/bin/env python3
"""tools/signals.sh: what it promises holds at some instants and after a hundred deaths, and it would notice:
python3 test_signals.py CODISTILL [CASE ...]"""

import json
import os
import pathlib
import subprocess
import sys

from train_support import check, run_cases

SIGNALS = pathlib.Path(__file__).resolve().parents[2] / "tools/signals.sh"
FORGETS = """\
#!/bin/sh
exec {program} "$@" checkpoint.resume=never
"""


def sweep(bench, *arguments, program=None):
    process = subprocess.Popen([SIGNALS, "--codistill", program or bench.program, "--json", "signals.json", *arguments], cwd=bench.folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return bench.wait(process, ["signals", *arguments], 540)


def spread(bench):
    """Each target, at other instants each time, and a reader that goes away."""
    result = sweep(bench, "--tries", "1", "--signals", "SIGINT,SIGUSR1,pipe")
    print(result.out)
    check(result.code == 0, "it did not hold", result)
    tries = json.loads(bench.read("signals.json"))["tries"]
    check(len(tries) == 20 and all(t["sent"] == 1 and t["ending"] and not t["fault"] for t in tries), f"{tries}", result)
    check({t["target"] for t in tries if t["setup"] == "2x1"} == {"launcher", "group", "mpirun", "rank", "all"}, f"{tries}", result)


def kills(bench):
    """Each training dies five times before it may end, or begins anew when it has ended before."""
    result = sweep(bench, "--tries", "3", "--again", "4", "--signals", "SIGKILL")
    print(result.out)
    check(result.code == 0, "it did not hold", result)
    check(sum(t["sent"] for t in json.loads(bench.read("signals.json"))["tries"]) == 105, "deaths are missing", result)


def notices(bench):
    """A job that does not go on from its checkpoint."""
    program = bench.write("forgets", FORGETS.format(program=bench.program))
    os.chmod(program, 0o755)
    result = sweep(bench, "--tries", "6", "--signals", "SIGUSR1", "--trainings", "single", program=program)
    check(result.code == 1 and "the newest checkpoint is of step" in result.err, "not noticed", result)


CASES = {"spread": spread, "kills": kills, "notices": notices}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
