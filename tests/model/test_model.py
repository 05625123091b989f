#!/usr/bin/env python3
"""The models of the exchange (slot.pml, deltas.pml, agreement.pml, streams.pml): spin finds no error in them, and finds the one planted by each macro.

usage: test_model.py [MACRO ...]    only these, with spin's shortest words on how the error comes about
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
TORN, TOO_SOON, BLOCKED = "assertion violated right", "assertion violated ((passed+behind)>", "acceptance cycle"
NOT_ALL_DONE, LEFT_ALONE, TAKEN = "assertion violated (((done[", "assertion violated ((phase[", "assertion violated 0"
MIXED, TOO_SLOW, STARVED = "assertion violated whole[", "assertion violated ((elapsed[", "assertion violated (idle["
STREAMED = "assertion violated (elapsed["
OTHER_REFERENCE, STUCK = "assertion violated (window[k].against==held_weights)", "assertion violated (((window[k].reference>0)"

# Model, macro, what spin must find (None: nothing), and whether the reader stops at any step while the publisher's progress is looked at.
RUNS = [
    ("slot", "", None, False),
    ("slot", "SLOTS=2", None, False),
    ("slot", "STOPS", None, True),
    ("slot", "NO_SECOND_LOOK", TORN, False),
    ("slot", "WORD_WITH_THE_CHUNKS", TORN, False),
    ("slot", "HEADER_BEFORE_PAYLOAD", TORN, False),
    ("slot", "NOT_MARKED_OPEN", TORN, False),
    ("slot", "WORD_NOT_RAISED", TORN, False),
    ("slot", "NO_HEADER_CHECKSUM", TORN, False),
    ("slot", "NO_SYNC_AFTER_OPEN", TORN, False),
    ("slot", "NO_SYNC_BEFORE_CLOSE", TORN, False),
    ("slot", "NO_SYNC_BEFORE_HEADER", TOO_SOON, False),
    ("slot", "LONGER_PULL", TOO_SOON, False),
    ("slot", "WAITS_FOR_READERS", BLOCKED, True),
    ("deltas", "", None, False),
    ("deltas", "NO_REFERENCE_IN_CHECKSUM", OTHER_REFERENCE, False),
    ("deltas", "ANY_DELTA", STUCK, False),
    ("agreement", "", None, False),
    ("agreement", "IS_REACHED", TAKEN, False),
    ("agreement", "FOLLOWING_IS_REACHED", TAKEN, False),
    ("agreement", "NEXT_HEARS_THE_LAST", NOT_ALL_DONE, False),
    ("agreement", "NO_PHASE_CHECK", NOT_ALL_DONE, False),
    ("agreement", "FLAGS_OF_ANOTHER_PULL", NOT_ALL_DONE, False),
    ("agreement", "DISTURBS_A_GATHER", LEFT_ALONE, False),
    ("streams", "", None, False),
    ("streams", "STREAMS", STREAMED, False),
    ("streams", "NO_SECOND_LOOK_AT_STREAMS", MIXED, False),
    ("streams", "GOES_ON_AFTER_A_LOSS", MIXED, False),
    ("streams", "TIMES_THE_WHOLE_PULL", TOO_SLOW, False),
    ("streams", "LONGER_KEY", STARVED, False),
    ("streams", "CLOSE_KEYS", STARVED, False),
]


def call(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def verify(run, explain):
    """(macro, what is wrong or "", states, spin's words)"""
    model, macro, wanted, stops = run
    name = f"{model}.pml {macro}".strip()
    with tempfile.TemporaryDirectory(prefix="codistill-model-") as folder:
        shutil.copy(HERE / f"{model}.pml", folder)
        defined = [f"-D{word}" for word in {macro, "STOPS" if stops else ""} - {""}]
        call(folder, "spin", "-a", *defined, f"{model}.pml")
        # Most of the time is the compiler's.
        call(folder, "gcc", "-O0", "-w", *(["-DNFAIR=3"] if stops else ["-DSAFETY"]), "-o", "pan", "pan.c")
        said = call(folder, "./pan", *(["-a", "-f"] if stops else ["-E"]), "-m100000")
        trail = call(folder, "spin", "-t", "-p", "-g", *defined, f"{model}.pml") if explain and wanted else ""
    found = re.search(r"^pan:1: (.*) \(at depth", said, re.M)
    states = re.search(r"(\d+) states, stored", said)
    if "error: max search depth" in said or not states:
        return name, "the search was cut short", 0, said
    if (found is None) != (wanted is None) or (wanted and not found[1].startswith(wanted)):
        return name, f"spin finds {found[1] if found else 'no error'} instead of {wanted or 'no error'}", int(states[1]), said
    return name, "", int(states[1]), trail


def main(macros):
    if shutil.which("spin") is None or shutil.which("gcc") is None:
        print("skipped: spin or gcc is not installed; tools/setup.sh installs both")
        return SKIPPED
    runs = [run for run in RUNS if not macros or run[1] in macros]
    failed = len(runs) == 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count())) as pool:
        for (name, wrong, states, words), run in zip(pool.map(lambda run: verify(run, bool(macros)), runs), runs):
            print(f"{'FAILED' if wrong else 'ok':6} {name}: {wrong or run[2] or 'no error'}, {states} states")
            print(words if wrong or macros else "", end="")
            failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
