"""The table of nodes in the summary: the facts of each node, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytest_hetgpu.model.facts import display
from pytest_hetgpu.store.environment import SUMMARY_FACTS, NodeFacts, PlacementFacts
from pytest_hetgpu.store.text import escape_markdown

#: Bytes of all placements together.
BUDGET = 100_000
#: Characters of one value.
WIDEST = 80


def render(placements: Sequence[PlacementFacts]) -> Iterator[str]:
    """Yield the section on nodes in paragraphs; nothing if no node was inspected."""
    placements = [placement for placement in placements if placement.nodes]
    if not placements:
        return
    yield "## What the nodes are"
    yield "`≠` marks what differs between the nodes of a placement, `-` what is not there, `?` what is not known."
    budget = BUDGET
    for left, placement in enumerate(placements):
        text = "\n".join(_table(placement))
        budget -= len(text.encode())
        if budget < 0:
            yield f"{len(placements) - left} more placements are left out here; see `placements/*/environment.json`."
            return
        yield f"### {escape_markdown(placement.name)}"
        yield text


def _table(placement: PlacementFacts) -> Iterator[str]:
    nodes = placement.nodes
    differing = {row.fact: row.values for row in placement.skew}
    heading = [
        f"{escape_markdown(name)} ({escape_markdown(node.hardware)} on {escape_markdown(node.host)})"
        for name, node in nodes.items()
    ]
    yield f"| | {' | '.join(heading)} |"
    yield "|---" * (len(nodes) + 1) + "|"
    for fact in dict.fromkeys((*_summary_facts(nodes.values()), *differing)):
        values = differing.get(fact) or tuple(display(node.environment.fact(fact)) for node in nodes.values())
        mark = "≠ " if fact in differing else ""
        yield f"| {mark}{escape_markdown(fact)} | {' | '.join(map(_table_cell, values))} |"


def _summary_facts(nodes: Iterable[NodeFacts]) -> Iterator[str]:
    """Return the summary facts that some node has."""
    environments = [node.environment for node in nodes]
    return (name for name in SUMMARY_FACTS if any(environment.text(name) for environment in environments))


def _table_cell(value: str) -> str:
    return escape_markdown(value if len(value) <= WIDEST else f"{value[: WIDEST - 3]}...")
