"""What Open MPI 5.0.11 and UCX 1.20.1 really print of the connections they made, and what is read from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_hetgpu.model import Fabric, Hardware, Node, Stack
from pytest_hetgpu.transports._openmpi import OpenMpiReader, netdev, shows_connections
from pytest_hetgpu.transports.base import ProofReader

TCP = """\
Host 0 [vm] ranks 0 - 1

 host | 0
======|=====
    0 : tcp

Connection summary: (pml)
  on-host:  all connections are tcp
  off-host: all connections are n/a

"""

# Two ranks on the first host, allowed sm and tcp, two on the second and one on the third, allowed tcp alone.
HOSTS_DIFFER = """\
Host 0 [vm] ranks 0 - 1
Host 1 [nodeb] ranks 2 - 3
Host 2 [nodec] ranks 4

 host | 0    1    2
======|================
    0 : sm   tcp  tcp
    1 : tcp  tcp  tcp
    2 : tcp  tcp  self

Connection summary: (pml)
  on-host:  most connections are sm or self
  off-host: all connections are tcp
Exceptions:
  host 1: [3x tcp]

"""

UCX_HOSTS_DIFFER = """\
[1795185630.529557] [nodeb:25112:0]     ucp_context.c:2463 UCX  INFO  Version 1.20.1 (loaded from /s/lib/libucp.so.0)
[1795185630.552654] [nodeb:25112:0]          parser.c:2364 UCX  INFO  UCX_* env variables: UCX_TLS=tcp,self
[1795185631.624252] [nodec:25105:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory)
[1795185631.627559] [nodeb:25111:0]      ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(tcp/eth0)
Host 0 [vm] ranks 0 - 1
Host 1 [nodeb] ranks 2 - 3
Host 2 [nodec] ranks 4

 host | 0        1        2
======|============================
    0 : ucx[  2] ucx[  5] ucx[  5]
    1 : ucx[  5] ucx[  5] ucx[  5]
    2 : ucx[  5] ucx[  5] ucx[  4]

UCX Transport/Device
ucx[  2]:
    posix            memory
    cma              memory
ucx[  4]:
    self             memory
    tcp              eth0
ucx[  5]:
    tcp              eth0
Connection summary: (pml)
  on-host:  most connections are ucx=posix;memory,cma;memory
  off-host: all connections are ucx=tcp;eth0
Exceptions:
  host 1: [3x ucx=tcp;eth0]
  host 2: [1x ucx=self;memory,tcp;eth0] [2x ucx=tcp;eth0]

"""

UNREACHABLE = """\
--------------------------------------------------------------------------
At least one pair of MPI processes are unable to reach each other for
MPI communications.  This means that no Open MPI device has indicated
that it can be used to communicate between these processes.
  Process 1 ([[35031,1],1]) is on host: vm
  BTLs attempted: self
"""


def summary(on: str, off: str = "n/a") -> str:
    return f"Connection summary: (pml)\n  on-host:  all connections are {on}\n  off-host: all connections are {off}\n\n"


def fed(reader: ProofReader, text: str) -> tuple[str, ...]:
    """Only the lines that hold a trigger, as a log's scan hands them over."""
    for number, line in enumerate(text.splitlines(), 1):
        if any(trigger.decode() in line for trigger in reader.triggers):
            reader.feed(line, number)
    return reader.transports


@pytest.mark.parametrize(
    ("text", "transports"),
    [
        (TCP, ("ob1/tcp",)),
        (summary("sm"), ("ob1/sm",)),
        (summary("sm", "tcp"), ("ob1/sm", "ob1/tcp")),
        (summary("self", "tcp"), ("ob1/tcp",)),
        (summary("self"), ()),
        (summary("ofi", "ofi"), ("ofi",)),
        (summary("ucx=tcp;eth0"), ("ucx/tcp",)),
        (summary("ucx=posix;memory"), ("ucx/posix",)),
        (summary("ucx=posix;memory,tcp;eth0"), ("ucx/posix", "ucx/tcp")),
        (summary("ucx=sysv;memory,cma;memory", "ucx=rc_mlx5;mlx5_0:1"), ("ucx/cma", "ucx/rc_mlx5", "ucx/sysv")),
        (HOSTS_DIFFER, ("ob1/sm", "ob1/tcp")),
        (UCX_HOSTS_DIFFER, ("ucx/cma", "ucx/posix", "ucx/tcp")),
        (UNREACHABLE, ()),
        ("", ()),
    ],
)
def test_components_between_ranks(text: str, transports: tuple[str, ...]) -> None:
    assert fed(OpenMpiReader(), text) == transports


def test_what_only_some_hosts_use_is_seen_in_the_exceptions() -> None:
    odd = HOSTS_DIFFER.replace("off-host: all", "off-host: most").replace(
        "[3x tcp]", "[1x tcp] [2x ucx=cma;memory] [1x n/a]"
    )
    assert fed(OpenMpiReader(), odd) == ("ob1/sm", "ob1/tcp", "ucx/cma")


@pytest.mark.parametrize(
    "noise", ["rank 3: on-host: all is well", "  host is up", "UCX  INFO  Version unknown", "x-host:", "  host 1: up"]
)
def test_other_lines_that_look_like_it_are_none(noise: str) -> None:
    reader = OpenMpiReader()
    assert fed(reader, noise) == ()
    assert reader.versions == {}


def test_ucx_says_its_version() -> None:
    reader = OpenMpiReader()
    fed(reader, UCX_HOSTS_DIFFER)
    assert reader.versions == {"ucx": "1.20.1"}


def test_readers_share_nothing() -> None:
    first = OpenMpiReader()
    fed(first, UCX_HOSTS_DIFFER)
    assert (OpenMpiReader().transports, OpenMpiReader().versions) == ((), {})


def test_which_releases_print_the_table() -> None:
    shown = {
        version: shows_connections(Stack("x", vendor, version, "/", "mpirun", "python"))
        for vendor, version in (("Open MPI", "5.0.11"), ("Open MPI", "4.1.8"), ("MPICH", "5.0.2"))
    }
    assert list(shown.values()) == [True, False, False]


def test_the_interface_is_the_transports_the_fabrics_or_loopback() -> None:
    plain, wired = Hardware("cpu"), Hardware("g4", fabric=Fabric(netdev="ens5"))
    assert netdev(Node(0, plain, "localhost", 1), None) == "lo"
    assert netdev(Node(0, wired, "localhost", 1), None) == "ens5"
    assert netdev(Node(0, wired, "localhost", 1), "eth1") == "eth1"


PROGRAM = "from mpi4py import MPI; MPI.COMM_WORLD.allreduce(1)"
REAL = {
    "tcp": (("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"), "", ("ob1/tcp",)),
    "sm": (("--mca", "pml", "ob1", "--mca", "btl", "sm,self"), "", ("ob1/sm",)),
    "posix": (
        ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"),
        "posix,self",
        ("ucx/posix",),
    ),
}


@pytest.mark.real
@pytest.mark.parametrize("case", REAL)
def test_a_real_run_shows_what_it_used(stack_prefix: Path, case: str) -> None:
    mca, tls, transports = REAL[case]
    command = [
        *(str(stack_prefix / "bin" / "mpirun"), "-np", "2", "--map-by", ":OVERSUBSCRIBE", *mca),
        *("--mca", "ompi_display_comm", "mpi_init", "env", f"UCX_TLS={tls or 'self'}", "UCX_LOG_LEVEL=info"),
        *(str(stack_prefix / "bin" / "python"), "-c", PROGRAM),
    ]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, env=os.environ | root, capture_output=True, text=True, timeout=60, check=True)
    reader = OpenMpiReader()
    assert fed(reader, done.stdout + done.stderr) == transports
    assert set(reader.versions) == ({"ucx"} if tls else set())
