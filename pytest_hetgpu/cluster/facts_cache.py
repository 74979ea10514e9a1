"""The facts of nodes: each node is inspected once per process, and its facts are kept with the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.cluster.drift import drift_since_start
from pytest_hetgpu.cluster.inspect import collect, preload, request_for
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.store import environment as files
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts

Key = tuple[str, str]
Hold = Callable[[], AbstractContextManager[object]]


class FactsCache:
    """The inspected nodes of one process. `run` is the run's folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._inspected: dict[Key, Environment] = {}
        self._written: set[str] = set()
        self._drift: dict[str, tuple[PreflightWarning, ...]] = {}

    def gather(
        self, cluster: Cluster, held: Hold = nullcontext, meanwhile: Callable[[], object] = bool
    ) -> dict[int, Environment]:
        """Return the environments of a cluster's nodes, by index. The first time, keep them with the run.

        A node is inspected while its host is `held`; `meanwhile` is called at the same time.
        """
        unseen = {_key(member) for member in cluster.all_nodes if not member.environment} - self._inspected.keys()
        if unseen:
            with held():
                for member in cluster.all_nodes:
                    self._inspect(member, meanwhile)
        seen = {member.node.index: member.environment or self._inspected[_key(member)] for member in cluster.all_nodes}
        name = _placement(cluster)
        if name not in self._written and any(environment.facts for environment in seen.values()):
            self._written.add(name)
            placement = PlacementFacts(name, _named(cluster, seen))
            files.write(self.run, placement)
            self._drift[name] = tuple(drift_since_start(self.run, placement))
        return seen

    def drift(self, cluster: Cluster) -> tuple[PreflightWarning, ...]:
        """Return the versions that have changed on inspected nodes since the first part of the run."""
        return self._drift.get(_placement(cluster), ())

    def _inspect(self, member: ClusterNode, meanwhile: Callable[[], object]) -> None:
        """Inspect a process of this machine directly, as it has no agent; once per MPI."""
        key = _key(member)
        if member.environment or key in self._inspected:
            return
        try:
            host = member.host
        except NotHere:
            self._inspected[key] = Environment()
            return
        preload()  # first: else it loads in turns with `meanwhile`, and the node waits
        # The main thread inspects, as interrupts reach it.
        with ThreadPoolExecutor(max_workers=1) as pool:
            pool.submit(meanwhile)
            self._inspected[key] = collect(host, request_for(member.node))


def _key(member: ClusterNode) -> Key:
    return member.node.host, member.node.stack.prefix if member.node.stack else ""


def _placement(cluster: Cluster) -> str:
    return f"{cluster.job.matrix}-{cluster.job.axes['placement']}"


def _named(cluster: Cluster, seen: Mapping[int, Environment]) -> dict[str, NodeFacts]:
    named = {}
    for member in cluster.all_nodes:
        node = member.node
        name = f"node{node.index}" if node.ranks else "launcher"
        named[name] = NodeFacts(node.hardware.name, node.host, seen[node.index])
    return named
