"""What a node that is there turns out to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pytest_hetgpu.cluster import network
from pytest_hetgpu.errors import LostNode
from pytest_hetgpu.extensions.probes.base import RawFacts
from pytest_hetgpu.extensions.probes.rdma import RdmaProbe
from pytest_hetgpu.extensions.runtimes.base import CommandResult, RemoteNode
from pytest_hetgpu.model.facts import Environment, Facts, found
from pytest_hetgpu.model.interfaces import InterfaceChoice, interface_of
from pytest_hetgpu.model.job import ContainerOptions, Fabric, Hardware, Node
from pytest_hetgpu.planning.placement import DiscoveredNode

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "ens5\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
DOCKER = "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
ROUTES = HEAD + DEFAULT + DOCKER + "ens6\t0000000A\t00000000\t0001\t0\t0\t0\t00F0FFFF\t0\t0\t0\n"

ADDRESSES = {"lo": ("127.0.0.1",), "ens5": ("10.9.0.5",), "docker0": ("172.17.0.1",), "ens6": ("10.0.0.5",)}
LARGE = HEAD + "ens5\tfffffffff\t0\t1\t0\t0\t0\tfffffffff\t0\t0\t0\n"
NEGATIVE = HEAD + "ens5\t-1\t0\t1\t0\t0\t0\t-1\t0\t0\t0\n"


@dataclass
class Told:
    """As much of a node as a sighting asks for."""

    routes: bytes | None = ROUTES.encode()
    names: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Sequence[str]] = field(default_factory=lambda: ADDRESSES)
    sources: Mapping[str, str] = field(default_factory=dict)
    """The source address to each address that is not the node's own; to all others that of ens5."""
    said: bytes | None = None
    folder: str = "/run/hetgpu-1"
    uid: int = 1000
    allocated_host: str = ""
    asked: list[str] = field(default_factory=list)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes | None]:
        self.asked += paths
        return dict.fromkeys(paths, self.routes)

    def exec(self, argv: Sequence[str]) -> CommandResult:
        self.asked.append(" ".join(argv))
        assert argv[1] == f"{self.folder}/programs/routes.py"
        if self.said is not None:
            return CommandResult(0, self.said, b"")
        held = {address for each in self.addresses.values() for address in each}
        hosts = {}
        for host in argv[2:]:
            address = self.names.get(host, host if host[0].isdigit() else "")
            source = address if address in held else self.sources.get(address, "10.9.0.5")
            hosts[host] = [[address, source]] * bool(address)
        return CommandResult(0, json.dumps({"addresses": self.addresses, "hosts": hosts}).encode(), b"")


class Gone(Told):
    """A node that was lost meanwhile."""

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes | None]:
        raise LostNode("node0", "its connection was closed")


def table(hca: str, port: int, layer: str, *rows: tuple[str, str, str], state: str = "4: ACTIVE") -> dict[str, str]:
    """The files of a port; a row is GID, type and interface."""
    folder = f"/sys/class/infiniband/{hca}/ports/{port}"
    files = {f"{folder}/state": state, f"{folder}/link_layer": layer}
    for index, (gid, kind, netdev) in enumerate(rows):
        files |= {f"{folder}/gids/{index}": gid, f"{folder}/gid_attrs/types/{index}": kind}
        files |= {f"{folder}/gid_attrs/ndevs/{index}": netdev} if netdev else {}
    return files


def environment(*tables: Mapping[str, str]) -> Environment:
    files = {path: text for table in tables for path, text in table.items()}
    hcas = {path.split("/")[4] for path in files}
    seen = RawFacts.of({"files": files, "paths": {f"/sys/class/infiniband/{h}": {"real": h, "may": "r"} for h in hcas}})
    facts: Facts = RdmaProbe().read(seen)
    return Environment(facts)


V1, V2 = "IB/RoCE v1", "RoCE v2"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe5b:7a10"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0005"
TABLE = table("mlx5_0", 1, "Ethernet", *((g, t, "ens5f0") for g in (LINK_LOCAL, IPV4) for t in (V1, V2)))
SECOND = table("mlx5_1", 2, "Ethernet", ("0000:0000:0000:0000:0000:ffff:0a01:0005", V2, "ens5f1"))
DIRECT = InterfaceChoice("ens6", "carries its address 10.0.0.5")
INFINIBAND = table("mlx5_2", 1, "InfiniBand", ("fe80:0000:0000:0000:b859:9f03:00d4:17a4", V1, ""))


def node(fabric: Fabric = Fabric(), **changes: Any) -> Node:  # noqa: B008 - immutable
    return Node(0, Hardware("kind", fabric=fabric), changes.pop("host", "10.0.0.5"), 1, **changes)


def of(which: Node, member: Told | None = None, seen: Environment | None = None) -> DiscoveredNode:
    return network.discover(which, cast(RemoteNode, member or Told()), seen or Environment())


def test_the_folder_and_the_user() -> None:
    assert of(node()) == DiscoveredNode("/run/hetgpu-1", root=False, netdev="ens6", interface=DIRECT)
    blind = DiscoveredNode("/root/x", root=True, interface=InterfaceChoice())
    assert of(node(), Told(folder="/root/x", uid=0, routes=None, said=b"")) == blind


@pytest.mark.parametrize(
    ("fabric", "found"),
    [
        # All that the document's three steps give, and nothing else.
        (Fabric("roce"), ("mlx5_0", "ens5f0", 3)),
        (Fabric("roce", "ens5f1"), ("mlx5_1:2", "ens5f1", 0)),
        (Fabric("roce", hca="mlx5_1"), ("mlx5_1:2", "ens5f1", 0)),
        (Fabric("roce", hca="mlx5_1:2"), ("mlx5_1:2", "ens5f1", 0)),
        # What the matrix says and the node lacks is a matter for whoever judges nodes.
        (Fabric("roce", "eth7"), ("", "", None)),
        (Fabric("roce", hca="mlx5_2"), ("", "ens6", None)),
        (Fabric("infiniband"), ("mlx5_2", "ens6", None)),
        (Fabric("tcp"), ("", "ens6", None)),
        (Fabric("slingshot", "hsn0"), ("", "", None)),
    ],
)
def test_the_network_within_what_the_matrix_says_of_it(fabric: Fabric, found: tuple[str, str, int | None]) -> None:
    sight = of(node(fabric), seen=environment(TABLE, SECOND, INFINIBAND))
    assert (sight.hca, sight.netdev, sight.gid_index) == found


def test_of_several_ports_of_infiniband_none_is_named() -> None:
    other = {path.replace("mlx5_2", "mlx5_3"): text for path, text in INFINIBAND.items()}
    assert of(node(Fabric("infiniband")), seen=environment(INFINIBAND, other)).hca == ""
    down = {path: "1: DOWN" if path.endswith("state") else text for path, text in other.items()}
    assert of(node(Fabric("infiniband")), seen=environment(INFINIBAND, down)).hca == "mlx5_2"


def test_a_port_that_is_down_is_not_chosen() -> None:
    down = {path: "1: DOWN" if path.endswith("state") else text for path, text in TABLE.items()}
    assert of(node(Fabric("roce")), seen=environment(down)).hca == ""


def test_what_was_not_looked_at_is_left_open() -> None:
    sight = DiscoveredNode("/run/hetgpu-1", root=False, netdev="ens6", interface=DIRECT)
    assert of(node(Fabric("roce")), seen=Environment()) == sight


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("10.0.0.5", "ens6"),
        ("172.17.0.1", "docker0"),
        # A public address is none of the node's own.
        ("203.0.113.9", "ens5"),
        (None, "ens5"),
    ],
)
def test_the_interface_that_carries_an_address(address: str | None, interface: str) -> None:
    assert interface_of(ROUTES, address) == interface


def test_of_two_ways_the_cheaper_and_none_that_is_down() -> None:
    cheap = DEFAULT.replace("ens5", "ens7").replace("\t100\t", "\t50\t")
    assert interface_of(HEAD + DEFAULT + cheap, None) == "ens7"
    assert interface_of(HEAD + DEFAULT + cheap.replace("0003", "0002"), None) == "ens5"


@pytest.mark.parametrize("name", ["e$(id)", "`id`", "-iface", 'a"b', "a;b", "a/b"])
def test_an_interface_that_no_interface_is_called_is_not_taken(name: str) -> None:
    """A node says what it wants; what it says goes into command lines that start its neighbours' daemons."""
    assert of(node(), Told(addresses={name: ("10.0.0.5",)})).netdev == ""
    assert of(node(host="h"), Told(routes=ROUTES.replace("ens5", name).encode(), addresses={})).netdev == ""
    rogue = environment(table("mlx5_0", 1, "Ethernet", (IPV4, V2, name)))
    assert of(node(Fabric("roce")), seen=rogue).netdev in ("", "ens6")


@pytest.mark.parametrize("routes", ["", HEAD, HEAD + "ens5\n", HEAD + "a b c d e f g h\n", "\0\n\0", LARGE, NEGATIVE])
def test_routes_that_say_nothing(routes: str) -> None:
    assert interface_of(routes, "10.0.0.5") == ""


def test_names_are_looked_up_on_the_node() -> None:
    told = Told(names={"nid001": "10.0.0.5"})
    assert of(node(host="nid001"), told).netdev == "ens6"
    assert told.asked == ["/proc/net/route", "python3 /run/hetgpu-1/programs/routes.py nid001"]
    # Debian has a host know itself by an address of loopback.
    assert of(node(host="nid001"), Told(names={"nid001": "127.0.1.1"})).netdev == "ens5"
    assert of(node(host="nid001"), Told()).netdev == "ens5"
    assert of(node(host="[2001:db8::5]"), Told()).netdev == "ens5"


@pytest.mark.parametrize(
    "named", [InterfaceChoice("eth7", "netdev of the transport names it"), InterfaceChoice("lo", "not known yet")]
)
def test_what_one_cell_names_is_looked_for_as_later_cells_have_the_same_nodes(named: InterfaceChoice) -> None:
    assert of(node(interface=named)).netdev == "ens6"


@pytest.mark.parametrize(
    "which",
    [
        node(Fabric(netdev="eth1")),
        node(container=ContainerOptions(network="user")),
    ],
)
def test_an_interface_that_is_given_is_not_looked_for(which: Node) -> None:
    told = Told()
    assert of(which, told).netdev == ""
    assert told.asked == []


NICS: Facts = {
    "nics": found(("docker0", "ens4", "tun0", "ens5")),
    **{f"nics.{name}.state": found("down" if name == "ens4" else "up") for name in ("docker0", "ens4", "tun0", "ens5")},
}
ALONE = HEAD + DOCKER + DOCKER.replace("docker0", "tun0") + DOCKER.replace("docker0", "ens4")


def test_a_node_that_shares_this_host_has_the_interface_of_a_host_alone() -> None:
    """Loopback does not do for every library, and a bridge of an engine hangs them."""
    there = node(host="localhost", interface=InterfaceChoice())
    sight = of(there, seen=Environment(NICS))
    assert (sight.netdev, sight.interface) == ("", InterfaceChoice("ens5", "carries the default route"))
    sight = of(there, Told(routes=ALONE.encode()), Environment(NICS))
    others = "docker0 a bridge, ens4 without a carrier, tun0 a tunnel, ens5 without an IPv4 address"
    assert sight.interface == InterfaceChoice("lo", f"no other interface can be used: {others}", "loopback")
    assert of(there).interface == InterfaceChoice()


def test_nodes_of_one_host_have_one_interface_that_is_no_bridge() -> None:
    """A plan gives containers of one host its loopback, which is known without looking only on several hosts."""
    seen, bridge = Environment(NICS), "172.17.0.1"
    sights = [
        network.discover(one, cast(RemoteNode, Told()), seen, alone=True)
        for one in (node(host=bridge), node(Fabric(netdev="lo"), host=bridge))
    ]
    assert [sight.interface for sight in sights] == [InterfaceChoice("ens5", "carries the default route")] * 2


def test_a_container_on_its_host_s_network_has_the_host_s_interface() -> None:
    assert of(node(container=ContainerOptions(network="host"))).netdev == "ens6"


def test_a_node_that_was_lost_is_found_out_by_others() -> None:
    assert of(node(), Gone()).netdev == ""


def reached(member: Told, seen: Environment | None = None, *, host: str = "node1") -> InterfaceChoice | None:
    """The interface of a node that has another one beside it."""
    return network.discover(
        node(host=host), cast(RemoteNode, member), seen or Environment(), others=("node2",)
    ).interface


def test_a_host_that_knows_itself_by_loopback_has_the_interface_of_the_route_to_another_node() -> None:
    names = {"node1": "127.0.1.1", "node2": "10.0.0.6"}
    told = Told(names=names, sources={"10.0.0.6": "10.0.0.5", "127.0.1.1": "127.0.0.1"})
    assert reached(told) == InterfaceChoice("ens6", "carries the route to node2 at 10.0.0.6")
    assert told.asked[1].endswith("routes.py node1 node2")


def test_a_default_route_over_a_vpn_leads_to_no_node() -> None:
    """A host by its public address, which is translated on the way."""
    facts: Facts = {"nics": found(("tun0", "ens5")), "nics.tun0.kind": found("tun"), "nics.tun0.state": found("up")}
    vpn = ROUTES.replace("ens5\t00000000", "tun0\t00000000") + "ens5\t0000090A\t00000000\t0001\t0\t0\t0\t0000FFFF\n"
    told = Told(
        vpn.encode(), {"node2": "203.0.113.9"}, {**ADDRESSES, "tun0": ("10.8.0.2",)}, {"203.0.113.9": "10.8.0.2"}
    )
    chosen = reached(told, Environment(facts), host="203.0.113.8")
    assert chosen
    assert chosen.name == "ens5"
    assert chosen.why.endswith("the default route is on tun0, a tunnel")
    # A tunnel that has the route to the node alone is what the administrator wants.
    meshed = Told(names={"node2": "10.8.0.3"}, addresses=told.addresses, sources={"10.8.0.3": "10.8.0.2"})
    assert reached(meshed, Environment(facts)) == InterfaceChoice("tun0", "carries the route to node2 at 10.8.0.3")


def test_of_two_interfaces_in_one_network_the_one_that_has_the_address() -> None:
    row = "{}\t0000000A\t00000000\t0001\t0\t0\t{}\t00F0FFFF\t0\t0\t0\n"
    both = HEAD + row.format("ens4", 100) + row.format("ens6", 200)
    told = Told(both.encode(), addresses={"ens4": ("10.0.0.4",), "ens6": ("10.0.0.5",)})
    assert reached(told, host="10.0.0.5") == InterfaceChoice("ens6", "carries its address 10.0.0.5")


def test_a_host_of_ipv6_alone_has_the_interface_of_its_address() -> None:
    told = Told(HEAD.encode(), addresses={"lo": ("::1",), "eth1": ("fe80::1", "2001:db8::5")})
    assert reached(told, host="[2001:db8::5]") == InterfaceChoice("eth1", "carries its address 2001:db8::5")


def test_an_address_of_loopback_that_routers_know_leaves_the_choice_to_the_routes() -> None:
    held = {"lo": ("127.0.0.1", "10.5.5.1"), "ens5": ("10.9.0.5",), "ens6": ("10.0.0.5",)}
    told = Told(names={"node1": "10.5.5.1", "node2": "10.0.0.6"}, addresses=held, sources={"10.0.0.6": "10.5.5.1"})
    assert reached(told) == InterfaceChoice("ens6", "carries the route to node2 at 10.0.0.6")


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"[]", b"{}", b"\xff", b'{"addresses": 3, "hosts": {}}'),
        b'{"addresses": {"ens6": ["x", 4]}, "hosts": {}}',
        b'{"addresses": {}, "hosts": {"node2": [["$(id)", "10.0.0.5"]]}}',
        b'{"addresses": {}, "hosts": {"node2": [1]}}',
    ],
)
def test_a_node_that_answers_nonsense_has_the_interface_of_its_default_route(said: bytes) -> None:
    assert reached(Told(said=said)) == InterfaceChoice("ens5", "carries the default route")


def test_nothing_that_leads_to_others_leaves_the_interface_open() -> None:
    assert reached(Told(HEAD.encode(), addresses={})) == InterfaceChoice()


@pytest.mark.parametrize("name", ["vmbr0", "br0"])
def test_a_bridge_by_what_the_kernel_calls_it(name: str) -> None:
    facts: Facts = {"nics": found((name, "eno1")), f"nics.{name}.kind": found("bridge")}
    assert of(node(Fabric(netdev=name)), seen=Environment(facts)).bridges == (name,)
