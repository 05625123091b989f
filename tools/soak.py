"""See soak.sh."""
import argparse
import contextlib
import ctypes
import json
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
STOPPED = 75      # the exit code of a training that saved and stopped before its end
PATIENCE_S = 300  # without any sign of life, for what takes a second or two on a machine of one's own
MOST_STEPS = 20000  # that both groups make before one has the other's new version, which takes a few hundred
EVERY = 25        # steps between two lines of metrics
WHAT = """\
Trains a tiny model on generated pictures in groups that are separate jobs (`codistill train --group K exchange.transport=file`). At
random moments a group dies by SIGKILL: all of its processes at once (group), one of a group of several ranks, of mpirun or of the launcher
(one), or twice, the second time while it comes back (again); in between one hangs for a while (stop: SIGSTOP, SIGCONT). The dead
group is started again. The others must lose no step, and must not end; it must resume from its newest checkpoint and be everybody's teacher
again, by a version that it made after its death; no version may be refused but of a group that died. Kills are counted, stops are extra."""
EXIT = """\
The seed repeats the choice of groups and moments. Exit code 0: all held; 1: something did not, and what; 2: bad use; 130: interrupted.
Files are in memory (/dev/shm) where there is some, about 10 MB a minute and group; a busy disk leaves publications out."""
CONFIG = """\
name: soak
cluster: {{threads: 1, bind: none, groups: [{groups}]}}
model: {{name: srresnet, blocks: 1, channels: 8, norm: none, head_kernel: 3, tail_kernel: 3, skip: nearest}}
data: {{kind: synthetic, synthetic_count: 4, patch: 12, batch: 2, val_count: 1, threads: 1, cache_mb: 16}}
train: {{strategy: codistill, steps: 1000000000, precision: f32, schedule: constant}}
distill: {{burn_in: 5, ramp: 5}}
exchange: {{transport: file, period: 25, key_every: 8}}
eval: {{every: 0}}
checkpoint: {{every: 100}}
log: {{every: {every}, samples: 0, tensorboard: false}}
"""


class Failure(Exception):
    """Ends the soak with one line on standard error."""


def sizes(text):
    """Ranks of each group, of which there are two or more."""
    if not re.fullmatch(r"[1-9]\d?(,[1-9]\d?)+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of two groups' ranks or more, such as 1,2,1")
    return [int(n) for n in text.split(",")]


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/soak.sh", description=WHAT, epilog=EXIT, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = p.add_mutually_exclusive_group()
    length.add_argument("--kills", type=int, metavar="N", help="end after so many kills (10)")
    length.add_argument("--minutes", type=float, metavar="M", help="end after this time")
    p.add_argument("--groups", type=sizes, default=[1, 2, 1], metavar="LIST", help="ranks of each group (1,2,1)")
    p.add_argument("--seed", type=int, help="of the random choices; said at the start")
    p.add_argument("--codistill", metavar="FILE", help="the command to run (build/release/codistill)")
    p.add_argument("--folder", metavar="DIR", help="an existing folder for the run's files, which stay there; none is kept otherwise")
    p.add_argument("--json", metavar="FILE", help="also writes the counts and times")
    a = p.parse_args(argv)
    if a.kills is None and a.minutes is None:
        a.kills = 10
    if (a.kills or a.minutes) <= 0:
        p.error("--kills and --minutes are above 0")
    a.codistill = pathlib.Path(a.codistill or ROOT / "build/release/codistill").absolute()
    if not os.access(a.codistill, os.X_OK):
        raise Failure(f"{a.codistill} is not there; build it: cmake --preset release && cmake --build --preset release")
    return a


def say(text=""):
    print(text, flush=True)


def wait_until(condition, what, life=lambda: None):
    """However slow the machine is: as long as `life` changes, it waits."""
    seen, since = life(), time.monotonic()
    while not condition():
        if life() != seen:
            seen, since = life(), time.monotonic()
        if time.monotonic() > since + PATIENCE_S:
            raise Failure(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.01)


def descendants(pid):
    """Every process below `pid`: mpirun puts ranks into process groups of their own."""
    found = []
    with contextlib.suppress(OSError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_with_parent():
    """A soak that is killed itself must not leave jobs that train for ever: they stop, and save."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Growing:
    """A file to which lines are added, and which a job that resumes shortens."""

    def __init__(self, path):
        self.path, self.at = path, 0

    def new_lines(self):
        """Whole lines since the last call."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.at)
            data = file.read()
        data = data[:data.rfind(b"\n") + 1]
        self.at += len(data)
        return data.decode(errors="replace").splitlines()


class Group:
    """One group's job, and what it has written."""

    def __init__(self, soak, index, ranks):
        self.soak, self.index, self.ranks = soak, index, ranks
        self.kills = self.stops = self.refused = self.lost = 0
        self.back_s, self.process, self.lives, self.back_at = [], None, 0, 0
        self.pids = []

    def start(self):
        """The next life. What the files say is read again from their beginning: a resume drops what came after its step."""
        run = self.soak.folder / "runs/soak"
        self.lives += 1
        self.log_path = self.soak.folder / f"log.{self.index}.{self.lives}"
        self.log, self.metrics, self.events = Growing(self.log_path), Growing(run / f"metrics.{self.index}.jsonl"), Growing(run / f"exchange.{self.index}.jsonl")
        self.steps, self.step_ms, self.taken, self.since = [], [], {}, time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([self.soak.program, "train", "soak.yaml", "--group", str(self.index)], cwd=self.soak.folder, stdout=log,
                                            stderr=log, start_new_session=True, env=self.soak.environment, preexec_fn=end_with_parent)

    def read(self):
        """What is new in its metrics and exchange; a line that is missing in between, or there twice, is a step lost."""
        for line in map(json.loads, self.metrics.new_lines()):
            expected = self.steps[-1] + EVERY if self.steps else EVERY
            if line["step"] != expected:
                self.lost += 1
                raise Failure(f"group {self.index} lost steps: {line['step']} comes after {expected - EVERY}")
            self.steps.append(line["step"])
            self.step_ms.append(line["step_ms"])
        for event in map(json.loads, self.events.new_lines()):
            if event["kind"] == "switch":
                self.taken[event["peer"]] = event["version"]

    def holds_after(self, peer, version):
        self.read()
        return self.taken.get(peer, 0) > version

    def step_now(self):
        """Of its last whole line of metrics; 0: there is none."""
        lines = self.metrics.path.read_bytes().split(b"\n")[:-1] if self.metrics.path.exists() else []
        return json.loads(lines[-1])["step"] if lines else 0

    def check_pace(self, peer, steps):
        """Fails where both have trained long enough since the other came back. `steps`: of this one, when it did"""
        if self.steps[-1] - steps > MOST_STEPS and peer.step_now() - peer.back_at > MOST_STEPS:
            raise Failure(f"group {self.index} has no new version of group {peer.index}, though both have trained {MOST_STEPS} steps since")

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failure(f"group {self.index}, which nobody killed, ended with exit code {self.process.returncode}")

    def newest_version(self):
        """Of all that it has put into the exchange."""
        files = (self.soak.folder / f"runs/soak/exchange/group-{self.index}").glob("shard-*/*.bin")
        return max((int(file.stem) for file in files), default=0)

    def newest_checkpoint(self):
        steps = (self.soak.folder / "runs/soak/checkpoints").glob(f"step-*/group-{self.index}.safetensors")
        return max((int(path.parent.name[5:]) for path in steps), default=0)

    def processes(self):
        return [*descendants(self.process.pid), self.process.pid]

    def one_of(self, chance):
        """A rank, mpirun or the launcher, by number: the same for the same seed."""
        below = descendants(self.process.pid)
        mpirun = next((pid for pid in below if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("mpirun", "orterun", "prterun")), None)
        ranks = sorted(pid for pid in below if pid != mpirun)
        roles = [*(("a rank", pid) for pid in ranks[:self.ranks]), ("mpirun", mpirun), ("the launcher", self.process.pid)]
        return roles[int(chance * len(roles))]

    def kill(self, victims=None):
        """SIGKILL to all of the job, or to these; until nothing of it is left."""
        everyone = self.processes()
        send(victims or everyone, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        wait_until(lambda: not any(map(is_alive, everyone)), f"group {self.index}'s processes end after the death of one")
        self.kills += 1

    def resumed_at(self):
        """The step it says that it goes on from; 0: it trains from the beginning; None: it has not said yet."""
        for line in self.log_path.read_text(errors="replace").splitlines():
            if match := re.search(rf"group {self.index}(: resumed at step (\d+)|  step \d)", line):
                return int(match[2] or 0)
        return None


class Soak:
    def __init__(self, arguments, folder):
        self.folder, self.program = folder, arguments.codistill
        self.kills_wanted, self.until = arguments.kills, time.monotonic() + 60 * (arguments.minutes or 0)
        seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 30)
        self.seed, self.chance = seed, random.Random(seed)
        self.environment = dict(os.environ, TMPDIR=str(folder), OMPI_MCA_btl_vader_backing_directory=str(folder))
        self.groups = [Group(self, index, ranks) for index, ranks in enumerate(arguments.groups)]
        self.ratios, self.refused, self.died, self.begun = [], 0, [], time.monotonic()
        ranks = ", ".join(f"{{ranks: {n}}}" for n in arguments.groups)
        (folder / "soak.yaml").write_text(CONFIG.format(groups=ranks, every=EVERY))

    @property
    def kills(self):
        return sum(group.kills for group in self.groups)

    def life(self):
        """Changes as long as any group trains or starts: the sizes of the files that they write."""
        paths = [path for group in self.groups for path in (group.metrics.path, group.events.path, group.log_path)]
        return [path.stat().st_size if path.exists() else 0 for path in paths]

    def is_over(self):
        return self.kills >= self.kills_wanted if self.kills_wanted else time.monotonic() > self.until

    def draw(self):
        """Always as many random numbers, so that what one round took does not change the next ones."""
        kind = self.chance.choices(["group", "one", "again", "stop"], [5, 2, 2, 2])[0]
        several = [group for group in self.groups if group.ranks > 1]
        which, moment, away, role, second = (self.chance.random() for _ in range(5))
        kind = "group" if kind == "one" and not several or kind == "again" and self.kills_wanted and self.kills_wanted - self.kills < 2 else kind
        candidates = several if kind == "one" else self.groups
        return kind, candidates[int(which * len(candidates))], 0.4 * moment, 0.2 + 0.5 * away, role, second

    def start(self):
        say(f"seed {self.seed} (--seed {self.seed} repeats the choices), {len(self.groups)} groups of {', '.join(str(g.ranks) for g in self.groups)} ranks")
        for group in self.groups:
            group.start()
        for group in self.groups:
            wait_until(lambda: group.check_alive() or group.newest_checkpoint() > 0, f"group {group.index} trains", self.life)
            for peer in self.groups:
                wait_until(lambda: peer is group or group.holds_after(peer.index, 0), f"group {peer.index} teaches group {group.index}", self.life)

    def away(self, kind, victim, seconds, role, second):
        """The death and the return, or the pause. @return what was done, and the newest version that was published before"""
        if kind == "stop":
            pids = victim.processes()
            send(pids, signal.SIGSTOP)
            try:
                self.meanwhile(victim, 4 * seconds)
                left = victim.newest_version()
            finally:
                send(pids, signal.SIGCONT)
            victim.stops += 1
            victim.back_at = victim.step_now()
            victim.since = time.monotonic()
            return f"hung for {4 * seconds:.1f} s", left
        self.died = [*self.died[-1:], victim.index]
        name, pid = victim.one_of(role) if kind == "one" else ("all", None)
        victim.kill([pid] if pid else None)
        left = victim.newest_version()
        self.meanwhile(victim, seconds)
        saved = victim.newest_checkpoint()
        victim.start()
        if kind == "again":
            time.sleep(second)
            victim.kill()
            left, saved = max(left, victim.newest_version()), victim.newest_checkpoint()
            victim.start()
            name = f"all, and again after {second:.2f} s"
        wait_until(lambda: victim.check_alive() or victim.resumed_at() is not None, f"group {victim.index} starts again", self.life)
        if victim.resumed_at() != saved:
            raise Failure(f"group {victim.index} resumed at step {victim.resumed_at()}, but its newest checkpoint is of step {saved}")
        victim.back_at = saved
        return f"killed ({name}), resumed at step {saved}", left

    def meanwhile(self, victim, seconds):
        """The others train on; their steps now, beside those since the last round."""
        others = [group for group in self.groups if group is not victim]
        for group in others:
            group.read()
        begun = [len(group.steps) for group in others]
        time.sleep(seconds)
        for group, lines in zip(others, begun):
            wait_until(lambda: group.check_alive() or group.read() or len(group.steps) > lines + 1, f"group {group.index} goes on alone",
                       self.life)
            before = group.step_ms[max(0, lines - 40):lines]
            if len(before) > 3:
                self.ratios.append(statistics.median(group.step_ms[lines:]) / statistics.median(before))

    def count_refused(self):
        """What the logs say was refused. Of a group that died in this round or the last one, its death explains it."""
        for group in self.groups:
            for line in group.log.new_lines():
                match = re.search(r"refused version \d+ of group (\d+)|: group (\d+)'s checkpoints are of no use", line)
                if match is None:
                    continue
                self.refused += 1
                group.refused += 1
                say(f"  {line}")
                if int(match[1] or match[2]) not in self.died:
                    raise Failure(f"group {group.index} refused what a group published that did not die: {line}")

    def round(self):
        kind, victim, moment, seconds, role, second = self.draw()
        time.sleep(moment)
        others = [group for group in self.groups if group is not victim]
        lives, since = [group.process.pid for group in others], [group.steps[-1] for group in others]
        what, left = self.away(kind, victim, seconds, role, second)
        for group in others:
            steps = group.steps[-1]
            wait_until(lambda: group.check_alive() or victim.check_alive() or group.check_pace(victim, steps) or group.holds_after(victim.index, left),
                       f"group {group.index} takes a version of group {victim.index} after {left}, which it had published before", self.life)
        victim.back_s.append(time.monotonic() - victim.since)
        victim.read()
        self.count_refused()
        if lives != [group.process.pid for group in others]:
            raise Failure("a job that nobody killed is another one now")
        trained = sum(group.steps[-1] - before for group, before in zip(others, since))
        of = f"/{self.kills_wanted}" if self.kills_wanted else ""
        say(f"kill {self.kills}{of}: group {victim.index} {what}; a teacher again after {victim.back_s[-1]:.1f} s; "
            f"the others: {trained} steps, none lost")

    def run(self):
        self.start()
        while not self.is_over():
            self.round()
        for group in self.groups:
            group.check_alive()
            group.process.send_signal(signal.SIGTERM)
        for group in self.groups:
            code = group.process.wait(PATIENCE_S)
            group.read()
            if code != STOPPED or "stopped and saved at step" not in group.log_path.read_text(errors="replace"):
                raise Failure(f"group {group.index} did not stop and save, but ended with exit code {code}")

    def close(self):
        """Nothing stays, whatever happened."""
        for group in self.groups:
            if group.process is not None and group.process.poll() is None:
                send(group.processes(), signal.SIGKILL)
                group.process.wait()

    def results(self):
        return {"seed": self.seed, "kills": self.kills, "stops": sum(g.stops for g in self.groups), "lost": sum(g.lost for g in self.groups),
                "refused": self.refused, "seconds": round(time.monotonic() - self.begun, 1),
                "step_ratio": round(statistics.median(self.ratios), 3) if self.ratios else None,
                "groups": [{"group": g.index, "ranks": g.ranks, "kills": g.kills, "stops": g.stops, "steps": g.steps[-1] if g.steps else 0,
                            "lost": g.lost, "refused": g.refused, "back_s": [round(s, 2) for s in g.back_s]} for g in self.groups]}

    def report(self, results):
        say(f"\n{'group':>5} {'ranks':>5} {'kills':>5} {'stops':>5} {'steps':>9} {'lost':>4} {'refused':>7}  a teacher again: median, longest")
        for g in results["groups"]:
            back = f"{statistics.median(g['back_s']):.1f} s, {max(g['back_s']):.1f} s" if g["back_s"] else "-"
            say(f"{g['group']:5} {g['ranks']:5} {g['kills']:5} {g['stops']:5} {g['steps']:9} {g['lost']:4} {g['refused']:7}  {back}")
        if self.ratios:
            spare = "" if (os.cpu_count() or 1) >= sum(g.ranks for g in self.groups) else "; means little: the ranks share cores"
            say(f"the others' median step, a group away : before: {results['step_ratio']} (within 1.05 with a core a rank{spare})")
        say(f"{results['kills']} kills, {results['stops']} stops in {results['seconds']:.0f} s; seed {self.seed}")

    def last_words(self):
        for group in self.groups:
            if group.process is not None:
                lines = group.log_path.read_text(errors="replace").splitlines()
                say(f"group {group.index}, life {group.lives}:\n" + "\n".join(f"  {line}" for line in lines[-8:]))


def interrupt(_number, _frame):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv):
    arguments = parse(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="codistill-soak-", dir=arguments.folder or memory))
    soak, code = None, 0
    try:
        soak = Soak(arguments, folder)
        soak.run()
    except KeyboardInterrupt:
        code = 130
        say("\ninterrupted")
    except (Failure, subprocess.TimeoutExpired) as failure:
        code = 1
        soak.last_words()
        print(f"soak: {failure} (seed {soak.seed})", file=sys.stderr, flush=True)
    finally:
        if soak is not None:
            soak.close()
            results = soak.results()
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    soak.report(results)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"soak: {failure}", file=sys.stderr)
        sys.exit(1)
