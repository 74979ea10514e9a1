"""`issues/KEY.md` of a run: the text of an issue for each signature that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.upstream.projects import file_names
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.environment import PlacementFacts
from pytest_hetgpu.store.files import make_folder, write_atomically
from pytest_hetgpu.store.folder import RunFolder

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.boundary.summary import Summary

FOLDER = "issues"
MOST_ISSUES = 200
_FAILED = (Verdict.NEW, Verdict.CHANGED, Verdict.KNOWN)


def write_issues(
    record: RunRecord,
    folder: RunFolder,
    placements: Iterable[PlacementFacts],
    conditions: Callable[[CellRecord], Summary | None] = lambda _: None,
) -> dict[str, str]:
    """Write the issues, new failures first, and remove those of an earlier judgement. Return the file of each key.

    `conditions` gives the condition under which cells fail as this one does.
    """
    groups: dict[str, list[CellRecord]] = {}
    for verdict in _FAILED:
        for cell in record.cells:
            if cell.outcome.verdict is verdict and cell.outcome.signature:
                groups.setdefault(cell.outcome.signature.key, []).append(cell)
    home, seen = folder.path / FOLDER, tuple(placements)
    names = {key: f"{name}.md" for key, name in file_names(list(groups)[:MOST_ISSUES]).items()}
    wanted = {home / name: groups[key] for key, name in names.items()}
    for old in home.glob("*.md"):
        if old not in wanted:
            old.unlink()
    if wanted:
        from pytest_hetgpu.reporting.upstream.issue import render_issue  # most runs have no issue

        make_folder(home)
        for path, cells in wanted.items():
            write_atomically(path, render_issue(record, folder, cells, seen, conditions(cells[0])).encode())
    return {key: f"{FOLDER}/{name}" for key, name in names.items()}
