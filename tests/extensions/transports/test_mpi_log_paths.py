"""The path of each kind of connection, and open questions with an old UCX."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.ucc import UccTransportParser
from tests.extensions.transports.test_mpi_log import (
    BTL,
    CAPABLE,
    CM,
    HELLO,
    HOSTS_DIFFER,
    LANES,
    MAP,
    OLD_LANES,
    PROVIDER,
    SOCKETS,
    UCX_HOSTS_DIFFER,
    fed,
    summary,
)


def pathed(reader: MpiTransportParser, text: str) -> dict[str, str]:
    """Return the kinds of connection of each path."""
    fed(reader, text)
    found: dict[str, list[str]] = {}
    for one in sorted(reader.connections):
        found.setdefault(one.path, []).append("+".join(one.components))
    return {path: " ".join(kinds) for path, kinds in found.items()}


MOST = "  on-host:  {} connections are {}\n  off-host: {} connections are {}\nExceptions:\n{}\n\n"
RC = "ucx=rc_mlx5;mlx5_0:1"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (summary("sm", "tcp"), {"on-host": "ob1/sm", "off-host": "ob1/tcp"}),
        (summary("tcp"), {"on-host": "ob1/tcp"}),
        (HOSTS_DIFFER, {"on-host": "ob1/sm ob1/tcp", "off-host": "ob1/tcp"}),
        (UCX_HOSTS_DIFFER, {"on-host": "ucx/cma+ucx/posix ucx/tcp", "off-host": "ucx/tcp"}),
        # One host of four reaches one other by tcp alone; its own ranks are as most.
        (
            MOST.format(
                "all", "sm", "most", "ucx=rc_mlx5;mlx5_0:1", "  host 2: [1x tcp] [1x sm] [2x ucx=rc_mlx5;mlx5_0:1]"
            ),
            {"on-host": "ob1/sm", "off-host": "ob1/tcp ucx/rc_mlx5"},
        ),
        (
            MOST.format("most", "sm", "most", RC, "  host 2: [3x tcp] [1x ucx=cma;memory]"),
            {"on-host": "ob1/sm", "off-host": "ucx/rc_mlx5", "unknown": "ob1/tcp ucx/cma"},
        ),
        # Release 4 names the host of the peer; a rank's connection to itself is none.
        (BTL, {"on-host": "ob1/sm"}),
        (
            BTL + BTL.replace("vader", "tcp").replace("on node vm", "on node other"),
            {"on-host": "ob1/sm", "off-host": "ob1/tcp"},
        ),
        (BTL.replace(" on node vm", ""), {"unknown": "ob1/sm"}),
        (LANES, {"on-host": "ucx/posix", "off-host": "ucx/rc_mlx5"}),
        (OLD_LANES, {"unknown": "ucx/cma+ucx/sysv"}),
        (CM + PROVIDER, {"unknown": "ofi/tcp"}),
        (SOCKETS + HELLO.format(2), {"unknown": "ofi/sockets"}),
        (
            CAPABLE + LANES + "Rank: 0, Local_rank: 0 [ 0, 0 ]\nRank: 1, Local_rank: 1 [ 0, 0 ]\n" + HELLO.format(3),
            {"on-host": "ch4/posix ucx/posix", "off-host": "ucx/rc_mlx5"},
        ),
    ],
)
def test_the_path_of_each_kind_of_connection(text: str, paths: dict[str, str]) -> None:
    assert pathed(MpiTransportParser(), text) == paths


def test_ucc_has_the_paths_of_what_is_below() -> None:
    reader = UccTransportParser()
    fed(reader, MAP + LANES)
    assert {one.path: one.components for one in reader.connections} == {
        "on-host": ("ucc/sharp:ucx/posix", "ucc/ucp:ucx/posix"),
        "off-host": ("ucc/sharp:ucx/rc_mlx5", "ucc/ucp:ucx/rc_mlx5"),
    }


TRIED = """\
[1795472309.415] [host:14:0]    ucp_context.c:1774 UCX  INFO  UCP version is 1.13 (release 1)
[1795472309.415] [host:14:0]    ucp_context.c:1774 UCX  INFO  Version {} (loaded from /l/libucp.so.0)
[1795472309.415] [host:14:0]      ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag({})
"""


@pytest.mark.parametrize(
    ("version", "lanes", "unsure"),
    [
        # 1.13.1 was seen to send 4 MiB by tcp, and 1.18.1 by posix.
        ("1.13.1", "posix/memory tcp/eth0 tcp/lo", ("ucx/posix",)),
        ("1.15.0", "sysv/memory rc_mlx5/mlx5_0:1", ("ucx/sysv",)),
        ("1.16.0", "posix/memory tcp/eth0", ()),
        ("1.18.1", "posix/memory tcp/lo tcp/eth0", ()),
        ("1.13.1", "sysv/memory cma/memory tcp/eth0", ()),
        ("1.13.1", "posix/memory", ()),
        ("1.13.1", "tcp/eth0", ()),
    ],
)
def test_an_old_ucx_does_not_tell_who_carries_large_messages(version: str, lanes: str, unsure: tuple[str, ...]) -> None:
    reader = MpiTransportParser()
    fed(reader, TRIED.format(version, lanes))
    assert [one.unsure for one in reader.connections] == [unsure]


def test_the_table_of_open_mpi_is_doubted_like_the_lanes_of_its_ucx() -> None:
    reader = MpiTransportParser()
    fed(reader, TRIED.format("1.15.0", "tcp/eth0") + summary("ucx=posix;memory,tcp;eth0"))
    assert [one.unsure for one in reader.connections] == [("ucx/posix",)]
