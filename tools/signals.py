"""See signals.sh."""
import argparse
import collections
import contextlib
import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from soak import ROOT, STOPPED, Failure, descendants, end_with_parent, say, send

LIMIT_S = 300  # for what takes a second or two on a machine of one's own; the measured times say how long it took
WHAT = """\
Starts small trainings on generated pictures, of one rank and of two groups, and sends each of them one signal at an instant between its start and
its end: to the launching process (launcher), to its process group as a terminal does (group), to mpirun, to one rank (rank), or to all processes
of the job at once as batch systems do (all). `pipe` is no signal: nobody reads the job's output any more from that instant on.
The job must end by itself with an exit code and words that are documented for that signal and target, and leave no process. Each group that has
done a step must have a checkpoint, unless it was killed. The same command must go on from the newest checkpoint, and end with the bits and the
files of a training that nobody disturbed."""
EXIT = """\
The seed repeats the choice of instants, as shares of what an undisturbed training takes. Exit code 0: all held; 1: something did not, and what;
2: bad use; 130: interrupted. Files are in memory (/dev/shm) where there is some."""
CONFIG = """\
name: s
cluster: {{threads: 1, bind: none}}
model: {{name: srresnet, blocks: 1, channels: 4, norm: none, head_kernel: 3, tail_kernel: 3, skip: nearest}}
data: {{kind: synthetic, synthetic_count: 4, patch: 8, batch: 2, val_count: 1, threads: 1, cache_mb: 16}}
train: {{steps: {steps}, precision: f32, schedule: constant, deterministic: true}}
distill: {{burn_in: 5, ramp: 5}}
exchange: {{period: 10, lag_steps: 5, min_interval_ms: 0}}
eval: {{every: 50, images: 1}}
checkpoint: {{every: 20}}
log: {{every: 5, samples: 0, tensorboard: false}}
"""
SETUPS = {"single": ["train.strategy=single"], "2x1": ["train.strategy=codistill", "cluster.groups=2"]}
GROUPS = {"single": 1, "2x1": 2}
STEPS, ENDLESS = 200, ["train.steps=1000000000"]
TARGETS = {"single": ("launcher", "group"), "2x1": ("launcher", "group", "mpirun", "rank", "all")}
REQUESTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGXFSZ")  # to save and end: tools/stop.c
EVENTS = (*REQUESTS, "SIGQUIT", "SIGKILL", "pipe")

# How a job may end. "early" has begun no training, "killed" is the launching process by the signal, "failed" is any other end with a message.
ENDINGS = ("saved", "finished", "early", "killed", "failed")
EARLY = ("before its ranks had begun", "while it was being set up")


@dataclasses.dataclass
class Try:
    """One training, and what came of it."""
    event: str
    setup: str
    target: str
    instants: list  # shares of what an undisturbed training takes, one for each life that is disturbed
    number: int
    chance: float   # which rank
    endless: bool   # it would train for ever: what is to end it must do so
    phase: str = ""  # of the first life that was disturbed, as what follows
    ending: str = ""
    end_s: float = 0.0   # from the signal until the launching process has ended
    gone_s: float = 0.0  # and until no process is left
    sent: int = 0        # how many lives were disturbed
    resumed_at: int = -1
    fault: str = ""

    @property
    def name(self):
        return f"{self.event} to {self.target} of {self.setup}{' without an end' * self.endless} after {self.instants[0]:.3f} of its time (try {self.number})"


def users_of(folder):
    """Processes that work in a folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(entry / "cwd") == str(folder):
                    found.append(int(entry.name))
    return found


def runs(pid, program):
    with contextlib.suppress(OSError):
        return os.path.samefile(f"/proc/{pid}/exe", program)
    return False


def begin_job():
    """In the child: what this process ignores, as under nohup or in the background of a script, is not ignored there."""
    for event in EVENTS:
        if event not in ("pipe", "SIGKILL"):
            signal.signal(signal.Signals[event], signal.SIG_DFL)
    end_with_parent()


class Job:
    """A training in a folder of its own."""

    def __init__(self, bench, folder, setup, endless=False, reader=None):
        self.program, self.folder, self.setup, self.run = bench.program, folder, setup, folder / "runs/s"
        self.log_path, self.lines_before = folder / f"log.{len(list(folder.glob('log.*')))}", self.lines()
        environment = dict(os.environ, TMPDIR=str(folder / "tmp"), OMPI_MCA_btl_vader_backing_directory=str(folder / "tmp"))
        self.begun = time.monotonic()
        with open(self.log_path, "wb") as log:
            out = log if reader is None else reader
            command = [bench.program, "train", "s.yaml", *SETUPS[setup], *(ENDLESS if endless else [])]
            self.process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True, env=environment, preexec_fn=begin_job)

    def victims(self, target, chance):
        """Process ids; none: it is not there yet."""
        if target == "launcher":
            return [self.process.pid]
        below = descendants(self.process.pid)
        ranks = [pid for pid in below[1:] if runs(pid, self.program)]  # below mpirun; Hydra has a process of its own between
        return {"mpirun": below[:1], "rank": [sorted(ranks)[int(chance * len(ranks))]] if ranks else [],
                "all": [self.process.pid, *below]}[target]

    def phase(self):
        if list(self.run.glob("group.*.safetensors")):
            return "end"
        return "training" if self.lines() > 0 else "start"

    def has_finished(self):
        return (self.run / "summary.json").exists()

    def lines(self):
        return sum(path.read_bytes().count(b"\n") for path in self.run.glob("metrics.*.jsonl"))

    def end(self):
        """Waits until the launching process has ended, then until no process is left. @return seconds until both"""
        begun = time.monotonic()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"it has not ended within {LIMIT_S} s") from None
        ended = time.monotonic() - begun
        while left := users_of(self.folder):
            if time.monotonic() - begun > LIMIT_S:
                names = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80] for pid in left]
                self.kill()
                raise Failure(f"processes are left: {names}")
            time.sleep(0.005)
        return ended, time.monotonic() - begun

    def kill(self):
        send([*descendants(self.process.pid), *users_of(self.folder)], signal.SIGKILL)
        self.process.wait()

    def said(self):
        return self.log_path.read_text(errors="replace")

    def checkpoints(self, group):
        """Steps of which the group has a checkpoint."""
        return {int(path.parent.name[5:]) for path in self.run.glob(f"checkpoints/step-*/group-{group}.safetensors")}

    def left(self):
        """What a finished training leaves: names of files, and the bits of what it has learnt."""
        names = {re.sub(r"step-\d+", "step-N", str(path.relative_to(self.run))) for path in self.run.rglob("*") if path.is_file()}
        return names, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.run.glob("*.safetensors")}


class Bench:
    """Of one worker."""

    def __init__(self, program, folder, reference):
        self.program, self.folder, self.reference = program, folder, reference
        self.took = {setup: collections.deque([seconds], maxlen=5) for setup, (seconds, _) in reference.items()}

    def fresh(self, name):
        folder = self.folder / name
        # Open MPI 4 fails when two jobs that start at the same moment both find its folder missing and make it.
        os.makedirs(folder / "tmp" / f"ompi.{os.uname().nodename.split('.')[0]}.{os.getuid()}")
        (folder / "s.yaml").write_text(CONFIG.format(steps=STEPS))
        return folder

    def one(self, attempt):
        """A try, to its end. What does not hold is its fault."""
        folder = self.fresh(f"try-{attempt.number}")
        jobs = []
        try:
            instants = list(attempt.instants)
            while instants:
                instant = instants.pop(0)
                phase, ending, end_s, gone_s = self.disturb(attempt, instant, folder, jobs)
                if phase == "over":  # it had ended before
                    instants.insert(0, instant / 2)
                elif not attempt.ending:
                    attempt.phase, attempt.ending, attempt.end_s, attempt.gone_s = phase, ending, end_s, gone_s
                if jobs[-1].has_finished() or not instants:
                    self.go_on(attempt, ending, folder, jobs)
                    shutil.rmtree(jobs[-1].run)
        except Failure as failure:
            said = "".join(f"  -- life {life}, exit code {job.process.poll()}\n" +
                           "".join(f"  {line}\n" for line in job.said().splitlines() if not re.match(r"group \d+  step", line))
                           for life, job in enumerate(jobs, 1))
            attempt.fault = f"{failure}\n{said}"
            return attempt
        shutil.rmtree(folder, ignore_errors=True)
        return attempt

    def disturb(self, attempt, instant, folder, jobs):
        """One life. @return in which phase it was disturbed, how it ended, and after how many seconds it had ended and no process was left"""
        ends = os.pipe() if attempt.event == "pipe" else None
        job = Job(self, folder, attempt.setup, attempt.endless, ends and ends[1])
        jobs.append(job)
        if ends:
            os.close(ends[1])
        time.sleep(instant * statistics.median(self.took[attempt.setup]))
        while attempt.target != "group" and not (victims := job.victims(attempt.target, attempt.chance)) and job.process.poll() is None:
            time.sleep(0.001)  # it is not there yet
        phase = job.phase() if job.process.poll() is None else "over"
        attempt.sent += phase != "over"
        if ends:
            os.close(ends[0])
        elif attempt.target == "group":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.Signals[attempt.event])
        else:
            send(victims, signal.Signals[attempt.event])
        end_s, gone_s = job.end()
        ending = self.judge(attempt, job)
        if ending == "finished" and job.lines_before == 0:
            self.took[attempt.setup].append(time.monotonic() - job.begun)
        return phase, ending, end_s, gone_s

    def judge(self, attempt, job):
        """How it ended. It fails where neither the signal nor the target explain that."""
        code, said = job.process.returncode, job.said()
        messages = [line for line in said.splitlines() if line.startswith("codistill: ")]
        saved = {int(group): int(step) for group, step in re.findall(r"group (\d+): stopped and saved at step (\d+)", said)}
        groups = GROUPS[attempt.setup]
        request, by_launcher = attempt.event in REQUESTS, attempt.target in ("launcher", "group")
        if ("MPI_ABORT" in said or "-----" in said) and "and started none of" not in said:
            raise Failure("mpirun's banners are shown")
        if code == 0:
            if not job.has_finished() or saved or attempt.endless:
                raise Failure("exit code 0, but it has not finished")
            return "finished"
        if code == STOPPED:
            if not request or set(saved) != set(range(groups)):
                raise Failure(f"exit code {code}, but of {groups} groups {sorted(saved)} saved")
            if any(step not in job.checkpoints(group) for group, step in saved.items()):
                raise Failure(f"it says that it saved {saved}, but has {[job.checkpoints(group) for group in range(groups)]}")
            return "saved"
        if attempt.event == "pipe":
            raise Failure(f"exit code {code}: an output that nobody reads is no reason to end")
        if code < 0:
            if attempt.target in ("mpirun", "rank") or -code != signal.Signals[attempt.event] or (request and job.lines() > job.lines_before):
                raise Failure(f"the launching process was killed by signal {-code}")
            return "killed"
        if code != 1 or len(messages) != 1:
            raise Failure(f"exit code {code} and {len(messages)} messages: documented are 0, 1 and {STOPPED}, and one message with 1")
        if match := re.search(r"the last good checkpoint is of step (\d+)", messages[0]):
            if not any(int(match[1]) in job.checkpoints(group) for group in range(groups)):
                raise Failure(f"there is no checkpoint of step {match[1]}")
        if any(words in messages[0] for words in EARLY):
            return "early"
        if request and by_launcher:
            raise Failure("a request to end is no failure")
        return "failed"

    def go_on(self, attempt, ending, folder, jobs):
        """The same command again, where it has not finished; then what is there beside what an undisturbed one leaves."""
        last = jobs[-1]
        if ending != "finished":
            groups = GROUPS[attempt.setup]
            newest = max(set.intersection(*(last.checkpoints(group) for group in range(groups))), default=0)  # that all groups have
            if newest > STEPS:
                return
            last = Job(self, folder, attempt.setup)
            jobs.append(last)
            last.end()
            said = last.said()
            resumed = {int(group): int(step) for group, step in re.findall(r"group (\d+): resumed at step (\d+)", said)}
            if match := re.search(r"is finished: all (\d+) steps", said):
                resumed = dict.fromkeys(range(groups), int(match[1]))
            if last.process.returncode != 0 or not last.has_finished():
                raise Failure("the same command does not finish it")
            if {resumed.get(group, 0) for group in range(groups)} != {newest}:
                raise Failure(f"it resumed at {resumed}, the newest checkpoint is of step {newest}")
            attempt.resumed_at = newest
        names, bits = last.left()
        if bits != self.reference[attempt.setup][1][1]:
            raise Failure("it ends with other bits than an undisturbed training")
        if names != self.reference[attempt.setup][1][0]:
            raise Failure(f"it leaves {sorted(names ^ self.reference[attempt.setup][1][0])} more or less than an undisturbed training")


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/signals.sh", description=WHAT, epilog=EXIT, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tries", type=int, default=3, metavar="N",
                   help="instants of each signal, target and kind of training (3); three times as many of `pipe`, which has one target")
    p.add_argument("--signals", default=",".join(EVENTS), metavar="LIST", help=f"some of {','.join(EVENTS)}")
    p.add_argument("--trainings", default=",".join(SETUPS), metavar="LIST", help=f"some of {','.join(SETUPS)}: of one rank, of two groups")
    p.add_argument("--again", type=int, default=0, metavar="N",
                   help="how often the same command is disturbed again (0); a training that has finished begins anew")
    p.add_argument("--seed", type=int, help="of the instants; said at the start")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="trainings at a time (one for each processor)")
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--folder", metavar="DIR", help="an existing folder for files; those of tries that failed stay there")
    p.add_argument("--json", metavar="FILE", help="also writes every try")
    a = p.parse_args(argv)
    if a.tries < 1 or a.jobs < 1 or a.again < 0:
        p.error("--tries and --jobs are 1 or more, --again is not negative")
    a.events, a.setups = a.signals.split(","), a.trainings.split(",")
    for names, known in ((a.events, EVENTS), (a.setups, SETUPS)):
        if unknown := [name for name in names if name not in known]:
            p.error(f"'{unknown[0]}' is none of {', '.join(known)}")
    a.codistill = pathlib.Path(a.codistill or ROOT / "build/release/codistill").absolute()
    if not os.access(a.codistill, os.X_OK):
        raise Failure(f"{a.codistill} is not there; build it: cmake --preset release && cmake --build --preset release")
    return a


def plan(events, setups, tries, again, seed):
    """All tries, mixed: the instants of a signal and target are spread evenly over a training's time."""
    chance, attempts = random.Random(seed), []
    for event in events:
        for setup in setups:
            for target in ("launcher",) if event == "pipe" else TARGETS[setup]:
                count = 3 * tries if event == "pipe" else tries
                for i in range(count):
                    instants = [(i + chance.random()) / count, *(chance.random() for _ in range(again))]
                    # What mpirun is sent before it has started ranks it hands on to none, and forgets.
                    endless = event in REQUESTS and chance.random() < 0.5 and target != "mpirun"
                    attempts.append(Try(event, setup, target, instants, 0, chance.random(), endless))
    chance.shuffle(attempts)
    for number, attempt in enumerate(attempts):
        attempt.number = number
    return attempts


def measure_reference(program, setups, folder):
    """Setup -> how long an undisturbed training takes, and what it leaves: twice, as its second start finds a warm cache."""
    reference = {}
    for setup in setups:
        bench = Bench(program, folder, {})
        for turn in range(2):
            begun, job = time.monotonic(), Job(bench, bench.fresh(f"reference-{setup}-{turn}"), setup)
            job.end()
            if job.process.returncode != 0:
                raise Failure(f"an undisturbed training ended with exit code {job.process.returncode}:\n{job.said()}")
            left = job.left()
            if turn == 1 and left != reference[setup][1]:
                raise Failure("two undisturbed trainings end with other bits")
            reference[setup] = (time.monotonic() - begun, left)
    return reference


worker = None


def begin_worker(*arguments):
    global worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    worker = Bench(*arguments)


def work(attempt):
    return worker.one(attempt)


def spread(seconds):
    ordered = sorted(seconds)
    return f"{statistics.median(ordered):.2f}, {ordered[math.ceil(0.9 * len(ordered)) - 1]:.2f}, {ordered[-1]:.2f}" if ordered else "-"


def report(attempts):
    for title, key in (("signal", lambda a: a.event), ("target", lambda a: f"{a.setup} {a.target}"), ("phase", lambda a: a.phase)):
        rows = collections.defaultdict(list)
        for attempt in attempts:
            rows[key(attempt)].append(attempt)
        say(f"\n{title:>15} tries" + "".join(f" {ending:>8}" for ending in ENDINGS) + " faults  seconds until none is left: median, 90 %, longest")
        for name, row in rows.items():
            counts = "".join(f" {sum(a.ending == ending for a in row):8}" for ending in ENDINGS)
            seconds = [a.gone_s for a in row if a.event != "pipe" and a.gone_s]  # what nobody reads goes on to its end
            say(f"{name:>15} {len(row):5}{counts} {sum(bool(a.fault) for a in row):6}  {spread(seconds)}")


def main(argv):
    arguments = parse(argv)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 30)
    attempts, done, code = plan(arguments.events, arguments.setups, arguments.tries, arguments.again, seed), [], 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="codistill-signals-", dir=arguments.folder or memory))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    try:
        reference = measure_reference(arguments.codistill, arguments.setups, folder)
        say(f"seed {seed} (--seed {seed} repeats the instants): {len(attempts)} tries; undisturbed, " +
            ", ".join(f"{setup} takes {seconds:.2f} s" for setup, (seconds, _) in reference.items()))
        with multiprocessing.Pool(arguments.jobs, begin_worker, (arguments.codistill, folder, reference)) as pool:
            for attempt in pool.imap_unordered(work, attempts):
                done.append(attempt)
                if attempt.fault:
                    code = 1
                    print(f"signals: {attempt.name}: {attempt.fault}", file=sys.stderr, flush=True)
                if len(done) % 50 == 0:
                    say(f"{len(done)}/{len(attempts)} tries, {sum(bool(a.fault) for a in done)} faults")
    except KeyboardInterrupt:
        code = 130
        say("\ninterrupted")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    report(done)
    say(f"{len(done)} tries, {sum(a.sent for a in done)} jobs disturbed, {sum(bool(a.fault) for a in done)} faults "
        f"in {time.monotonic() - begun:.0f} s; seed {seed}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"seed": seed, "tries": [dataclasses.asdict(a) for a in done]}, indent=1) + "\n")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"signals: {failure}", file=sys.stderr)
        sys.exit(1)
