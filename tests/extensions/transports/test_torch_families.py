"""gloo and nccl: their settings on a node, and their proofs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.extensions.transports.gloo import Gloo, GlooSettings
from pytest_hetgpu.extensions.transports.nccl import Nccl, NcclChannels, NcclSettings
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Fabric, Hardware, Node, Stack
from pytest_hetgpu.model.transport_classes import Connection

TORCH = Stack("torch", "torch", "2.13.0", "", "torchrun", "python3", torch=True)
PLAIN = Stack("openmpi-5", "Open MPI", "5.0.11", "", "mpirun", "python3")


def node(netdev: str | None = None, runtime: str = "docker") -> Node:
    return Node(0, Hardware("h", fabric=Fabric(netdev=netdev), runtime=runtime), "a", 1)


@pytest.mark.parametrize("transport", [Gloo(GlooSettings()), Nccl(NcclSettings())], ids=["gloo", "nccl"])
def test_both_are_there_whatever_mpi_starts_the_ranks(transport: Gloo | Nccl) -> None:
    assert transport.unsuitable(TORCH) is None
    assert transport.unsuitable(PLAIN) is None


def test_gloo_is_pinned_to_an_interface() -> None:
    assert Gloo(GlooSettings()).render(node("eth0"), TORCH).env == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert Gloo(GlooSettings(netdev="ib0")).render(node("eth0"), TORCH).env == {"GLOO_SOCKET_IFNAME": "ib0"}
    assert Gloo(GlooSettings()).render(node(runtime="local"), TORCH).env == {"GLOO_SOCKET_IFNAME": "lo"}
    assert Gloo(GlooSettings()).render(node(), TORCH).env == {}


@pytest.mark.parametrize("family", ["gloo", "nccl"])
@pytest.mark.parametrize("fabric", [Fabric("roce", "ens5f0", "mlx5_0", 3), Fabric("slingshot"), Fabric()])
def test_an_interface_that_the_hardware_names_stays(family: str, fabric: Fabric) -> None:
    variable = f"{family.upper()}_SOCKET_IFNAME"
    named = Node(0, Hardware("h", fabric=fabric, env={variable: "eth7"}), "a", 1)
    plain, own = (
        (Gloo(GlooSettings(netdev=name)) if family == "gloo" else Nccl(NcclSettings(netdev=name)))
        for name in (None, "ib0")
    )
    assert plain.render(named, TORCH).env.get(variable, "eth7") == "eth7"
    assert own.render(named, TORCH).env[variable] == "ib0"


def test_nccl_shows_itself_and_takes_the_network_asked_for() -> None:
    transport = Nccl(NcclSettings(net="Socket"))
    assert transport.render(node("eth0"), TORCH).env == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_SOCKET_IFNAME": "eth0",
        "NCCL_NET": "Socket",
    }
    assert transport.components() == ("nccl/p2p", "nccl/shm", "nccl/socket")


def test_nccl_leaves_slingshot_all_its_interfaces() -> None:
    lumi = Node(0, Hardware("h", fabric=Fabric(kind="slingshot", netdev="hsn0"), runtime="slurm"), "a", 1)
    assert "NCCL_SOCKET_IFNAME" not in Nccl(NcclSettings()).render(lumi, TORCH).env
    assert Nccl(NcclSettings(netdev="hsn0")).render(lumi, TORCH).env["NCCL_SOCKET_IFNAME"] == "hsn0"


@pytest.mark.parametrize("transport", [Gloo(GlooSettings()), Nccl(NcclSettings())], ids=["gloo", "nccl"])
def test_a_plan_says_which_interface_and_why(transport: Gloo | Nccl) -> None:
    named = replace(node("net1"), interface=InterfaceChoice("net1", "the fabric of h names it"))
    assert transport.interface(named) == named.interface
    assert str(transport.interface(node(runtime="local"))) == "lo (all ranks are on one host)"
    ours = replace(named, hardware=replace(named.hardware, env={transport.interface_setting: "ib0"}))
    assert str(transport.interface(ours)) == f"ib0 ({transport.interface_setting} of h names it)"
    assert transport.render(ours, TORCH).env[transport.interface_setting] == "ib0"
    unseen = replace(node(), interface=InterfaceChoice(why="a run chooses it once the node is there"))
    assert transport.interface(unseen) == unseen.interface


def test_a_plan_says_that_nccl_takes_all_of_slingshot() -> None:
    lumi = Node(0, Hardware("h", fabric=Fabric(kind="slingshot"), runtime="slurm"), "a", 1)
    assert str(Nccl(NcclSettings()).interface(lumi)).startswith("hsn (all whose names begin with it")


def test_a_plugin_with_a_name_of_two_words_is_asked_for_and_seen() -> None:
    """aws-ofi-nccl, and aws-ofi-rccl on Slingshot, call themselves `AWS Libfabric`."""
    transport = Nccl(NcclSettings(net="AWS Libfabric"))
    assert transport.render(node(), TORCH).env["NCCL_NET"] == "AWS Libfabric"
    channels = NcclChannels()
    channels.feed("n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 8[0] [receive] via NET/AWS Libfabric/0/GDRDMA", 1)
    assert set(channels.transports) <= set(transport.components())
    with pytest.raises(ValueError, match="is no network's name"):
        NcclSettings(net="AWS; Libfabric")
    assert Nccl(NcclSettings()).components() == ("nccl/*",)


def channels(*lines: str) -> NcclChannels:
    reader = NcclChannels()
    for number, line in enumerate(lines, 1):
        assert any(trigger in line.encode() for trigger in reader.triggers), line
        reader.feed(line, number)
    return reader


@pytest.mark.parametrize(
    ("line", "component"),
    [
        ("h:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "nccl/p2p"),
        ("h:1:9 [0] NCCL INFO Channel 01/02 : 0[0] -> 1[1] via P2P/direct pointer", "nccl/p2p"),
        ("h:1:9 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct", "nccl/shm"),
        ("h:1:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0", "nccl/ib"),
        ("h:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", "nccl/socket"),
        (
            "[default0]:h:1:9 [0] NCCL INFO Channel 00/0 : 0[c1] -> 1[c6] [send] via NET/AWS Libfabric/0/GDRDMA",
            "nccl/aws libfabric",
        ),
        ("h:1:9 [0] NCCL INFO Using network Socket", "nccl/socket"),
        ("h:1:9 [0] NCCL INFO Using network AWS Libfabric", "nccl/aws-libfabric"),
    ],
)
def test_each_way_between_ranks_has_its_name(line: str, component: str) -> None:
    assert channels(line).transports == (component.replace(" ", "-"),)


def test_channels_count_for_more_than_the_network_that_was_only_chosen() -> None:
    found = channels(
        "h:1:9 [0] NCCL INFO Using network IB", "h:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read"
    )
    assert found.transports == ("nccl/p2p",)


@pytest.mark.parametrize(
    ("line", "versions"),
    [("NCCL version 2.21.5+cuda12.4", {"nccl": "2.21.5"}), ("RCCL version : 2.20.5-HEAD:1", {"rccl": "2.20.5"})],
)
def test_versions(line: str, versions: dict[str, str]) -> None:
    assert channels(line).versions == versions


SPREAD = """\
a:12:40 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
a:13:41 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0
b:14:42 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0
b:14:42 [0] NCCL INFO Channel 00 : 2[0] -> 3[1] via SHM/direct/direct
b:15:43 [1] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [send] via NET/Socket/0
"""


def test_channels_of_nccl_have_the_path_of_their_ranks() -> None:
    assert sorted(one[:2] for one in channels(*SPREAD.splitlines()).connections) == [
        ("off-host", ("nccl/ib",)),
        ("off-host", ("nccl/socket",)),
        ("on-host", ("nccl/p2p",)),
        ("on-host", ("nccl/shm",)),
    ]


def test_a_rank_that_is_on_several_hosts_is_one_of_several_communicators() -> None:
    twice = SPREAD + SPREAD.replace("a:12", "c:12")
    assert Connection("unknown", ("nccl/p2p",)) in channels(*twice.splitlines()).connections


def test_before_there_is_a_channel_the_path_is_not_known() -> None:
    assert [*channels("x NCCL INFO Using network IB\n").connections] == [Connection("unknown", ("nccl/ib",))]


def test_a_rank_alone_sends_nothing_over_the_network_that_nccl_chose() -> None:
    chosen = "[default0]:vm:648:648 [0] NCCL INFO Using network Socket"
    start = "vm:648:648 [0] NCCL INFO ncclCommInitRankConfig comm 0x3a9eba20 rank 0 nranks {} cudaDev 0 - Init START"
    alone = channels(chosen, start.format(1), "vm:648:648 [0] NCCL INFO comm 0x3a9eba20 rank 0 nRanks 1 nNodes 1")
    assert (alone.transports, alone.connections) == ((), frozenset())
    for sizes in ((2, 1), (1, 2)):
        both = channels(chosen, *(start.format(size) for size in sizes))
        assert both.transports == ("nccl/socket",)
