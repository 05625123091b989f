"""On a host of a laboratory: trains until a held-out PSNR, then stops; see crossing.py.

usage: reach.py RUN TARGET SECONDS -- COMMAND...
"""
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time

POLL_S = 0.05


def curve_of(run):
    """[(step, PSNR)], the mean of the groups, where all have evaluated."""
    found, files = {}, list(run.glob("metrics.*.jsonl"))
    for path in files:
        text = path.read_text()
        for line in map(json.loads, text[:text.rfind("\n") + 1].splitlines()):
            if line.get("psnr_y") is not None:
                found.setdefault(line["step"], []).append(line["psnr_y"])
    return sorted((step, statistics.fmean(values)) for step, values in found.items() if len(values) == len(files))


def first(run, target):
    return next((point for point in curve_of(run) if point[1] >= target), None)


def main(run, target, limit_s, command):
    """reached.json in the run's folder: seconds since the run's first line of metrics could be made, i.e. since config.yaml was written."""
    process = subprocess.Popen(command)
    begin, found = None, None
    while process.poll() is None and found is None and (begin is None or time.monotonic() - begin < limit_s):
        if begin is None and (run / "config.yaml").exists():
            begin = time.monotonic()
        found = first(run, target)
        time.sleep(POLL_S)
    found = found or first(run, target)  # a short run may end with the line that is looked for
    if found is not None:
        (run / "reached.json").write_text(json.dumps({"seconds": time.monotonic() - begin, "step": found[0], "psnr_y": found[1]}))
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[5:]))
