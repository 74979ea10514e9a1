"""Placements whose nodes are provisioned and connected. They stay for the next cells."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from types import SimpleNamespace

from pytest_hetgpu.cluster import inspect, network
from pytest_hetgpu.cluster.launchers import launcher_facts
from pytest_hetgpu.cluster.private_files import file_on
from pytest_hetgpu.cluster.ssh import NodeHandle, connect_nodes
from pytest_hetgpu.errors import HetgpuError, NotHere
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode
from pytest_hetgpu.extensions.runtimes.lookup import mistakes_of, runtime_of
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.planning.placement import DiscoveredNode

MAX_PLACEMENTS = 4
MAX_FAILURES = 2
_NOT_FOR_RANKS = ("__init__", "agent", "gather_facts", "leftovers")


@dataclass(frozen=True)
class ProvisionedPlacement:
    """The nodes of one placement, ready for jobs. Handles and environments have the order of `Job.all_nodes`."""

    handles: tuple[NodeHandle, ...]
    deployment: Deployment
    environments: tuple[Environment, ...]
    #: Facts of each node that only a running node can give, by its index.
    discovered: Mapping[int, DiscoveredNode]
    #: The launch node reaches the others by ssh.
    connected: bool = True

    @property
    def is_lost(self) -> bool:
        """Whether a node of it is lost."""
        return any(handle.member.lost() for handle in self.handles)

    def close(self) -> None:
        """Stop and remove its nodes."""
        _close(self.handles, self.deployment)


class ClusterPool:
    """The provisioned placements of one process. The least recently used one is closed first.

    `run` is the name of the run, for labels. `report_wait` is called with a job and the reason why its nodes wait. At
    the end of the wait it is called with "". `meanwhile` is called while nodes start.
    """

    def __init__(
        self,
        run: str,
        report_wait: Callable[[Job, str], None] = lambda *_: None,
        meanwhile: Callable[[Job], object] = lambda _: None,
    ) -> None:
        self.run = run
        self._report_wait = report_wait
        self._meanwhile = meanwhile
        self._placements: dict[str, ProvisionedPlacement] = {}
        self._tainted: set[str] = set()
        self._failed: dict[tuple[str, bool], list[HetgpuError]] = {}
        self._kinds: set[str] = set()

    def acquire(self, job: Job) -> ProvisionedPlacement:
        """Return the nodes of a job; make them if they are not there or one is lost, and connect them if it needs ssh.

        Raise NotHere or ProvisionError. After two failures, later cells fail at once with the cached error. Failures of
        jobs that need ssh do not count for those that do not.
        """
        key = identity(job)
        failures = self._failed.get((key, job.needs_ssh), [])
        if len(failures) >= MAX_FAILURES:
            raise failures[-1]
        placement = self._placements.pop(key, None)
        if placement and (_ends_within(placement, job) or placement.is_lost):
            placement.close()
            placement = None
        try:
            if placement is None:
                self._evict_unused(job)
                placement = self._open(job)
            elif job.needs_ssh and not placement.connected:
                self._placements[key] = placement
                _connect(placement.handles, job)
                placement = replace(self._placements.pop(key), connected=True)
        except HetgpuError as error:
            self._failed[key, job.needs_ssh] = [*failures, error]
            raise
        self._placements[key] = placement
        return placement

    def is_ready(self, job: Job) -> bool:
        """Return whether the nodes of a job are there and none of them is lost."""
        placement = self._placements.get(identity(job))
        return placement is not None and not placement.is_lost

    def reset_failures(self, job: Job) -> None:
        """Forget the errors that provisioning the nodes of a job raised: the next `acquire` tries again."""
        self._failed.pop((identity(job), job.needs_ssh), None)

    def taint(self, job: Job) -> None:
        """Mark the nodes of a job as tainted by it; `evict` closes them."""
        self._tainted.add(identity(job))

    def evict(self) -> None:
        """Close the tainted nodes: the next cell of their placement gets fresh ones."""
        while self._tainted:
            placement = self._placements.pop(self._tainted.pop(), None)
            if placement:
                placement.close()

    def _evict_unused(self, job: Job) -> None:
        """Close the least recently used placements, and those of a scheduler: the job may wait for their nodes."""
        scheduled = [
            key for key, one in self._placements.items() if any(_is_scheduled(handle.node) for handle in one.handles)
        ]
        if any(map(_is_scheduled, job.all_nodes)):
            for key in scheduled:
                self._placements.pop(key).close()
        while len(self._placements) >= MAX_PLACEMENTS:
            self._placements.pop(next(iter(self._placements))).close()

    def close(self) -> None:
        """Close all placements, and the connections to engines."""
        placements = tuple(self._placements.values())
        self._placements.clear()
        try:
            with ThreadPoolExecutor(max_workers=MAX_PLACEMENTS) as pool:
                closings = [pool.submit(one.close) for one in placements]
            for closing in closings:
                closing.result()
        finally:
            for kind in self._kinds:
                with mistakes_of(kind):
                    runtime_of(kind).shut()

    def _open(self, job: Job) -> ProvisionedPlacement:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{job.matrix}-{job.axes['placement']}")
        owner = f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"
        deployment = Deployment(name, self.run, owner, job.all_nodes, partial(self._report_wait, job))
        self._kinds |= {node.hardware.runtime for node in job.all_nodes}
        handles: list[NodeHandle] = []
        try:
            openers = [_opener(node, deployment) for node in job.all_nodes]
            handles += _open_all(openers, deployment, partial(self._meanwhile, job))
            environments = _connect_and_inspect(handles, job)
            discovered = _discover(handles, environments)
        except BaseException:
            _close(handles, deployment)
            raise
        return ProvisionedPlacement(tuple(handles), deployment, environments, discovered, job.needs_ssh)


def _discover(handles: Sequence[NodeHandle], environments: Sequence[Environment]) -> dict[int, DiscoveredNode]:
    """Return the facts of each node that planning needs, by its index."""
    hosts = tuple(dict.fromkeys(handle.node.host for handle in handles))

    def discover(handle: NodeHandle, seen: Environment) -> tuple[int, DiscoveredNode]:
        others = tuple(host for host in hosts if host != handle.node.host)
        return handle.node.index, network.discover(handle.node, handle.member, seen, alone=not others, others=others)

    with ThreadPoolExecutor(max_workers=min(32, len(handles))) as pool:
        return dict(pool.map(discover, handles, environments))


def _ends_within(placement: ProvisionedPlacement, job: Job) -> bool:
    """Return whether an allocation ends before the time limit of the job, which fits into a fresh allocation."""
    walltimes = (handle.member.walltime for handle in placement.handles)
    return any(monotonic() - one.began > one.seconds - job.timeout > 0 for one in walltimes if one)


def _close(handles: Sequence[NodeHandle], deployment: Deployment) -> None:
    try:
        if handles:
            with ThreadPoolExecutor(max_workers=min(16, len(handles))) as pool:
                list(pool.map(lambda handle: handle.member.close(), handles))
    finally:
        deployment.close()


def identity(job: Job) -> str:
    """Return a key that is equal for jobs that can have the same nodes."""
    nodes = [replace(node, ranks=0) for node in job.all_nodes]
    return repr((job.matrix, job.axes["placement"], [_identity_of(node) for node in nodes], job.launch_node.index))


def _identity_of(node: Node) -> tuple[object, ...]:
    launcher = node.stack.launcher if node.stack else ""
    # The host that a scheduler chose is no part of the request.
    host = "" if _is_scheduled(node) else node.host
    asked = (node.hardware.name, node.hardware.settings)
    return node.index, asked, host, node.name, node.reach, node.image, node.container, launcher


def _is_scheduled(node: Node) -> bool:
    return runtime_of(node.hardware.runtime).schedules


def rank_programs() -> dict[str, bytes]:
    """Return the programs that ranks execute, by the path below a node's folder."""
    folder = REMOTE
    files = (f for f in folder.iterdir() if f.name.endswith(".py") and not f.name.startswith(_NOT_FOR_RANKS))
    return {f"programs/{file.name}": file.read_bytes() for file in files}


def _opener(node: Node, deployment: Deployment) -> Callable[[], NodeHandle]:
    def open_node() -> NodeHandle:
        member = runtime_of(node.hardware.runtime).open(node, deployment)
        try:
            member.put(rank_programs())
            return NodeHandle(replace(node, host=member.allocated_host) if member.allocated_host else node, member)
        except BaseException:
            member.close()
            raise

    return open_node


def _connect_and_inspect(handles: Sequence[NodeHandle], job: Job) -> tuple[Environment, ...]:
    """Inspect all nodes while they are connected, if the job needs that: ssh mostly waits."""
    with ThreadPoolExecutor(max_workers=min(16, len(handles))) as pool:
        inspections = [pool.submit(_inspect, handle) for handle in handles]
        if job.needs_ssh:
            _connect(handles, job)
        return tuple(one.result() for one in inspections)


def _connect(handles: Sequence[NodeHandle], job: Job) -> None:
    first = next(handle for handle in handles if handle.node.index == job.launch_node.index)
    connect_nodes(first, [handle for handle in handles if handle is not first])


def _inspect(handle: NodeHandle) -> Environment:
    try:
        host = handle.member.host()
    except NotHere:
        host = _MinimalHost(handle.member)
    environment = inspect.collect(host, inspect.request_for(handle.node), partial(file_on, handle.member))
    provisioned = {name: found(value) for name, value in handle.member.provision_facts.items()}
    provisioned |= launcher_facts(handle.node, handle.member)
    return replace(environment, facts={**environment.facts, **provisioned}) if provisioned else environment


class _MinimalHost:
    """The part of a testinfra host that inspection needs, for a machine without testinfra."""

    def __init__(self, member: RemoteNode) -> None:
        self._member = member

    def run(self, command: str, *args: str) -> inspect.HostAnswer:
        """Run `python3 -c` with these arguments: `command` is never anything else."""
        answer = self._member.exec(("python3", "-c", *args), timeout=2 * inspect.TIMEOUT)
        return SimpleNamespace(
            rc=answer.returncode,
            stdout=answer.stdout.decode(errors="replace"),
            stderr=answer.stderr.decode(errors="replace"),
        )


def _open_all(
    openers: Sequence[Callable[[], NodeHandle]], deployment: Deployment, meanwhile: Callable[[], object]
) -> list[NodeHandle]:
    """Open all in parallel, and call `meanwhile`. If one fails, close the others and raise the first error."""
    pool = ThreadPoolExecutor(max_workers=min(16, len(openers)))
    futures: list[Future[NodeHandle]] = [pool.submit(opener) for opener in openers]
    try:
        inspect.preload()
        meanwhile()
        return [future.result() for future in futures]
    except BaseException:
        deployment.abandoned.set()
        for future in futures:
            future.cancel()
        pool.shutdown(wait=True)
        members: list[RemoteNode] = [
            future.result().member for future in futures if not future.cancelled() and not future.exception()
        ]
        for member in members:
            member.close()
        raise
    finally:
        pool.shutdown(wait=True)
