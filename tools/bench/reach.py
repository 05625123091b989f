"""On a host of a laboratory: trains until a held-out PSNR, then stops; see crossing.py.

usage: reach.py RUN TARGET SECONDS -- COMMAND...
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

POLL_S = 0.05


def lines_of(run):
    for path in run.glob("metrics.*.jsonl"):
        text = path.read_text()
        yield from map(json.loads, text[:text.rfind("\n") + 1].splitlines())


def main(run, target, limit_s, command):
    """reached.json in the run's folder: seconds since the run's first line of metrics could be made, i.e. since config.yaml was written."""
    process = subprocess.Popen(command)
    begin, found = None, None
    while process.poll() is None and found is None and (begin is None or time.monotonic() - begin < limit_s):
        if begin is None and (run / "config.yaml").exists():
            begin = time.monotonic()
        found = next((line for line in lines_of(run) if (line.get("psnr_y") or 0) >= target), None)
        time.sleep(POLL_S)
    # A short run may end with the line that is looked for.
    found = found or next((line for line in lines_of(run) if (line.get("psnr_y") or 0) >= target), None)
    if found is not None:
        (run / "reached.json").write_text(json.dumps({"seconds": time.monotonic() - begin, "step": found["step"], "psnr_y": found["psnr_y"]}))
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[5:]))
