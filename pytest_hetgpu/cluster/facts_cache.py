"""What is known of a cell's nodes before it runs: each is looked at once, kept with the run, held against the cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.cluster.drift import moved
from pytest_hetgpu.cluster.inspect import collect, look_for, ready
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.store import environment as files
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts

# Versions that an expectation may ask for; what a run itself says of them wins.
_ASKED_FOR = ("openmpi", "mpich", "ucx", "ucc", "libfabric", "cuda.driver", "rocm.version", "nccl", "rccl", "torch")
_CAPABILITIES: Mapping[str, tuple[str, str]] = {"no-large-bar": ("large_bar.rocm", "no")}

Key = tuple[str, str]
Hold = Callable[[], AbstractContextManager[object]]


class Surroundings:
    """The nodes that one process has looked at; `run` is the run's folder."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._looked: dict[Key, Environment] = {}
        self._kept: set[str] = set()
        self._moved: dict[str, tuple[PreflightWarning, ...]] = {}

    def of(
        self, cluster: Cluster, held: Hold = nullcontext, meanwhile: Callable[[], object] = bool
    ) -> dict[int, Environment]:
        """What each node of a cluster was seen to be, by index; the first time also kept with the run.

        A node is looked at while its host is `held`, and `meanwhile` is called.
        """
        unseen = {_key(member) for member in cluster.all_nodes if not member.environment} - self._looked.keys()
        if unseen:
            with held():
                for member in cluster.all_nodes:
                    self._look(member, meanwhile)
        seen = {member.node.index: member.environment or self._looked[_key(member)] for member in cluster.all_nodes}
        name = _placement(cluster)
        if name not in self._kept and any(environment.facts for environment in seen.values()):
            self._kept.add(name)
            placement = PlacementFacts(name, _named(cluster, seen))
            files.write(self.run, placement)
            self._moved[name] = tuple(moved(self.run, placement))
        return seen

    def moved(self, cluster: Cluster) -> tuple[PreflightWarning, ...]:
        """What is not as it was when the run began, of nodes that were looked at."""
        return self._moved.get(_placement(cluster), ())

    def _look(self, member: ClusterNode, meanwhile: Callable[[], object]) -> None:
        """A process of this machine has no agent: it is looked at directly, once for each MPI."""
        key = _key(member)
        if member.environment or key in self._looked:
            return
        try:
            host = member.host
        except NotHere:
            self._looked[key] = Environment()
            return
        ready()  # else it is loaded in turn with what `meanwhile` loads, and the node waits
        # An interrupt reaches the main thread, and with it the look.
        with ThreadPoolExecutor(max_workers=1) as pool:
            pool.submit(meanwhile)
            self._looked[key] = collect(host, look_for(member.node))


def _key(member: ClusterNode) -> Key:
    return member.node.host, member.node.stack.prefix if member.node.stack else ""


def informed(job: Job, seen: Mapping[int, Environment]) -> Job:
    """The job with what its nodes have in common: versions and capabilities that an expectation may ask for."""
    ranked = [seen[node.index] for node in job.nodes]
    facts = {}
    for name in _ASKED_FOR:
        values = {environment.text(name) for environment in ranked}
        value = values.pop()
        if value and not values:
            facts[name] = value
    found = {
        name
        for name, (fact, value) in _CAPABILITIES.items()
        if any(environment.text(fact) == value for environment in ranked)
    }
    demand = replace(
        job.demand, facts={**facts, **job.demand.facts}, capabilities=job.demand.capabilities | frozenset(found)
    )
    return replace(job, demand=demand)


def _placement(cluster: Cluster) -> str:
    return f"{cluster.job.matrix}-{cluster.job.axes['placement']}"


def _named(cluster: Cluster, seen: Mapping[int, Environment]) -> dict[str, NodeFacts]:
    named = {}
    for member in cluster.all_nodes:
        node = member.node
        name = f"node{node.index}" if node.ranks else "launcher"
        named[name] = NodeFacts(node.hardware.name, node.host, seen[node.index])
    return named
