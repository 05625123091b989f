#!/usr/bin/env python3
"""tools/netlab.sh: codistill trains across its hosts, and it leaves nothing behind: python3 test_netlab.py CODISTILL [CASE ...]"""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

from test_strategies import farthest, model
from train_support import MPI, Job, Skip, check, run_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETLAB = str(ROOT / "tools" / "netlab.sh")


def needs_a_laboratory():
    """A user who may make namespaces, and iproute2."""
    trial = subprocess.run([NETLAB, "--rate", "1gbit", "--", "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        raise Skip(trial.stderr.strip())


def outside():
    """Names of this machine's interfaces and namespaces, and what lies where a laboratory has its files."""
    found = {path.name for path in pathlib.Path("/sys/class/net").iterdir()}
    for folder in ("/run/netns", "/run/netlab"):
        with contextlib.suppress(OSError):
            found |= {f"{folder}/{name}" for name in os.listdir(folder)}
    return found


def processes(mark):
    """Those whose environment has the mark: only ours and what they have started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


class Laboratory:
    """netlab in a process group of its own, as a terminal starts it."""

    def __init__(self, bench, *arguments):
        if MPI != "openmpi4":
            raise Skip("netlab tells its hosts to Open MPI 4's launcher only")
        needs_a_laboratory()
        self.mark, self.before, self.bench = f"COD_TEST_NETLAB={bench.folder}", outside(), bench
        name, value = self.mark.split("=", 1)
        self.process = Job([NETLAB, *arguments], cwd=bench.folder, env={**os.environ, name: value}, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)

    def wait_for(self, path):
        end = time.monotonic() + 300
        while not os.path.exists(self.bench.path(path)):
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                check(False, f"{path} did not come\n{self.process.communicate()[0]}")
            time.sleep(0.02)

    def end(self):
        """(exit code, output), after checking that nothing is left."""
        try:
            out = self.process.communicate(timeout=300)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 300
        while processes(self.mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        check(not processes(self.mark), f"processes are left: {processes(self.mark)}\n{out}")
        check(outside() == self.before, f"left behind: {outside() - self.before}\n{out}")
        return self.process.returncode, out


def trains(bench):
    """Two groups on two hosts, to their end; what crossed is at least what was published."""
    command = [bench.program, "train", "t.yaml", "name=n", "train.strategy=codistill", "cluster.groups=2", "train.steps=600",
               "exchange.codec=auto", "exchange.key_every=2"]
    code, out = Laboratory(bench, "--rate", "100mbit", "--json", "net.json", "--", *command).end()
    check(code == 0, f"exit code {code}\n{out}")
    net = json.loads(bench.read("net.json"))
    check(net["exit_code"] == 0 and net["hosts"] == 2 and net["rate_bits_per_s"] == 100e6, f"net.json says {net}")
    results = bench.summary("n")["group_results"]
    check(all(group["pulls"] >= 1 for group in results), f"no pulls: {results}")
    pulled = sum(bench.metrics("n", group)[-1]["pulled_bytes"] for group in range(2))
    check(net["bytes"] > pulled > 0, f"{net['bytes']} bytes crossed, {pulled} were pulled")
    check(all(group["entropy"] == "zstd" for group in results), f"not the fewest bytes on a slow link: {results}")
    check("host1" in out, f"host1 is not named\n{out}")


def averages_by_node(bench):
    """Two ranks on each of two hosts: inside hosts first, S crosses each way of a host where a ring of all carries 1.5 S."""
    crossed, models = {}, {}
    ways = {"flat": ["train.strategy=allreduce", "train.allreduce=flat"], "auto": ["train.strategy=allreduce"],
            "central": ["train.strategy=central_storage", "train.allreduce=flat"]}
    for how, options in ways.items():
        for steps in (10, 40):
            command = [bench.program, "train", "t.yaml", f"name={how}", *options, "cluster.ranks_per_group=4",
                       "model.channels=32", f"train.steps={steps}", "train.schedule=constant",
                       "checkpoint.resume=never", "checkpoint.every=0", "eval.every=0", "log.tensorboard=false"]
            code, out = Laboratory(bench, "--slots", "2", "--json", "net.json", "--", *command).end()
            check(code == 0, f"exit code {code}\n{out}")
            check(("averaged inside its nodes first" in out) == (how == "auto"), f"{how}\n{out}")
            crossed[how, steps] = json.loads(bench.read("net.json"))["links"][0]["sent_bytes"]
        models[how] = model(bench, how)
    size = 4 * bench.summary("flat")["parameters"]
    flat, by_node, central = ((crossed[how, 40] - crossed[how, 10]) / 30 / size for how in ways)
    print(f"each step {flat:.2f} S, by node {by_node:.2f} S, with central storage {central:.2f} S cross")
    check(1.5 <= flat < 1.8 and 1 <= by_node < 1.25 and 1 <= central < 1.25, f"{flat:.2f}, {by_node:.2f} and {central:.2f} S cross a step")
    for how in ("auto", "central"):
        check(farthest(models["flat"], models[how]) < 1e-3, "the order of sums may change rounding alone")


def all_strategies(bench):
    """Each on two, three or four hosts as in shared memory, but for the order of sums."""
    ranks = {"allreduce": "cluster.ranks_per_group=4", "central_storage": "cluster.ranks_per_group=3", "parameter_server": "cluster.ranks_per_group=4",
             "async_parameter_server": "cluster.ranks_per_group=3", "model_parallel": "cluster.ranks_per_group=2", "local_sgd": "cluster.groups=4",
             "diloco": "cluster.groups=3", "codistill": "cluster.groups=4"}
    fixed = ["train.deterministic=true", "train.steps=12", "train.accumulate=2", "local_sgd.period=5", "diloco.period=5", "exchange.period=4",
             "exchange.lag_steps=2", "checkpoint.every=0", "eval.every=0", "log.tensorboard=false"]
    commands = {strategy: [bench.program, "train", "t.yaml", f"train.strategy={strategy}", cluster, *fixed] for strategy, cluster in ranks.items()}
    code, out = Laboratory(bench, "--hosts", "4", "--rate", "1gbit", "--", "sh", "-ec",
                           "\n".join(shlex.join([*command, f"name={strategy}-far"]) for strategy, command in commands.items())).end()
    check(code == 0, f"exit code {code}\n{out}")
    for strategy, command in commands.items():
        bench.trained(f"name={strategy}", *command[3:])
        off = farthest(model(bench, strategy), model(bench, f"{strategy}-far"))
        check(off < 1e-4, f"{strategy}: off by {off}")


def long_keys(bench):
    """A key takes the link for longer than a period: it streams meanwhile, deltas follow, and none is lost.

    Slots hold all versions that are published, so that none goes before a reader that waits for a processor has it. Steps sleep, so that a period is
    never shorter than these 50 steps of 15 ms and other programs hardly make it longer. A key takes 1.3 s of the link, a delta a third of that.
    """
    weights, period, step_ms, slots, bytes_per_s = 1800000, 50, 15, 16, 10e6 / 8
    command = ["mpirun", "-n", "2", bench.program, "bench", "exchange", "--one-clock", "--sleep", "--weights", str(weights), "--period", str(period),
               "--step-ms", str(step_ms), "--publications", str(slots - 2), "--json", f"slots={slots}"]
    code, out = Laboratory(bench, "--rate", "10mbit", "--", *command).end()
    check(code == 0, f"exit code {code}\n{out}")
    lines = out.splitlines()
    told = json.loads("\n".join(lines[lines.index("{"):lines.index("}") + 1]))
    period_s, key_s = 1e-3 * period * told["step_ms"], 4 * weights / 4.3 / bytes_per_s
    if period_s > 0.9 * key_s:
        raise Skip(f"a period takes {period_s:.2f} s on this busy machine, a key {key_s:.2f} s")
    print(f"a key takes {key_s / period_s:.2f} periods; {told['takeovers']} of {told['publications']} used, "
          f"99 % of them within {told['publication_to_use_p99_ms']} ms")
    check(told["lost"] == 0 and told["rejected"] == 0, f"versions were lost: {told}")
    # A key and two deltas for each group; deltas are followed one by one, and the next key is the 17th publication.
    check(told["takeovers"] >= 6, f"versions were left out: {told}")
    check(told["publication_to_use_p99_ms"] > 900 * key_s, f"a key came sooner than its bytes can: {told}")


def hosts_differ(bench):
    """Names, addresses and shared memory are each host's own; nothing leads outside."""
    script = ("hostname >$0.$(hostname); ip -4 -o address show eth0 >>$0.$(hostname); ip route >>$0.$(hostname);"
              "touch /dev/shm/seen-$(hostname); ls /dev/shm | grep seen >>$0.$(hostname)")
    code, out = Laboratory(bench, "--hosts", "3", "--", "mpirun", "-n", "3", "sh", "-c", script, bench.path("said")).end()
    check(code == 0, f"exit code {code}\n{out}")
    for k in range(3):
        said = bench.read(f"said.host{k}").decode()
        check(f"10.77.0.{k + 1}/24" in said, f"host{k}'s address: {said}")
        check("default" not in said, f"host{k} has a way out: {said}")
        check([word for word in said.split() if word.startswith("seen-")] == [f"seen-host{k}"], f"host{k}'s /dev/shm: {said}")


def ended_by(how):
    """While ranks on both hosts run: Ctrl-C, SIGTERM, or a crash."""
    def case(bench):
        laboratory = Laboratory(bench, "--rate", "10mbit", "--", "mpirun", "-n", "2", "sh", "-c", "touch $0.$(hostname); exec sleep 600",
                                bench.path("up"))
        laboratory.wait_for("up.host0")
        laboratory.wait_for("up.host1")
        if how == "ctrl-c":
            os.killpg(laboratory.process.pid, signal.SIGINT)
        else:
            laboratory.process.send_signal(how)
        code, out = laboratory.end()
        check(code != 0, f"exit code {code}\n{out}")
        check(how == signal.SIGKILL or "bytes between 2 hosts" in out, f"no report\n{out}")
    return case


def says_what_is_missing(bench):
    """Words for a machine without iproute2, for a user without rights, for bad options, and COMMAND's exit code."""
    def says(code, part, *command, **environment):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
        check(done.returncode == code and part in done.stdout + done.stderr, f"{command}: {done.returncode} {done.stdout}{done.stderr}")
    says(0, "usage: tools/netlab.sh", NETLAB, "--help")
    says(2, "no rate such as", NETLAB, "--rate", "fast", "--", "true")
    says(2, "from 2 to 64", NETLAB, "--hosts", "1", "--", "true")
    says(2, "COMMAND", NETLAB)
    few = bench.path("few")
    os.makedirs(few)
    for tool in ("python3", "bash", "env"):
        os.symlink(shutil.which(tool), os.path.join(few, tool))
    says(1, "'ip' is missing (package iproute2)", NETLAB, "--", "true", PATH=few)
    for tool in ("ip", "tc", "mount"):
        os.symlink("/bin/true", os.path.join(few, tool))
    bench.write("few/unshare", "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    os.chmod(bench.path("few", "unshare"), 0o755)
    os.symlink(shutil.which("sh"), os.path.join(few, "sh"))
    says(1, "may not make namespaces here", NETLAB, "--", "true", PATH=few)
    needs_a_laboratory()
    says(7, "bytes between 2 hosts", NETLAB, "--", "sh", "-c", "exit 7")


CASES = {
    "trains": trains,
    "by-node": averages_by_node,
    "all-strategies": all_strategies,
    "long-keys": long_keys,
    "hosts-differ": hosts_differ,
    "ctrl-c": ended_by("ctrl-c"),
    "sigterm": ended_by(signal.SIGTERM),
    "crash": ended_by(signal.SIGKILL),
    "messages": says_what_is_missing,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1], sys.argv[2:]))
