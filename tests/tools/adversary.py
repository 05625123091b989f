#!/usr/bin/env python3
"""Groups that train while another user does random harm in the folder through which they exchange, or in their run's own folder.

Checks what docs/exchange.md says that such a user cannot do ("Who is trusted with what"), and prints what happened. Needs root, to become the other user."""

import argparse
import collections
import contextlib
import hashlib
import json
import math
import os
import random
import signal
import stat
import struct
import sys
import time

from hostile import ENTRIES, ENTRIES_AT, ENTRY_BYTES, HEADER_BYTES, InExchange, InRun, is_marked, let_loose
from train_support import STOPPED, Bench, Failure, Skip, check, descendants, floats, kill_job, parse_safetensors, steps_saved

OTHER, VICTIM = 65534, 65533  # users that own nothing; the groups may also be root's, whom no mode of a file keeps out
PERIOD, KEY_EVERY, SLOTS = 20, 8, 8
FIXED = ["name=a", "train.strategy=codistill", "exchange.transport=file", "log.samples=0", "train.steps=10000000", "eval.every=0", "train.schedule=constant", f"log.every={PERIOD}"]
GROUPS = [*FIXED, "log.tensorboard=false", "cluster.groups=2", "exchange.directory=x", f"exchange.period={PERIOD}", f"exchange.key_every={KEY_EVERY}", f"exchange.slots={SLOTS}",
          f"checkpoint.every={4 * PERIOD}", "checkpoint.keep=50"]
USURPED = "publishes as group"
PLACE_OF_EXCHANGE = 0x6567616863786563  # src/exchange/file_folder.c
CONTROL = bytes(set(range(32)) - {10}) + b"\x7f"
MOST_MB = 400
HANGS = b"It goes on when storage answers"


def other_user():
    """The number of a user that this process may become."""
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(OTHER, OTHER, OTHER)
            os.setresuid(OTHER, OTHER, OTHER)
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise Skip(f"this process may not become user {OTHER}")
    return OTHER


def state_of(folder):
    """Content, rights and times of everything in a folder."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            path = os.path.join(where, name)
            info = os.lstat(path)
            content = b""
            if stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[path] = (content, info.st_mode, info.st_uid, info.st_ino, info.st_mtime_ns, info.st_nlink)
    return found


class Siege:
    """A place with canaries outside, and an adversary with a private folder beside them."""

    def __init__(self, bench, seed, victim=None):
        """@param victim  the number of the user who trains; None = this one"""
        self.bench, self.seed, self.uid = bench, seed, other_user()
        self.as_victim = {} if victim is None else {"user": victim, "group": victim, "extra_groups": []}
        self.chance = random.Random(seed)
        os.chmod(bench.folder, 0o711)
        self.private, self.outside, self.stop = bench.path("private"), bench.path("outside"), bench.path("stop")
        os.mkdir(self.private)
        os.chown(self.private, self.uid, self.uid)
        for name in ("secret", "group-0/shard-0/header", "group-0/shard-0/1.bin", "group-0/shard-0/.header.1-0.tmp", "shard-0/header", "shard-0/2.bin", "3.bin", "log.txt",
                     "checkpoints/step-000000010/group-0.safetensors", "checkpoints/.x.tmp"):
            bench.write(os.path.join("outside", name), f"somebody's {name}, without a line's end")
        if victim is not None:
            os.makedirs(bench.path("tmp", f"ompi.{os.uname().nodename.split('.')[0]}.{victim}"))
            for where, _, files in os.walk(bench.folder):
                for path in [where, *[os.path.join(where, name) for name in files]]:
                    if path != self.private:
                        os.chown(path, victim, victim)
        self.before = state_of(self.outside)
        self.child = None
        self.peaks = {}

    def let_loose(self, make, actions, pause_s):
        self.child = let_loose(self.uid, make, actions, pause_s, self.stop)

    def at_work(self):
        if self.child is not None:
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                self.child = None
                check(status == 0, f"seed {self.seed}: the adversary itself failed")
        return self.child is not None

    def call_off(self):
        self.bench.write("stop", "")
        begin = time.monotonic()
        while self.at_work():
            check(time.monotonic() - begin < 60, "the adversary does not end")
            time.sleep(0.02)
        with open(os.path.join(self.private, "report.json"), encoding="ascii") as file:
            return json.load(file)

    def close(self):
        if self.child is not None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)

    def check_outside(self):
        after = state_of(self.outside)
        changed = [path for path in self.before.keys() | after.keys() if self.before.get(path) != after.get(path)]
        check(not changed, f"seed {self.seed}: changed outside: {[(path, self.before.get(path), after.get(path)) for path in changed]}")

    def check_marks(self, count, *folders):
        """What bears a name that is none of the exchange's is still there, wherever the adversary took it."""
        marks = set()
        for folder in [self.private, *folders]:
            for where, _, files in os.walk(folder):
                for name in files:
                    path = os.path.join(where, name)
                    if stat.S_ISREG(os.lstat(path).st_mode) and is_marked(path):
                        with open(path, "rb") as file:
                            marks.add(file.read())
        check(len(marks) == count, f"seed {self.seed}: {count - len(marks)} files are gone whose names are none of the exchange's")

    def check_words(self, said, where):
        shown = sorted(set(said) & set(CONTROL))
        check(not shown, f"seed {self.seed}: {where} has control characters {shown}:\n{said!r}")

    def note_peak(self, process):
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(OSError, StopIteration), open(f"/proc/{pid}/status", encoding="ascii") as file:
                self.peaks[pid] = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

    def peak_mb(self):
        return max(self.peaks.values(), default=0) / 1000


class Group:
    """One group's job, which is started again when it has ended."""

    def __init__(self, siege, number, umask, more):
        self.siege, self.number, self.umask, self.more = siege, number, umask, more
        self.starts = self.failed_starts = self.usurped = 0
        self.longest_s = 0
        self.start()

    def start(self):
        self.err = self.siege.bench.path(f"err.{self.number}.{self.starts}")
        with open(self.err, "wb") as err:
            self.process = self.siege.bench.start("train", "t.yaml", "--group", str(self.number), *GROUPS, *self.more, stderr=err, umask=self.umask, **self.siege.as_victim)
        self.starts += 1
        self.trained = False
        self.size, self.grew = self.written(), time.monotonic()

    def written(self):
        """Bytes of its metrics."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(self.siege.bench.path("runs", "a", f"metrics.{self.number}.jsonl"))
        return 0

    def said(self):
        with open(self.err, "rb") as file:
            return file.read()

    def fail(self, what):
        raise Failure(f"seed {self.siege.seed}, group {self.number}: {what}\n{self.said().decode(errors='replace')}")

    def look(self):
        """Notes that it trains; one that has ended by itself may only have done so where the documentation says it."""
        code = self.process.poll()
        size = self.written()
        now = time.monotonic()
        if size > self.size:
            if self.trained:
                self.longest_s = max(self.longest_s, now - self.grew)
            self.trained, self.grew = True, now
        self.size = size
        if code is None and now - self.grew > 120:
            self.fail(f"no step for {now - self.grew:.0f} s")
        if code is None:
            self.siege.note_peak(self.process)
            return
        said = self.said().decode(errors="replace")
        if code == 1 and USURPED in said and self.siege.key is None:
            self.usurped += 1
        elif not self.trained and code in (1, 2):
            if "'x" not in said.rsplit("codistill: ", 1)[-1]:
                self.fail(f"exit code {code} at the start, without the name of a file")
            self.failed_starts += 1
        else:
            self.fail(f"exit code {code}")
        self.check_words()
        self.start()

    def end(self):
        """Asked to end it does so, with what it has saved."""
        self.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - begin > 120:
                self.fail("it does not end")
            time.sleep(0.01)
        code, usurped = self.process.returncode, USURPED in self.said().decode(errors="replace")
        if code != STOPPED and self.trained and not (usurped and self.siege.key is None):
            self.fail(f"exit code {code} after SIGTERM")
        self.check_words()
        return time.monotonic() - begin

    def check_words(self):
        self.siege.check_words(self.said(), f"what group {self.number} said")
        if "has not answered for" in self.said().decode(errors="replace") and self.trained:
            self.fail("it waited for its storage")


class Exchange(Siege):
    """Two groups that exchange through a folder in which the adversary is at work."""

    def __init__(self, bench, seed, sealed, umask, victim=None):
        super().__init__(bench, seed, victim)
        self.key = None
        more = []
        if sealed:
            secret = self.chance.randbytes(32)
            bench.write("key", secret)
            os.chmod(bench.path("key"), 0o600)
            if victim is not None:
                os.chown(bench.path("key"), victim, victim)
            self.key = hashlib.blake2b(secret, digest_size=32).digest()
            more = ["exchange.key_file=key"]
        self.exchange = bench.path("x")
        os.mkdir(self.exchange)
        os.chmod(self.exchange, 0o777)
        if victim is not None:
            os.chown(self.exchange, victim, victim)
        self.umask, self.more = umask, more
        self.groups = []
        self.own, self.taken, self.looked = collections.defaultdict(set), {}, set()
        self.twice = set()  # (group, version) published by two lives, maybe
        self.versions = {}  # (group, life, version) -> whether it is a key

    def begin(self, actions, pause_s):
        """Both train and publish when the adversary comes."""
        self.groups = [Group(self, number, self.umask, self.more) for number in (0, 1)]
        while not all(group.trained and os.path.exists(os.path.join(self.exchange, f"group-{group.number}", "shard-0", "header")) for group in self.groups):
            time.sleep(0.02)
            for group in self.groups:
                group.look()
        warned = [b"may be written by every user" in group.said() for group in self.groups]
        check(warned == [self.key is None] * 2, f"seed {self.seed}: a warning of the folder's mode: {warned}")
        self.let_loose(lambda: InExchange(self.seed, self.private, self.outside, self.exchange, 2), actions, pause_s)

    def seal_fits(self, content):
        if self.key is None:
            return True
        body = content[:-32]
        run, model, group, shard = struct.unpack_from("<4Q", content, 16)
        place = struct.pack("<5Q", PLACE_OF_EXCHANGE, run, model, group | (shard & 0xffffffff) << 32, 0)
        return hashlib.blake2b(place + body, key=self.key, digest_size=32).digest() == content[-32:]

    def look_at_header(self, group):
        """Which versions are keys, as the publisher itself says."""
        path = os.path.join(self.exchange, f"group-{group}", "shard-0", "header")
        with contextlib.suppress(OSError):
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                content = file.read(1 << 16) or b""
            if len(content) < HEADER_BYTES + 32 or not self.seal_fits(content) or struct.unpack_from("<Q", content, 32)[0] != group:
                return
            for i in range(ENTRIES):
                version, life, _, _, reference, _ = struct.unpack_from("<6Q", content, ENTRIES_AT + ENTRY_BYTES * i)
                if version:
                    self.versions[group, life, version] = reference == 0

    def look_at_checkpoints(self):
        """What each group holds of the other, and what the other published: the values of each version."""
        folder = self.bench.path("runs", "a", "checkpoints")
        with contextlib.suppress(FileNotFoundError):
            for step in os.listdir(folder):
                for group in (0, 1):
                    path = os.path.join(folder, step, f"rank-{group}.safetensors")
                    if (path not in self.looked) and os.path.exists(os.path.join(folder, step, f"group-{group}.safetensors")):
                        with contextlib.suppress(FileNotFoundError):
                            self.look_at_checkpoint(path, group)
                            self.looked.add(path)

    def look_at_checkpoint(self, path, group):
        header, body = parse_safetensors(path)
        arrays = {name: body[entry["data_offsets"][0]:entry["data_offsets"][1]] for name, entry in header.items() if name != "__metadata__"}
        (numbers,) = [value for name, value in arrays.items() if name.endswith("exchange.numbers.0")]
        numbers = struct.unpack(f"<{len(numbers) // 8}Q", numbers)
        for name, value in arrays.items():
            kind = name.split("exchange.", 1)[-1]
            if kind.startswith("own."):
                self.own[group, numbers[5 + int(kind[4:])]].add(hashlib.sha256(value).hexdigest())
            elif kind == "peer.0" and numbers[9] > 0:
                check(all(map(math.isfinite, floats(value))), f"seed {self.seed}: group {group} holds values that are not finite")
                self.taken[group, numbers[9]] = hashlib.sha256(value).hexdigest()

    def watch(self, until, restart_every_s):
        due = time.monotonic() + restart_every_s * (0.5 + self.chance.random())
        while not until():
            time.sleep(0.05)
            for group in self.groups:
                group.look()
                self.look_at_header(group.number)
            self.look_at_checkpoints()
            if time.monotonic() > due:
                group = self.chance.choice(self.groups)
                if self.chance.random() < 0.5:
                    group.end()
                else:
                    self.kill(group)
                group.start()
                self.check_outside()
                due = time.monotonic() + restart_every_s * (0.5 + self.chance.random())

    def kill(self, group):
        """It goes on from its checkpoint: what it published since then, it publishes again, and what that was before no checkpoint says."""
        kill_job(group.process)
        group.process.wait()
        group.check_words()
        folder = self.bench.path("runs", "a", "checkpoints")
        saved = [step for step in steps_saved(folder) if os.path.exists(os.path.join(folder, f"step-{step:09d}", f"group-{group.number}.safetensors"))]
        published = [event["version"] for event in self.bench.events("a", group.number) if event["kind"] == "publish"]
        self.twice |= {(group.number, version) for version in range(max(saved, default=0) // PERIOD, max(published, default=0) + 3)}

    def pulled(self, group):
        peers = [line["peers"][0] for line in self.bench.metrics("a", group) if line["peers"]]
        return peers[-1] if peers else {"pulled": 0, "rejected": 0, "lost": 0, "version": 0}

    def totals(self):
        """Of all lives of each group: counters begin anew with each."""
        sums = collections.Counter()
        for group in (0, 1):
            before = collections.Counter()
            for line in self.bench.metrics("a", group):
                for peer in line["peers"]:
                    now = collections.Counter({key: peer[key] for key in ("pulled", "rejected", "lost")})
                    sums += now - before if all(now[key] >= before[key] for key in now) else now
                    before = now
            sums["published"] += sum(event["kind"] == "publish" for event in self.bench.events("a", group))
        return sums

    def recover(self):
        """The folder is the groups' own again: each becomes the other's teacher, and keys are as rare as they should be."""
        os.rename(self.exchange, self.bench.path("was"))
        for group in self.groups:
            group.look()
        self.versions.clear()
        wanted = 4 * KEY_EVERY
        begin = time.monotonic()

        def recovered():
            check(time.monotonic() - begin < 200, f"seed {self.seed}: no recovery within 200 s: {self.keys()}, {[self.pulled(group) for group in (0, 1)]}")
            return all(count >= wanted for count, _ in self.keys().values()) and all(self.pulled(group)["version"] > first[group] for group in (0, 1))

        first = [self.pulled(group)["version"] for group in (0, 1)]
        self.watch(recovered, math.inf)
        for group, (count, keys) in self.keys().items():
            check(keys <= count / KEY_EVERY + 3, f"seed {self.seed}: of {count} versions of group {group} after the attack {keys} are keys")

    def keys(self):
        """Group -> (versions seen, keys among them)."""
        found = {group: [0, 0] for group in (0, 1)}
        for (group, _, _), key in self.versions.items():
            found[group][0] += 1
            found[group][1] += key
        return {group: tuple(counts) for group, counts in found.items()}

    def check_taken(self):
        """What a group holds of the other is, bit for bit, what the other published under this number."""
        compared = 0
        for (group, version), print_of in self.taken.items():
            right = self.own.get((1 - group, version)) if (1 - group, version) not in self.twice else None
            compared += right is not None
            check(right is None or print_of in right, f"seed {self.seed}: group {group} holds a version {version} that group {1 - group} did not publish")
        published = [{event["version"] for event in self.bench.events("a", group) if event["kind"] == "publish"} for group in (0, 1)]
        strange = [(group, version) for group, version in self.taken if version not in published[1 - group]]
        check(not strange, f"seed {self.seed}: versions that nobody published: {strange}")
        return compared

    def check_logs(self):
        for group in (0, 1):
            self.check_words(self.bench.read("runs", "a", f"log.{group}.txt"), f"log.{group}.txt")
            odd = [line for line in self.bench.metrics("a", group) if line["loss"] is not None and not math.isfinite(line["loss"])]
            check(not odd, f"seed {self.seed}: a loss of group {group} is not finite: {odd}")

    def run(self, actions, pause_s, seconds, restart_every_s):
        """@return what happened, in figures"""
        begin = time.monotonic()
        self.begin(actions, pause_s)
        self.watch(lambda: not self.at_work() or time.monotonic() - begin > seconds, restart_every_s)
        report = self.call_off()
        seconds, during = time.monotonic() - begin, self.keys()
        if self.key is not None:
            self.recover()
        ends = [group.end() for group in self.groups]
        self.look_at_checkpoints()
        self.check_outside()
        self.check_marks(report["marks"], self.exchange, self.bench.path("was"))
        self.check_logs()
        compared = self.check_taken() if self.key is not None else 0
        check(compared > 0 or self.key is None, f"seed {self.seed}: no version that was taken could be compared with what its group published")
        check(self.peak_mb() < MOST_MB, f"seed {self.seed}: a process had {self.peak_mb():.0f} MB")
        return {"sealed": self.key is not None, "seed": self.seed, "seconds": round(seconds), "actions": report["actions"], **self.totals(),
                "keys of versions during it": during, "after it": self.keys(), "taken versions compared": compared, "starts": sum(group.starts for group in self.groups),
                "refused starts": sum(group.failed_starts for group in self.groups), "usurped": sum(group.usurped for group in self.groups),
                "longest time between two lines s": round(max(group.longest_s for group in self.groups), 2), "longest end s": round(max(ends), 2), "peak MB": round(self.peak_mb())}


class RunFolder(Siege):
    """One run, begun and ended again and again, with the adversary at work in its folder."""

    def __init__(self, bench, seed, victim=None):
        super().__init__(bench, seed, victim)
        self.key = None
        self.folder = bench.path("runs", "a")
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o777)
        if victim is not None:
            for path in (self.folder, os.path.dirname(self.folder)):
                os.chown(path, victim, victim)
        self.codes = collections.Counter()

    def watch(self, process, seconds):
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < seconds:
            self.note_peak(process)
            time.sleep(0.01)

    def job(self, *arguments):
        err = self.bench.path("err")
        with open(err, "wb") as stream:
            process = self.bench.start(*arguments, stderr=stream, umask=0, **self.as_victim)
        self.watch(process, self.chance.random() * 3)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        self.watch(process, 90)
        with open(err, "rb") as stream:
            said = stream.read()
        where = f"seed {self.seed}: {' '.join(arguments)}"
        if process.poll() is None:
            kill_job(process)
            raise Failure(f"{where} waits: {said.decode(errors='replace')}\n{sorted(os.listdir(self.folder))}")
        early = process.returncode == -signal.SIGTERM and not said  # before the program listens to signals
        check(early or process.returncode in (0, 1, 2, STOPPED), f"{where}: exit code {process.returncode}: {said.decode(errors='replace')}")
        check(early or process.returncode in (0, STOPPED) or b"codistill" in said, f"{where}: exit code {process.returncode} without a message")
        check(HANGS not in said, f"{where} waited: {said.decode(errors='replace')}")
        self.check_words(said, where)
        self.codes[process.returncode] += 1
        self.check_outside()

    def run(self, actions, pause_s, seconds):
        begin = time.monotonic()
        self.let_loose(lambda: InRun(self.seed, self.private, self.outside, self.folder), actions, pause_s)
        while self.at_work() and time.monotonic() - begin < seconds:
            way = self.chance.random()
            more = ["train.strategy=single"] if way < 0.6 else ["train.strategy=codistill", "cluster.groups=2", "--group", "0"]
            if way < 0.9:
                self.job("train", "t.yaml", *FIXED, "log.tensorboard=true", "log.samples=1", "checkpoint.every=20", "eval.every=50", "eval.images=1", *more,
                         *(["checkpoint.resume=never"] if self.chance.random() < 0.3 else []))
            else:
                self.job("report", "runs/a")
        report = self.call_off()
        self.check_outside()
        self.check_marks(report["marks"], self.folder)
        check(self.peak_mb() < MOST_MB, f"seed {self.seed}: a process had {self.peak_mb():.0f} MB")
        return {"seed": self.seed, "seconds": round(time.monotonic() - begin), "actions": report["actions"], "exit codes": {str(code): count for code, count in self.codes.items()},
                "peak MB": round(self.peak_mb())}


def campaign(program, minutes, seed):
    """Sieges of all kinds in turn, until time is up: figures of each, and their sums."""
    begin, sums = time.monotonic(), {}
    kinds = [("sealed", lambda bench, s: Exchange(bench, s, True, s % 2 * 0o22, VICTIM if s % 4 < 2 else None)),
             ("not sealed", lambda bench, s: Exchange(bench, s, False, s % 2 * 0o22, VICTIM if s % 4 < 2 else None)),
             ("run's folder", lambda bench, s: RunFolder(bench, s, VICTIM if s % 4 < 2 else None))]
    turn = 0
    while time.monotonic() - begin < 60 * minutes:
        name, make = kinds[turn % len(kinds)]
        bench = Bench(program)
        siege = make(bench, seed + turn // len(kinds))
        try:
            figures = siege.run(10**9, 0.02 if isinstance(siege, Exchange) else 0.15, 40, *([4] if isinstance(siege, Exchange) else []))
        finally:
            siege.close()
            bench.close()
        print(name, json.dumps(figures, sort_keys=True), flush=True)
        add(sums.setdefault(name, {}), figures)
        turn += 1
    for name, figures in sums.items():
        print(f"all {name}: {json.dumps(figures, sort_keys=True)}")


def add(sums, figures):
    """Counts add up, of what is longest or most the greatest counts, and lists add up by place."""
    for key, value in figures.items():
        if isinstance(value, dict):
            add(sums.setdefault(key, {}), value)
        elif isinstance(value, (list, tuple)):
            sums[key] = [a + b for a, b in zip(sums.get(key, [0] * len(value)), value)]
        elif key.startswith(("longest", "peak")):
            sums[key] = max(sums.get(key, 0), value)
        elif key not in ("seed", "sealed"):
            sums[key] = sums.get(key, 0) + value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default="build/release/codistill", help="the command (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=5, help="how long new sieges begin; each takes about a minute (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first siege of each kind; the next ones have the numbers behind it (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        campaign(arguments.program, arguments.minutes, arguments.seed)
    except Skip as reason:
        print(f"skip: {reason}")
        return 77
    except Failure as failure:
        print(f"FAIL: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
