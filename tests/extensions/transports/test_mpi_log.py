"""Real logs of connections of MPIs and UCX, and the parsed connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.base import TransportParser
from pytest_hetgpu.extensions.transports.ucc import UccTransportParser

LOGS = Path(__file__).parents[2] / "data" / "proofs"

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


def fed(reader: TransportParser, text: str) -> tuple[str, ...]:
    """Feed only the lines that contain a trigger, as a log scan does."""
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
    assert fed(MpiTransportParser(), text) == transports


def test_what_only_some_hosts_use_is_seen_in_the_exceptions() -> None:
    odd = HOSTS_DIFFER.replace("off-host: all", "off-host: most").replace(
        "[3x tcp]", "[1x tcp] [2x ucx=cma;memory] [1x n/a]"
    )
    assert fed(MpiTransportParser(), odd) == ("ob1/sm", "ob1/tcp", "ucx/cma")


@pytest.mark.parametrize(
    "noise", ["rank 3: on-host: all is well", "  host is up", "UCX  INFO  Version unknown", "x-host:", "  host 1: up"]
)
def test_other_lines_that_look_like_it_are_none(noise: str) -> None:
    reader = MpiTransportParser()
    assert fed(reader, noise) == ()
    assert reader.versions == {}


def test_ucx_says_its_version() -> None:
    reader = MpiTransportParser()
    fed(reader, UCX_HOSTS_DIFFER)
    assert reader.versions == {"ucx": "1.20.1"}


def test_readers_share_nothing() -> None:
    first = MpiTransportParser()
    fed(first, UCX_HOSTS_DIFFER)
    assert (MpiTransportParser().transports, MpiTransportParser().versions) == ((), {})


# Whole outputs of runs of two ranks: STACK.TRANSPORT.log.
SEEN = {
    "openmpi-5.ob1-tcp": ("ob1/tcp",),
    "openmpi-5.shm": ("ob1/sm",),
    "openmpi-5.ucx-tcp": ("ucx/tcp",),
    "openmpi-5.ofi-tcp": ("ofi/tcp",),
    "openmpi-4.ob1-tcp": ("ob1/tcp",),
    "openmpi-4.shm": ("ob1/sm",),
    "openmpi-4.ucx-tcp": ("ucx/tcp",),
    "openmpi-4.ofi-tcp": ("ofi/tcp",),
    "openmpi-system.shm": ("ob1/sm",),
    "openmpi-system.ucx-tcp": ("ucx/tcp",),
    "openmpi-system.ucx-cma": ("ucx/cma", "ucx/posix"),
    "openmpi-system.ofi-tcp": ("ofi/tcp",),
    "mpich.shm": ("ch4/posix",),
    "mpich.shm-of-four": ("ch4/posix",),
    "mpich.ucx-tcp": ("ucx/tcp",),
    "mpich.ofi-tcp": ("ofi/tcp",),
}


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def test_every_log_is_looked_at() -> None:
    assert {path.stem for path in LOGS.iterdir()} == set(SEEN)


@pytest.mark.parametrize("name", SEEN)
def test_what_carried_the_data_of_a_real_run(name: str) -> None:
    assert fed(MpiTransportParser(), log(name)) == SEEN[name]
    assert fed(UccTransportParser(), log(name)) == SEEN[name]


def test_versions_of_ucx_in_real_logs() -> None:
    versions = {}
    for name in ("openmpi-5.ucx-tcp", "openmpi-4.ucx-tcp", "openmpi-system.ucx-tcp", "mpich.ucx-tcp"):
        reader = MpiTransportParser()
        fed(reader, log(name))
        versions[name.partition(".")[0]] = reader.versions["ucx"]
    assert versions == {"openmpi-5": "1.20.1", "openmpi-4": "1.18.1", "openmpi-system": "1.13.1", "mpich": "1.20.1"}


BTL = """\
[vm:12464] selected ob1 best priority 20
[vm:16115] mca: bml: Using self btl for send to [[21009,1],0] on node vm
[vm:16116] mca: bml: Using vader btl for send to [[21009,1],0] on node vm
"""
LANES = """\
[1795189229.429349] [vm:12504:0]      ucp_worker.c:1903 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory tcp/lo)
[1795189229.429350] [vm:12504:0]      ucp_worker.c:1903 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(posix/memory)
[1795189229.429351] [vm:12504:0]     ucp_worker.c:1903 UCX  INFO   ucp_context_0 inter-node cfg#2 tag(rc_mlx5/mlx5_0:1)
"""
OLD_LANES = """\
[1795189229.034022] [vm:12620:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/lo tcp/eth0)
[1795189229.035086] [vm:12620:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(sysv/memory cma/memory)
"""
PROVIDER = "[vm:12564] mtl_ofi_component.c:334: mtl:ofi:prov: tcp;ofi_rxm\n"
DOMAIN = "[vm:12564] mtl_ofi_component.c:365: mtl:ofi:provider: eth0\n"
CM, UCX = (f"[vm:12464] selected {name} best priority 25\n" for name in ("cm", "ucx"))


@pytest.mark.parametrize(
    ("text", "transports"),
    [
        (BTL, ("ob1/sm",)),
        (BTL.replace("vader", "tcp"), ("ob1/tcp",)),
        (BTL + BTL.replace("vader", "tcp"), ("ob1/sm", "ob1/tcp")),
        (LANES, ("ucx/posix", "ucx/rc_mlx5")),
        (OLD_LANES, ("ucx/cma", "ucx/sysv")),
        (UCX + LANES, ("ucx/posix", "ucx/rc_mlx5")),
        (CM + PROVIDER + DOMAIN, ("ofi/tcp",)),
        (CM.replace("cm", "yalla"), ("yalla",)),
        # What was opened and not selected carried nothing.
        (BTL + LANES + PROVIDER, ("ob1/sm",)),
        (PROVIDER, ()),
        (UCX, ()),
        (CM, ()),
    ],
)
def test_layers_of_a_release_without_the_table(text: str, transports: tuple[str, ...]) -> None:
    assert fed(MpiTransportParser(), text) == transports


def test_the_table_decides_and_the_provider_completes_it() -> None:
    assert fed(MpiTransportParser(), LANES + summary("tcp")) == ("ob1/tcp",)
    assert fed(MpiTransportParser(), PROVIDER + summary("ofi")) == ("ofi/tcp",)
    assert fed(MpiTransportParser(), PROVIDER + summary("ucx=tcp;eth0")) == ("ucx/tcp",)


HELLO = '@hetgpu:0273:2d7f7df4:{{"t":"hello","rank":0,"size":{},"host":"vm","pid":1}}\n'
CAPABLE = "==== UCX netmod Capability ====\n"
SOCKETS = "libfabric provider: sockets;ofi_rxd - 192.0.2.0/24\n"


@pytest.mark.parametrize(
    ("text", "transports"),
    [
        # All ranks on one host; on two of two ranks each; one of three alone on the second.
        ("Rank: 0, Local_rank: 0 [ 0, 0 ]\nRank: 1, Local_rank: 1 [ 0, 0 ]\n" + HELLO.format(2), ("ch4/posix",)),
        ("Rank: 0, Local_rank: 0 [ 0, 0Rank: 1, Local_rank: 1 [ 0, 0 ]\n" + HELLO.format(2), ("ch4/posix",)),
        (
            "".join(f"Rank: {rank}, Local_rank: {rank % 2} [ 0, 0 ]\n" for rank in range(4)) + HELLO.format(4),
            ("ch4/posix", "ucx/posix", "ucx/rc_mlx5"),
        ),
        (
            "Rank: 0, Local_rank: 0 [ 0, 0 ]\nRank: 1, Local_rank: 1 [ 0, 0 ]\n" + HELLO.format(3),
            ("ch4/posix", "ucx/posix", "ucx/rc_mlx5"),
        ),
        (HELLO.format(2), ("ucx/posix", "ucx/rc_mlx5")),
    ],
)
def test_mpich_s_lanes_count_where_a_host_is_left(text: str, transports: tuple[str, ...]) -> None:
    assert fed(MpiTransportParser(), CAPABLE + LANES + text) == transports


def test_mpich_over_libfabric() -> None:
    assert fed(MpiTransportParser(), SOCKETS + HELLO.format(2)) == ("ofi/sockets",)
    assert fed(
        MpiTransportParser(), SOCKETS + "Rank: 0, Local_rank: 0 [ 0, 0 ]\nRank: 1, Local_rank: 1 [ 0, 0 ]\n"
    ) == ("ch4/posix",)


MAP = """\
[1795189229.000000] [vm:7:0] ucc_lib.c:163  UCC  INFO  version: 1.4.0, loaded from: /s/lib/libucc.so.1
[1795189229.000036] [vm:7:0] ucc_team.c:472 UCC  INFO  ===== COLL_SCORE_MAP (team_id 32768, size 2) =====
[1795189229.000037] [vm:7:0] ucc_coll_score_map.c:225  UCC  INFO  Allreduce:
[1795189229.000038] [vm:7:0] ucc_coll_score_map.c:225  UCC  INFO  \tHost: {0..4095}:TL_UCP:10 {4K..inf}:TL_SHARP:30
"""


def test_ucc_shows_its_map() -> None:
    reader = UccTransportParser()
    assert fed(reader, MAP + LANES + summary("ucx=tcp;eth0")) == ("ucc/sharp:ucx/tcp", "ucc/ucp:ucx/tcp")
    assert reader.versions["ucc"] == "1.4.0"
    assert fed(UccTransportParser(), MAP) == ()
