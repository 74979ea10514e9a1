"""Tests as tasks: which hosts each needs, how long it took before."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence

from pytest_hetgpu.config.inventory.hosts import HERE, Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.execution.retry.quarantine import named
from pytest_hetgpu.extensions.runtimes.lookup import runtime_of
from pytest_hetgpu.model.job import Hardware, Scenario
from pytest_hetgpu.session.xdist.waiting import Task

Seconds = Mapping[tuple[str, str], float]
"""Seconds that a cell took, by matrix and id."""

Nodes = tuple[frozenset[str], frozenset[str]]
"""The hosts that a cell occupies, and the names of its nodes in a quarantine."""

_NONE: Nodes = frozenset(), frozenset()
HERE_NAME = "localhost"
_PARAMETERS = re.compile(r"\[(.*)\]$", re.DOTALL)


def tasks(
    collection: Sequence[str],
    cells: Sequence[Scenario],
    nodes: Callable[[Scenario], Nodes],
    seconds: Seconds,
) -> list[Task]:
    """Return a task for each test of pytest's `collection` of node ids.

    A test of none of the `cells` needs no host. A cell without a history is expected to take the median time.
    """
    labels = {cell.label: cell for cell in cells}
    usual = statistics.median(seconds.values()) if seconds else 1.0
    made = []
    for index, nodeid in enumerate(collection):
        cell = _cell(nodeid, labels)
        if cell is None:
            made.append(Task(index))
            continue
        group = (cell.matrix, cell.value("placement"))
        hosts, names = nodes(cell)
        made.append(Task(index, hosts, seconds.get((cell.matrix, cell.id), usual), group, names))
    return made


def nodes_of(matrices: Mapping[str, Matrix], inventory: Inventory) -> Callable[[Scenario], Nodes]:
    """Return a function that returns the nodes of a cell: none if the matrix or the inventory skips it."""
    known: dict[tuple[str, tuple[str, ...]], Nodes] = {}

    def nodes(cell: Scenario) -> Nodes:
        if cell.excluded:
            return _NONE
        matrix = matrices[cell.matrix]
        try:
            kinds = matrix.settings(cell.values).hardware
            key = (cell.matrix, tuple(kinds))
            if key not in known:
                kinds_of = tuple(matrix.hardware[kind] for kind in kinds)
                bound = inventory.bind(kinds_of)
                both = zip(kinds_of, bound, strict=True)
                # What a scheduler gives, it gives to one job alone, and may give another the next time.
                pairs = [(kind, host) for kind, host in both if not runtime_of(kind.runtime).schedules]
                hosts = frozenset(_machine(kind, host) for kind, host in pairs)
                known[key] = hosts, frozenset(named(kind.name, host.address) for kind, host in pairs)
        except HetgpuError:
            return _NONE
        return known[key]

    return nodes


def _machine(kind: Hardware, host: Host) -> str:
    """Return the machine of a node. Processes of this session run here, whatever the inventory calls this machine."""
    return HERE_NAME if kind.runtime == "local" or host.address in HERE else host.address


def _cell(nodeid: str, labels: Mapping[str, Scenario]) -> Scenario | None:
    """Return the cell of a test: its parameters are the cell's label, or contain it."""
    found = _PARAMETERS.search(nodeid)
    if not found:
        return None
    if found[1] in labels:
        return labels[found[1]]
    words = found[1].split("-")
    parts = ("-".join(words[start:end]) for start in range(len(words)) for end in range(len(words), start, -1))
    return next((labels[part] for part in parts if part in labels), None)
