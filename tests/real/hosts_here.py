"""Hosts of many kinds on this one: network namespaces, other users, full disks, more cores. Needs root.

Each namespace has mounts of its own, so that /sys shows its interfaces; nothing outside is changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from junitparser import JUnitXml

MATRIX = """\
name: hosts
hardware:
  ompi5: {platform: cpu, mpi: {stack: openmpi-5}}
  ompi4: {platform: cpu, mpi: {stack: openmpi-4}}
  mpich: {platform: cpu, mpi: {stack: mpich}}
axes:
  placement:
    openmpi-5: [ompi5, ompi5]
    openmpi-4: [ompi4, ompi4]
    mpich: [mpich, mpich]
  transport:
    ob1-tcp: {family: ob1, btl: [tcp, self]}
    shm: {}
    ucx-tcp: {family: ucx, tls: [tcp, self]}
    ucx-shm: {family: ucx, tls: [posix, self]}
    ofi-tcp: {family: ofi, provider: tcp}
  workload: {send_recv: {sizes: [8, 64K], iterations: 3, warmup: 1, repeats: 1}}
exclude:
  - {placement: mpich, transport: ob1-tcp, reason: ob1 is a layer of Open MPI}
"""
PLACEMENTS = ("openmpi-5", "openmpi-4", "mpich")
TRANSPORTS = ("ob1-tcp", "shm", "ucx-tcp", "ucx-shm", "ofi-tcp")
CELLS = {
    f"{placement}-{transport}-send_recv": "not_run" if (placement, transport) == ("mpich", "ob1-tcp") else "ok"
    for placement in PLACEMENTS
    for transport in TRANSPORTS
}


def lacks(*programs: str) -> str:
    """Why hosts cannot be made here, "" where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "unshare", *programs) if shutil.which(program) is None]
    if missing:
        return f"there is no {', '.join(missing)}: apt-get install iproute2 iptables util-linux"
    tried = subprocess.run(("unshare", "-n", "-m", "true"), capture_output=True, text=True, check=False)
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else ""


def told(*argv: str, seconds: float = 30) -> None:
    """Run a command that must succeed within its time."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, (argv, done.stderr)


class Host:
    """A network namespace with loopback; `far` is its other side, which ends with it."""

    def __init__(self, name: str) -> None:
        self.name, self.far = name, f"{name}-far"
        self.inside = ("ip", "netns", "exec", name)

    def ip(self, *words: str) -> None:
        """Run `ip` on the host."""
        told("ip", "-n", self.name, *words)

    def wire(self, device: str, *, plugged: bool = True, master: str = "") -> None:
        """Add an interface, whose other end is up in the far namespace where it is `plugged`."""
        told("ip", "link", "add", device, "netns", self.name, "type", "veth", "peer", "name", device, "netns", self.far)
        if master:
            self.ip("link", "set", device, "master", master)
        self.ip("link", "set", device, "up")
        if plugged:
            told("ip", "-n", self.far, "link", "set", device, "up")

    def address(self, device: str, address: str) -> None:
        """Give an interface an address."""
        self.ip("addr", "add", address, "dev", device)

    def ethernet(self) -> None:
        """Add eth0 with an address and the default route, as most hosts have it."""
        self.wire("eth0")
        self.address("eth0", "10.99.0.2/24")
        self.ip("route", "add", "default", "via", "10.99.0.1")

    def without_ipv6(self) -> None:
        """Switch IPv6 off, as administrators do: every address of it goes."""
        for which in ("all", "default"):
            told(*self.inside, "sh", "-c", f"echo 1 >/proc/sys/net/ipv6/conf/{which}/disable_ipv6")

    def container_network(self) -> None:
        """Add what an engine adds for a network with one running container: a bridge and its MASQUERADE rule."""
        self.ip("link", "add", "br-engine", "type", "bridge")
        self.address("br-engine", "172.31.0.1/16")
        self.ip("link", "set", "br-engine", "up")
        self.wire("veth7f3a", master="br-engine")
        rule = ("-s", "172.31.0.0/16", "!", "-o", "br-engine", "-j", "MASQUERADE")
        told(*self.inside, "iptables", "-t", "nat", "-A", "POSTROUTING", *rule)

    @contextlib.contextmanager
    def vpn(self) -> Iterator[None]:
        """Have a tun interface with a client attached, which took the default route."""
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            device = f"tun{os.getpid() % 100000}"
            fcntl.ioctl(file, 0x400454CA, struct.pack("16sH22x", device.encode(), 0x1001))  # TUNSETIFF, TUN | NO_PI
            told("ip", "link", "set", device, "netns", self.name, "name", "tun0")
            self.address("tun0", "10.8.0.2/24")
            self.ip("link", "set", "tun0", "up")
            self.ip("route", "replace", "default", "dev", "tun0")
            yield
        finally:
            os.close(file)


@contextlib.contextmanager
def host(name: str) -> Iterator[Host]:
    """A host with nothing but loopback, gone at the end."""
    made = Host(f"hetgpu-{name}-{os.getpid()}")
    try:
        for each in (made.name, made.far):
            told("ip", "netns", "add", each)
            told("ip", "-n", each, "link", "set", "lo", "up")
        yield made
    finally:
        for each in (made.name, made.far):
            subprocess.run(("ip", "netns", "delete", each), capture_output=True, check=False, timeout=30)


def cells(reports: Path) -> dict[str, dict[str, str]]:
    """The properties of every cell of the newest run."""
    suites = JUnitXml.fromfile(str(reports / "latest" / "junit.xml"))
    return {
        str(case.name): {one.get("name"): one.get("value") for one in case._elem.iter("property")}
        | {"why": str(next((result.message for result in case.result), ""))}
        for suite in suites
        for case in suite
    }
