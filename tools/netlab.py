"""See netlab.sh.

Everything that a laboratory makes lives in namespaces without a name outside: network, mounts, processes. The kernel takes them away
with the laboratory's first process, however that ends, so there is nothing to clean up, not even after SIGKILL.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

INSIDE = "--inside-the-namespaces"
NETWORK = "10.77.0"
FILES = "/run/netlab"  # on a tmpfs that only the laboratory sees
PATIENCE_S = 10
WHAT = """\
Runs COMMAND on host0 of a laboratory of network namespaces: hosts host0, host1, … (10.77.0.1, …), each with its own name, network
and /dev/shm, joined by a bridge; processors are shared. Each host's link is shaped in both directions by --rate. mpirun (Open MPI 4), and
so `codistill train`, started by COMMAND finds the hosts by itself, --slots ranks on each in turn. Nothing reaches the world outside.
At the end it says what crossed each host's link; the exit code is COMMAND's. Root, or a user who may make namespaces."""
EXAMPLES = """\
  tools/netlab.sh --rate 100mbit -- build/release/codistill train configs/sr-demo.yaml train.steps=1000
  tools/netlab.sh --hosts 4 --rate 10mbit --json net.json -- mpirun -n 4 PROGRAM
  tools/netlab.sh -- bash            # to look around; `hosts` is /etc/hosts, `ssh` is not needed: mpirun --host host1 hostname"""

ENTER = """\
#!/bin/sh
# enter HOST COMMAND...: runs it as on that host
host=$1
shift
exec ip netns exec "$host" unshare --mount --uts sh -c '
    hostname "$0" && mount --bind {files}/hosts /etc/hosts && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"
' "$host" "$@"
"""
AGENT = """\
#!/bin/sh
# mpirun calls this as it would call ssh: [-OPTION...] HOST COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec {files}/enter "$host" sh -c "$*"
"""


class Failure(Exception):
    """Ends the laboratory with one line on standard error."""


def rate(text):
    """Bits per second of 100mbit and the like; None for `none`."""
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)(kbit|mbit|gbit)", text)
    if text == "none":
        return None
    if not match or not float(match[1]) * units[match[2]] >= 1e4:
        raise argparse.ArgumentTypeError(f"'{text}' is no rate such as 10mbit or 1gbit, at least 10kbit, or none")
    return float(match[1]) * units[match[2]]


def whole(least, most):
    def parse(text):
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} to {most}")
        return int(text)
    return parse


def parse(argv):
    p = argparse.ArgumentParser(prog="tools/netlab.sh", usage="tools/netlab.sh [options] -- COMMAND...", description=WHAT,
                                epilog="examples:\n" + EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hosts", type=whole(2, 64), default=2, metavar="N", help="2 to 64 (2)")
    p.add_argument("--slots", type=whole(1, 1024), default=1, metavar="N", help="ranks on each host (1)")
    p.add_argument("--rate", type=rate, default=None, metavar="RATE", help="of each host's link, each way: 100mbit, 1gbit, …; none (none)")
    p.add_argument("--delay", type=whole(0, 10000), default=0, metavar="MS",
                   help="added to each packet toward a host (0); needs the kernel's netem, which containers and small kernels often lack")
    p.add_argument("--json", metavar="FILE", help="also writes what crossed, time and processor time")
    p.add_argument("command", nargs="+", metavar="COMMAND", help=argparse.SUPPRESS)
    p.add_argument(INSIDE, dest="inside", type=int, metavar="FD", help=argparse.SUPPRESS)
    return p.parse_args(argv)


# Outside: makes the namespaces, hands signals in.

def check_tools():
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("mount", "mount")):
        if shutil.which(tool) is None:
            raise Failure(f"'{tool}' is missing (package {package}); tools/setup.sh installs it")


def unshare_command():
    """What makes the namespaces; as another user than root inside a user namespace, where the system lets it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    trial = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True)
    if trial.returncode != 0:
        reason = (trial.stderr.strip().splitlines() or ["no reason given"])[-1]
        advice = ("this user may not make namespaces here; run it as root" if user else
                  "root may not make namespaces here; a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)")
        raise Failure(f"{advice} ({reason})")
    return command


def outside(argv):
    check_tools()
    lifeline, end = os.pipe()
    inner = subprocess.Popen([*unshare_command(), sys.executable, "-B", __file__, INSIDE, str(lifeline), *argv], pass_fds=[lifeline])
    os.close(lifeline)
    # A terminal's Ctrl-C reaches COMMAND by itself; SIGTERM comes to this process alone. Our end closes the lifeline, which ends all.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os.write(end, b"T"))
    return inner.wait()


# Inside: the laboratory's first process.

def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(command)}`: {done.stderr.strip() or done.returncode}")
    return done.stdout


def shape(where, device, bits, delay_ms):
    """A token bucket of 2 ms, but at least some packets; behind it as many bytes as drain in 50 ms."""
    parent = ["root"]
    if delay_ms:
        try:
            call(*where, "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "netem", "delay", f"{delay_ms}ms", "limit", "100000")
        except Failure as failure:
            raise Failure(f"--delay needs the kernel's netem (module sch_netem), which is not here: {failure}") from None
        parent = ["parent", "1:1"]
    if bits:
        burst = max(10_000, int(bits / 8 * 0.002))
        call(*where, "tc", "qdisc", "add", "dev", device, *parent, "tbf", "rate", f"{bits:.0f}bit", "burst", f"{burst}b", "latency", "50ms")


def choose_congestion_control(host):
    """What clusters run, whatever this machine was set to: its own choice (BBR, say) would be what is measured."""
    with contextlib.suppress(Failure):  # a kernel without CUBIC keeps what it has
        call("ip", "netns", "exec", host, "sh", "-c", "echo cubic >/proc/sys/net/ipv4/tcp_congestion_control")


def build(hosts, bits, delay_ms):
    """This namespace is the switch: a bridge with one port a host."""
    pathlib.Path("/run/netns").mkdir()
    call("ip", "link", "add", "switch", "type", "bridge")
    call("ip", "link", "set", "switch", "up")
    for k in range(hosts):
        host, port = f"host{k}", f"port{k}"
        call("ip", "netns", "add", host)
        call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        call("ip", "link", "set", port, "master", "switch", "up")
        call("ip", "-n", host, "address", "add", f"{NETWORK}.{k + 1}/24", "dev", "eth0")
        call("ip", "-n", host, "link", "set", "eth0", "up")
        call("ip", "-n", host, "link", "set", "lo", "up")
        choose_congestion_control(host)
        shape(["ip", "netns", "exec", host], "eth0", bits, 0)
        shape([], port, bits, delay_ms)


def write_files(hosts, slots):
    """What hosts and mpirun read."""
    folder = pathlib.Path(FILES)
    (folder / "tmp").mkdir(parents=True)
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{k + 1} host{k}\n" for k in range(hosts)))
    (folder / "slots").write_text("".join(f"host{k} slots={slots}\n" for k in range(hosts)))
    for name, text in (("enter", ENTER), ("agent", AGENT)):
        (folder / name).write_text(text.format(files=FILES))
        (folder / name).chmod(0o755)


def environment():
    """For Open MPI 4: the hosts, how to reach them, and that only the laboratory's network is one."""
    settings = {"plm_rsh_agent": f"{FILES}/agent", "orte_default_hostfile": f"{FILES}/slots", "orte_tmpdir_base": f"{FILES}/tmp",
                "btl": "tcp,self,vader", "osc": "pt2pt,sm", "oob_tcp_if_include": f"{NETWORK}.0/24", "btl_tcp_if_include": f"{NETWORK}.0/24",
                "hwloc_base_binding_policy": "none"}
    return {**os.environ, **{f"OMPI_MCA_{key}": value for key, value in settings.items()},
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def counters(hosts):
    """Bytes and packets that each host has sent and received, as its port of the switch saw them."""
    ports = {link["ifname"]: link["stats64"] for link in json.loads(call("ip", "-json", "-statistics", "link", "show"))}
    return [{"host": f"host{k}", "sent_bytes": s["rx"]["bytes"], "received_bytes": s["tx"]["bytes"], "sent_packets": s["rx"]["packets"],
             "received_packets": s["tx"]["packets"]} for k, s in ((k, ports[f"port{k}"]) for k in range(hosts))]


def obey(lifeline, process):
    """Hands SIGTERM on; ends everything when the outer process is gone, killed or not."""
    while os.read(lifeline, 1):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    os._exit(1)


def wait_for(process):
    """COMMAND's exit code. Everybody's orphans come to the first process of a namespace, so it waits for any."""
    code = None
    while code is None:
        pid, status = os.wait()
        if pid == process:
            code = os.waitstatus_to_exitcode(status)
    end = time.monotonic() + PATIENCE_S  # mpirun's daemons, which leave a little later
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
    return code if code >= 0 else 128 - code


def report(arguments, before, code, wall_s):
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    links = [{key: value if key == "host" else value - old[key] for key, value in new.items()}
             for old, new in zip(before, counters(arguments.hosts))]
    cpu_s = usage.ru_utime + usage.ru_stime
    for link in links:
        print(f"netlab: {link['host']} sent {link['sent_bytes']} bytes in {link['sent_packets']} packets, received {link['received_bytes']} in "
              f"{link['received_packets']}", file=sys.stderr)
    total = sum(link["sent_bytes"] for link in links)
    shaped = f"at {arguments.rate / 1e6:g} Mbit/s" if arguments.rate else "unshaped"
    print(f"netlab: {total} bytes between {arguments.hosts} hosts {shaped} in {wall_s:.2f} s, {cpu_s:.2f} s of processor time", file=sys.stderr)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({
            "hosts": arguments.hosts, "slots": arguments.slots, "rate_bits_per_s": arguments.rate, "delay_ms": arguments.delay,
            "command": arguments.command, "exit_code": code, "wall_s": wall_s, "processor_s": cpu_s, "bytes": total, "links": links}, indent=1) + "\n")


def inside(arguments):
    call("mount", "-t", "tmpfs", "tmpfs", "/run")
    write_files(arguments.hosts, arguments.slots)
    build(arguments.hosts, arguments.rate, arguments.delay)
    before, start = counters(arguments.hosts), time.monotonic()
    process = subprocess.Popen([f"{FILES}/enter", "host0", *arguments.command], env=environment())
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=obey, args=(arguments.inside, process.pid), daemon=True).start()
    code = wait_for(process.pid)
    process.returncode = code
    report(arguments, before, code, time.monotonic() - start)
    return code


def main(argv):
    arguments = parse(argv)
    try:
        return outside(argv) if arguments.inside is None else inside(arguments)
    except Failure as failure:
        print(f"netlab: error: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
