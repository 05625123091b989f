#!/usr/bin/env python3
"""Every way to ask training to end, and launchers that start nothing: python3 test_stops.py CODISTILL [CASE ...]"""

import contextlib
import fcntl
import os
import pty
import re
import resource
import shutil
import signal
import sys
import termios
import time

from train_support import MPIEXEC, STOPPED, check, descendants, png, rank_process, run_cases, steps_saved, wait_for_steps

SETUPS = {"single": ["train.strategy=single"], "2x1": ["train.strategy=codistill", "cluster.groups=2"]}
ENDLESS = ["name=s", "train.steps=10000000", "eval.every=0", "checkpoint.every=1000000", "log.tensorboard=false", "log.samples=0"]
LONGEST = 60  # seconds, where ten are promised: the machine may be busy
BEGUN_NOTHING = ("before its ranks had begun", "while it was being set up")


def start(bench, setup, *overrides, **options):
    return bench.start("train", "t.yaml", *ENDLESS, *SETUPS[setup], *overrides, **options)


def under_way(bench, process, setup):
    for group in range(2 if setup == "2x1" else 1):
        wait_for_steps(bench, process, "s", 2, group)


def end(bench, process, seconds=LONGEST):
    return bench.wait(process, ["train"], seconds)


def saved(bench):
    return steps_saved(bench.path("runs", "s", "checkpoints"))


def check_saved(bench, result, setup):
    check(result.code == STOPPED, f"exit code {result.code}: a stop is neither the end nor a failure", result)
    groups = re.findall(r"group (\d): stopped and saved at step (\d+)", result.err)
    check(sorted({group for group, _ in groups}) == ["0", "1"][:2 if setup == "2x1" else 1], "not every group saved", result)
    check({int(step) for _, step in groups} <= set(saved(bench)), f"checkpoints of other steps: {saved(bench)}", result)


def early(setup, number):
    """A single request while the job starts is never lost: the job saves, or it ends before there is anything to save."""
    def case(bench):
        for delay in (0.05, 0.15, 0.3, 0.5):
            shutil.rmtree(bench.path("runs"), ignore_errors=True)
            process = start(bench, setup)
            time.sleep(delay)
            process.send_signal(number)
            result = end(bench, process)
            if result.code != STOPPED:
                dead = result.code == -number and not os.path.exists(bench.path("runs", "s", "metrics.0.jsonl"))  # before main()
                check(dead or (result.code == 1 and any(words in result.err for words in BEGUN_NOTHING)), f"after {delay} s", result)
            else:
                check("stopped and saved at step" in result.err, f"after {delay} s it does not say that it saved", result)
    return case


def by_signal(setup, number):
    def case(bench):
        process = start(bench, setup)
        under_way(bench, process, setup)
        process.send_signal(number)
        check_saved(bench, end(bench, process), setup)
    return case


def user_started(bench):
    """Ranks that the user's own mpirun has started: its exit code is theirs, once all have saved; the same command goes on to its end."""
    command = (MPIEXEC, "-n", "2")
    process = start(bench, "2x1", command=command)
    under_way(bench, process, "2x1")
    process.send_signal(signal.SIGUSR1)
    check_saved(bench, end(bench, process), "2x1")
    last = max(saved(bench)) + 20
    for words in ("resumed at step", "nothing is left to do"):
        result = end(bench, start(bench, "2x1", f"train.steps={last}", "train.schedule=constant", command=command), 300)
        check(result.code == 0 and words in result.err, "it did not go on", result)


def told_nothing(bench):
    """Ranks of which none has told how the job ended have not ended well, whatever mpirun says."""
    script = f"{MPIEXEC} \"$@\" 2>&1 | sed -u '/\036[0-9a-f]* X[0-9]*$/d' >&2\nexit 0"
    result = end(bench, start(bench, "2x1", "train.steps=20", environment=launcher(bench, script)), 300)
    check(result.code == 1 and "ended with exit code 0, but no rank has told how the job ended" in result.err, "it passes for a job that ended well", result)


def twice(setup):
    """`timeout` and shells send a signal to a process and to its group: that is one request."""
    def case(bench):
        process = start(bench, setup)
        under_way(bench, process, setup)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        check_saved(bench, end(bench, process), setup)
    return case


def deaf(bench):
    """A rank that cannot answer: the job is killed, and says so."""
    process = start(bench, "2x1", "checkpoint.every=10")
    under_way(bench, process, "2x1")
    rank, ours = rank_process(process, 1), descendants(process.pid)
    os.kill(rank, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    result = end(bench, process)
    check(result.code == 1 and "codistill: rank 1 did not answer within 5 s" in result.err, "no message", result)
    check("the last good checkpoint is of step " in result.err, "it does not say what is left", result)
    begin = time.monotonic()
    while any(os.path.exists(f"/proc/{pid}") for pid in ours):
        check(time.monotonic() - begin < LONGEST, "processes are left", result)
        time.sleep(0.05)


def pressed(bench):
    """A second request, a second later, does not wait for a rank that does not answer."""
    process = start(bench, "2x1", "checkpoint.every=10")
    under_way(bench, process, "2x1")
    os.kill(rank_process(process, 1), signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(1.2)
    process.send_signal(signal.SIGINT)
    result = end(bench, process)
    check(result.code in (STOPPED, 1) and "did not answer" not in result.err, "it waits", result)  # 75: mpirun has let it go on for a second


def launcher(bench, script):
    path = bench.write("launcher.sh", f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
    return {"COD_MPIEXEC": path}


def starts_nothing(bench):
    """A launcher that starts no rank is no success, and no failure without a word."""
    for script, words, variables in (
            ("exit 0", "launcher.sh' ended with exit code 0 and started none of 2 ranks", {}),
            ("exit 3", "launcher.sh' ended with exit code 3 and started none of 2 ranks", {}),
            ("shift 2; exec \"$@\"", "but not as a rank of an MPI job", {}),
            ("trap '' TERM; sleep 1000", "launcher.sh' has started none of 2 ranks within 0.5 s", {"COD_START_TIMEOUT_S": "0.5"})):
        result = end(bench, start(bench, "2x1", environment={**launcher(bench, script), **variables}))
        messages = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
        check(result.code == 1 and len(messages) == 1 and words in messages[0], f"'{words}' is missing", result)
    check(not os.path.exists(bench.path("runs")), "something was trained")


def launcher_hangs(bench):
    """One that hangs and does not listen is ended by one SIGTERM."""
    for script in ("exec sleep 1000", "trap '' TERM USR1; sleep 1000"):
        process = start(bench, "2x1", environment=launcher(bench, script))
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        result = end(bench, process)
        check(result.code in (1, -signal.SIGTERM), "exit code", result)  # the signal: the program had not begun
        check(result.code < 0 or BEGUN_NOTHING[0] in result.err, "no message", result)


def launcher_is_late(bench):
    """Ranks that begin after their job was given up are killed with it, and the job does not fail without a word."""
    path = launcher(bench, f"trap '' TERM; sleep 1.2; exec {MPIEXEC} \"$@\"")
    process = start(bench, "2x1", environment=path)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    result = end(bench, process)
    messages = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
    if result.code >= 0:  # else the program had not begun
        check(result.code == 1 and len(messages) == 1 and any(words in messages[0] for words in BEGUN_NOTHING), "no message", result)


def launcher_fails_late(bench):
    """mpirun that is asked to end, too, fails although its ranks have saved: what the ranks say counts."""
    result = end(bench, start(bench, "2x1", "train.steps=20", environment=launcher(bench, f"{MPIEXEC} \"$@\"\nexit 1")), 300)
    check(result.code == 0 and "codistill: " not in result.err, "the ranks ended well", result)


def launcher_lingers(bench):
    """A request that comes when all ranks have ended well, and mpirun has not: it must not be killed by what would ask its ranks."""
    done = bench.path("done")
    process = start(bench, "2x1", "train.steps=20", environment=launcher(bench, f"{MPIEXEC} \"$@\"\ntouch {done}\nsleep 2"))
    wait_for(lambda: os.path.exists(done), process)
    process.send_signal(signal.SIGTERM)
    result = end(bench, process)
    check(result.code == 0 and "codistill: " not in result.err and "stopped" not in result.err, "the job had finished", result)


def launcher_saves_late(bench):
    """Ranks that begin after their job was given up, and end well all the same, as Hydra lets them: the job has not failed."""
    begun, code = bench.path("begun"), bench.path("code")
    script = f"trap '' TERM; touch {begun}; sleep 1.2; {MPIEXEC} \"$@\"; echo $? >{code}"
    for _ in range(10):  # on a busy machine they are killed before
        process = start(bench, "2x1", "train.steps=20", environment=launcher(bench, script))
        wait_for(lambda: os.path.exists(begun), process)
        os.remove(begun)
        process.send_signal(signal.SIGTERM)
        result = end(bench, process)
        if os.path.exists(code):
            check(result.code == 0 and "codistill: " not in result.err, "the ranks ended well", result)
            return
    check(False, "the ranks were killed each time", result)


def launcher_breaks(bench):
    """One that breaks down with words of its own: these are shown, and the job's own message."""
    words = "[mpiexec@here] assert (!closed) failed"
    script = f"{MPIEXEC} \"$@\" &\nwhile ! [ -s runs/s/metrics.1.jsonl ]; do sleep 0.05; done\necho '{words}' >&2\nkill -KILL $!\nexit 255"
    result = end(bench, start(bench, "2x1", environment=launcher(bench, script)), 300)
    messages = [line for line in result.err.splitlines() if line.startswith("codistill: ")]
    check(result.code == 1 and len(messages) == 1 and "launcher.sh' ended with exit code 255; " in messages[0] and words in result.err, "no message", result)


def wait_for(condition, process):
    begin = time.monotonic()
    while not condition():
        check(process.poll() is None, "it has ended")
        check(time.monotonic() - begin < 300, "it does not get there")
        time.sleep(0.02)


def limited(limit, value):
    """Of a child: the soft limit alone, as a batch system sets it."""
    return lambda: resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


def processor_time(bench):
    process = start(bench, "single", preexec_fn=limited(resource.RLIMIT_CPU, 1))
    check_saved(bench, end(bench, process, 300), "single")


def file_size(bench):
    """A limit on files that the metrics reach: a checkpoint is smaller, and is written."""
    process = start(bench, "single", "log.every=1")
    under_way(bench, process, "single")  # MPIs have larger files in shared memory
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 18, resource.RLIM_INFINITY))
    result = end(bench, process, 300)
    check(saved(bench), "nothing is saved", result)


def reader_goes(setup):
    """Nobody reads standard error any more: training goes on, and saves when it is asked to end."""
    def case(bench):
        reading, writing = os.pipe()
        process = start(bench, setup, "log.every=1", stderr=writing)
        os.close(writing)
        under_way(bench, process, setup)
        os.close(reading)
        count = len(bench.metrics("s", 0))
        wait_for_steps(bench, process, "s", count + 20)
        process.send_signal(signal.SIGTERM)
        check(process.wait(LONGEST) == STOPPED, "a stop is neither the end nor a failure")
        check(saved(bench), "nothing is saved")
    return case


def terminal_closes(setup):
    """The window is closed: every process of the terminal gets SIGHUP, and can write there no more."""
    def case(bench):
        master, slave = pty.openpty()

        def take_terminal():
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        process = start(bench, setup, stderr=slave, stdin=slave, preexec_fn=take_terminal)
        os.close(slave)
        begin = time.monotonic()
        os.set_blocking(master, False)
        while not os.path.exists(bench.path("runs", "s", "metrics.0.jsonl")) or len(bench.metrics("s", 0)) < 2:
            check(time.monotonic() - begin < 300 and process.poll() is None, "training did not get under way")
            with contextlib.suppress(OSError):
                os.read(master, 65536)
            time.sleep(0.01)
        os.close(master)
        check(process.wait(LONGEST) == STOPPED, "a stop is neither the end nor a failure")
        check(saved(bench), "nothing is saved")
    return case


def nohup(bench):
    """What was ignored from the beginning stays ignored, whatever libraries do with it when they are loaded."""
    preloaded = {"LD_PRELOAD": os.environ["COD_TEST_TAKES_HANGUP"]}
    process = start(bench, "single", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), environment=preloaded)
    under_way(bench, process, "single")
    process.send_signal(signal.SIGHUP)
    count = len(bench.metrics("s", 0))
    wait_for_steps(bench, process, "s", count + 5)
    process.send_signal(signal.SIGTERM)
    check_saved(bench, end(bench, process), "single")


def compare(number):
    def case(bench):
        process = bench.start("compare", "t.yaml", "--strategies", "codistill", "cluster.groups=2", "name=c", *ENDLESS[1:])
        wait_for_steps(bench, process, "c-codistill-seed1", 2)
        process.send_signal(number)
        result = bench.wait(process, ["compare"], LONGEST)
        check(result.code == STOPPED and re.search(r"run 'c-codistill-seed1' stopped at step [1-9]\d* of 10000000; the same", result.err), "no word", result)
        check("stopped and saved at step" in result.err, "it did not wait for its run", result)
    return case


def compare_unread(bench):
    """Nobody reads what a comparison says: its results are in its files, and nothing failed."""
    reading, writing = os.pipe()
    process = bench.start("compare", "t.yaml", "--strategies", "single", "name=c", "train.steps=400", "eval.every=0", stderr=writing)
    os.close(writing)
    wait_for_steps(bench, process, "c-single-seed1", 1)
    os.close(reading)
    result = bench.wait(process, ["compare"], 300)
    check(result.code == 0 and bench.json("c-compare", "compare.json")["arms"][0]["runs"][0]["state"] == "finished", "no result", result)


HOSTILE = "a\x1b]0;name\x07\n\x1eX1\ncodistill: fake error; the last good checkpoint is of step 7\n\udc9b.png"


def hostile_names(bench):
    """What a file is called is neither obeyed by the terminal, nor news, nor a message of its own."""
    for i in range(3):
        bench.write(f"pictures/{i}.png", png(48, 48, i))
    bench.write(f"pictures/{HOSTILE}", "broken")
    result = bench.train("name=n", *SETUPS["2x1"], "train.steps=20", "data.kind=pictures", f"data.path={bench.path('pictures')}", "data.val_count=1")
    check(result.code == 0 and os.path.exists(bench.path("runs", "n", "summary.json")), "a name made the job fail", result)
    check("a\\x1B]0;name\\x07\\x0A\\x1EX1\\x0Acodistill: fake" in result.err and "\\x9B.png" in result.err, "the name is not shown", result)
    check(not any(c < " " and c != "\n" for c in result.err) and "\ncodistill: " not in result.err, "control characters", result)
    shown = bench.done("eval", "bicubic", "--data", "pictures", "--scale", "2", "--threads", "1")
    check(not any(c < " " and c != "\n" for c in shown.out + shown.err), "eval shows control characters", shown)
    shutil.copyfile(bench.path("pictures", "0.png"), bench.path("pictures", HOSTILE))
    shown = bench.done("eval", "bicubic", "--data", "pictures", "--scale", "2", "--threads", "1")
    check("\\x1B]0;name" in shown.out and not any(c < " " and c != "\n" for c in shown.out + shown.err), "eval shows control characters", shown)


CASES = {
    "early-single": early("single", signal.SIGINT),
    "early-2x1": early("2x1", signal.SIGTERM),
    **{f"{number.name.lower()}-{setup}": by_signal(setup, number)
       for setup in SETUPS for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU, signal.SIGXFSZ)},
    "user-started": user_started,
    "told-nothing": told_nothing,
    "twice": twice("2x1"),
    "deaf": deaf,
    "pressed": pressed,
    "starts-nothing": starts_nothing,
    "launcher-hangs": launcher_hangs,
    "launcher-is-late": launcher_is_late,
    "launcher-fails-late": launcher_fails_late,
    "launcher-lingers": launcher_lingers,
    "launcher-saves-late": launcher_saves_late,
    "launcher-breaks": launcher_breaks,
    "processor-time": processor_time,
    "file-size": file_size,
    "reader-goes-single": reader_goes("single"),
    "reader-goes-2x1": reader_goes("2x1"),
    "terminal-closes-single": terminal_closes("single"),
    "terminal-closes-2x1": terminal_closes("2x1"),
    "nohup": nohup,
    "compare-sighup": compare(signal.SIGHUP),
    "compare-sigxcpu": compare(signal.SIGXCPU),
    "compare-unread": compare_unread,
    "hostile-names": hostile_names,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
