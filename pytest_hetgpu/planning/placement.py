"""Binding of a placement to hosts: each node's host, name, MPI and container options. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_hetgpu.config.inventory.hosts import HERE, Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.matrix.matrix import CellSettings, Matrix
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.lookup import conflict, runtime_of
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.interfaces import InterfaceChoice, Network, choose_interface
from pytest_hetgpu.model.job import ContainerOptions, Hardware, Image, Node, Stack

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
# Name of a container's interface on a Docker network, and of a pod's first interface on Kubernetes.
CONTAINER_NETDEV = "eth0"


@dataclass(frozen=True, slots=True)
class DiscoveredNode:
    """The facts of a provisioned node; before that, placeholders for a plan."""

    #: The private folder of the run on the node.
    folder: str = "/tmp/hetgpu"  # noqa: S108 - a name to show; the folder is made with a random one
    #: Whether commands run as root.
    root: bool = True
    #: The discovered interface if the matrix names none; `hca` and `gid_index` likewise.
    netdev: str = ""
    hca: str = ""
    gid_index: int | None = None
    #: The prefix of its MPI with links resolved.
    prefix: str = ""
    #: The program of its launcher and that launcher's version, if it is of the stack's MPI.
    launcher: str = ""
    version: str = ""
    #: The host that a scheduler chose.
    host: str = ""
    #: The interface of its TCP, with the reason.
    interface: InterfaceChoice | None = None
    #: The names of its bridges.
    bridges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Facts about the machines that jobs run on."""

    #: The stacks of this machine.
    stacks: Mapping[str, Stack]
    #: The folder of rank programs.
    programs: str
    root: bool = False
    #: The number of cores of this machine.
    cores: int = 1
    timeout: float = 120.0
    #: Parameters and variables that ranks do not get, whatever sets them.
    dropped: frozenset[str] = frozenset()
    inventory: Inventory = field(default_factory=Inventory)
    #: The images of the matrix by name of hardware.
    images: Mapping[str, Image] = field(default_factory=dict)
    #: The facts of provisioned nodes by index.
    discovered: Mapping[int, DiscoveredNode] = field(default_factory=dict)
    #: Whether transports log the debug output that maintainers require.
    verbose: bool = False
    #: The interfaces of this machine.
    network: Network | None = None


def bind(matrix: Matrix, settings: CellSettings, site: SiteFacts) -> tuple[tuple[Node, ...], tuple[Host, ...]]:
    """Bind every node to a host; a launcher without ranks is the last. Raises NotHere if the site lacks a host."""
    declared = tuple(matrix.hardware[name] for name in settings.hardware)
    if site.dropped:
        from pytest_hetgpu.planning.dropped import hardware_without

        declared = tuple(hardware_without(site.dropped, kind) for kind in declared)
    kinds = tuple(map(site.inventory.site, declared))
    ranks = [settings.options.ranks_per_node] * len(settings.nodes) + [0] * bool(settings.launch_from)
    kinds = tuple(runtime_of(kind.runtime).in_placement(kinds, ranks, bind) for bind, kind in enumerate(kinds))
    if why := conflict(kinds, launcher=bool(settings.launch_from)):
        raise NotHere(why)
    hosts = site.inventory.bind(kinds)
    network = _network(kinds, hosts)
    _check_reachable(kinds, hosts)
    names = _names(kinds, hosts, len(kinds) - 1 if settings.launch_from else 0)
    nodes = []
    for index, (kind, host) in enumerate(zip(kinds, hosts, strict=True)):
        container = replace(kind.container, network=network) if runtime_of(kind.runtime).uses_containers else None
        node = Node(
            index=index,
            hardware=_with_discovered(kind, _own_netdev(container, hosts), site.discovered.get(index)),
            host=(site.discovered[index].host if index in site.discovered else "") or host.address,
            ranks=ranks[index],
            name=names[index],
            stack=_stack(kind, host, settings.options.stack, site, index),
            reach=host.reach,
            image=site.images.get(kind.name) if container else None,
            container=container,
            interface=_interface(kind, container, site.discovered.get(index), site.network),
        )
        nodes.append(node)
    return tuple(nodes), hosts


def address(node: Node) -> str:
    """Return a node's address for the other nodes: its name on a user network, else its host's address."""
    if node.container and node.container.network == "user":
        return node.name
    return "127.0.0.1" if node.host == "localhost" else node.host.strip("[]")


def _network(kinds: Sequence[Hardware], hosts: Sequence[Host]) -> str:
    """Return the container network: `user` is possible if all nodes are containers of one engine."""
    containers = [kind for kind in kinds if runtime_of(kind.runtime).uses_containers]
    wanted = {kind.container.network for kind in containers}
    one_engine = len(containers) == len(kinds) and len({host.reach.engine for host in hosts}) == 1
    if "user" in wanted and not one_engine:
        raise NotHere("container network user needs all nodes of a placement to be containers of one engine; use host")
    return "user" if one_engine and "host" not in wanted else "host"


def _check_reachable(kinds: Sequence[Hardware], hosts: Sequence[Host]) -> None:
    """Raise NotHere if a node is only known as localhost and another node is elsewhere."""
    local = next((index for index, host in enumerate(hosts) if host.address in HERE), None)
    other = next((index for index, host in enumerate(hosts) if host.address not in HERE), None)
    if local is not None and other is not None:
        raise NotHere(
            f"node {local} ({kinds[local].name}) is on {hosts[local].address}, where node {other} ({kinds[other].name} "
            f"on {hosts[other].address}) cannot reach it: give the inventory this machine's address for the others"
        )


def _names(kinds: Sequence[Hardware], hosts: Sequence[Host], launch_index: int) -> list[str]:
    """Return the nodes' names for mpirun: `nodeI` for containers, a plain address for other hosts.

    The node of mpirun itself must resolve its own name. A host that is no container resolves localhost.
    """
    if all(kind.runtime == "local" for kind in kinds):
        return [host.address for host in hosts]
    many = Counter(host.address for host in hosts)
    names = []
    for index, (kind, host) in enumerate(zip(kinds, hosts, strict=True)):
        plain = _PLAIN.fullmatch(host.address) and many[host.address] == 1 and host.address not in HERE
        runtime = runtime_of(kind.runtime)
        given = runtime.uses_containers or runtime.schedules  # we choose their names
        if not runtime.uses_containers and index == launch_index:
            names.append("localhost")
        else:
            names.append(host.address if plain and not given else f"node{index}")
    return names


def _own_netdev(container: ContainerOptions | None, hosts: Sequence[Host]) -> str:
    """Return the interface that is known without inspection: a container network's, or loopback on one host."""
    if container and container.network == "user":
        return CONTAINER_NETDEV
    return "lo" if len(hosts) > 1 and len({host.address for host in hosts}) == 1 else ""


def _interface(
    kind: Hardware, container: ContainerOptions | None, discovered: DiscoveredNode | None, network: Network | None
) -> InterfaceChoice:
    """Return the interface of a node's TCP, and whether it is a bridge, as far as the node was inspected."""
    chosen = _choose(kind, container, discovered, network)
    here = network.interfaces if network and kind.runtime == "local" else ()
    bridges = discovered.bridges if discovered else tuple(one.name for one in here if one.kind == "bridge")
    return replace(chosen, kind="bridge") if chosen.name in bridges else chosen


def _choose(
    kind: Hardware, container: ContainerOptions | None, discovered: DiscoveredNode | None, network: Network | None
) -> InterfaceChoice:
    """Return the interface of the fabric, of the runtime, or of the inspection, in this order."""
    if kind.fabric.netdev:
        return InterfaceChoice(kind.fabric.netdev, f"the fabric of {kind.name} names it")
    if container and container.network == "user":
        return InterfaceChoice(CONTAINER_NETDEV, "the first one on a container's own network")
    if discovered and (discovered.netdev or (discovered.interface and discovered.interface.name)):
        return _unnamed(discovered.interface or InterfaceChoice(discovered.netdev, "seen on the node"))
    if known := runtime_of(kind.runtime).known_interface(kind):
        return known
    if kind.runtime == "local" and not discovered:
        return _unnamed(choose_interface(network)) if network else InterfaceChoice()
    return InterfaceChoice() if discovered else InterfaceChoice(why="a run chooses it once the node is there")


def _unnamed(choice: InterfaceChoice) -> InterfaceChoice:
    return replace(choice, why=f"{choice.why}; the fabric names none")


def _with_discovered(kind: Hardware, netdev: str, discovered: DiscoveredNode | None) -> Hardware:
    """Return the kind of hardware with the open settings of its fabric filled in."""
    fabric = kind.fabric
    if kind.runtime == "local" and not discovered:
        return kind
    known = runtime_of(kind.runtime).known_interface(kind)
    netdev = fabric.netdev or netdev or (discovered.netdev if discovered else "") or (known.name if known else "")
    found = replace(
        fabric,
        netdev=netdev or None,
        guessed=bool(netdev and not fabric.netdev),
        hca=fabric.hca or (discovered.hca if discovered else "") or None,
        gid_index=discovered.gid_index if discovered and fabric.gid_index is None else fabric.gid_index,
    )
    return kind if found == fabric else replace(kind, fabric=found)


def _stack(kind: Hardware, host: Host, requested: str | None, site: SiteFacts, index: int) -> Stack:
    if kind.runtime == "local":
        return site.stacks[requested or kind.stack]
    if requested and requested != kind.stack:
        raise NotHere(f"hardware {kind.name} has the stack {kind.stack}, the cell asks for {requested}")
    prefix = host.prefix or kind.prefix
    if runtime_of(kind.runtime).shares_files and not prefix and kind.stack in site.stacks:
        return site.stacks[kind.stack]
    stack = family_of(kind.stack).on_other_node(kind.stack, prefix)
    discovered = site.discovered.get(index)
    if discovered is None:
        return stack
    # The ranks report the rest of the version. Nodes of one job may differ in it.
    version = stack.version or discovered.version.partition(".")[0]
    return replace(stack, prefix=discovered.prefix or stack.prefix, version=version)
