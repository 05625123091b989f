"""A Slurm cluster of one machine for a test: munged, slurmctld and slurmd in a folder of their own, on ports of their own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time

from train_support import TCP, Job, Skip, check, descendants

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
NODES = ("node0", "node1")
CONF = """\
ClusterName=codistill
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
KillWait=30
TmpFS={folder}/tmp.%n
MessageTimeout=30
InactiveLimit=0
NodeName=node0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Cluster:
    """Two nodes that are this machine twice. Use as a context; its environment makes commands speak to it."""

    def __init__(self, bench):
        missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
        if missing:
            raise Skip(f"no {', '.join(missing)} here: tools/setup.sh --with-slurm installs them")
        if os.geteuid() != 0:
            raise Skip("only root may start Slurm's daemons")
        self.bench, self.daemons = bench, []
        self.folder = bench.path("slurm")
        # Ranks of both nodes would share files in /dev/shm that are named by host: TCP only, on this host's loopback. Which
        # component makes windows is the program's choice, as on true hosts.
        self.environment = {**TCP, "SLURM_CONF": f"{self.folder}/slurm.conf", "OMPI_MCA_btl_tcp_if_include": "lo"}
        self.environment.pop("OMPI_MCA_osc", None)

    def daemon(self, name, *arguments):
        with open(f"{self.folder}/{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([*arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                                 env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}))

    def __enter__(self):
        for name in ("state", *(f"{kind}.{node}" for kind in ("spool", "tmp") for node in NODES)):
            os.makedirs(f"{self.folder}/{name}")
        os.chmod(self.bench.folder, 0o755)
        self.bench.write("slurm/slurm.conf", CONF.format(host=socket.gethostname(), folder=self.folder, ports=free_ports(3)))
        os.chmod(self.bench.write("slurm/munge.key", os.urandom(128)), 0o600)
        try:
            files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
            self.daemon("munged", "munged", "--foreground", "--force", *(f"--{key}={self.folder}/munge.{end}" for key, end in files.items()))
            self.wait_for("munged's socket", lambda: os.path.exists(f"{self.folder}/munge.socket"))
            self.daemon("slurmctld", "slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
            for node in NODES:
                self.daemon(node, "slurmd", "-D", "-N", node, "-f", f"{self.folder}/slurm.conf")
            self.wait_for("nodes", lambda: self.call("sinfo", "-h", "-o", "%D %t").out.strip() == "2 idle")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        """Ends jobs, then daemons, and what is left below them, each by its id."""
        self.call("scancel", "--signal=KILL", "--full", "--user=root", check=False)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.call("squeue", "-h", check=False).out.strip():
            time.sleep(0.2)
        left = [pid for daemon in self.daemons for pid in descendants(daemon.pid)]
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        for pid in left + self.strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def strays(self):
        """Processes of this cluster's jobs: slurmstepd leaves slurmd, and jobs leave slurmstepd."""
        mark, found = f"SLURM_CONF={self.folder}/slurm.conf".encode(), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and int(name) != os.getpid():
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if mark in file.read().split(b"\0"):
                            found.append(int(name))
        return found

    def processes(self, program):
        """(rank, node index) of the ranks that run now."""
        found = []
        for pid in self.strays():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/environ", "rb") as file:
                    env = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
                rank = env.get(b"OMPI_COMM_WORLD_RANK", env.get(b"PMI_RANK"))
                if os.readlink(f"/proc/{pid}/exe") == program and rank is not None:
                    found.append((int(rank), int(env[b"SLURM_NODEID"])))
        return sorted(found)

    def call(self, *arguments, timeout=300, **options):
        """Runs a command to its end; it must end well unless check=False."""
        must = options.pop("check", True)
        process = self.start(*arguments)
        result = self.bench.wait(process, arguments, timeout)
        check(not must or result.code == 0, "a command failed", result)
        return result

    def start(self, *arguments):
        env = {**os.environ, **self.bench.environment, **self.environment}
        return Job(arguments, cwd=self.bench.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, what, ready, timeout=300):
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError):
                if ready():
                    return
            if time.monotonic() > deadline:
                check(False, f"{what} did not come within {timeout} s\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".out", ".log")):
                with open(f"{self.folder}/{name}", encoding="utf-8", errors="replace") as file:
                    text += f"== {name}\n" + "".join(file.readlines()[-8:])
        return text
