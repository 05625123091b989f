#!/usr/bin/env python3
"""One rank fails in the middle of a run: all end soon, with one message that names it: python3 test_faults.py CODISTILL [CASE ...]"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from train_support import STOPPED, Skip, check, descendants, hanging, is_alive, kill_job, png, rank_process, run_cases, steps_saved, tries, wait_for_steps

SETUPS = {
    "single": ["train.strategy=single"],
    "allreduce": ["train.strategy=allreduce", "cluster.ranks_per_group=2"],
    "2x1": ["train.strategy=codistill", "cluster.groups=2"],
    "2x2": ["train.strategy=codistill", "cluster.groups=2", "cluster.ranks_per_group=2"],
    "8x1": ["train.strategy=codistill", "cluster.groups=8"],
}
ENDLESS = ["name=f", "train.steps=10000000", "eval.every=0", "log.tensorboard=false", "log.samples=0"]


def check_end(result, *parts, rank=None):
    """Exit code 1 and one message with all of `parts`."""
    check(result.code == 1, f"exit code {result.code}, not 1", result)
    messages = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
    check(len(messages) == 1, f"{len(messages)} messages, not one", result)
    where = [f"rank {rank} on {socket.gethostname()}"] if rank is not None else []
    for part in [*where, *parts]:
        check(part in messages[0], f"'{part}' is missing in the message", result)
    check("MPI_ABORT was invoked" not in result.err and "-----" not in result.err, "mpirun's banners are shown", result)
    return messages[0]


def check_goes_on(bench, setup, message, *overrides):
    """The checkpoint that the message names is there and good to go on from."""
    step = int(message.rsplit("the last good checkpoint is of step ", 1)[1].split(";")[0].split()[0])
    saved = steps_saved(bench.path("runs", "f", "checkpoints"))
    check(step in saved, f"the message names step {step}; there are {saved}")
    result = bench.stopped(*ENDLESS, *SETUPS[setup], *overrides, "train.max_time=0.5", "--resume")
    resumed = [(group, int(found)) for group, found in re.findall(r"group (\d): resumed at step (\d+)", result.err)]
    steps = {found for _, found in resumed}
    # Each group goes on from its own newest one; the message names one of them.
    check(step in steps and steps <= set(saved), f"it did not go on from step {step}, but from {resumed}", result)


def cannot_save(setup, part, rank):
    """A folder in the place of one rank's part of a later step, made while the job trains, as what is there at its start is passed over:
    not even root can rename a file onto it."""
    def case(bench):
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS[setup]]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", 2)
        blocks, step, ahead = [], 0, 500
        while not blocks or bench.metrics("f", 0)[-1]["step"] >= step - 100:  # else a busy machine has trained past it
            step = bench.metrics("f", 0)[-1]["step"] // 10 * 10 + ahead
            blocks.append(bench.path("runs", "f", "checkpoints", f"step-{step:09d}", f"{part}.safetensors"))
            os.makedirs(os.path.join(blocks[-1], "x"))
            ahead *= 2
        message = check_end(bench.wait(process, arguments, 300), f"{part}.safetensors", "it is a folder", "last good checkpoint is of step", rank=rank)
        for block in blocks:
            shutil.rmtree(block, ignore_errors=True)
        check_goes_on(bench, setup, message)
    return case


def killed(setup, rank, number):
    def case(bench):
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS[setup]]
        process = bench.start(*arguments)
        for group in range(1 if setup == "allreduce" else 2):
            wait_for_steps(bench, process, "f", 2, group)
        os.kill(rank_process(process, rank), number)
        message = check_end(bench.wait(process, arguments, 300), f"killed by signal {number.value}",
                            signal.strsignal(number), rank=rank)
        check_goes_on(bench, setup, message)
    return case


def killed_in_encode(bench):
    """A rank dies while its group's publication is half encoded in its windows: the next job goes on, and nobody takes half a version."""
    period = 120  # of which a publication is encoded in the first forty steps: time enough for a busy machine to kill a rank in them
    fixed = [*ENDLESS, *SETUPS["2x2"], "train.schedule=constant", f"exchange.period={period}", "exchange.chunk_values=256", "data.patch=12",
             "data.batch=4", "log.every=1"]
    arguments = ["train", "t.yaml", *fixed]
    log = bench.path("runs", "f", "exchange.1.jsonl")

    def publications():
        return bench.read(log).count(b'"publish"') if os.path.exists(log) else 0

    messages = []

    def kill_after_publication():
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", len(bench.metrics("f", 1)) + 1 if os.path.exists(log) else 1, 1)
        victim, before, begin = rank_process(process, 3), publications(), time.monotonic()
        while publications() < before + 1:
            check(time.monotonic() - begin < 300 and process.poll() is None, "no publication")
            time.sleep(0.0005)
        wait_for_steps(bench, process, "f", bench.read("runs", "f", "metrics.1.jsonl").count(b"\n") + 3, 1, pause=0.0005)
        os.kill(victim, signal.SIGKILL)
        messages.append(check_end(bench.wait(process, arguments, 300), "killed by signal 9", rank=3))
        published = [event["step"] for event in bench.events("f", 1) if event["kind"] == "publish"][-1]
        return published < bench.metrics("f", 1)[-1]["step"] < published + period // 4

    check(any(kill_after_publication() for _ in tries()), "no kill came while a publication was being encoded")
    step = max(steps_saved(bench.path("runs", "f", "checkpoints")))
    more = 4 * period  # one group may be hundreds of steps behind the other, which then waits long for a publication
    result = bench.trained(*fixed, f"train.steps={step + more}")
    last = messages[-1].rsplit("the last good checkpoint is of step ", 1)[1]  # there may be parts of a newer one
    check(f"group 1: resumed at step {last}\n" in result.err, f"it did not go on from step {last}", result)
    for group in bench.summary("f")["group_results"]:
        events = [event for event in bench.events("f", group["group"]) if event["kind"] == "switch" and event["step"] > step]
        check(events and all(event["peer_step"] <= event["step"] + more for event in events), f"no teacher: {events}", result)
        check(sum(peer["rejected"] for peer in group["peers"]) == 0, f"something was refused: {group}", result)


def mpirun_killed(bench):
    """The launcher itself dies: its ranks go with it, before the command ends and says what they have saved."""
    arguments = ["train", "t.yaml", *ENDLESS, *SETUPS["2x1"]]
    process = bench.start(*arguments)
    for group in (0, 1):
        wait_for_steps(bench, process, "f", 2, group)
    ranks = [rank_process(process, rank) for rank in (0, 1)]
    os.kill(next(pid for pid in descendants(process.pid) if pid not in ranks), signal.SIGKILL)
    message = check_end(bench.wait(process, arguments, 300), "mpirun was killed by signal 9 (Killed)")
    check(not any(map(is_alive, ranks)), "ranks are still there")
    check_goes_on(bench, "2x1", message)


def data_vanishes(setup, truncate):
    """All pictures go in the middle of a run that keeps none in memory."""
    def case(bench):
        for i in range(4):
            bench.write(f"photos/{i}.png", png(48, 40, i))
        data = ["data.kind=pictures", "data.path=photos", "data.cache_mb=0", "data.val_count=1"]
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS[setup], *data]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", 2)
        for i in range(4):
            if truncate:
                os.truncate(bench.path("photos", f"{i}.png"), 100)
            else:
                os.remove(bench.path("photos", f"{i}.png"))
        message = check_end(bench.wait(process, arguments, 300), "none of the training pictures can be read any more",
                            ".png", **({} if setup == "single" else {"rank": 0}))
        for i in range(4):
            bench.write(f"photos/{i}.png", png(48, 40, i))
        check_goes_on(bench, setup, message, *data)
    return case


def disk_full(bench):
    """The disk of the run's folder fills up in the middle of the run."""
    disk = bench.path("runs")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("this user may not mount a small file system")
    try:
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS["2x1"]]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", 2)
        filler = bench.path("runs", "filler")
        with open(filler, "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):  # quickly: the run goes on writing
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)
        message = check_end(bench.wait(process, arguments, 300), "No space left on device", "rank ")
        os.remove(filler)
        check_goes_on(bench, "2x1", message)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


ON_FILES = ["exchange.transport=file", "exchange.directory=shared", *SETUPS["2x1"], "train.schedule=constant"]


def steps_of(bench, group=0):
    return bench.metrics("f", group)[-1]["step"]


def goes_on(bench, process, group, seconds=300):
    """Waits until a group has done 30 more steps."""
    begin, step = time.monotonic(), steps_of(bench, group)
    while steps_of(bench, group) < step + 30:
        check(process.poll() is None and time.monotonic() - begin < seconds, f"group {group} stands at step {steps_of(bench, group)}")
        time.sleep(0.01)


def wait_for_word(bench, process, word, seconds=300, since=0):
    """@param since  bytes that were said before"""
    begin = time.monotonic()
    while word not in bench.read("err")[since:].decode():
        check(process.poll() is None and time.monotonic() - begin < seconds, f"'{word}' is not said:\n{bench.read('err').decode()}")
        time.sleep(0.01)


def storage_fails(spoil, mend, reason):
    """The exchange's folder is of no use for a while: training goes on, says so once a group, and publishes again afterwards."""
    def case(bench):
        shared = bench.path("shared")
        os.makedirs(shared)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", shared], capture_output=True).returncode != 0:
            raise Skip("this user may not mount a small file system")
        arguments = ["train", "t.yaml", *ENDLESS, *ON_FILES]
        with open(bench.path("err"), "wb") as err:
            process = bench.start(*arguments, stderr=err)
        try:
            for group in range(2):
                wait_for_steps(bench, process, "f", 2, group)
            spoil(shared)
            wait_for_word(bench, process, reason)
            for group in range(2):
                goes_on(bench, process, group)
            before = bench.metrics("f", 0)[-1]["peers"][0]["pulled"]
            mend(shared)
            begin = time.monotonic()
            while bench.metrics("f", 0)[-1]["peers"][0]["pulled"] < before + 3:
                check(process.poll() is None and time.monotonic() - begin < 300, "nothing is pulled any more")
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            check(bench.wait(process, arguments, 300).code == STOPPED, f"it did not end well: {bench.read('err').decode()}")
            err = bench.read("err").decode()
            check(err.count("cannot publish") <= 2 * (1 + err.count("publishes again")), f"said at each publication:\n{err}")
        finally:
            kill_job(process)
            subprocess.run(["umount", "-l", shared], check=True)
    return case


def waited_for(bench):
    """Others remove each version of a group that another one waits for: the job ends with a message that names the version."""
    arguments = ["train", "t.yaml", *ENDLESS, *ON_FILES, "exchange.deterministic=true", "exchange.lag_steps=5", "exchange.pull_timeout_s=0.3"]
    process = bench.start(*arguments)
    wait_for_steps(bench, process, "f", 3)
    shard = bench.path("shared", "group-1", "shard-0")
    while process.poll() is None:
        for name in os.listdir(shard):
            if name.endswith(".bin") and not name.startswith("."):
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(shard, name))
    result = bench.wait(process, arguments)
    check(result.code == 1 and re.search(r"version \d+ of group 1, for which this group waits, was lost", result.err), "another end", result)


def fill(folder):
    with contextlib.suppress(OSError), open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def take_away(folder):
    """Nothing can be made in its place either; the groups make their folders anew as fast as they can."""
    for group in range(2):
        path = os.path.join(folder, f"group-{group}")
        while not os.path.isfile(path):
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError), open(path, "x", encoding="utf-8"):
                pass


def give_back(folder):
    for group in range(2):
        os.remove(os.path.join(folder, f"group-{group}"))


def exchange_hangs(number):
    """The exchange's folder is on a server that hangs: training goes on, a signal ends it, and what it saved is good to go on from."""
    def case(bench):
        flag, arguments = bench.path("hangs"), ["train", "t.yaml", *ENDLESS, *ON_FILES]
        environment = hanging(bench.path("shared"), COD_HANG_WHILE=flag)
        with open(bench.path("err"), "wb") as err:
            process = bench.start(*arguments, environment=environment, stderr=err)
        for group in range(2):
            wait_for_steps(bench, process, "f", 2, group)
        bench.write("hangs", "")
        wait_for_word(bench, process, "has not answered for 10 s")  # at a checkpoint
        for group in range(2):
            goes_on(bench, process, group)
        process.send_signal(number)
        result = bench.wait(process, arguments, 300)  # beside the two waits for the groups' threads
        err = bench.read("err").decode()
        check(result.code == STOPPED, f"exit code {result.code}:\n{err}")
        stopped = [int(step) for step in re.findall(r"stopped and saved at step (\d+)", err)]
        check(stopped and max(steps_saved(bench.path("runs", "f", "checkpoints"))) in stopped, f"nothing was saved:\n{err}")
        os.remove(flag)
        with open(bench.path("err"), "wb") as err:
            process = bench.start(*arguments, "--resume", environment=environment, stderr=err)
        wait_for_word(bench, process, f"resumed at step {max(stopped)}")
        for group in range(2):
            goes_on(bench, process, group)
            while bench.metrics("f", group)[-1]["peers"][0]["pulled"] == 0:
                goes_on(bench, process, group)
        process.send_signal(signal.SIGTERM)
        check(bench.wait(process, arguments).code == STOPPED, f"it did not end well: {bench.read('err').decode()}")
    return case


def pipes(*command):
    """What others put in the place of a run's files, a pipe that is open for writing, is refused with its name or passed over, and not waited for."""
    def case(bench):
        bench.trained("name=f", "train.steps=20", "eval.every=10", "log.tensorboard=false")
        shutil.copytree(bench.path("runs"), bench.path("before"))
        (sample,) = [name for name in os.listdir(bench.path("runs", "f", "samples")) if name.startswith("step-0000020")]
        for name in ("config.yaml", "metrics.0.jsonl", "summary.json", "report.html", ".lock", os.path.join("samples", sample)):
            path = bench.path("runs", "f", name)
            os.remove(path)
            os.mkfifo(path)
            writer = os.open(path, os.O_RDWR)
            result = bench.run(*command, timeout=60)
            os.close(writer)
            check(result.code == 0 or result.code in (1, 2) and f"{path.removeprefix(bench.folder + '/')}'" in result.err and "no regular file" in result.err,
                  f"{name} is not refused by name", result)
            check(result.code == 0 or result.err.count("codistill: ") == 1, "not one message", result)
            shutil.rmtree(bench.path("runs"))
            shutil.copytree(bench.path("before"), bench.path("runs"))
    return case


HANGS = "It goes on when storage answers"


def good_step(message):
    return int(message.rsplit("the last good checkpoint is of step ", 1)[1].split()[0])


def output_hangs(setup, file, how):
    """A file of the run's own folder hangs: the run names it, goes on when it answers, and ends without it where it is asked to meanwhile."""
    def case(bench):
        flag = bench.path("hangs")
        fixed = [*ENDLESS, *SETUPS[setup], "checkpoint.write_timeout_s=1", *(["train.max_time=20s"] if how == "max_time" else [])]
        arguments = ["train", "t.yaml", *fixed]
        environment = hanging(bench.path("runs", "f", file), COD_HANG_WHILE=flag)
        with open(bench.path("err"), "wb") as err:
            process = bench.start(*arguments, environment=environment, stderr=err)
        groups = 2 if setup == "2x1" else 1
        for group in range(groups):
            wait_for_steps(bench, process, "f", 2, group)
        bench.write("hangs", "")
        wait_for_word(bench, process, HANGS)
        if how != "max_time":
            said = len(bench.read("err"))
            os.remove(flag)
            wait_for_word(bench, process, "storage answers again: ", since=said)
            for group in range(groups):
                goes_on(bench, process, group)
            said = len(bench.read("err"))
            bench.write("hangs", "")
            wait_for_word(bench, process, HANGS, since=said)
            if groups == 2:
                goes_on(bench, process, 0)  # it is group 1's file
            process.send_signal(how)
        result = bench.wait(process, arguments, 300)
        result.err = bench.read("err").decode()
        message = check_end(result, f"'runs/f/{file}", "the run was asked to end", rank=1 if groups == 2 else None)
        good, saved = good_step(message), steps_saved(bench.path("runs", "f", "checkpoints"))
        check(good in [0, *saved], f"the message names another step: {message}")
        # A checkpoint is not called good before its folder has been flushed, but whole it was before.
        flushed = re.search(r"to flush the folder of '\S+/step-(\d+)/", message)
        newest = max(good, int(flushed[1])) if flushed else good
        os.remove(flag)
        result = bench.stopped(*ENDLESS, *SETUPS[setup], "train.max_time=0.5", "--resume")
        check(f"group {groups - 1}: resumed at step {newest}" in result.err, f"it did not go on after '{message}'", result)
    return case


def unprivileged(bench, *arguments):
    """Runs the command as the user nobody, who owns nothing here."""
    tool = shutil.which("setpriv")
    become = [tool, "--reuid=65534", "--regid=65534", "--clear-groups"] if tool else []
    if os.geteuid() == 0:
        if not tool or subprocess.run([*become, bench.program, "--version"], capture_output=True).returncode != 0:
            raise Skip("there is no setpriv, or the program or its MPI is not for all users")
    else:
        become = []
    os.chmod(bench.folder, 0o755)
    os.chmod(bench.path("tmp"), 0o777)
    program, bench.program = bench.program, (become or [bench.program])[0]
    try:
        return bench.run(*(become[1:] + [program] if become else []), *arguments)
    finally:
        bench.program = program


def read_only(setup):
    """The folder of runs may not be written, then the run's own folder, then only its checkpoints."""
    def case(bench):
        fixed = ["name=f", *SETUPS[setup], "train.steps=20"]
        os.makedirs(bench.path("runs"))
        os.chmod(bench.path("runs"), 0o555)
        check_end(unprivileged(bench, "train", "t.yaml", *fixed), "runs/f", "Permission denied")
        check(not os.listdir(bench.path("runs")), "something was made nevertheless")
        os.chmod(bench.path("runs"), 0o777)
        os.makedirs(bench.path("runs", "f"), mode=0o555)
        check_end(unprivileged(bench, "train", "t.yaml", *fixed), "runs/f", "Permission denied")
        os.chmod(bench.path("runs", "f"), 0o777)
        os.makedirs(bench.path("runs", "f", "checkpoints"), mode=0o555)
        check_end(unprivileged(bench, "train", "t.yaml", *fixed), "runs/f/checkpoints", "Permission denied",
                  "there is no checkpoint yet")
        os.chmod(bench.path("runs", "f", "checkpoints"), 0o777)
        result = unprivileged(bench, "train", "t.yaml", *fixed)
        check(result.code == 0, "it does not run where it may write", result)
    return case


CASES = {
    "cannot-save-single": cannot_save("single", "group-0", None),
    "cannot-save-allreduce": cannot_save("allreduce", "group-0", 0),
    "cannot-save-2x1": cannot_save("2x1", "rank-1", 1),
    "cannot-save-2x2": cannot_save("2x2", "rank-3", 3),
    "killed-allreduce": killed("allreduce", 1, signal.SIGKILL),
    "killed-2x1": killed("2x1", 1, signal.SIGKILL),
    "killed-first-2x1": killed("2x1", 0, signal.SIGKILL),
    "killed-in-encode": killed_in_encode,
    "mpirun-killed": mpirun_killed,
    "killed-8x1": killed("8x1", 5, signal.SIGKILL),
    "crashed-2x2": killed("2x2", 2, signal.SIGSEGV),
    "data-removed-single": data_vanishes("single", False),
    "data-truncated-2x1": data_vanishes("2x1", True),
    "disk-full": disk_full,
    "exchange-disk-full": storage_fails(fill, lambda folder: os.remove(os.path.join(folder, "filler")), "No space left on device"),
    "exchange-folder-gone": storage_fails(take_away, give_back, "cannot publish"),
    "exchange-waited-for": waited_for,
    "exchange-hangs-sigint": exchange_hangs(signal.SIGINT),
    "exchange-hangs-sigterm": exchange_hangs(signal.SIGTERM),
    "output-hangs-checkpoint": output_hangs("single", "checkpoints", signal.SIGINT),
    "output-hangs-metrics": output_hangs("2x1", "metrics.1.jsonl", signal.SIGTERM),
    "output-hangs-log": output_hangs("single", "log.0.txt", "max_time"),
    "pipes-train": pipes("train", "t.yaml", "name=f", "train.steps=30", "eval.every=10", "log.tensorboard=false"),
    "pipes-report": pipes("report", "runs/f"),
    "read-only-single": read_only("single"),
    "read-only-2x1": read_only("2x1"),
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
