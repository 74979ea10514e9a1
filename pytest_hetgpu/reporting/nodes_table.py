"""The table of nodes in the summary: facts per node, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytest_hetgpu.model.facts import display
from pytest_hetgpu.store.environment import TELLING, SeenNode, SeenPlacement
from pytest_hetgpu.store.text import escape

# Bytes of the summary that all placements together may take, and letters of one value.
BUDGET = 100_000


WIDEST = 80


def lines(placements: Sequence[SeenPlacement]) -> Iterator[str]:
    """The summary's section on the nodes, a paragraph at a time; nothing where no node was looked at."""
    placements = [placement for placement in placements if placement.nodes]
    if not placements:
        return
    yield "## What the nodes are"
    yield "`≠` marks what differs between the nodes of a placement, `-` what is not there, `?` what could not be told."
    budget = BUDGET
    for left, placement in enumerate(placements):
        text = "\n".join(_table(placement))
        budget -= len(text.encode())
        if budget < 0:
            yield f"{len(placements) - left} more placements are left out here; see `placements/*/environment.json`."
            return
        yield f"### {escape(placement.name)}"
        yield text


def _table(placement: SeenPlacement) -> Iterator[str]:
    nodes = placement.nodes
    differing = {row.fact: row.values for row in placement.skew}
    heading = [f"{escape(name)} ({escape(node.hardware)} on {escape(node.host)})" for name, node in nodes.items()]
    yield f"| | {' | '.join(heading)} |"
    yield "|---" * (len(nodes) + 1) + "|"
    for fact in dict.fromkeys((*_told(nodes.values()), *differing)):
        values = differing.get(fact) or tuple(display(node.environment.fact(fact)) for node in nodes.values())
        mark = "≠ " if fact in differing else ""
        yield f"| {mark}{escape(fact)} | {' | '.join(map(_cell, values))} |"


def _told(nodes: Iterable[SeenNode]) -> Iterator[str]:
    """The telling facts that some node has."""
    environments = [node.environment for node in nodes]
    return (name for name in TELLING if any(environment.text(name) for environment in environments))


def _cell(value: str) -> str:
    return escape(value if len(value) <= WIDEST else f"{value[: WIDEST - 3]}...")
