"""See choices.sh."""
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from common import Failure, Server, check_realtime, check_threads, describe_machine, parse, parser, run, say, take_turns, warn
from step_vs_pytorch import SIZES

VGG_FILE = "weights/vgg19_conv1_1_to_conv3_4.safetensors"
ISAS = ("amx", "avx512_bf16", "avx512", "avx2")
CACHES = 5
WHAT = """\
Three questions about how `codistill` chooses among implementations of convolutions, each about training steps of networks:

rule   how much longer a step takes with the rule's choices (COD_CPU_CONVOLUTION=fixed) than with those that `codistill bench tune` finds
       best, for each network, instruction set and precision: steps in turns, the ratio of the shortest of several processes' medians
busy   how far steps lie apart with the choices of five caches, each made while another process was at work on each processor: the longest
       over the shortest, minus one, of what is measured as for `rule`
start  seconds from the start of the process to the end of the first step, with an empty cache and with a full one: the median of --pairs

Caches are made in a folder of their own; the user's is neither read nor written. The last line has the largest figure of each question."""


@dataclasses.dataclass
class Case:
    """A network, and the arguments of `codistill bench` for a step of it."""
    name: str
    words: tuple


def cases(vgg):
    """Every network of the comparison with PyTorch, and the adversarial recipe without and with a perceptual network."""
    found = {name: Case(name, ("--model", name, "--batch", batch, "--patch", patch, *options)) for name, (batch, patch, options) in SIZES.items()}
    gan = ("--recipe", "srgan", "--model", "srresnet", "--batch", 16, "--patch", 24)
    found["srgan"] = Case("srgan", gan)
    if vgg:
        found["vgg"] = Case("vgg", (*gan, "gan.content=vgg22", f"gan.perceptual_file={vgg}"))
    return found


@dataclasses.dataclass
class Setting:
    """What a figure is measured with."""
    case: Case
    isa: str  # "" = the processor's own
    precision: str
    threads: int

    def words(self):
        return [*self.case.words, "--precision", self.precision, "--threads", self.threads]

    def variables(self, cache, **more):
        """A choice that the caller's environment has would be no choice of ours: auto is what an unset variable means."""
        return {"XDG_CACHE_HOME": str(cache), "COD_CPU_CONVOLUTION": "auto", **({"COD_CPU_ISA": self.isa} if self.isa else {}), **more}

    def label(self):
        return f"{self.case.name} {self.isa or 'own'} {self.precision} {self.threads}t"


def step(arguments, setting, cache, **more):
    return Server([arguments.codistill, "bench", "step", "--device", "cpu", "--serve", *setting.words()], setting.threads, arguments.realtime,
                  **setting.variables(cache, **more))


def tune(arguments, setting, cache):
    command = [arguments.codistill, "bench", "tune", *setting.words()]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **setting.variables(cache)})
    if done.returncode != 0:
        raise Failure(f"{setting.label()}: {done.stderr.strip().splitlines()[-1]}")


def medians_of(arguments, starts):
    """Of each kind of process the shortest median, and all times. Where a process's memory lies matters, too, and the one that starts first may
    have the worse place: there are several of each, started in changing order."""
    medians, every = [[] for _ in starts], []
    for turn in range(arguments.processes):
        order = list(range(len(starts)))
        order = order if turn % 2 == 0 else order[::-1]
        with contextlib.ExitStack() as stack:
            servers = {i: stack.enter_context(starts[i]()) for i in order}
            every.append(take_turns([servers[i] for i in range(len(starts))], arguments.pairs))
        for kind, times in zip(medians, every[-1]):
            kind.append(statistics.median(times))
    return [min(kind) for kind in medians], every


def rule(arguments, setting, folder):
    """{"ratio"}"""
    tune(arguments, setting, folder)
    starts = [lambda: step(arguments, setting, folder, COD_CPU_CONVOLUTION="fixed"), lambda: step(arguments, setting, folder)]
    (fixed, tuned), every = medians_of(arguments, starts)
    say(f"  {setting.label():32s} rule {fixed:8.2f} ms, tuned {tuned:8.2f} ms, ratio {fixed / tuned:.3f}")
    return {"ratio": fixed / tuned, "rule_and_tuned_ms": every}


@contextlib.contextmanager
def busy_processors():
    """A process at work on each of them."""
    workers = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(10000))"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def busy(arguments, setting, folder):
    """{"spread"}"""
    caches = [folder / str(i) for i in range(CACHES)]
    with busy_processors():
        for cache in caches:
            cache.mkdir()
            with step(arguments, setting, cache):
                pass
    medians, every = medians_of(arguments, [functools.partial(step, arguments, setting, cache) for cache in caches])
    spread = max(medians) / min(medians) - 1
    say(f"  {setting.label():32s} {', '.join(f'{m:.1f}' for m in medians)} ms: {100 * spread:.1f} % apart")
    return {"spread": spread, "ms": every}


def start(arguments, setting, folder):
    """{"empty_s", "full_s"}"""
    times = {"empty_s": [], "full_s": []}
    full = folder / "full"
    full.mkdir()
    tune(arguments, setting, full)
    for _ in range(arguments.pairs):
        shutil.rmtree(folder / "codistill", ignore_errors=True)
        for kind, cache in zip(times, (folder, full)):
            with step(arguments, setting, cache) as server:
                times[kind].append(server.first_s)
    empty, full = (statistics.median(t) for t in times.values())
    say(f"  {setting.label():32s} empty cache {empty:.2f} s, full {full:.2f} s; the least {min(times['empty_s']):.2f} and {min(times['full_s']):.2f}")
    return {"empty_s": empty, "full_s": full, "times": times}


QUESTIONS = {"rule": (rule, ("ratio",)), "busy": (busy, ("spread",)), "start": (start, ("empty_s", "full_s"))}


def settings(arguments):
    for name in arguments.network:
        for isa in arguments.isa:
            for precision in arguments.precision:
                if precision == "bf16" and isa in ("avx512", "avx2", "generic"):
                    continue  # has no such numbers
                for threads in arguments.threads:
                    yield Setting(arguments.cases[name], isa, precision, threads)


def read_arguments(argv):
    p = parser("choices.sh", WHAT)
    p.add_argument("question", choices=QUESTIONS, help="what is measured, see above")
    p.add_argument("--network", metavar="LIST", help=f"all of {', '.join(SIZES)}, srgan, and vgg (srgan with VGG-19's features)")
    p.add_argument("--isa", metavar="LIST", help=f"instruction sets (the processor's own; for `rule` those of {','.join(ISAS)} that it has)")
    p.add_argument("--precision", default="f32,bf16", metavar="LIST", help="f32,bf16; bf16 is left out for sets without it")
    p.add_argument("--processes", type=int, default=4, metavar="N", help="of each kind that are measured for `rule` and `busy` (4)")
    p.add_argument("--vgg", metavar="FILE", help=f"VGG-19's weights ({VGG_FILE} in $COD_DATA)")
    arguments = parse(p, argv)
    shared = pathlib.Path(os.environ.get("COD_DATA", "data")) / VGG_FILE
    arguments.cases = cases(arguments.vgg or (shared if shared.exists() else None))
    arguments.network = (arguments.network or ",".join(arguments.cases)).split(",")
    arguments.precision = arguments.precision.split(",")
    for name in arguments.network:
        if name not in arguments.cases:
            p.error(f"there is no network '{name}'; there are {', '.join(arguments.cases)}" + (" (vgg needs --vgg)" if name == "vgg" else ""))
    if unknown := set(arguments.precision) - {"f32", "bf16"}:
        p.error(f"there is no precision {', '.join(sorted(unknown))}; there are f32, bf16")
    arguments.isa = arguments.isa.split(",") if arguments.isa else None
    return arguments


def present_sets(arguments):
    """Those of ISAS that the processor has."""
    found = []
    for isa in ISAS:
        done = subprocess.run([arguments.codistill, "bench", "tune", "--model", "logistic", "--patch", "4", "--batch", "1"], capture_output=True, text=True,
                              env={**os.environ, "COD_CPU_ISA": isa})
        if done.returncode == 0:
            found.append(isa)
    return found


def main(argv):
    arguments = read_arguments(argv)
    ask, figures = QUESTIONS[arguments.question]
    machine = describe_machine()
    check_realtime(arguments)
    arguments.threads = check_threads(arguments)
    if arguments.isa is None:
        arguments.isa = present_sets(arguments) if arguments.question == "rule" else [""]
    results, failed = [], False
    for setting in settings(arguments):
        try:
            with tempfile.TemporaryDirectory(prefix="cod-choices-") as folder:
                results.append({"network": setting.case.name, "isa": setting.isa, "precision": setting.precision, "threads": setting.threads,
                                **ask(arguments, setting, pathlib.Path(folder))})
        except Failure as failure:
            failed = True
            warn(f"{setting.label()}: {failure.said or failure}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
    if results:
        say()
        say(" ".join(f"largest_{figure} {max(r[figure] for r in results):.3f}" for figure in figures))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(run(main))
