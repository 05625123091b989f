#!/usr/bin/env python3
"""Two builds of codistill in turns: processor seconds of upscaling a PNG, milliseconds of a step, and of the exchange in a step.

usage: chrt -f 1 python3 docs/notebook/two_builds.py OLD NEW PICTURE [REPEATS]

OLD and NEW are programs, PICTURE is a photograph. Real-time priority keeps other work of the machine out of the figures. A copy of OLD
takes its turns, too: its ratio to OLD is the noise, and a ratio of NEW that is nearer to 1 says nothing.
"""
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **ROOT}).stdout


def processor_s(*command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(old, new, picture, repeats="9"):
    folder = tempfile.mkdtemp()
    programs = [old, new, shutil.copy(old, f"{old}.copy")]  # beside it, where its models are
    low, out = f"{folder}/low.png", ["-o", f"{folder}/out.png", "--force", "--threads", "1"]
    run(new, "upscale", "bicubic", picture, "-o", low, "--scale", "1")
    step = ["bench", "step", "--batch", "8", "--repeats", "15", "--json", "--no-autotune", "blocks=4", "channels=32"]
    exchange = ["bench", "exchange", "--json", "--weights", "1500000", "--publications", "10", "--step-ms", "2"]
    measures = {
        "upscale bicubic, s": lambda program: processor_s(program, "upscale", "bicubic", low, *out, "--scale", "6"),
        "upscale sr-x4, s": lambda program: processor_s(program, "upscale", "sr-x4", low, *out, "--precision", "f32"),
        "step, ms": lambda program: json.loads(run(program, *step))["step_ms"],
        "exchange in a step, ms": lambda program: json.loads(run("mpirun", "--oversubscribe", "-n", "2", program, *exchange))["exchange_ms_per_step"],
    }
    for name, measure in measures.items():
        found = {program: [] for program in programs}
        for i in range(int(repeats)):
            for program in programs if i % 2 == 0 else programs[::-1]:
                found[program].append(measure(program))
        medians, least = ([f(found[program]) for program in programs] for f in (statistics.median, min))
        print(f"{name}: median {medians[0]:.4g} and {medians[1]:.4g}, ratio {medians[1] / medians[0]:.3f}; least {least[1] / least[0]:.3f}; "
              f"a copy of the old one {medians[2] / medians[0]:.3f}; least {least[2] / least[0]:.3f}", flush=True)
    os.unlink(programs[2])


if __name__ == "__main__":
    main(*sys.argv[1:])
