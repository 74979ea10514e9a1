"""A real Slurm of four nodes in two partitions on one machine, up in about a second, gone without a trace.

Each node is a `slurmd` in namespaces of its own (network, host name, processes, mounts) at a switch: it has its own
address, its own /tmp, and all that ran on it ends with it. Needs root, Debian's slurm-wlm and munge, iproute2, and
libpmix2 for `srun --mpi=pmix`.

    python tests/slurm/cluster.py COMMAND...     runs COMMAND with SLURM_CONF set; fails if it leaves a job in the queue
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "munged", "srun", "salloc", "ip", "unshare")
NODES = ("c1", "c2", "r1", "r2")
_BIN = ("/usr/sbin", "/sbin")
_PAUSE = threading.Event()
_PMIX = Path("/usr/lib/x86_64-linux-gnu/pmix2/lib")

_CONF = """\
ClusterName=hetgpu
SlurmctldHost={host}({network}.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={port}
SlurmdPort={slurmd_port}
TmpFS={folder}/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters={scheduler}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=1
SlurmdTimeout={timeout}
SlurmctldTimeout=5
MessageTimeout=5
BatchStartTimeout=5
CompleteWait=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
GresTypes=gpu
{nodes}
PartitionName=cuda Nodes=c1,c2 Default=YES PriorityTier=1 MaxTime=60 State=UP
PartitionName=rocm Nodes=r1,r2 PriorityTier=1 MaxTime=60 State=UP
PartitionName=urgent Nodes=c1,c2,r1,r2 PriorityTier=9 PreemptMode=OFF MaxTime=60 State=UP
PartitionName=closed Nodes=c1 State=DOWN
"""
EAGER = "sched_interval=1,bf_interval=1,sched_min_interval=0"
LAZY = "defer,sched_interval=60,bf_interval=60,batch_sched_delay=10"
"""A scheduler that looks at a job at once, and one that leaves it for a while as it was submitted."""
_NODE = "NodeName={name} NodeAddr={address} CPUs=4 RealMemory=512 Gres=gpu:{kind}:2 State=UNKNOWN"
_GRES = """\
NodeName=c1,c2 Name=gpu Type=h200 File=/dev/null,/dev/zero
NodeName=r1,r2 Name=gpu Type=mi250x File=/dev/null,/dev/zero
"""
# This checkout, with its stacks, where a node's own /tmp would hide it.
_HERE = Path(__file__).resolve().parents[2]
_IN_TMP = str(_HERE) if _HERE.is_relative_to("/tmp") else ""
# What a node's first process does: it waits for its network, and becomes slurmd.
_BOOT = """\
read -r ready
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
if [ -n "$3" ]; then mkdir -p "$2/checkout" && mount --bind "$3" "$2/checkout"; fi
mount -t tmpfs -o mode=1777 tmpfs /tmp
if [ -n "$3" ]; then mkdir -p "$3" && mount --bind "$2/checkout" "$3"; fi
mkdir -p "$2/tmp.$1" "$2/spool.$1"
exec slurmd -D -N "$1" -f "$2/slurm.conf"
"""


def lacks() -> str:
    """What of a cluster's needs is missing here; "" where nothing is."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_BIN))
    missing = [program for program in NEEDED if shutil.which(program, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here: apt-get install slurm-wlm munge libpmix2 iproute2"
    if os.geteuid():
        return "a cluster of namespaces needs root"
    return ""


@dataclass
class Cluster:
    """A running cluster. `env` is what a client of it needs in its environment."""

    folder: Path
    network: str
    device: str
    env: Mapping[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def call(self, *argv: str, check: bool = True) -> str:
        """What a client of the cluster prints."""
        done = subprocess.run(argv, env=dict(self.env), capture_output=True, text=True, check=False, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout

    def queue(self) -> list[str]:
        """Jobs that are not over, as `ID NAME STATE`."""
        return self.call("squeue", "-h", "-a", "-o", "%i %j %T").splitlines()

    def idle(self) -> bool:
        """Whether every node is there and free."""
        states = self.call("sinfo", "-h", "-N", "-o", "%N %t", check=False).splitlines()
        return {line.split()[0] for line in states if line.endswith(" idle")} == set(NODES)

    def until(self, condition: Callable[[], object], seconds: float = 30.0, what: str = "") -> None:
        """Returns once a condition holds; RuntimeError with the daemons' logs where it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {seconds:g} s still not: {what or condition}\n{self.logs()}")
            _PAUSE.wait(0.05)

    def logs(self) -> str:
        """The ends of all the daemons' logs."""
        texts = {path.name: path.read_text(errors="replace").splitlines()[-15:] for path in self.folder.glob("*.log")}
        return "\n".join(f"== {name}\n" + "\n".join(lines) for name, lines in sorted(texts.items()))

    def munge(self) -> None:
        """Starts the daemon that signs who is who, and waits until it does."""
        folder = self.folder
        self._daemon(
            "munged", "munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed",
        )  # fmt: skip
        probe = ("munge", "-n", "-S", f"{folder}/munge.socket")
        self.until(lambda: not subprocess.run(probe, capture_output=True, check=False).returncode, what="munged")

    def controller(self) -> None:
        """Starts the controller."""
        self._daemon("slurmctld", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))

    def node(self, name: str) -> None:
        """Starts a node, as after its power came back."""
        spaces = ("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
        daemon = self._daemon(name, *spaces, "sh", "-c", _BOOT, "sh", name, str(self.folder), _IN_TMP)
        inside = self._inside(daemon)
        self._plug(name, inside, "eth0", NODES.index(name) + 11)
        assert daemon.stdin is not None
        daemon.stdin.write(b"ready\n")
        daemon.stdin.close()

    def switch(self) -> None:
        """Makes what joins the nodes, and this machine: in a namespace of its own, where no firewall looks at it."""
        words = "ip link add switch type bridge && ip link set switch up && ip link set lo up && echo up && exec cat"
        self._daemon("switch", "unshare", "--net", "sh", "-c", words)
        self.until((self.folder / "switch.out.log").read_text, what="a switch")
        self._plug("ctl", str(os.getpid()), self.device, 1)

    def _plug(self, name: str, inside: str, device: str, number: int) -> None:
        """A cable from the switch to the network namespace of a process, where it is `device`."""
        switch = str(self.daemons["switch"].pid)
        _ip("link", "add", name, "type", "veth", "peer", "name", device, "netns", inside, before=_enter(switch))
        _ip("link", "set", name, "master", "switch", "up", before=_enter(switch))
        # A node that comes back has the address that its neighbours remember.
        _ip("link", "set", device, "address", f"02:00:00:00:00:{number:02x}", before=_enter(inside))
        _ip("addr", "add", f"{self.network}.{number}/24", "dev", device, before=_enter(inside))
        for each in {"lo", device}:
            _ip("link", "set", each, "up", before=_enter(inside))

    def hide(self, program: str) -> None:
        """Makes the nodes lack a program until they end."""
        path = Path(shutil.which(program, path=os.pathsep.join(_BIN)) or "").resolve()
        nothing = self.folder / "nothing"
        nothing.touch()
        for name in NODES:
            inside = ("nsenter", "-t", self._inside(self.daemons[name]), "-m")
            subprocess.run((*inside, "mount", "--bind", str(nothing), str(path)), check=True)

    def end(self, name: str) -> None:
        """Stops a daemon as its service manager does."""
        self.daemons[name].terminate()
        self.daemons[name].wait(30)
        self.kill(name)

    def kill(self, name: str) -> None:
        """Pulls the plug of a node or daemon."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()
        if daemon.stdin is not None:
            daemon.stdin.close()

    def down(self) -> None:
        """Ends everything, and waits until it has."""
        for name in reversed(list(self.daemons)):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name)
        _ip("link", "del", self.device, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _daemon(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                argv, env=dict(self.env), stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        return self.daemons[name]

    def _inside(self, daemon: subprocess.Popen[bytes]) -> str:
        """The first process of a node, once it is in its namespaces."""
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
        self.until(lambda: children.read_text().strip(), what="a node's namespaces")
        return children.read_text().split()[0]


def up(folder: Path, *, timeout: int = 6, scheduler: str = EAGER) -> Cluster:
    """A cluster whose files are in `folder`, all nodes idle. A silent node is given up after `timeout` seconds."""
    token = secrets.token_hex(2)
    network = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
    env = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": os.pathsep.join((os.environ["PATH"], *_BIN))}
    for name in [name for name in env if name.startswith("SLURM_") and name != "SLURM_CONF"]:
        del env[name]
    cluster = Cluster(folder, network, f"hg{token}", env)
    try:
        _write(cluster, timeout, scheduler)
        cluster.switch()
        cluster.munge()
        cluster.controller()
        for name in NODES:
            cluster.node(name)
        cluster.until(cluster.idle, what="four idle nodes")
    except BaseException:
        cluster.down()
        raise
    return cluster


@contextlib.contextmanager
def running(scheduler: str = EAGER) -> Iterator[Cluster]:
    """A cluster for as long as the block runs."""
    _pmix()
    cluster = up(Path(tempfile.mkdtemp(prefix="hetgpu-slurm-", dir="/run")), scheduler=scheduler)
    try:
        yield cluster
    finally:
        cluster.down()


def _write(cluster: Cluster, timeout: int, scheduler: str) -> None:
    folder, network = cluster.folder, cluster.network
    addresses = {name: f"{network}.{number + 11}" for number, name in enumerate(NODES)}
    kinds = {"c": "h200", "r": "mi250x"}
    nodes = "\n".join(
        _NODE.format(name=name, address=address, kind=kinds[name[0]]) for name, address in addresses.items()
    )
    port = 20000 + secrets.randbelow(10000)
    texts = {
        "slurm.conf": _CONF.format(
            folder=folder,
            network=network,
            host=os.uname().nodename,
            nodes=nodes,
            port=port,
            slurmd_port=port + 1,
            timeout=timeout,
            scheduler=scheduler,
        ),
        "gres.conf": _GRES,
        "hosts": "127.0.0.1 localhost\n"
        + "".join(
            f"{address} {name}\n" for name, address in {os.uname().nodename: f"{network}.1", **addresses}.items()
        ),
    }
    folder.chmod(0o755)
    folder.joinpath("state").mkdir()
    folder.joinpath("munge.key").write_bytes(secrets.token_bytes(128))
    folder.joinpath("munge.key").chmod(0o600)
    for name, text in texts.items():
        folder.joinpath(name).write_text(text)


def _pmix() -> None:
    """Debian's Slurm loads libpmix by a name that only its development package has."""
    link = _PMIX / "libpmix.so"
    if _PMIX.joinpath("libpmix.so.2").exists() and not link.is_symlink():
        link.symlink_to("libpmix.so.2")


def _enter(pid: str) -> tuple[str, ...]:
    return ("nsenter", "-t", pid, "-n")


def _ip(*words: str, before: tuple[str, ...] = (), check: bool = True) -> None:
    done = subprocess.run((*before, "ip", *words), capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")


def main(argv: list[str]) -> int:
    """Runs a command on a cluster of its own; 1 where a job of it is left in the queue."""
    if lack := lacks():
        sys.exit(lack)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with running() as cluster:
        status = subprocess.run(argv, env=dict(cluster.env), check=False).returncode
        left = cluster.queue()
        for job in left:
            print(f"left in the queue: {job}", file=sys.stderr)
        return status or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
