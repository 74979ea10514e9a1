"""Quarantine: nodes that a run stops using, decided from the failures of its jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.errors import ENGINE_AWAY
from pytest_hetgpu.execution.retry.policy import lost_its_engine
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.job import Job, Node
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.events import HealthReported

LIMIT = 2
"""Failures in a row to provision a node before it is quarantined."""

IN_QUARANTINE = " is in quarantine: "
"""Separates the node and its failure in the reason why a cell was not run."""

_NOT_UP = (Kind.LAUNCH_FAILURE, Kind.NETWORK_FAILURE)


@dataclass
class _Record:
    """A node's failures in a row: provisioning, loss, and jobs that did not start for an unknown reason."""

    unready: int = 0
    lost: int = 0
    suspect: int = 0
    partners: set[frozenset[str]] = field(default_factory=set)


def named(kind: str, host: str) -> str:
    """Return the name of a node in a quarantine: `g4ad on 10.0.0.5`, a kind of hardware on a host."""
    return f"{kind} on {host}"


def name_of(node: Node) -> str:
    """Return that name of a node."""
    return named(node.hardware.name, node.host)


def names(job: Job) -> tuple[str, ...]:
    """Return those names of a job's nodes, each once, without nodes of a scheduler, which may allocate others."""
    mine = (node for node in job.all_nodes if not runtime_of(node.hardware.runtime).schedules)
    return tuple(dict.fromkeys(map(name_of, mine)))


def of_error(job: Job, blamed: str, why: str) -> HealthReported:
    """Return the health of nodes that could not be provisioned; `blamed` is the name of the one at fault."""
    found = [node for node in job.all_nodes if blamed == node.name or blamed.startswith(f"{node.name} (")]
    failed = {name_of(node): why for node in found}
    return _health(job, failed, why, came_up=False, ready=False)


def of_run(job: Job, outcome: Outcome, result: RunResult) -> HealthReported:
    """Return the health of nodes after a run: lost, named by its failure, or not started at all.

    Nodes whose container engine was lost have shown nothing.
    """
    failed = {}
    started = bool(outcome.stack)
    if lost_its_engine(outcome) or any(ENGINE_AWAY in line for line in result.lost):
        return _health(job, {}, "", came_up=started and outcome.kind not in _NOT_UP)
    hosts = outcome.signature.hosts if outcome.signature and outcome.kind in _NOT_UP and not started else ()
    for node in job.all_nodes:
        lost = next((line for line in result.lost if line.startswith(f"node {node.name} (")), "")
        if lost:
            failed[name_of(node)] = lost
        elif node.name in hosts and not set(hosts) >= {one.name for one in job.all_nodes}:
            failed[name_of(node)] = outcome.why
    came_up = started and outcome.kind not in _NOT_UP
    failing = outcome.kind in _NOT_UP and outcome.verdict.fails and not started
    return _health(job, failed, outcome.why if failing else "", came_up=came_up)


def _health(job: Job, failed: Mapping[str, str], why: str, *, came_up: bool, ready: bool = True) -> HealthReported:
    """Return the event. If a node is known to have `failed`, the others are not suspect."""
    nodes = names(job)
    blamed = {name: failed[name] for name in failed if name in nodes}
    return HealthReported(job.matrix, job.scenario, nodes, came_up, blamed, "" if failed else why, ready=ready)


def quarantined(seen: Iterable[HealthReported], limit: int = LIMIT) -> dict[str, str]:
    """Return the quarantined nodes in order, each with the reason.

    A node is quarantined after `limit` failures in a row to provision it. It is after one more failure if it was lost,
    or if failures to start name it. So is a node with which as many jobs did not start, while jobs without it do. These
    jobs need at least two different sets of nodes, for one set alone may be at fault.
    """
    records: dict[str, _Record] = {}
    found: dict[str, str] = {}
    up: list[frozenset[str]] = []
    for health in seen:
        company = frozenset(health.nodes)
        if health.came_up:
            up.append(company)
        for node in health.nodes:
            record = records.setdefault(node, _Record())
            _count(record, health, node, company)
            if node not in found:
                why = _why(record, health, node, limit, elsewhere=any(node not in others for others in up))
                found.update({node: f"{why} (cell {health.scenario})"} if why else {})
    return found


def _count(record: _Record, health: HealthReported, node: str, company: frozenset[str]) -> None:
    if node in health.failed:
        if health.ready:
            record.lost += 1
        else:
            record.unready += 1
    elif health.came_up:
        record.unready = record.lost = record.suspect = 0
        record.partners.clear()
    elif health.suspect:
        record.suspect += 1
        record.partners.add(company)


def _why(record: _Record, health: HealthReported, node: str, limit: int, *, elsewhere: bool) -> str:
    if node in health.failed:
        failures = record.unready + record.lost
        if record.unready >= limit or failures > limit:
            return f"{health.failed[node]}, {_times(failures)}"
    elif health.suspect and record.suspect > limit and len(record.partners) > 1 and elsewhere:
        return f"{record.suspect} jobs in a row did not start with it, while others do: {health.suspect}"
    return ""


def _times(count: int) -> str:
    return f"{count} times in a row" if count > 1 else "once"


def describe(found: Mapping[str, str]) -> list[str]:
    """Return one line per quarantined node."""
    return [f"{node}{IN_QUARANTINE}{why}" for node, why in found.items()]
