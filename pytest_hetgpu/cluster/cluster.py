"""The nodes of a cell, ready to run on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.cluster import oom_kills as kills
from pytest_hetgpu.cluster.private_files import files_on
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.runtimes.base import RemoteNode, Runtime, StackDumper
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.old_spellings import Renamed

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
    from pytest_hetgpu.model.facts import Environment
    from pytest_hetgpu.model.outcome import LinkBandwidth


@dataclass(frozen=True)
class ClusterNode:
    """One node with the runtime that reaches it, and its environment if it was inspected."""

    node: Node
    runtime: Runtime
    environment: Environment | None = None

    @property
    def host(self) -> Any:
        """The node as a testinfra host (needs `pytest-testinfra`)."""
        return self.runtime.host()


@dataclass(frozen=True)
class Cluster:
    """The nodes of one job. `control` is a node without ranks that starts it; None: the first node does.

    `concerns` are the warnings of preflight, the certain and worst first. `link` is the bandwidth between the nodes, if
    it was measured.
    """

    job: Job
    nodes: tuple[ClusterNode, ...]
    control: ClusterNode | None = None
    concerns: tuple[PreflightWarning, ...] = ()
    link: LinkBandwidth | None = None
    wire = Renamed("link")

    @property
    def launcher(self) -> Runtime:
        """The runtime that the job's command is started on."""
        return (self.control or self.nodes[0]).runtime

    @property
    def all_nodes(self) -> tuple[ClusterNode, ...]:
        """The nodes with ranks, then the launcher without."""
        return (*self.nodes, self.control) if self.control else self.nodes

    @property
    def environments(self) -> dict[int, Environment]:
        """The environments of the nodes that were inspected, by index."""
        found = ((one.node.index, one.environment) for one in self.all_nodes)
        return {index: environment for index, environment in found if environment is not None}

    def with_environments(self, seen: Mapping[int, Environment]) -> Cluster:
        """Return the cluster whose nodes have these environments, by index."""
        nodes = tuple(replace(member, environment=seen[member.node.index]) for member in self.nodes)
        control = replace(self.control, environment=seen[self.control.node.index]) if self.control else None
        return replace(self, nodes=nodes, control=control)

    def with_variables(self) -> AbstractContextManager[None]:
        """Keep the variables of ranks in files on all nodes. A process of this machine writes its own.

        Raises:
            ProvisionError: A node cannot write them.

        """
        return files_on([member for member, _ in self._members()], self.job.command.files())

    def sweep(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Stop leftovers of a command on all nodes. Return survivors as `NAME (PID) on NODE`, and reasons of losses."""
        survivors, lost = [], []
        for member, node in self._members():
            try:
                survivors += [f"{name} on {node.name}" for name in member.sweep()]
                why = member.lost()
            except ProvisionError as error:
                why = member.lost() or str(error)
            if why is not None:
                lost.append(f"node {node.name} ({node.hardware.name} on {node.host}) was lost: {why}")
        return tuple(survivors), tuple(lost)

    def stack_dumpers(self) -> dict[str, StackDumper]:
        """Return the stack dumpers of the nodes other than the launcher's, by node name."""
        return {node.name: member.stacks for member, node in self._members() if member is not self.launcher}

    def traffic(self) -> dict[str, int]:
        """Return the bytes that each node's fabric interface has received and sent, by node, if it is known."""
        found = {}
        for member, node in self._members():
            device = node.hardware.fabric.netdev
            paths = [f"/sys/class/net/{device}/statistics/{way}_bytes" for way in ("rx", "tx")]
            try:
                texts = list(member.read(paths).values()) if device else []
            except ProvisionError:
                continue
            counts = [int(text) for text in texts if text and text.strip().isdigit()]
            if len(counts) == len(paths):
                found[node.name] = sum(counts)
        return found

    def hca_traffic(self) -> dict[str, int]:
        """Return the most bytes that each node's HCA can have received and sent, by node, if its HCA counts them.

        Counters of data are in units of 4 bytes (InfiniBand Architecture Specification, PortCounters). Virtual
        functions may have them and never count. Soft-RoCE counts packets, each of at most 4096 bytes of data.
        """
        found = {}
        for member, node in self._members():
            ports = [name.partition(":") for name in (node.hardware.fabric.hca or "").split(",") if name]
            folders = [f"/sys/class/infiniband/{hca}/ports/{port or 1}" for hca, _, port in ports]
            units = {f"{one}/counters/port_{way}_data": 4 for one in folders for way in ("rcv", "xmit")}
            units |= {f"{one}/hw_counters/{way}_pkts": 4096 for one in folders for way in ("rcvd", "sent")}
            try:
                texts = member.read(list(units)) if units else {}
            except ProvisionError:
                continue
            counts = {path: int(text) for path, text in texts.items() if text and text.strip().isdigit()}
            soft = any(units[path] == 4096 for path in counts)
            if soft or any(counts.values()):
                found[node.name] = sum(count * units[path] for path, count in counts.items())
        return found

    def unplugged(self) -> tuple[str, ...]:
        """Return interfaces that the job uses between its nodes and that have disappeared: `eth0 of node1 is gone`.

        Return nothing for a job on one node, and for nodes whose interface is unknown. Other interfaces of a host may
        change.
        """
        members = self._members()
        found = []
        for member, node in members if len(members) > 1 else ():
            had = self._carrying(node)
            try:
                left = set(member.interfaces()) if had and member.lost() is None else set(had)
                missing = [name for name in had if name not in left]
                gone = member.absent([f"/sys/class/net/{name}" for name in missing]) if missing else ()
            except ProvisionError:
                continue
            words = {name: "gone" if f"/sys/class/net/{name}" in gone else "down" for name in missing}
            found += [f"{name} of {node.name} is {word}" for name, word in words.items()]
        return tuple(found)

    def _carrying(self, node: Node) -> tuple[str, ...]:
        """Return the known interfaces that a node had at its start and that its job uses."""
        seen = next((one.environment for one in self.all_nodes if one.node is node), None)
        had = seen.items("nics") if seen else ()
        if node.hardware.fabric.netdev:
            return tuple(name for name in had if name == node.hardware.fabric.netdev)
        return had if node.container and node.container.network == "user" else ()

    def oom_kills(self) -> dict[str, tuple[str, int]]:
        """Return the number of OOM kills on each node so far, with the file that counts them."""
        found = {}
        here: tuple[str, int] | None = None
        for one in self.all_nodes:
            is_here = not isinstance(one.runtime, RemoteNode)
            if is_here and here:
                continue
            try:
                *near, machine = kills.places(one.runtime.read([kills.OWN])[kills.OWN])
                # The machine's file is long: an agent behind srun, whose messages hold 1 KiB, takes 45 ms for it.
                counted = kills.count(one.runtime.read(near)) or kills.count(one.runtime.read([machine]))
            except ProvisionError:
                continue
            if counted:
                found["this machine" if is_here else one.node.name] = counted
            here = counted if is_here else here
        return found

    def _members(self) -> list[tuple[RemoteNode, Node]]:
        return [(n.runtime, n.node) for n in self.all_nodes if isinstance(n.runtime, RemoteNode)]


def local(job: Job, runtimes: dict[str, Runtime]) -> Cluster:
    """Return the cluster of processes of this machine. Raise NotHere if the accelerator of a node is missing.

    `runtimes` holds them by name for the next cells.
    """
    nodes = tuple(_local(node, runtimes) for node in job.nodes)
    return Cluster(job, nodes, _local(job.launcher, runtimes) if job.launcher else None)


def of_members(job: Job, members: Mapping[int, RemoteNode], environments: Mapping[int, Environment]) -> Cluster:
    """Return the cluster of provisioned nodes, given by their index. Raise NotHere if one lacks its accelerator."""
    nodes = {node.index: _of_member(node, members[node.index], environments[node.index]) for node in job.all_nodes}
    ranks = tuple(nodes[node.index] for node in job.nodes)
    return Cluster(job, ranks, nodes[job.launcher.index] if job.launcher else None)


def _of_member(node: Node, member: RemoteNode, environment: Environment) -> ClusterNode:
    if node.ranks:
        _require_devices(node, member)
    return ClusterNode(node, member, environment)


def _local(node: Node, ready: dict[str, Runtime]) -> ClusterNode:
    name = node.hardware.runtime
    runtime = ready.setdefault(name, find("runtimes", name, Runtime)())  # type: ignore[type-abstract]
    _require_devices(node, runtime)
    return ClusterNode(node, runtime)


def _require_devices(node: Node, runtime: Runtime) -> None:
    platform = find("hardware", node.hardware.accelerator.platform, Platform)
    missing = runtime.absent(platform.devices)
    if missing:
        wanted = f"platform={node.hardware.accelerator.platform} arch={node.hardware.accelerator.arch or 'any'}"
        raise NotHere(
            f"node {node.index} ({node.hardware.name} on {node.host}) needs {wanted}, without {', '.join(missing)} "
            f"({platform.hint}); give --hetgpu-inventory where such a host is elsewhere"
        )
