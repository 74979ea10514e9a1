"""What the nodes of a placement are now, against what they were in the first part of the run.

Libraries on a node can only be seen when the node is there: then no part of the run is to be refused any more, but each
cell that runs among other versions than its neighbours says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.model.facts import display
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.environment import TELLING, SeenPlacement

FIRST = "first-environment.json"
"""Beside `environment.json`, which a further part writes anew: what the first part saw."""
_UNKNOWN = "?"
_CURE = "what was judged before stays; for a verdict on these versions alone start a new run"


class Moved(PreflightWarning):
    """A node is not what it was; a cell may well pass."""

    def __str__(self) -> str:
        return f"{self.node}: {self.why}; {self.remedy}"


def set_first(run: Path) -> None:
    """Keeps what the first part saw of each placement. Raises OSError."""
    for path in (run / "placements").glob("*/environment.json"):
        if not path.with_name(FIRST).exists():
            shutil.copy2(path, path.with_name(FIRST))


def moved(run: Path, now: SeenPlacement) -> Iterator[PreflightWarning]:
    """Each version that a node had in the first part and has not now; nothing in the first part itself."""
    path = environment.path_of(run, now.name).with_name(FIRST)
    if not path.exists():
        return
    try:
        before = environment.read(path)
    except RecordError:
        return
    for name, node in now.nodes.items():
        if name not in before.nodes:
            continue
        for fact in TELLING:
            was, told = (display(one.environment.fact(fact)) for one in (before.nodes[name], node))
            if was != told and _UNKNOWN not in (was, told):
                why = f"{fact} is {told}, but was {was} in the first part of this run"
                yield Moved(Kind.UNKNOWN, name, why, _CURE, certain=False)
