"""What the comparisons share: environments, servers that take turns, statistics, and words about the machine. Standard library only."""
import argparse
import contextlib
import json
import math
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRIORITY = 50
PYTORCH = {"THP_MEM_ALLOC_ENABLE": "1"}  # huge pages for its tensors, which Codistill asks for, too


class Failure(Exception):
    """Ends the comparison with one line on standard error. `said`: the last words of the process that failed."""

    def __init__(self, text, said=""):
        super().__init__(text)
        self.said = said


class OutOfTime(Exception):
    """Says what was not measured."""


class Budget:
    """Seconds that something may take, from now on."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)


def say(text=""):
    print(text, flush=True)


def parser(name, what):
    p = argparse.ArgumentParser(prog=f"tools/bench/{name}", description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--codistill", metavar="FILE", help="the command to measure (build/release/codistill)")
    p.add_argument("--pairs", type=int, default=7, metavar="N", help="measured pairs (7)")
    p.add_argument("--threads", default="1,2", metavar="LIST", help="numbers of threads (1,2)")
    p.add_argument("--realtime", action="store_true",
                   help=f"measure at real-time priority {PRIORITY}, pinned to the first processors: for machines that others use too; needs root")
    p.add_argument("--json", metavar="FILE", help="also writes every time measured")
    return p


def find_program(path):
    """The command to measure; without a path, the one of the release tree."""
    program = pathlib.Path(path or ROOT / "build/release/codistill").absolute()
    if not os.access(program, os.X_OK):
        raise Failure(f"{program} is not there; build it: cmake --preset release && cmake --build --preset release")
    return program


def parse(p, argv):
    arguments = p.parse_args(argv)
    try:
        arguments.threads = [int(n) for n in arguments.threads.split(",")]
        assert all(n >= 1 for n in arguments.threads) and arguments.pairs >= 1
    except (ValueError, AssertionError):
        p.error("--threads is a list such as 1,2 and --pairs a number, all at least 1")
    arguments.codistill = find_program(arguments.codistill)
    return arguments


def imports(python, modules):
    test = subprocess.run([python, "-c", f"import {', '.join(modules)}"], capture_output=True)
    return test.returncode == 0


def environment(name, modules, existing):
    """A Python that imports `modules`: COD_BENCH_VENV's, an existing one, or ~/.cache/codistill/venv-NAME's, made if need be."""
    chosen = os.environ.get("COD_BENCH_VENV")
    own = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "codistill" / f"venv-{name}"
    for folder in [chosen] if chosen else [own, existing]:
        python = str(pathlib.Path(folder) / "bin/python")
        if os.access(python, os.X_OK) and imports(python, modules):
            return python
    folder = pathlib.Path(chosen or own)
    python = str(folder / "bin/python")
    say(f"installing {', '.join(modules)} in {folder} (a minute or two)")
    for command in ([sys.executable, "-m", "venv", str(folder)], [python, "-m", "pip", "install", "--quiet", *modules]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip().splitlines()
            raise Failure(f"`{' '.join(command)}` failed: {' / '.join(output[-3:])}")
    if not imports(python, modules):
        raise Failure(f"{python} cannot import {', '.join(modules)} after their installation")
    return python


def describe_machine(cpuinfo="/proc/cpuinfo"):
    """Processor and load, with a warning where others are at work. `bf16`: whether the processor multiplies numbers of that type itself."""
    info = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path(cpuinfo).read_text().splitlines():
            key, _, value = line.partition(":")
            info.setdefault(key.strip(), value.strip())
    flags = info.get("flags", info.get("Features", "")).split()
    sets = [name for flag, name in (("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_vnni", "AVX512-VNNI"),
                                    ("avx512_bf16", "AVX512-BF16"), ("amx_bf16", "AMX-BF16"), ("amx_int8", "AMX-INT8")) if flag in flags]
    load = os.getloadavg()[0]
    say(f"machine: {info.get('model name', 'unknown')} (family {info.get('cpu family', '?')}, model {info.get('model', '?')}), "
        f"{len(os.sched_getaffinity(0))} processors, {', '.join(sets) or 'no wide sets'}; load average {load:.2f}")
    if load > 0.5:
        warn(f"the machine is in use (load average {load:.2f}): figures may be too slow on both sides; see --realtime")
    return {"processor": info.get("model name"), "family": info.get("cpu family"), "model": info.get("model"), "sets": sets, "load": load,
            "bf16": bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags))}


def check_threads(arguments):
    """Leaves out numbers of threads that the machine does not have."""
    here = len(os.sched_getaffinity(0))
    few = [n for n in arguments.threads if n <= here]
    if few != arguments.threads:
        warn(f"{here} processors: no measurement with more threads")
    if not few:
        raise Failure("no number of threads is left to measure with")
    return few


class Server:
    """A process that does one piece of work when started and one for each line sent, answering each with a line of JSON."""

    def __init__(self, command, threads, realtime, ready_s=1800, budget=None, **variables):
        self.budget = budget  # bounds every answer, the first one too; None = nothing does
        self.name = " ".join(map(str, command))
        self.errors = tempfile.TemporaryFile("w+")
        self.said = ""  # on standard error, once the process has ended
        prefix = []
        if realtime:
            cpus = sorted(os.sched_getaffinity(0))[:threads]
            prefix = ["chrt", "-f", str(PRIORITY), "taskset", "-c", ",".join(map(str, cpus))]
        start = time.monotonic()
        self.process = subprocess.Popen([*prefix, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads), **PYTORCH, **variables})
        self.answers = [self.read(ready_s)]
        self.first_s = time.monotonic() - start

    def read(self, timeout_s=120):
        begin, left, ready = time.monotonic(), timeout_s, []
        while not ready and left > 0:
            left = timeout_s - (time.monotonic() - begin)
            left = min(left, self.budget.left()) if self.budget else left  # the budget may change meanwhile
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, min(left, 1)))
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            code = self.process.wait()
            self.errors.seek(0)
            said = " / ".join(self.errors.read().strip().splitlines()[-3:])
            raise Failure(f"`{self.name}` {f'ended with {code}' if ready else f'gave no answer in {time.monotonic() - begin:.0f} s'}: {said}", said)
        try:
            return json.loads(line)
        except ValueError:
            raise Failure(f"`{self.name}` answered {line.strip()!r}") from None

    def turn(self, word="go"):
        """One more piece of work; its answer. Some servers can do several, which the word names."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.answers.append(self.read())
        return self.answers[-1]

    def rss_mib(self):
        """Its largest resident memory so far."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return math.nan

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(min(20, 1 + self.budget.left()) if self.budget else 20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.seek(0)
        self.said = self.errors.read()
        self.errors.close()


def largest(values):
    """Their maximum; NaN where one of them is."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


def take_turns(servers, rounds):
    """Milliseconds of each server, `rounds` times in turn, in changing order; two rounds before are not counted."""
    times = [[] for _ in servers]
    for r in range(-2, rounds):
        for i in range(len(servers)) if r % 2 == 0 else reversed(range(len(servers))):
            ms = servers[i].turn()["ms"]
            time.sleep(0.02)  # lets idle OpenMP threads of the last one fall asleep
            if r >= 0:
                times[i].append(ms)
    return times


def median_of(server, rounds):
    return take_turns([server], rounds)[0]


def spread(times):
    """"median (min … quartile, quartile … max)"."""
    low, high = quartiles(times)
    return f"{statistics.median(times):8.1f} ms  (quartiles {low:.1f} and {high:.1f}, from {min(times):.1f} to {max(times):.1f})"


def quartiles(times):
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high


def check_realtime(arguments):
    if not arguments.realtime:
        return
    for tool in ("chrt", "taskset"):
        if shutil.which(tool) is None:
            raise Failure(f"--realtime needs {tool} (package util-linux)")
    if subprocess.run(["chrt", "-f", str(PRIORITY), "true"], capture_output=True).returncode != 0:
        raise Failure("--realtime: this user may not have real-time priority; run as root")
    say(f"real-time priority {PRIORITY}, pinned to the first processors")


def process_of_rank(rank, folder):
    """The process of the run in `folder` that is this rank."""
    wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0") and folder.encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
        except OSError:
            pass
    raise Failure(f"there is no process of rank {rank}")


def run(main):
    """The exit code of a comparison: 0 done, or what `main` returns, 1 failed, 130 interrupted."""
    try:
        return main(sys.argv[1:]) or 0
    except Failure as failure:
        print(f"{pathlib.Path(sys.argv[0]).stem}: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
