"""What the tests of the `codistill` command share: tiny runs in a folder of their own, and how to read what they leave."""

import contextlib
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

CONFIG = """\
name: t
cluster: {threads: 1, teardown_timeout_s: 600}
model: {name: srresnet, blocks: 1, channels: 8, norm: none, head_kernel: 3, tail_kernel: 3, skip: nearest}
data: {kind: synthetic, synthetic_count: 4, patch: 8, batch: 2, val_count: 1, threads: 1, cache_mb: 16}
train: {strategy: single, steps: 60, precision: f32}
distill: {burn_in: 5, ramp: 5}
exchange: {period: 10, lag_steps: 5, min_interval_ms: 0}
eval: {every: 30, images: 1}
checkpoint: {every: 10}
log: {every: 10, samples: 1}
"""

# The MPI under test and how it goes over TCP on one machine: tests/CMakeLists.txt has them for each MPI.
MPI = os.environ.get("COD_TEST_MPI", "openmpi4")
TCP = dict(word.split("=", 1) for word in os.environ.get("COD_TEST_TCP", "OMPI_MCA_btl=tcp,self OMPI_MCA_osc=pt2pt").split())
MPIEXEC = os.environ.get("COD_TEST_MPIEXEC", "mpirun")


STOPPED = 75  # the exit code of a training that saved and stopped before its end


class Failure(Exception):
    """A check that did not hold."""


class Skip(Exception):
    """What the test needs is not there."""


def check(condition, message, result=None):
    if not condition:
        raise Failure(message + (f"\n{result.describe()}" if result else ""))


class Result:
    """How a command ended."""

    def __init__(self, arguments, code, out, err, seconds):
        self.arguments, self.code, self.out, self.err, self.seconds = arguments, code, out, err, seconds

    def describe(self):
        return f"$ {' '.join(self.arguments)}\nexit code {self.code} after {self.seconds:.1f} s\n{self.out}{self.err}"


class Job(subprocess.Popen):
    """A process whose output is read as it comes: one that nobody reads stands still once its pipe is full."""

    def __init__(self, *arguments, **popen):
        super().__init__(*arguments, text=True, errors="replace", start_new_session=True, **popen)
        self.said = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        self.said = super().communicate()

    def communicate(self, input=None, timeout=None):
        self.reader.join(timeout)
        if self.reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.said


class Bench:
    """The command under test, in a folder that goes away."""

    def __init__(self, program, keep=None):
        self.program = os.path.abspath(program)
        self.keep = keep
        self.jobs = []
        self.folder = keep or tempfile.mkdtemp(prefix="codistill-test-")
        # What a killed job leaves behind goes away with the folder: mpirun's files, ranks' shared memory.
        # Made here because Open MPI 4 fails when two jobs that start at the same moment both find it missing and make it.
        os.makedirs(self.path("tmp", f"ompi.{os.uname().nodename.split('.')[0]}.{os.getuid()}"), exist_ok=True)
        self.environment = {"TMPDIR": self.path("tmp"), "OMPI_MCA_btl_vader_backing_directory": self.path("tmp")}
        self.write("t.yaml", CONFIG)

    timeout = 300  # seconds that a command may take, on a busy machine, too

    def close(self):
        for job in self.jobs:
            if job.poll() is None:
                kill_job(job)
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def start(self, *arguments, environment=None, command=(), **popen):
        """A process in a process group of its own, so that all its ranks can be killed together; `command` starts it."""
        env = {**os.environ, **self.environment, **(environment or {})}
        popen.setdefault("stderr", subprocess.PIPE)
        self.jobs.append(Job([*command, self.program, *arguments], cwd=self.folder, env=env, stdout=subprocess.PIPE, **popen))
        return self.jobs[-1]

    def wait(self, process, arguments, timeout=None):
        begin = time.monotonic()
        timeout = timeout or self.timeout
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_job(process)
            out, err = process.communicate()
            raise Failure(f"nothing after {timeout} s: {' '.join(arguments)}\n{out}{err}") from None
        return Result(["codistill", *arguments], process.returncode, out, err, time.monotonic() - begin)

    def run(self, *arguments, timeout=None, environment=None, **popen):
        return self.wait(self.start(*arguments, environment=environment, **popen), arguments, timeout)

    def done(self, *arguments, **options):
        """A command that must end well."""
        result = self.run(*arguments, **options)
        check(result.code == 0, "it failed", result)
        return result

    def refused(self, words, *arguments, **options):
        """A command that must end with exit code 2 and a message that has these words."""
        result = self.run(*arguments, **options)
        check(result.code == 2 and words in result.err, f"'{words}' is not refused, or not in these words", result)
        return result

    def train(self, *overrides, **options):
        return self.run("train", "t.yaml", *overrides, **options)

    def trained(self, *overrides, **options):
        return self.done("train", "t.yaml", *overrides, **options)

    def stopped(self, *overrides, **options):
        """A training that must save and stop before its end, such as by train.max_time."""
        result = self.train(*overrides, **options)
        check(result.code == STOPPED and "stopped and saved at step" in result.err, f"exit code {result.code}: it did not save and stop", result)
        return result

    def json(self, name, file_name):
        with open(self.path("runs", name, file_name), encoding="utf-8") as file:
            return json.load(file)

    def summary(self, name):
        return self.json(name, "summary.json")

    def lines(self, name, file_name):
        """What has been written of it: the last line may be half there."""
        with open(self.path("runs", name, file_name), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def metrics(self, name, group):
        return self.lines(name, f"metrics.{group}.jsonl")

    def events(self, name, group):
        file_name = f"exchange.{group}.jsonl"
        return self.lines(name, file_name) if os.path.exists(self.path("runs", name, file_name)) else []


def descendants(pid):
    """Every process below `pid`: mpirun puts ranks into process groups of their own."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def is_alive(pid):
    """Whether it runs: one that has ended stays a zombie until its parent asks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def rank_process(process, rank):
    """The process id of a rank of a job."""
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if {f"{name}={rank}".encode() for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK")} & set(file.read().split(b"\0")):
                return pid
    return check(False, f"rank {rank} is not there")


def kill_job(process):
    """SIGKILL to the launcher and everything below it at once."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def hanging(folder, **how):
    """Variables of a run on storage that hangs or is slow below `folder`: hang.c."""
    check("COD_TEST_HANG" in os.environ, "COD_TEST_HANG does not name libcod_hang.so")
    return {"LD_PRELOAD": os.environ["COD_TEST_HANG"], "COD_HANG_FOLDER": folder, **how}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def parse_safetensors(path):
    """Its header and the bytes behind it."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length]), data[8 + length:]


def check_near(name, expected, actual, bound):
    off = math.dist(expected, actual) / math.hypot(*expected)
    check(off <= bound, f"{name}: off by {off:.2g} of its length, at most {bound} is right")


def check_near_ref(bench, ref, ours, name, step, groups, bounds):
    """A run on a device has what the same run on `ref` has: each group's arrays in the checkpoint of its last step and its losses of
    every step. `ref` and `ours` are the runs' folders, `bounds` the distances that are right, by the names of arrays and losses."""
    for group in range(groups):
        where = f"{name}, group {group}"
        right, found = (read_safetensors(bench.path(folder, "checkpoints", f"step-{step:09d}", f"group-{group}.safetensors")) for folder in (ref, ours))
        arrays = right.keys() & bounds.keys()
        for array in sorted(arrays):
            check_near(f"{where}: '{array}'", floats(right[array]), floats(found[array]), bounds[array])
        right, found = ([json.loads(line) for line in bench.read(folder, f"metrics.{group}.jsonl").splitlines()] for folder in (ref, ours))
        check(bounds.keys() <= arrays | right[0].keys(), f"{where} has only {arrays} and {right[0].keys()}")
        for key in sorted(bounds.keys() - arrays):
            first, second = ([line[key] for line in lines] for lines in (right[:-2], found[1:-1]))  # a device's losses are told a step later
            check([loss is None for loss in first] == [loss is None for loss in second], f"{where}: {key} is {second}, not {first}")
            for at, (expected, actual) in enumerate(zip(first, second), 1):
                if expected:
                    check_near(f"{where}, step {at}: {key}", [expected], [actual], bounds[key])


def read_metadata(path):
    return parse_safetensors(path)[0]["__metadata__"]


def read_safetensors(path):
    """Name -> bytes of each array."""
    header, body = parse_safetensors(path)
    return {name: body[entry["data_offsets"][0]:entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


def wait_for_steps(bench, process, name, lines, group=0, pause=0.01):
    path, begin = bench.path("runs", name, f"metrics.{group}.jsonl"), time.monotonic()
    while process.poll() is None and time.monotonic() - begin < 300:
        if os.path.exists(path):
            with open(path, "rb") as file:
                if file.read().count(b"\n") >= lines:
                    return
        time.sleep(pause)
    check(False, "training did not get under way", bench.wait(process, ["train"], 1))


def tries(seconds=300):
    """Numbers of tries, until time is up: of what comes about by chance, on a busy machine rarely."""
    begin, number = time.monotonic(), 0
    while number == 0 or time.monotonic() - begin < seconds:
        yield number
        number += 1


def longer_and_longer(steps, seconds=300):
    """Numbers of steps to try until a run shows what it is to show: groups whose processes wait for a processor may not meet in a short one."""
    for number in tries(seconds):
        yield steps * 4**number


def met_by_half(bench, name, groups):
    """Whether in the middle of a run each group had all its peers' versions: one may be through before another has begun."""
    middle = [lines[len(lines) // 2 - 1] for lines in (bench.metrics(name, group) for group in range(groups))]
    return all(peer["version"] > 0 for line in middle for peer in line.get("peers", []))


def steps_saved(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-")) if os.path.isdir(folder) else []


def parts_saved(folder, step):
    """Of the groups and ranks that have saved their part of a checkpoint."""
    return {name for name in os.listdir(os.path.join(folder, f"step-{step:09d}")) if name.startswith(("group-", "rank-"))}


def png(width, height, seed=0):
    """A small PNG of smooth noise."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + bytes((x * 5 + y * 3 + noise.randrange(64)) & 255 for x in range(width) for _ in range(3))
                    for y in range(height))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check_count(kind, count):
    """docs/bad-inputs.md says how many odd files of a kind there are: "| models that are read as the plain one is | 49 | …"."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "bad-inputs.md"), encoding="utf-8") as page:
        check(f"| {kind} | {count} |" in page.read(), f"docs/bad-inputs.md does not say '| {kind} | {count} |'")


def run_cases(cases, program, names):
    """Runs the named cases; the exit code of the test."""
    failed, skipped = [], 0
    for name in names or cases:
        bench = Bench(program)
        begin = time.monotonic()
        try:
            cases[name](bench)
            print(f"ok    {name}  {time.monotonic() - begin:.1f} s", flush=True)
        except Skip as reason:
            skipped += 1
            print(f"skip  {name}: {reason}", flush=True)
        except Failure as failure:
            failed.append(name)
            print(f"FAIL  {name}: {failure}", flush=True)
        finally:
            bench.close()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 77 if skipped == len(names or cases) else 0
