#!/usr/bin/env python3
"""Groups as jobs of their own (`train --group K`), which begin, die and come back alone: python3 test_jobs.py CODISTILL [CASE ...]"""

import contextlib
import os
import random
import re
import shutil
import signal
import struct
import sys
import time

from train_support import STOPPED, check, descendants, hanging, kill_job, parts_saved, rank_process, run_cases, steps_saved, wait_for_steps

SHARED = ["train.strategy=codistill", "exchange.transport=file", "log.tensorboard=false", "log.samples=0"]
TWO = [*SHARED, "cluster.groups=2"]
UNEQUAL = [*SHARED, "cluster.groups=[{ranks: 1}, {ranks: 2}]"]
NEWEST_AT = 120  # of the newest version's number in a header: src/exchange/slot.c
ENDLESS = ["train.steps=10000000", "eval.every=0", "train.schedule=constant"]


def arguments_of(group, *overrides):
    return ["train", "t.yaml", "--group", str(group), *overrides]


def start(bench, group, *overrides):
    return bench.start(*arguments_of(group, *overrides))


def finish(bench, process, group, code=0, timeout=300):
    result = bench.wait(process, arguments_of(group), timeout)
    check(result.code == code, f"group {group}: exit code {result.code}, not {code}", result)
    return result


def train(bench, group, *overrides, code=0):
    return finish(bench, start(bench, group, *overrides), group, code)


def switches(bench, name, group):
    return [event for event in bench.events(name, group) if event["kind"] == "switch"]


def wait_until(condition, what, process=None, seconds=300):
    begin = time.monotonic()
    while not condition():
        check(time.monotonic() - begin < seconds, f"not within {seconds} s: {what}")
        check(process is None or process.poll() is None, f"the job ended before: {what}")
        time.sleep(0.01)


def check_no_step_lost(bench, name, group, every=10):
    """Lines of metrics one after the other, also of evaluations: nothing was left out, and nothing done twice."""
    steps = [line["step"] for line in bench.metrics(name, group)]
    check(steps == [step for step in range(1, steps[-1] + 1) if step % every == 0 or step % 30 == 0], f"group {group} lost steps: {steps}")


def check_summary(bench, name, groups, steps):
    summary = bench.summary(name)
    check((summary["groups"], summary["steps"]) == (groups, steps), f"groups and steps: {summary}")
    check([g["group"] for g in summary["group_results"]] == list(range(groups)), f"group_results: {summary}")
    for key in ("psnr_y", "bicubic_psnr_y", "wall_s", "core_s"):
        check(isinstance(summary[key], float), f"{key}: {summary}")
    check(re.fullmatch(r"group \d|mean of \d groups", summary["final_is"]), f"final_is: {summary}")
    check(os.path.getsize(bench.path("runs", name, "final.safetensors")) > 1000, "final.safetensors is small")
    return summary


def together(bench):
    """Both become each other's teachers, and write the files that one job of both would."""
    fixed = ["name=j", *UNEQUAL, "train.steps=600", "log.every=50"]
    jobs = [start(bench, group, *fixed) for group in (0, 1)]
    # The one that is ready sooner could be through before the other has begun.
    wait_for_steps(bench, jobs[0], "j", 1, 0)
    jobs[0].send_signal(signal.SIGSTOP)
    wait_until(lambda: any(event["kind"] == "publish" for event in bench.events("j", 1)), "group 1 publishes", jobs[1])
    jobs[0].send_signal(signal.SIGCONT)
    results = [finish(bench, job, group) for group, job in enumerate(jobs)]
    summary = check_summary(bench, "j", 2, 600)
    check((summary["ranks"], [g["ranks"] for g in summary["group_results"]]) == (3, [1, 2]), f"ranks: {summary}")
    check(sum("final.safetensors is" in result.err for result in results) >= 1, "nobody says what is final", results[0])
    for group, result in enumerate(summary["group_results"]):
        check(result["teacher_switches"] > 0 and result["publications"] > 0, f"no teacher: {result}")
        check(len(switches(bench, "j", group)) == result["teacher_switches"], f"group {group}'s events")
        check(any(line["distill_loss"] for line in bench.metrics("j", group)), f"group {group} distilled nothing")
        check_no_step_lost(bench, "j", group, 50)
        with open(bench.path("runs", "j", f"log.{group}.txt"), encoding="utf-8") as file:
            groups = set(re.findall(r"^\S+ group (\d+)\b", file.read(), re.MULTILINE))
            check(groups == {str(group)}, f"log.{group}.txt has lines of groups {groups}")
    parts = {"closing-0", "closing-1", "group-0", "group-1", "rank-0", "rank-1", "rank-2"}
    saved = os.listdir(bench.path("runs", "j", "checkpoints", "step-000000600"))
    check(set(saved) == {f"{part}.safetensors" for part in parts}, f"parts of the checkpoint: {saved}")
    # One job of all groups goes on from there, and they from it.
    result = bench.trained("name=j", *UNEQUAL, "train.steps=620", "log.every=50")
    check(result.err.count("resumed at step 600") == 2, "one job of all groups did not go on", result)
    for group in (1, 0):
        result = train(bench, group, "name=j", *UNEQUAL, "train.steps=640", "log.every=50")
        check("resumed at step 620" in result.err, "a group's job did not go on", result)
    check_summary(bench, "j", 2, 640)


def one_by_one(first):
    """Whoever ends last writes the summary; until then each says who is missing. What a group left teaches the other."""
    def case(bench):
        second, fixed = 1 - first, ["name=o", *TWO, "train.steps=100"]
        result = train(bench, first, *fixed)
        check(f"still to end: group {second}" in result.err, "it does not say who is missing", result)
        for name in ("summary.json", "final.safetensors"):
            check(not os.path.exists(bench.path("runs", "o", name)), f"{name} of half a run")
        again = train(bench, first, *fixed)
        check(f"still to end: group {second}" in again.err and "resumed at step 100" in again.err, "not so again", again)
        result = train(bench, second, *fixed)
        check("final.safetensors is" in result.err, "it does not say what is final", result)
        summary = check_summary(bench, "o", 2, 100)
        check(summary["group_results"][second]["teacher_switches"] > 0, "a group that has ended teaches nobody", result)
        os.remove(bench.path("runs", "o", "summary.json"))  # as a kill in the last moment does
        train(bench, first, *fixed)
        check(check_summary(bench, "o", 2, 100)["group_results"] == summary["group_results"], "another summary")
        again = train(bench, second, *fixed)
        check("nothing is left to do" in again.err, "it does not say that the run is finished", again)
        # More steps: the summary is of them only when all groups have done them.
        result = train(bench, second, "name=o", *TWO, "train.steps=120")
        check("(train.steps: 100 there, 120 here)" in result.err, "the difference is not named", result)
        check(not os.path.exists(bench.path("runs", "o", "summary.json")), "a summary of other steps stays")
        train(bench, first, "name=o", *TWO, "train.steps=120")
        check_summary(bench, "o", 2, 120)
        # Anew: only this group's part goes.
        result = train(bench, first, "name=o", *TWO, "train.steps=20", "checkpoint.resume=never", "train.schedule=constant")
        check(steps_saved(bench.path("runs", "o", "checkpoints")) == [10, 20, 110, 120], "other checkpoints", result)
        check(bench.metrics("o", first)[-1]["step"] == 20 and bench.metrics("o", second)[-1]["step"] == 120, "metrics")
        parts = os.listdir(bench.path("runs", "o", "checkpoints", "step-000000120"))
        check(all(str(second) in part for part in parts) and len(parts) == 3, f"parts of the other group: {parts}")
    return case


def killed(bench):
    """A group is killed at random moments, all its processes at once. The other loses no step; it comes back from its own checkpoint."""
    seed = int(os.environ.get("COD_SEED") or random.SystemRandom().randrange(1 << 30))
    chance = random.Random(seed)
    print(f"seed {seed} (COD_SEED={seed} replays the moments)", flush=True)
    # Without a key for ever: a group that comes back must publish one by itself.
    fixed = ["name=k", *UNEQUAL, *ENDLESS, "exchange.key_every=1000000", "exchange.slots=16"]
    folder = bench.path("runs", "k", "checkpoints")

    def newest():
        return max((event["version"] for event in switches(bench, "k", 0)), default=0)

    survivor = start(bench, 0, *fixed)
    wait_for_steps(bench, survivor, "k", 1, 0)
    for life in range(4):
        seen = newest()
        process = start(bench, 1, *fixed)
        wait_until(lambda: newest() > seen + 2, "the group is a teacher, and after its death again", process)
        if life == 3:
            break
        time.sleep(chance.random() * 0.2)
        kill_job(process)
        result = bench.wait(process, arguments_of(1))
        if life > 0:
            check(f"group 1: resumed at step {saved}" in result.err, f"life {life}: not from its newest checkpoint, {saved}", result)
        saved = max(step for step in steps_saved(folder) if os.path.exists(os.path.join(folder, f"step-{step:09d}", "group-1.safetensors")))
        before = len(bench.metrics("k", 0))
        wait_until(lambda: len(bench.metrics("k", 0)) > before + 2, "the survivor goes on alone", survivor)
    for job in (survivor, process):
        job.send_signal(signal.SIGTERM)
    results = [finish(bench, job, group, STOPPED) for group, job in enumerate((survivor, process))]
    check(all("stopped and saved at step" in result.err for result in results), "a stop does not save", results[1])
    check("resumed" not in results[0].err and "begins anew" not in results[0].err, "the survivor began again", results[0])
    for group in (0, 1):
        check_no_step_lost(bench, "k", group)


def rank_killed(bench):
    """One rank of a group of two dies, or the group's mpirun, or what launched that: its job ends, the other group's goes on."""
    fixed = ["name=r", *UNEQUAL, *ENDLESS]
    survivor = start(bench, 0, *fixed)
    deaths = {"rank": "rank 1 on .* was killed by signal 9 .*; the last good checkpoint is of step ",
              "mpirun": "mpirun was killed by signal 9 .*; the last good checkpoint is of step ",
              "launcher": ""}  # which can say nothing any more
    for victim, said in deaths.items():
        process = start(bench, 1, *fixed)
        lines = len(bench.metrics("r", 1)) if victim != "rank" else 0
        wait_for_steps(bench, process, "r", lines + 2, 1)
        ranks = [rank_process(process, rank) for rank in (0, 1)]
        mpirun = next(pid for pid in descendants(process.pid) if pid not in ranks)
        os.kill({"rank": ranks[1], "mpirun": mpirun, "launcher": process.pid}[victim], signal.SIGKILL)
        result = finish(bench, process, 1, code=-signal.SIGKILL if victim == "launcher" else 1)
        check(re.search(said, result.err), f"the dead {victim} and the checkpoint are not named", result)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in ranks), "the group's ranks are gone")
    result = train(bench, 1, *fixed, "train.max_time=0.5s", code=STOPPED)
    check("resumed at step" in result.err, "it did not go on", result)
    check(survivor.poll() is None, "the other group ended, too")
    survivor.send_signal(signal.SIGTERM)
    finish(bench, survivor, 0, STOPPED)
    check_no_step_lost(bench, "r", 0)


def fragments(bench):
    """Groups of two ranks publish two fragments in turn, as deltas: both fragments of each reach the other, also after one was killed and came back."""
    fixed = ["name=g", *TWO, *ENDLESS, "cluster.ranks_per_group=2", "exchange.fragments=2", "exchange.chunk_values=256", "exchange.key_every=4", "exchange.slots=16"]

    def newest(reader):
        """The newest version of each fragment that the reader took over: version v is of fragment v mod 2."""
        taken = [event["version"] for event in switches(bench, "g", reader)]
        return [max((version for version in taken if version % 2 == fragment), default=0) for fragment in (0, 1)]

    def await_both(jobs, seen, what):
        for reader in (0, 1):
            wait_until(lambda: all(now > before for now, before in zip(newest(reader), seen[reader])), f"group {reader} takes over both fragments {what}", jobs[reader])

    jobs = [start(bench, group, *fixed) for group in (0, 1)]
    for group in (0, 1):
        wait_for_steps(bench, jobs[group], "g", 1, group)
    await_both(jobs, [[0, 0], [0, 0]], "at first")
    saved = bench.path("runs", "g", "checkpoints")
    wait_until(lambda: any("group-1.safetensors" in parts_saved(saved, step) for step in steps_saved(saved)), "group 1 saves a checkpoint", jobs[1])
    kill_job(jobs[1])
    bench.wait(jobs[1], arguments_of(1))
    lines = len(bench.metrics("g", 0))
    wait_until(lambda: len(bench.metrics("g", 0)) > lines + 2, "the survivor goes on alone", jobs[0])
    seen = [newest(0), newest(1)]
    jobs[1] = start(bench, 1, *fixed)
    await_both(jobs, seen, "again")
    for job in jobs:
        job.send_signal(signal.SIGTERM)
    results = [finish(bench, job, group, STOPPED) for group, job in enumerate(jobs)]
    check("group 1: resumed at step" in results[1].err, "the killed group began anew", results[1])
    for group in (0, 1):
        check_no_step_lost(bench, "g", group)
    peer = bench.metrics("g", 1)[-1]["peers"][0]
    check(peer["rejected"] == 0, f"versions of the group that did not die were refused: {peer}")


def frozen(bench):
    """A group that hangs delays nobody: the other goes on to its end, and ends."""
    fixed = ["name=f", *TWO, "train.schedule=constant", "checkpoint.every=100"]
    process = start(bench, 1, *fixed, "train.steps=1000000")
    wait_for_steps(bench, process, "f", 2, 1)
    other = start(bench, 0, *fixed, "train.steps=1000000")
    wait_for_steps(bench, other, "f", 2, 0)
    other.send_signal(signal.SIGTERM)
    finish(bench, other, 0, STOPPED)
    os.kill(process.pid, signal.SIGSTOP)
    last = bench.metrics("f", 0)[-1]["step"]
    try:
        train(bench, 0, *fixed, f"train.steps={last + 2000}", "distill.weight=0.05")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    finish(bench, process, 1, STOPPED)
    check_no_step_lost(bench, "f", 0)


def storage(bench):
    """The exchange's folder vanishes while both train: neither stops, and both teach again."""
    fixed = ["name=s", *TWO, *ENDLESS, "exchange.directory=x", "exchange.key_every=4"]
    jobs = [start(bench, group, *fixed) for group in (0, 1)]
    for group in (0, 1):
        wait_until(lambda: switches(bench, "s", group), "a teacher", jobs[group])
    os.rename(bench.path("x"), bench.path("gone"))
    for group in (0, 1):
        before = len(bench.metrics("s", group))
        wait_until(lambda: len(bench.metrics("s", group)) > before + 5, "training goes on", jobs[group])
        before = len(switches(bench, "s", group))
        wait_until(lambda: len(switches(bench, "s", group)) > before + 2, "a teacher again", jobs[group])
    for group, job in enumerate(jobs):
        job.send_signal(signal.SIGTERM)
        finish(bench, job, group, STOPPED)
        check_no_step_lost(bench, "s", group)
    shutil.rmtree(bench.path("gone"))


def own_storage_hangs(bench):
    """A group's own folder hangs, for that group alone: what it publishes then is left out, its checkpoints are saved, SIGTERM ends it. The other goes on."""
    fixed = ["name=w", *TWO, *ENDLESS, "exchange.directory=x", "exchange.key_every=4", "exchange.slots=16"]
    flag, folder = bench.path("hangs"), bench.path("runs", "w", "checkpoints")
    slow = hanging(bench.path("x", "group-0"), COD_HANG_WHILE=flag)

    def started(group):
        return bench.start(*arguments_of(group, *fixed), environment=slow if group == 0 else None)

    def newest(reader):
        return max((event["version"] for event in switches(bench, "w", reader)), default=0)

    def saved():
        return max(step for step in steps_saved(folder) if os.path.exists(os.path.join(folder, f"step-{step:09d}", "group-0.safetensors")))

    jobs = [started(group) for group in (0, 1)]
    for group in (0, 1):
        wait_until(lambda: newest(group) > 0, f"group {group} has a teacher", jobs[group])
    bench.write("hangs", "")
    before = saved()
    wait_until(lambda: saved() > before + 100, "checkpoints are saved", jobs[0])  # ten of them: only the first one waits, for 10 s
    published, lines = newest(1), len(bench.metrics("w", 1))
    wait_until(lambda: len(bench.metrics("w", 1)) > lines + 20, "the other goes on", jobs[1])
    check(newest(1) == published, "a version came from storage that hangs")
    jobs[0].send_signal(signal.SIGTERM)
    result = finish(bench, jobs[0], 0, STOPPED)
    for words in ("has not answered for 10 s", "the publication before is still being written", f"stopped and saved at step {saved()}"):
        check(words in result.err, f"'{words}' is not said", result)
    os.remove(flag)
    seen = [newest(reader) for reader in (0, 1)]
    jobs[0] = started(0)
    for reader in (0, 1):
        wait_until(lambda: newest(reader) > seen[reader] + 1, f"group {reader} has a teacher again", jobs[reader])
    for job in jobs:
        job.send_signal(signal.SIGTERM)
    for group, job in enumerate(jobs):
        finish(bench, job, group, STOPPED)
        check_no_step_lost(bench, "w", group)


def old_header(bench):
    """A backup puts the header of an older version back while its group is dead: that is refused, and the group teaches again."""
    # Without a key for ever: a group that does not know what its readers hold would be lost to them.
    fixed = ["name=h", *TWO, *ENDLESS, "exchange.key_every=1000000", "exchange.slots=16"]
    header = bench.path("runs", "h", "exchange", "group-1", "shard-0", "header")

    def newest():
        return max((event["version"] for event in switches(bench, "h", 0)), default=0)

    def refused():
        return max((peer["rejected"] for line in bench.metrics("h", 0)[-1:] for peer in line["peers"]), default=0)

    survivor = start(bench, 0, *fixed)
    wait_for_steps(bench, survivor, "h", 1, 0)  # who comes when the first key has left the window never gets one
    process = start(bench, 1, *fixed)
    wait_until(lambda: newest() > 2, "the group is a teacher", process)
    shutil.copy(header, bench.path("old-header"))
    seen = newest()
    wait_until(lambda: newest() > seen + 2, "the group goes on teaching", process)
    kill_job(process)
    bench.wait(process, arguments_of(1))
    # Whoever is pulling a version while the header goes back does without it, and without a key for ever would be lost.
    (seen,) = struct.unpack_from("<Q", bench.read(header), NEWEST_AT)
    wait_until(lambda: newest() == seen, "the last version is taken", survivor)
    shutil.copy(bench.path("old-header"), header + ".new")
    os.rename(header + ".new", header)
    wait_until(lambda: refused() > 0, "the older header is refused", survivor)
    process = start(bench, 1, *fixed)
    wait_until(lambda: newest() > seen + 2, "the group is a teacher again", process)
    for group, job in enumerate((survivor, process)):
        job.send_signal(signal.SIGTERM)
        result = finish(bench, job, group, STOPPED)
        check(group == 1 or "is older than one read before" in result.err, "the older header is not named", result)
        check_no_step_lost(bench, "h", group)


def strangers(bench):
    """Another run in the same exchange folder is nobody's teacher; neither is one with another period."""
    fixed = [*TWO, "exchange.directory=x", "train.steps=100"]
    train(bench, 1, "name=a", *fixed)
    for name, override in (("b", "seed=1"), ("a2", "seed=2")):
        result = train(bench, 0, f"name={name}", *fixed, override)
        check("publishes another run" in result.err and "another name= and exchange.directory=" in result.err, "the stranger is not named, or no way out", result)
        check(not switches(bench, name, 0), "a stranger was a teacher", result)
    result = train(bench, 0, "name=a", "output=elsewhere", *fixed, "exchange.period=20")
    check("publishes another run" in result.err, "another period is not refused", result)
    # The run is deleted, but for what it exchanged: a new one of its name learns nothing from that.
    (nonce,) = re.findall(r'^nonce: "?([0-9a-f]{16})"?', bench.read("runs", "a", "config.yaml").decode(), re.MULTILINE)
    os.rename(bench.path("runs", "a"), bench.path("away"))
    result = train(bench, 0, "name=a", *fixed)
    check("publishes another run" in result.err and not switches(bench, "a", 0), "a deleted run was a teacher", result)
    result = train(bench, 1, "name=a", f"nonce={nonce}", *fixed, code=2)
    check(f"there, {nonce} here" in result.err, "another nonce in one folder is not refused", result)
    # From another run's folder, but of the same run: as on two sites that share nothing but the exchange.
    result = train(bench, 0, "name=a", "output=site", f"nonce={nonce}", *fixed)
    check(os.path.getsize(bench.path("site", "a", "exchange.0.jsonl")) > 0 and "publishes another" not in result.err,
          "a group of the same run is refused", result)
    check(os.path.exists(bench.path("site", "a", "group.0.safetensors")) and not os.path.exists(bench.path("site", "a", "final.safetensors")),
          "a site has another model than its own", result)


def sealed(bench):
    """Only groups that have the key teach each other."""
    for key, secret in (("ours", "a secret of the groups"), ("theirs", "another one, as long")):
        bench.write(key, secret)
        os.chmod(bench.path(key), 0o600)
    fixed = ["name=k", *TWO, "exchange.directory=x", "train.steps=100"]
    train(bench, 1, *fixed, "exchange.key_file=ours")
    result = train(bench, 0, *fixed, "exchange.key_file=ours")
    check(switches(bench, "k", 0) and "seal" not in result.err, "no teacher", result)
    (nonce,) = re.findall(r'^nonce: "?([0-9a-f]{16})"?', bench.read("runs", "k", "config.yaml").decode(), re.MULTILINE)
    for output, key, words in (("other", ["exchange.key_file=theirs"], "has no seal of exchange.key_file"),
                               ("open", [], "is sealed: give its exchange.key_file here, too")):
        result = train(bench, 0, *fixed, f"output={output}", f"nonce={nonce}", *key)
        check(words in result.err, f"'{words}' is missing", result)
        check(os.path.getsize(bench.path(output, "k", "exchange.0.jsonl")) > 0, "it published nothing", result)
        with open(bench.path(output, "k", "exchange.0.jsonl"), encoding="utf-8") as file:
            check('"switch"' not in file.read(), "a stranger was a teacher", result)


def fifo(bench):
    """A FIFO in place of a peer's header is refused by name; training, its checkpoints and SIGTERM go on."""
    os.makedirs(bench.path("x", "group-1", "shard-0"))
    os.mkfifo(bench.path("x", "group-1", "shard-0", "header"))
    job = start(bench, 0, "name=w", *TWO, *ENDLESS, "exchange.directory=x", "checkpoint.every=50")
    wait_until(lambda: len(steps_saved(bench.path("runs", "w", "checkpoints"))) > 1, "checkpoints are saved", job)
    job.send_signal(signal.SIGTERM)
    result = finish(bench, job, 0, STOPPED)
    check("header of group 1's shard 0 is damaged" in result.err, "the FIFO is not named", result)


def eight(hurt):
    """One of eight groups, each a job, is hurt and comes back. All others lose no step, and it is a teacher of all of them again."""
    def case(bench):
        # A period that eight groups on two processors follow with, and keys often: who comes back finds one soon.
        fixed = ["name=e", *SHARED, *ENDLESS, "cluster.groups=8", "exchange.directory=x", "exchange.period=50", "exchange.key_every=4", "exchange.slots=16",
                 "checkpoint.every=100"]
        jobs = {group: start(bench, group, *fixed) for group in range(8)}

        def lines(group):
            return len(bench.metrics("e", group)) if os.path.exists(bench.path("runs", "e", f"metrics.{group}.jsonl")) else 0

        def newest(reader, of):
            return max((event["version"] for event in switches(bench, "e", reader) if event["peer"] == of), default=0)

        def await_teacher(of, seen, what):
            for reader in set(range(8)) - {of}:
                wait_until(lambda: newest(reader, of) > seen.get(reader, 0), f"group {of} is a teacher of group {reader} {what}", jobs[reader])

        def await_steps(groups, more):
            before = {group: lines(group) for group in groups}
            for group in groups:
                wait_until(lambda: lines(group) >= before[group] + more, f"group {group} goes on", jobs[group])

        for group in range(8):
            wait_until(lambda: lines(group) > 0, f"group {group} begins", jobs[group])
            await_teacher(group, {}, "at first")
        hurt(bench, jobs, fixed, await_steps)
        for of in range(8) if hurt is folder_gone else [VICTIM]:
            await_teacher(of, {reader: newest(reader, of) for reader in range(8)}, "again")
        for job in jobs.values():
            job.send_signal(signal.SIGTERM)
        for group, job in jobs.items():
            finish(bench, job, group, STOPPED)
            check_no_step_lost(bench, "e", group)
    return case


VICTIM = 5


def one_killed(bench, jobs, fixed, await_steps):
    kill_job(jobs[VICTIM])
    bench.wait(jobs[VICTIM], arguments_of(VICTIM))
    await_steps(set(range(8)) - {VICTIM}, 5)
    jobs[VICTIM] = start(bench, VICTIM, *fixed)


def one_stopped(bench, jobs, _fixed, await_steps):
    stopped = [jobs[VICTIM].pid, *descendants(jobs[VICTIM].pid)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    await_steps(set(range(8)) - {VICTIM}, 5)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)


def folder_gone(bench, jobs, _fixed, await_steps):
    """With all that is in it; the groups may not make it anew for a while."""
    os.rename(bench.path("x"), bench.path("gone"))
    # A file in its place: not even root can write below it. A group that is faster has made the folder again.
    while not os.path.isfile(bench.path("x")):
        shutil.rmtree(bench.path("x"), ignore_errors=True)
        with contextlib.suppress(OSError), open(bench.path("x"), "x", encoding="utf-8"):
            pass
    await_steps(jobs, 5)
    os.remove(bench.path("x"))


def refused(bench):
    def expect(code, phrase, *arguments, command=()):
        process = bench.start(*arguments, command=command)
        result = bench.wait(process, arguments)
        check(result.code == code, f"exit code {result.code}, not {code}", result)
        check(phrase in result.err, f"'{phrase}' is missing", result)
        check(result.err.count("codistill: ") + result.err.count("codistill train: ") == 1, "not one message", result)

    alone = ["train.strategy=codistill", "cluster.groups=2"]
    one = ["train", "t.yaml", "name=n", "--group"]
    expect(2, "exchange.transport=file", *one, "0", *alone)
    expect(2, "train.deterministic", *one, "0", *TWO, "train.deterministic=true")
    expect(2, "exchange.deterministic", *one, "0", *TWO, "exchange.deterministic=true")
    expect(2, "exchange.replay", *one, "0", *TWO, "exchange.replay=runs/x")
    expect(2, "cluster.groups is by_node", *one, "0", *SHARED, "cluster.groups=by_node")
    expect(2, "there is no group 2: cluster.groups makes 2", *one, "2", *TWO)
    expect(2, "'x' is not a whole number", *one, "x", *TWO)
    expect(2, "'-1' is not a whole number", *one[:-1], "--group=-1", *TWO)
    for strategy in ("single", "allreduce"):
        expect(2, f"strategy '{strategy}'", *one, "0", f"train.strategy={strategy}", "exchange.transport=file")
    check(not os.path.exists(bench.path("runs")), "a refusal left a folder")
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
    expect(2, "group 1 has 1 rank, but its job has 2; start it with -n 1", *one, "1", *TWO, command=mpirun)

    process = start(bench, 0, "name=l", *TWO, *ENDLESS)
    wait_for_steps(bench, process, "l", 2)
    same = ["train", "t.yaml", "name=l", *TWO, *ENDLESS]
    expect(1, "group 0 is trained by one job at a time: 'runs/l/.lock.0' is in use by process", *same, "--group", "0")
    expect(1, "'runs/l/.lock' is in use by process", *same)
    for change, words in (("exchange.period=20", "(exchange.period: 10 there, 20 here)"), ("seed=2", "(seed: 1 there, 2 here)"),
                          ("cluster.groups=3", "(cluster.groups: 2 there, 3 here)"),
                          ("model.blocks=2", "(model.blocks: 1 there, 2 here)")):
        expect(2, words, *same, "--group", "1", change)
    process.send_signal(signal.SIGTERM)
    finish(bench, process, 0, STOPPED)
    expect(2, "there is no checkpoint of this group", *same, "--group", "1", "--resume")
    process = bench.start(*same)
    wait_for_steps(bench, process, "l", len(bench.metrics("l", 0)) + 2)
    expect(1, "'runs/l/.lock' is in use by process", *same, "--group", "1")
    process.send_signal(signal.SIGTERM)
    bench.wait(process, same)


CASES = {
    "together": together,
    "first-ends-first": one_by_one(0),
    "last-ends-first": one_by_one(1),
    "killed": killed,
    "rank-killed": rank_killed,
    "fragments": fragments,
    "frozen": frozen,
    "storage": storage,
    "own-storage-hangs": own_storage_hangs,
    "old-header": old_header,
    "strangers": strangers,
    "sealed": sealed,
    "fifo": fifo,
    "eight-killed": eight(one_killed),
    "eight-stopped": eight(one_stopped),
    "eight-folder-gone": eight(folder_gone),
    "refused": refused,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
