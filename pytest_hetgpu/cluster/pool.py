"""Placements whose nodes are made and joined, and stay for the next cells: a hundred cells cost one start."""

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
from pytest_hetgpu.cluster.ssh import Berth, join
from pytest_hetgpu.errors import HetgpuError, NotHere
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.base import Deployment, RemoteNode
from pytest_hetgpu.extensions.runtimes.lookup import mistakes_of, runtime_of
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.planning.placement import DiscoveredNode

MOST = 4
TRIES = 2
_NOT_FOR_RANKS = ("__init__", "agent", "gather_facts", "leftovers")


@dataclass(frozen=True)
class Standing:
    """One placement's nodes, ready: by index, a launcher without ranks the last."""

    berths: tuple[Berth, ...]
    deployment: Deployment
    environments: tuple[Environment, ...]
    sights: Mapping[int, DiscoveredNode]

    def close(self) -> None:
        """Leaves nothing of it behind."""
        _close(self.berths, self.deployment)


class Placements:
    """The standing placements of one process, the least used closed first. `run` is the run's name, for labels.

    `telling` is told what the nodes of a job wait for, "" once that is over. `meanwhile` is called while they start.
    """

    def __init__(
        self,
        run: str,
        telling: Callable[[Job, str], None] = lambda *_: None,
        meanwhile: Callable[[Job], object] = lambda _: None,
    ) -> None:
        self.run = run
        self._telling = telling
        self._meanwhile = meanwhile
        self._standing: dict[str, Standing] = {}
        self._failed: dict[str, list[HetgpuError]] = {}
        self._kinds: set[str] = set()

    def of(self, job: Job) -> Standing:
        """The nodes of a job, made if they are not there, or not any more.

        NotHere or ProvisionError where they cannot be: after two cells have met it, it is told the next ones at once.
        """
        key = identity(job)
        met = self._failed.get(key, [])
        if len(met) >= TRIES:
            raise met[-1]
        standing = self._standing.pop(key, None)
        if standing and (_ends_within(standing, job) or any(berth.member.lost() for berth in standing.berths)):
            standing.close()
            standing = None
        if standing is None:
            self._make_room(job)
            try:
                standing = self._open(job)
            except HetgpuError as error:
                self._failed[key] = [*met, error]
                raise
        self._standing[key] = standing
        return standing

    def ready(self, job: Job) -> bool:
        """Whether the nodes of a job are there and none of them is lost."""
        standing = self._standing.get(identity(job))
        return standing is not None and not any(berth.member.lost() for berth in standing.berths)

    def forgive(self, job: Job) -> None:
        """Forgets that the nodes of a job could not be made: they are tried again."""
        self._failed.pop(identity(job), None)

    def _make_room(self, job: Job) -> None:
        """Closes the least used; and what a scheduler gave, for the job may be waiting for just those nodes."""
        given = [key for key, one in self._standing.items() if any(_lent(berth.node) for berth in one.berths)]
        if any(map(_lent, job.all_nodes)):
            for key in given:
                self._standing.pop(key).close()
        while len(self._standing) >= MOST:
            self._standing.pop(next(iter(self._standing))).close()

    def discard(self, job: Job) -> None:
        """Closes the nodes of a job: the next cell of its placement gets fresh ones."""
        standing = self._standing.pop(identity(job), None)
        if standing:
            standing.close()

    def close(self) -> None:
        """Closes everything, connections to engines too."""
        standing = tuple(self._standing.values())
        self._standing.clear()
        try:
            with ThreadPoolExecutor(max_workers=MOST) as pool:
                closings = [pool.submit(one.close) for one in standing]
            for closing in closings:
                closing.result()
        finally:
            for kind in self._kinds:
                with mistakes_of(kind):
                    runtime_of(kind).shut()

    def _open(self, job: Job) -> Standing:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{job.matrix}-{job.axes['placement']}")
        owner = f"{getpass.getuser()}@{os.uname().nodename}:{os.getpid()}"
        deployment = Deployment(name, self.run, owner, job.all_nodes, partial(self._telling, job))
        self._kinds |= {node.hardware.runtime for node in job.all_nodes}
        berths: list[Berth] = []
        try:
            openers = [_opener(node, deployment) for node in job.all_nodes]
            berths += _together(openers, deployment, partial(self._meanwhile, job))
            environments = _joined_and_seen(berths, job.launch_node)
            sights = _sights(berths, environments)
        except BaseException:
            _close(berths, deployment)
            raise
        return Standing(tuple(berths), deployment, environments, sights)


def _sights(berths: Sequence[Berth], environments: Sequence[Environment]) -> dict[int, DiscoveredNode]:
    """Return the sight of each node, by its index."""
    hosts = tuple(dict.fromkeys(berth.node.host for berth in berths))

    def sight(berth: Berth, seen: Environment) -> tuple[int, DiscoveredNode]:
        others = tuple(host for host in hosts if host != berth.node.host)
        return berth.node.index, network.of(berth.node, berth.member, seen, alone=not others, others=others)

    with ThreadPoolExecutor(max_workers=min(32, len(berths))) as pool:
        return dict(pool.map(sight, berths, environments))


def _ends_within(standing: Standing, job: Job) -> bool:
    """Whether what a scheduler lent would end before the time limit of a job that a fresh loan can outlive."""
    terms = (berth.member.walltime for berth in standing.berths)
    return any(monotonic() - term.began > term.seconds - job.timeout > 0 for term in terms if term)


def _close(berths: Sequence[Berth], deployment: Deployment) -> None:
    try:
        if berths:
            with ThreadPoolExecutor(max_workers=min(16, len(berths))) as pool:
                list(pool.map(lambda berth: berth.member.close(), berths))
    finally:
        deployment.close()


def identity(job: Job) -> str:
    """Equal for jobs that can have the same nodes."""
    nodes = [replace(node, ranks=0) for node in job.all_nodes]
    return repr((job.matrix, job.axes["placement"], [_of(node) for node in nodes], job.launch_node.index))


def _of(node: Node) -> tuple[object, ...]:
    launcher = node.stack.launcher if node.stack else ""
    # What a scheduler chose is no part of what it is asked for.
    host = "" if _lent(node) else node.host
    asked = (node.hardware.name, node.hardware.settings)
    return node.index, asked, host, node.name, node.reach, node.image, node.container, launcher


def _lent(node: Node) -> bool:
    return runtime_of(node.hardware.runtime).schedules


def rank_programs() -> dict[str, bytes]:
    """Return the programs that ranks execute, by the path below a node's folder."""
    folder = REMOTE
    files = (f for f in folder.iterdir() if f.name.endswith(".py") and not f.name.startswith(_NOT_FOR_RANKS))
    return {f"programs/{file.name}": file.read_bytes() for file in files}


def _opener(node: Node, deployment: Deployment) -> Callable[[], Berth]:
    def open_node() -> Berth:
        member = runtime_of(node.hardware.runtime).open(node, deployment)
        try:
            member.put(rank_programs())
            return Berth(replace(node, host=member.allocated_host) if member.allocated_host else node, member)
        except BaseException:
            member.close()
            raise

    return open_node


def _joined_and_seen(berths: Sequence[Berth], starter: Node) -> tuple[Environment, ...]:
    """Looks at all nodes while they are joined: ssh waits more than it works."""
    with ThreadPoolExecutor(max_workers=min(16, len(berths))) as pool:
        looks = [pool.submit(_look, berth) for berth in berths]
        first = next(berth for berth in berths if berth.node.index == starter.index)
        join(first, [berth for berth in berths if berth is not first])
        return tuple(look.result() for look in looks)


def _look(berth: Berth) -> Environment:
    try:
        host = berth.member.host()
    except NotHere:
        host = _Asked(berth.member)
    environment = inspect.collect(host, inspect.look_for(berth.node))
    told = {name: found(value) for name, value in berth.member.provision_facts.items()}
    return replace(environment, facts={**environment.facts, **told}) if told else environment


class _Asked:
    """As much of a testinfra host as accounting needs, where testinfra is not installed."""

    def __init__(self, member: RemoteNode) -> None:
        self._member = member

    def run(self, command: str, *args: str) -> inspect.Answer:
        """Runs `python3 -c` with these arguments, which is all that `command` ever is."""
        answer = self._member.exec(("python3", "-c", *args), timeout=2 * inspect.TIMEOUT)
        return SimpleNamespace(
            rc=answer.returncode,
            stdout=answer.stdout.decode(errors="replace"),
            stderr=answer.stderr.decode(errors="replace"),
        )


def _together(
    openers: Sequence[Callable[[], Berth]], deployment: Deployment, meanwhile: Callable[[], object]
) -> list[Berth]:
    """Open all side by side, and do something else. If one fails, close the others and raise the first error."""
    pool = ThreadPoolExecutor(max_workers=min(16, len(openers)))
    futures: list[Future[Berth]] = [pool.submit(opener) for opener in openers]
    try:
        inspect.ready()
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
