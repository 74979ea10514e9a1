"""One issue per signature of new failures, with the text of the upstream issue, and a comment for later runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.analysis.boundary.jobs import StoredJobs
from pytest_hetgpu.analysis.boundary.of_run import with_left_out
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.boundary import boundaries, of_cell
from pytest_hetgpu.reporting.posts.comment import describe_run, run_id
from pytest_hetgpu.reporting.posts.markup import fit, marker, neutral
from pytest_hetgpu.reporting.upstream.issue import render_issue, title
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.text import escape_markdown, neutral_line

_MOST_CELLS = 30


@dataclass(frozen=True, slots=True)
class IssueText:
    """An issue, and the comment for an open issue of the same signature.

    The issue begins with `marker` and `run_marker`, the comment with `run_marker`.
    """

    key: str
    marker: str
    title: str
    body: str
    run_marker: str
    again: str
    #: the number of its cells
    cells: int


def issue_texts(run: Path, record: RunRecord, limit: int, link: str = "") -> Iterator[IssueText]:
    """Yield an issue per signature of cells whose failure is new or not as expected, in the order of the cells.

    A text has at most `limit` characters. `link` leads to the run in CI.
    """
    folder = RunFolder(run)
    placements = environment.read_all(run)
    limits = dict(boundaries(with_left_out(record), StoredJobs([(folder, record.cells)]), record.tried))
    seen = describe_run(run, record, link)
    for key, cells in groups(record).items():
        mark, run_mark = marker("signature", key), marker("run", run_id(run, record), key)
        text = neutral(render_issue(record, folder, cells, placements, of_cell(limits, cells[0])))
        # Not the path of the run, which may have the name of a user.
        pack = markdown.code(f"hetgpu bundle RUN {shlex.quote(key)}", 500)
        head = f"{mark}\n{run_mark}\n{seen} {pack} makes the archive that this text calls attached."
        yield IssueText(
            key,
            mark,
            neutral_line(title(cells[0])),
            fit(f"{head}\n\n{text}", limit),
            run_mark,
            fit(f"{run_mark}\nSeen again. {seen}\n\n{neutral(_cells(cells))}\n", limit),
            len(cells),
        )


def groups(record: RunRecord) -> dict[str, list[CellRecord]]:
    """Return the cells of each signature whose failure is new or not as expected."""
    found: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        if cell.outcome.verdict in (Verdict.NEW, Verdict.CHANGED) and cell.outcome.signature:
            found.setdefault(cell.outcome.signature.key, []).append(cell)
    return found


def _cells(cells: Sequence[CellRecord]) -> str:
    lines = [f"- {markdown.code(cell.label)}: {escape_markdown(cell.outcome.why, 300)}" for cell in cells[:_MOST_CELLS]]
    more = len(cells) - _MOST_CELLS
    return "\n".join((*lines, f"- and {more} more") if more > 0 else lines)
