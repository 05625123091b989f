"""A user with another number who may write in a folder of ours and does random harm there: what test_adversary.py and adversary.py let loose.

Everything follows from a seed, but for when the others write. Each action ends in a moment; what the system refuses is counted as such."""

import collections
import contextlib
import ctypes
import ctypes.util
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import time
import traceback

HEADER_BYTES, STAMP_AT, NEWEST_AT, ENTRIES_AT, ENTRY_BYTES, ENTRIES = 896, 96, 120, 128, 48, 16  # src/exchange/slot.c
F_SETLEASE = 1024
OURS = re.compile(r"header|[1-9]\d{0,11}\.bin|\.(header|\d+\.bin)\.\d+-\d+\.tmp")


def load_hash():
    """XXH3 of the header behind its first word, or None where the library is not there."""
    name = ctypes.util.find_library("xxhash")
    if not name:
        return None
    function = ctypes.CDLL(name).XXH3_64bits
    function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    return function


class Hostile:
    """What all adversaries have: chance, a folder of their own, a list of what they did, and marked files that nobody else may remove."""

    def __init__(self, seed, private, outside):
        self.chance = random.Random(seed)
        self.private, self.outside = private, outside
        self.counts = collections.Counter()
        self.marks, self.held = 0, []
        self.hash = load_hash()

    def targets(self):
        """What a link may point to: files of others, devices, itself, nothing."""
        inside = [os.path.join(where, name) for where, folders, files in os.walk(self.outside) for name in [*folders, *files]]
        return [*inside, self.outside, "/dev/zero", "/dev/stdin", "/dev/random", "/proc/self/mem", "/proc/self/fd/0", "/etc/passwd", "/", "..", ".", "nowhere", "header"]

    def clear(self, path):
        """Makes room; what is marked stays, wherever it goes."""
        aside = os.path.join(self.private, f"aside-{self.chance.randrange(1 << 48):x}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, aside)

    def noise(self, most=4096):
        return self.chance.randbytes(self.chance.choice([0, 1, 31, 32, 33, HEADER_BYTES, self.chance.randrange(most)]))

    def mark(self, path):
        """A file of somebody's that is none of the exchange's: the test counts them afterwards."""
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"mark {self.marks}\n")
        self.marks += 1

    # Things that may be put in any place.

    def link(self, path):
        target = self.chance.choice(self.targets())
        self.clear(path)
        os.symlink(path if self.chance.random() < 0.1 else target, path)

    def hard_link(self, path):
        files = [target for target in self.targets() if os.path.isfile(target)]
        target = self.chance.choice(files)
        self.clear(path)
        os.link(target, path)

    def folder(self, path):
        self.clear(path)
        os.mkdir(path)
        if self.chance.random() < 0.5:
            self.mark(os.path.join(path, self.chance.choice(["1.bin.kept", "kept", "header.old"])))

    def fifo(self, path):
        self.clear(path)
        os.mkfifo(path, 0o666)
        if self.chance.random() < 0.3:  # with a writer that never writes
            self.hold(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    def socket(self, path):
        self.clear(path)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as end:
            os.chdir(os.path.dirname(path))  # a path of a socket has at most 107 bytes
            end.bind(os.path.basename(path))

    def sparse(self, path):
        self.clear(path)
        with open(path, "wb") as file:
            with contextlib.suppress(OSError):
                file.truncate(self.chance.choice([1 << 43, 1 << 40]))

    def random_file(self, path):
        self.clear(path)
        with open(path, "wb") as file:
            file.write(self.noise())

    def closed(self, path):
        self.random_file(path)
        os.chmod(path, 0)

    def leased(self, path):
        """Who opens a leased file is made to wait until the lease is given back, unless it does not wait for anything."""
        self.random_file(path)
        file = os.open(path, os.O_RDWR)
        self.hold(file)
        fcntl.fcntl(file, F_SETLEASE, fcntl.F_WRLCK)

    def locked(self, path):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        self.hold(file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def hold(self, file):
        self.held.append(file)
        if len(self.held) > 16:
            os.close(self.held.pop(0))

    def kinds(self):
        """Name -> (how often, action)."""
        raise NotImplementedError

    def run(self, actions, pause_s, stop):
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # "somebody waits for your lease"
        os.umask(0)
        kinds = self.kinds()
        names, weights = list(kinds), [kinds[name][0] for name in kinds]
        done = 0
        while done < actions and not os.path.exists(stop):
            name = self.chance.choices(names, weights)[0]
            try:
                kinds[name][1]()
                self.counts[name] += 1
            except (OSError, shutil.Error):
                self.counts[f"{name}, refused"] += 1
            done += 1
            time.sleep(self.chance.expovariate(1 / pause_s))
        self.report()

    def report(self):
        with open(os.path.join(self.private, "report.json"), "w", encoding="utf-8") as file:
            json.dump({"actions": dict(self.counts), "marks": self.marks}, file)


class InExchange(Hostile):
    """Harm in the folder through which groups exchange."""

    def __init__(self, seed, private, outside, exchange, groups):
        super().__init__(seed, private, outside)
        self.exchange, self.groups = exchange, groups

    def group(self):
        return os.path.join(self.exchange, f"group-{self.chance.randrange(self.groups)}")

    def shard(self):
        return os.path.join(self.group(), "shard-0")

    def entries(self, shard):
        """Names of the exchange's own files."""
        return [name for name in os.listdir(shard) if OURS.fullmatch(name)]

    def versions(self, shard):
        return sorted(int(name[:-4]) for name in self.entries(shard) if name.endswith(".bin"))

    def place(self):
        """Where a file of a group is or will be."""
        shard = self.shard()
        names = self.entries(shard)
        versions = self.versions(shard)
        newest = versions[-1] if versions else 0
        temporary = [name for name in names if name.startswith(".")]
        return os.path.join(shard, self.chance.choice([
            "header", "header", *names[:4], f"{newest}.bin", f"{newest + self.chance.randrange(1, 17)}.bin", f"{self.chance.randrange(1, newest + 2)}.bin",
            *temporary[:2]]))

    def existing(self):
        shard = self.shard()
        return os.path.join(shard, self.chance.choice(self.entries(shard) or ["header"]))

    def read(self, path):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(file, "rb") as stream:
            return stream.read(1 << 22) or b""  # None of a FIFO that somebody may write to

    def put(self, path, content):
        """As the exchange does it: whole, by renaming."""
        temporary = os.path.join(self.private, "new")
        with open(temporary, "wb") as file:
            file.write(content)
        os.rename(temporary, path)

    # Harm.

    def take_shard(self):
        """A group's folder becomes the adversary's: what the group writes then lies open to it."""
        group = self.group()
        if os.path.isdir(group) and not os.path.islink(group) and os.stat(group).st_uid == os.getuid() and os.path.isdir(os.path.join(group, "shard-0")):
            return
        self.clear_group(group)
        os.mkdir(group, 0o777)
        os.mkdir(os.path.join(group, "shard-0"), 0o777)

    def clear_group(self, group):
        with contextlib.suppress(FileNotFoundError):
            os.rename(group, os.path.join(self.exchange, f"away-{self.chance.randrange(1 << 48):x}"))

    def put_things(self, path):
        self.chance.choice([self.link, self.link, self.folder, self.fifo, self.socket, self.sparse, self.random_file, self.closed, self.leased, self.hard_link])(path)

    def odd_version(self):
        number = self.chance.choice([1 << 53, (1 << 53) + 1, (1 << 64) - 1, 1 << 64, 10**30, 0, self.chance.randrange(1 << 53), self.chance.randrange(1 << 20)])
        path = os.path.join(self.shard(), f"{number}.bin")
        if self.chance.random() < 0.5:
            self.put(path, self.read(self.existing()))
        else:
            self.put_things(path)

    def near_miss(self):
        """Names that are almost the exchange's, which nobody may remove."""
        number = self.chance.randrange(1000)
        name = self.chance.choice(["header.tmp", ".header…tmp", f"{number}.bin.old", f"0{number}.bin", f"+{number}.bin", f" {number}.bin", f"{number}.BIN", f"-{number}.bin",
                                   ".header.tmp", ".header.x-1.tmp", ".header.1-0.tmp.", "header ", "Header", f".{number}.bin.1-0.temp", f"{number}.bin ", "closing-0",
                                   f".{number}.bin.1-0.tmp.kept", ".header.1_0.tmp", f"{number}.bin\n"])
        self.mark(os.path.join(self.chance.choice([self.exchange, self.group(), self.shard()]), name))

    def control_name(self):
        """What a terminal would obey, or is no text."""
        name = self.chance.choice([b"\x1b]0;owned\x07", b"\x1b[2J\x1b[31mred", b"a\rb\n", b"\xff\xfe.bin", b"\x9b31m", b"\x7f", b"1\x1b[1m.bin", b".header.\x1b[2J.tmp", b"x" * 255])
        folder = self.chance.choice([self.exchange, self.group(), self.shard()])
        with open(os.path.join(os.fsencode(folder), name), "wb"):
            pass

    def thing(self):
        self.put_things(self.place())

    def folder_thing(self):
        path = self.chance.choice([self.group(), self.shard()])
        self.chance.choice([self.link, self.link, self.fifo, self.socket, self.random_file, self.sparse])(path)

    def damage(self):
        """In its place, while others may read or write it."""
        path = self.existing()
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            size = os.fstat(file).st_size
            how = self.chance.randrange(4)
            if how == 0:
                os.ftruncate(file, self.chance.randrange(size + 1))
            elif how == 1:
                os.pwrite(file, self.chance.randbytes(4), self.chance.randrange(size + 1))
            elif how == 2:
                os.pwrite(file, self.noise(), size)
            else:
                os.ftruncate(file, 1 << 40)
        finally:
            os.close(file)

    def damaged_copy(self):
        path = self.existing()
        content = bytearray(self.read(path))
        if content:
            content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
        self.put(path, content[:self.chance.choice([len(content), self.chance.randrange(len(content) + 1)])])

    def keep(self):
        """For later."""
        path = self.existing()
        folder = os.path.join(self.private, "kept", *path.split(os.sep)[-3:-1])
        os.makedirs(folder, exist_ok=True)
        if len(os.listdir(folder)) < 64:
            with open(os.path.join(folder, f"{self.chance.randrange(1 << 32):x}-{os.path.basename(path)}"), "wb") as file:
                file.write(self.read(path))

    def replay(self):
        """What was sealed once, in its place or in another one."""
        group = f"group-{self.chance.randrange(self.groups)}"
        folder = os.path.join(self.private, "kept", group, "shard-0")
        name = self.chance.choice(os.listdir(folder) or ["0-none"])
        to = os.path.join(self.exchange, group, "shard-0", name.split("-", 1)[1])
        self.put(to if self.chance.random() < 0.6 else self.place(), self.read(os.path.join(folder, name)))

    def exchanged(self):
        """A file takes another one's place: another version's, shard's or group's."""
        first, second = self.existing(), self.existing()
        self.chance.choice([lambda: os.rename(first, second), lambda: self.put(second, self.read(first)), lambda: os.link(first, self.place())])()

    def swap_groups(self):
        aside = os.path.join(self.exchange, f"away-{self.chance.randrange(1 << 48):x}")
        first, second = self.group(), self.group()
        os.rename(first, aside)
        os.rename(second, first)
        os.rename(aside, second)

    def forged_header(self):
        """With a right checksum: another life, time, number or list of versions."""
        path = os.path.join(self.shard(), "header")
        header = bytearray(self.read(path))
        if self.hash is None or len(header) < HEADER_BYTES:
            raise OSError("no header to forge")
        number = self.chance.choice([0, 1, 1 << 53, (1 << 63) + 1, self.chance.randrange(1 << 20), int(time.time() * 1000) + self.chance.randrange(-10**6, 10**9)])
        how = self.chance.randrange(4)
        if how == 0:
            struct.pack_into("<3Q", header, STAMP_AT, self.chance.randrange(1 << 64), number, self.chance.choice([0, number]))
        elif how == 1:
            struct.pack_into("<Q", header, NEWEST_AT, number)
        elif how == 2:
            struct.pack_into("<Q", header, ENTRIES_AT + ENTRY_BYTES * self.chance.randrange(ENTRIES) + 8 * self.chance.randrange(6), number)
        else:
            struct.pack_into("<Q", header, 8 * self.chance.randrange(1, 16), number)
        struct.pack_into("<Q", header, 0, self.hash(bytes(header[8:HEADER_BYTES]), HEADER_BYTES - 8))
        self.put(path, header)

    def temporary_names(self):
        """The names under which a rank writes next, as far as its number is known by a file that it wrote or by its process."""
        shard = self.shard()
        versions = self.versions(shard)
        numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()][-8:]
        of = self.chance.choice(["header", f"{(versions[-1] if versions else 0) + 1}.bin"])
        for number in numbers:
            for turn in range(self.chance.choice([1, 3])):
                path = os.path.join(shard, f".{of}.{number}-{turn}.tmp")
                self.chance.choice([self.link, self.folder, self.random_file])(path)

    def flood(self):
        """Thousands of versions that are none."""
        shard = self.shard()
        first = self.chance.randrange(1 << 40)
        path = os.path.join(shard, f"{first}.bin")
        self.random_file(path)
        for number in range(first + 1, first + self.chance.choice([100, 3000])):
            os.link(path, os.path.join(shard, f"{number}.bin"))

    def remove(self):
        path = self.existing()
        os.unlink(path)

    def remove_group(self):
        self.clear_group(self.group())

    def shut(self):
        path = self.chance.choice([self.group(), self.shard(), self.existing()])
        os.chmod(path, self.chance.choice([0, 0o500, 0o777]))

    def relent(self):
        """Leaves a group alone for a moment, in a folder that it can use."""
        group = self.group()
        self.clear_group(group)
        os.mkdir(group, 0o777)
        os.mkdir(os.path.join(group, "shard-0"), 0o777)
        time.sleep(0.5 * self.chance.random())

    def tidy(self):
        """Room on the disk: what was put aside, but for marked files, is removed."""
        aside = [os.path.join(self.private, name) for name in os.listdir(self.private) if name.startswith("aside-")]
        for path in [*aside, *[os.path.join(self.exchange, name) for name in os.listdir(self.exchange) if name.startswith("away-")]]:
            self.remove_unmarked(path)

    def remove_unmarked(self, path):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, 0o777)
                for name in os.listdir(path):
                    self.remove_unmarked(os.path.join(path, name))
                os.rmdir(path)
                return
        with contextlib.suppress(OSError):
            if not stat.S_ISREG(os.lstat(path).st_mode) or not is_marked(path):
                os.unlink(path)

    def kinds(self):
        return {"folder taken": (4, self.take_shard), "thing in a file's place": (8, self.thing), "thing in a folder's place": (2, self.folder_thing),
                "odd version": (4, self.odd_version), "near-miss name": (4, self.near_miss), "control characters": (3, self.control_name), "damage in place": (6, self.damage),
                "damaged copy": (6, self.damaged_copy), "kept": (6, self.keep), "replayed": (8, self.replay), "exchanged": (6, self.exchanged), "groups swapped": (1, self.swap_groups),
                "forged header": (6, self.forged_header), "temporary names": (3, self.temporary_names), "flood": (0.3, self.flood), "file removed": (4, self.remove),
                "folder removed": (1, self.remove_group), "mode changed": (2, self.shut), "relented": (4, self.relent), "tidied": (1, self.tidy)}


class InRun(Hostile):
    """Harm in a run's own folder: everything may be removed or replaced there, but nothing may be written through a link or waited for."""

    def __init__(self, seed, private, outside, run):
        super().__init__(seed, private, outside)
        self.folder_of_run = run

    def name(self):
        return self.chance.choice(["log.0.txt", "metrics.0.jsonl", "exchange.0.jsonl", "config.yaml", "summary.json", ".lock", ".lock.0", "final.safetensors", "best.safetensors",
                                   "report.html", "data.0.tsv", "group.0.safetensors", "trace.0.json", ".config.yaml.1-0.tmp"])

    def thing(self):
        path = os.path.join(self.folder_of_run, self.name())
        self.chance.choice([self.link, self.link, self.fifo, self.socket, self.sparse, self.folder, self.random_file, self.closed, self.leased, self.hard_link])(path)

    def checkpoint_thing(self):
        """In checkpoints: a file of the newest one, or a folder of a step."""
        folder = os.path.join(self.folder_of_run, "checkpoints")
        step = os.path.join(folder, self.chance.choice([*os.listdir(folder), "step-000000010"]))
        path = self.chance.choice([step, os.path.join(step, "group-0.safetensors"), os.path.join(step, "rank-0.safetensors"), os.path.join(folder, ".x.tmp")])
        self.chance.choice([self.fifo, self.socket, self.sparse, self.random_file, self.closed, self.leased])(path)

    def event_thing(self):
        folder = os.path.join(self.folder_of_run, "tensorboard")
        path = os.path.join(folder, self.chance.choice([*os.listdir(folder), "events"]))
        self.chance.choice([self.link, self.fifo, self.socket, self.random_file])(path)

    def lock(self):
        self.locked(os.path.join(self.folder_of_run, self.chance.choice([".lock", "metrics.0.jsonl"])))

    def control_name(self):
        name = self.chance.choice([b"\x1b]0;owned\x07", b".\x1b[2J\x1b[31m.tmp", b".a\rb\n.tmp", b"step-\x1b[1m", b".\xff.tmp"])
        folder = os.path.join(os.fsencode(self.folder_of_run), self.chance.choice([b"", b"checkpoints"]))
        self.chance.choice([os.mkdir, lambda path: open(path, "wb").close()])(os.path.join(folder, name))

    def said(self):
        """Words with control characters where the program repeats what a file says."""
        path = os.path.join(self.folder_of_run, self.chance.choice([".lock", ".lock.0", "config.yaml", "metrics.0.jsonl"]))
        self.clear(path)
        with open(path, "wb") as file:
            file.write(self.chance.choice([b"\x1b]0;owned\x07\x1b[2J\n", b"name: \x1b[31m\n", b"train: {\x1b: 1}\n", b'{"step": "\x1b[2J"}\n']))

    def remove(self):
        self.clear(os.path.join(self.folder_of_run, self.name()))

    def relent(self):
        """Takes away what lies there, so that the next run can begin, and leaves it alone for a moment."""
        for name in os.listdir(self.folder_of_run):
            with contextlib.suppress(OSError):  # another user's folder cannot be moved to another one
                self.clear(os.path.join(self.folder_of_run, name))
        time.sleep(2 * self.chance.random())

    def kinds(self):
        return {"thing in a file's place": (10, self.thing), "thing in checkpoints": (3, self.checkpoint_thing), "thing in events": (1, self.event_thing), "lock held": (1, self.lock),
                "control characters": (2, self.control_name), "words with control characters": (2, self.said), "file removed": (2, self.remove), "relented": (5, self.relent)}


def is_marked(path):
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(5) == b"mark "


def let_loose(uid, make, actions, pause_s, stop):
    """A process of user `uid` that does what make() makes; its id. Nothing of ours stays open in it but the three streams."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        make().run(actions, pause_s, stop)
    except BaseException:  # what is left of this process is a copy of the test
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
