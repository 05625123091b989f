#!/usr/bin/env python3
"""What training shows on a terminal, and where there is none: python3 test_terminal.py CODISTILL [CASE ...]"""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

from test_bad_inputs import png
from train_support import STOPPED, check, kill_job, run_cases

SETUPS = {
    "single": ["train.strategy=single"],
    "2x1": ["train.strategy=codistill", "cluster.groups=2"],
    "3x1": ["train.strategy=codistill", "cluster.groups=3"],
}


FIELDS = (r"group \d+  step \d+/\d+  left \d+:\d\d:\d\d(  (loss -?\d+\.\d{5}|psnr -?[\d.]+ dB|[\d.]+ ms|\d+ images/s|teacher \d+ steps? (old|ahead), weight [\d.e-]+|"
          r"pushes \d+, in the mean [\d.]+ updates old))*")
WAYS = {
    "allreduce": ["train.strategy=allreduce", "cluster.ranks_per_group=2"],
    "model_parallel": ["train.strategy=model_parallel", "cluster.ranks_per_group=2"],
    "central_storage": ["train.strategy=central_storage", "cluster.ranks_per_group=2"],
    "async_parameter_server": ["train.strategy=async_parameter_server", "cluster.ranks_per_group=3"],
    "diloco": ["train.strategy=diloco", "cluster.groups=2"],
    "srgan": ["train.strategy=codistill", "cluster.groups=2", "train.recipe=srgan", "gan.features=3", "gan.hidden=5"],
}


class Screen:
    """A terminal of so many columns that understands what we send; lines never scroll away."""

    def __init__(self, columns):
        self.columns, self.lines, self.row, self.column, self.wrapped = columns, [""], 0, 0, False

    def feed(self, text):
        for token in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.", text, re.DOTALL):
            if token == "\r":
                self.column = 0
            elif token == "\n":
                self.row += 1
                self.column = 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif token == "\x1b[A":
                self.row -= 1
                check(self.row >= 0, "the cursor leaves the screen at the top")
            elif token == "\x1b[J":
                self.lines[self.row] = self.lines[self.row][:self.column]
                del self.lines[self.row + 1:]
            else:
                check(not token.startswith("\x1b"), f"unknown sequence {token!r}")
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[:self.column] + token + line[self.column + 1:]
                self.column += 1
                self.wrapped |= self.column > self.columns and bool(re.match(r"group \d  step", self.lines[self.row]))


def on_terminal(bench, columns, arguments, stop_after=None, rows=24):
    """Runs with a terminal as standard error; what it sent, and the exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = dict(os.environ, **bench.environment)
    process = subprocess.Popen([bench.program, "train", "t.yaml", *arguments], cwd=bench.folder, env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave, start_new_session=True)
    os.close(slave)
    sent, begin = b"", time.monotonic()
    with contextlib.suppress(OSError):  # EIO: the last writer is gone
        while chunk := os.read(master, 65536):
            sent += chunk
            if stop_after and sent.count(b"step ") > stop_after:
                process.send_signal(signal.SIGTERM)
                stop_after = None
            if time.monotonic() - begin > 300:
                kill_job(process)
    os.close(master)
    return sent.decode(errors="replace").replace("\r\n", "\n"), process.wait(timeout=300)


def terminal(setup, columns):
    def case(bench):
        groups = 1 if setup == "single" else int(setup[0])
        sent, code = on_terminal(bench, columns, ["name=t", *SETUPS[setup], "train.steps=300"])
        check(code == 0, f"exit code {code}:\n{sent}")
        screen = Screen(columns)
        screen.feed(sent)
        shown = "\n".join(screen.lines)
        check(not screen.wrapped, f"a line is wider than the terminal:\n{shown}")
        check("\x1e" not in sent, "marks are shown")
        check(sent.count("\x1b[J") > 2 * groups, f"lines do not change in place:\n{shown}")
        lines = [line for line in screen.lines if re.match(r"group \d  step", line)]
        check(len(lines) == groups, f"{len(lines)} lines for {groups} groups remain:\n{shown}")
        for group, line in enumerate(lines):
            check(line.startswith(f"group {group}  step 300/300  left 0:00:00"), f"the last line of group {group}: {line}")
            check(re.fullmatch(FIELDS, line), f"a field is cut: {line}")
            check(len(line) <= columns, f"{len(line)} columns of {columns}: {line}")
            for word in ["psnr", "images/s"] if columns > 100 else []:
                check(word in line, f"no {word} in: {line}")
        check(len(re.findall(r"group \d: 3 training and 1 held-out", shown)) == groups, f"a message is lost:\n{shown}")
        check("final.safetensors is" in screen.lines[-2] or "final.safetensors is" in shown, f"no end:\n{shown}")
        for group in range(groups):
            with open(bench.path("runs", "t", f"log.{group}.txt"), encoding="utf-8") as file:
                log = file.read()
            check("\x1b" not in log and "\r" not in log, f"log.{group}.txt has control characters")
            check([int(s) for s in re.findall(r"step (\d+)/300", log)] == list(range(10, 301, 10)), f"log.{group}.txt:\n{log}")
    return case


def strategies(bench):
    """At 80 columns the time left is to be seen, whatever else a strategy or a recipe has to show."""
    for name, overrides in WAYS.items():
        sent, code = on_terminal(bench, 80, [f"name={name}", *overrides, "train.steps=100000000", "log.every=20", "eval.every=40"], 6)
        check(code == STOPPED, f"{name}: exit code {code}:\n{sent}")
        screen = Screen(80)
        screen.feed(sent)
        shown = "\n".join(screen.lines)
        check(not screen.wrapped, f"{name}: a line is wider than the terminal:\n{shown}")
        lines = re.findall(r"group \d+  step [^\x1b\r\n]*", sent)
        check(len(lines) > 3, f"{name}: {lines}")
        for line in lines:
            check(len(line) < 80 and re.fullmatch(FIELDS, line), f"{name}: {line}")


def few_rows(bench):
    """Groups that do not fit on the terminal are counted in its last line."""
    sent, code = on_terminal(bench, 80, ["name=t", *SETUPS["3x1"], "train.steps=300"], rows=3)
    check(code == 0, f"exit code {code}:\n{sent}")
    screen = Screen(80)
    screen.feed(sent)
    shown = "\n".join(screen.lines)
    lines = [line for line in screen.lines if re.match(r"group \d  step", line)]
    check(len(lines) == 1 and lines[0].startswith("group 0  step 300/300"), f"not one group's line:\n{shown}")
    check("... and 2 groups more, each with its log.GROUP.txt" in shown, f"others are not counted:\n{shown}")


def between_lines(bench):
    """A terminal is kept up to date although lines of metrics are far between."""
    sent, code = on_terminal(bench, 120, ["name=t", *SETUPS["2x1"], "log.every=1000000000", "eval.every=0", "train.steps=100000000"], 16)
    check(code == STOPPED, f"exit code {code}:\n{sent}")
    for group in range(2):
        steps = {int(step) for step in re.findall(rf"group {group}  step (\d+)/", sent)}
        check(len(steps) >= 2, f"group {group} showed only steps {steps}:\n{sent}")
        check(f"group {group}: stopped and saved at step" in sent, f"group {group} does not say that it saved:\n{sent}")
        check(b"  left " not in bench.read("runs", "t", f"log.{group}.txt"), "the log file has lines between")


def elsewhere(setup):
    """Into a pipe: plain lines, one for each line of metrics."""
    def case(bench):
        groups = 1 if setup == "single" else int(setup[0])
        result = bench.trained("name=t", *SETUPS[setup], "train.steps=100")
        check("\x1b" not in result.err and "\r" not in result.err and "\x1e" not in result.err, "control characters", result)
        for group in range(groups):
            steps = [int(step) for step in re.findall(rf"^group {group}  step (\d+)/100 ", result.err, re.MULTILINE)]
            check(steps == list(range(10, 101, 10)), f"lines of group {group}: {steps}", result)
    return case


def printed(bench, arguments, columns=None, **variables):
    """What a command prints on a terminal of so many columns, 0 where it does not know them; into a pipe where `columns` is None."""
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | bench.environment | variables
    if columns is None:
        return subprocess.run([bench.program, *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([bench.program, *arguments], env=env, stdin=subprocess.DEVNULL, stdout=slave)
    end, sent = b"\0end", b""  # a terminal that everybody has closed may lose what was not read yet
    writer = threading.Thread(target=lambda: (process.wait(), os.write(slave, end)))
    writer.start()
    while not sent.endswith(end):
        sent += os.read(master, 65536)
    writer.join()
    os.close(slave)
    os.close(master)
    check(process.wait() == 0, f"{arguments} failed")
    return sent.removesuffix(end).decode().replace("\r\n", "\n")


def helps(bench):
    """Help and lists are broken between words, for the terminal's width or for one that is always the same."""
    commands = re.findall(r"^  (\w+)\t", printed(bench, ["--help", "--unwrapped"]), re.MULTILINE)
    benches = re.findall(r"^  (\w+)\t", printed(bench, ["bench", "--help", "--unwrapped"]), re.MULTILINE)
    texts = [["--help"], *([name, "--help"] for name in commands), *(["bench", name, "--help"] for name in benches), ["config"], ["models"]]
    check(len(texts) > 24, f"only {texts}")
    for arguments in texts:
        whole = printed(bench, [*arguments, "--unwrapped"])
        for columns, width in ((80, 80), (20, 40)):
            shown = printed(bench, arguments, columns, COLUMNS="50")
            check(shown.split() == whole.split(), f"{arguments} at {width} columns has other words:\n{shown}")
            for line in shown.split("\n"):  # a word alone, or an option, may be too long for a narrow terminal
                check(len(line) <= width or (width < 80 and len(line.split()) <= 1 + line.startswith("  -")), f"{arguments}: {len(line)} columns of {width}: {line}")
            check(width != 80 or shown == printed(bench, arguments, COLUMNS="50"), f"{arguments} at 80 columns is not what a pipe gets:\n{shown}")
    for columns, variables, least, most in ((0, {"COLUMNS": "50"}, 45, 50), (0, {}, 75, 80), (0, {"COLUMNS": "wide"}, 75, 80), (100, {}, 95, 100), (300, {}, 115, 120)):
        widest = max(map(len, printed(bench, ["train", "--help"], columns, **variables).split("\n")))
        check(least <= widest <= most, f"{columns} columns and {variables}: the widest line has {widest}")
    shown = printed(bench, ["eval", "--help"], 80)
    check("  --niqe-model F     niqe, pi: model of natural pictures, BasicSR's\n" + " " * 21 + "niqe_pris_params.npz\n" in shown, f"no hanging indent:\n{shown}")
    check(" " * 21 + "pi     perceptual index" in shown and "\n" + " " * 28 + "only NIQE" in shown, f"no table inside:\n{shown}")
    shown = printed(bench, ["compare", "--help"], 60)
    check(shown.startswith("usage: codistill compare CONFIG.yaml [--strategies LIST]\n             [--seeds LIST] [--dry-run] [key.path=value ...]\n"), shown)


def long_names(bench):
    """A line that shows how far a picture is stays one line, which the next one replaces, however long the picture's name."""
    name = "/".join(["pictures of " + "x" * 40] * 4) + "/é" + "é" * 40 + ".png"
    os.makedirs(os.path.dirname(bench.path(name)))
    with open(bench.path(name), "wb") as file:
        file.write(png(40, 40))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    for command in (["upscale", name, "-o", "big.png", "--tile", "8"], ["eval", "bicubic", "--data", "."]):
        process = subprocess.Popen([bench.program, *command], cwd=bench.folder, env={**os.environ, **bench.environment}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=slave)
        check(process.wait(timeout=300) == 0, f"{command} failed")
    os.close(slave)
    sent = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(master, 65536):
            sent += chunk
    os.close(master)
    lines = [line.strip("\r\n") for line in sent.decode().split("\r\x1b[K")]
    parts = [line for line in lines if re.fullmatch(r"\.\.\.é+\.png: part \d+ of \d+", line)]
    check(parts and any(re.fullmatch(r"\.\.\.é+\.png: [\d.]+ dB, picture \d of \d", line) for line in lines), f"lines: {lines}")
    check(max(map(len, lines)) < 60 and max(len(line.encode()) for line in parts) > 55, f"lines: {lines}")


CASES = {
    "long-names": long_names,
    "help": helps,
    "terminal-single": terminal("single", 120),
    "terminal-2x1": terminal("2x1", 120),
    "terminal-3x1-narrow": terminal("3x1", 40),
    "terminal-few-rows": few_rows,
    "strategies": strategies,
    "terminal-between": between_lines,
    "pipe-single": elsewhere("single"),
    "pipe-2x1": elsewhere("2x1"),
}

if __name__ == "__main__":
    names = sys.argv[2:] or [name for name in CASES if name != "strategies"]  # which takes long, and is a test of its own
    sys.exit(run_cases(CASES, sys.argv[1], names))
