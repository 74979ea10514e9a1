"""Changes of a placement's nodes since the first part of the run.

Libraries can be inspected only on a running node. It is too late to refuse the resume then. But each cell that runs
with other versions than earlier cells has a warning.
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
from pytest_hetgpu.store.environment import SUMMARY_FACTS, PlacementFacts

FIRST = "first-environment.json"
"""The facts that the first part saw. Each further part overwrites `environment.json` beside it."""
_UNKNOWN = "?"
_REMEDY = "what was judged before stays; for a verdict on these versions alone start a new run"


class DriftWarning(PreflightWarning):
    """A warning about a changed node. The cell may pass."""

    def __str__(self) -> str:
        return f"{self.node}: {self.why}; {self.remedy}"


def keep_first_facts(run: Path) -> None:
    """Copy the facts that the first part saw of each placement. Raise OSError."""
    for path in (run / "placements").glob("*/environment.json"):
        if not path.with_name(FIRST).exists():
            shutil.copy2(path, path.with_name(FIRST))


def drift_since_start(run: Path, now: PlacementFacts) -> Iterator[PreflightWarning]:
    """Yield each version that a node had in the first part and has no more. The first part has none."""
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
        for fact in SUMMARY_FACTS:
            was, current = (display(one.environment.fact(fact)) for one in (before.nodes[name], node))
            if was != current and _UNKNOWN not in (was, current):
                why = f"{fact} is {current}, but was {was} in the first part of this run"
                yield DriftWarning(Kind.UNKNOWN, name, why, _REMEDY, certain=False)
