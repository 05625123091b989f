#!/usr/bin/env python3
"""One rank fails in the middle of a run: all end soon, with one message that names it: python3 test_faults.py CODISTILL [CASE ...]"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from train_support import Skip, check, descendants, png, rank_process, run_cases, steps_saved, wait_for_steps

SETUPS = {
    "single": ["train.strategy=single"],
    "allreduce": ["train.strategy=allreduce", "cluster.ranks_per_group=2"],
    "2x1": ["train.strategy=codistill", "cluster.groups=2"],
    "2x2": ["train.strategy=codistill", "cluster.groups=2", "cluster.ranks_per_group=2"],
}
ENDLESS = ["name=f", "train.steps=10000000", "eval.every=0", "log.tensorboard=false", "log.samples=0"]


def check_end(result, *parts, rank=None, seconds=30):
    """Exit code 1, soon, and one message with all of `parts`."""
    check(result.code == 1, f"exit code {result.code}, not 1", result)
    check(result.seconds < seconds + 10, f"it took {result.seconds:.0f} s to end", result)
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
    result = bench.trained(*ENDLESS, *SETUPS[setup], *overrides, "train.max_time=0.5", "--resume")
    check(f"resumed at step {step}" in result.err, f"it did not go on from step {step}", result)


def cannot_save(setup, part, rank):
    """A folder in the place of one rank's part of step 30: not even root can rename a file onto it."""
    def case(bench):
        block = bench.path("runs", "f", "checkpoints", "step-000000030", f"{part}.safetensors")
        os.makedirs(os.path.join(block, "x"))
        result = bench.train(*ENDLESS, *SETUPS[setup])
        message = check_end(result, f"{part}.safetensors", "it is a folder", "last good checkpoint is of step 20",
                            rank=rank)
        shutil.rmtree(block)
        check_goes_on(bench, setup, message)
    return case


def killed(setup, rank, number):
    def case(bench):
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS[setup]]
        process = bench.start(*arguments)
        for group in range(1 if setup == "allreduce" else 2):
            wait_for_steps(bench, process, "f", 2, group)
        os.kill(rank_process(process, rank), number)
        message = check_end(bench.wait(process, arguments, 40), f"killed by signal {number.value}",
                            signal.strsignal(number), rank=rank)
        check_goes_on(bench, setup, message)
    return case


def mpirun_killed(bench):
    """The launcher itself dies: its ranks go with it."""
    arguments = ["train", "t.yaml", *ENDLESS, *SETUPS["2x1"]]
    process = bench.start(*arguments)
    for group in (0, 1):
        wait_for_steps(bench, process, "f", 2, group)
    ranks = [rank_process(process, rank) for rank in (0, 1)]
    os.kill(next(pid for pid in descendants(process.pid) if pid not in ranks), signal.SIGKILL)
    message = check_end(bench.wait(process, arguments, 40), "mpirun was killed by signal 9 (Killed)")
    begin = time.monotonic()
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks):
        check(time.monotonic() - begin < 30, "ranks are still there")
        time.sleep(0.05)
    check_goes_on(bench, "2x1", message)


def data_vanishes(setup, truncate):
    """All pictures go in the middle of a run that keeps none in memory."""
    def case(bench):
        for i in range(4):
            bench.write(f"photos/{i}.png", png(48, 40, i))
        data = ["data.kind=images", "data.path=photos", "data.cache_mb=0", "data.val_count=1"]
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS[setup], *data]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", 2)
        for i in range(4):
            if truncate:
                os.truncate(bench.path("photos", f"{i}.png"), 100)
            else:
                os.remove(bench.path("photos", f"{i}.png"))
        message = check_end(bench.wait(process, arguments, 40), "none of the training pictures can be read any more",
                            ".png", **({} if setup == "single" else {"rank": 0}))
        for i in range(4):
            bench.write(f"photos/{i}.png", png(48, 40, i))
        check_goes_on(bench, setup, message, *data)
    return case


def disk_full(bench):
    """The disk of the run's folder fills up in the middle of the run."""
    disk = bench.path("runs")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("this user may not mount a small file system")
    try:
        arguments = ["train", "t.yaml", *ENDLESS, *SETUPS["2x1"]]
        process = bench.start(*arguments)
        wait_for_steps(bench, process, "f", 2)
        filler = bench.path("runs", "filler")
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)
        message = check_end(bench.wait(process, arguments, 40), "No space left on device", "rank ")
        os.remove(filler)
        check_goes_on(bench, "2x1", message)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def unprivileged(bench, *arguments):
    """Runs the command as the user nobody, who owns nothing here."""
    tool = shutil.which("setpriv")
    become = [tool, "--reuid=65534", "--regid=65534", "--clear-groups"] if tool else []
    if os.geteuid() == 0:
        if not tool or subprocess.run([*become, "test", "-x", bench.program], capture_output=True).returncode != 0:
            raise Skip("there is no setpriv, or the program is not for all users")
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
    "mpirun-killed": mpirun_killed,
    "crashed-2x2": killed("2x2", 2, signal.SIGSEGV),
    "data-removed-single": data_vanishes("single", False),
    "data-truncated-2x1": data_vanishes("2x1", True),
    "disk-full": disk_full,
    "read-only-single": read_only("single"),
    "read-only-2x1": read_only("2x1"),
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
