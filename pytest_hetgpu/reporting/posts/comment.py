"""The comment on a pull request: which cells are new failures, fail in another way, or work again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.cell_text import describe_expectation, display_kind
from pytest_hetgpu.reporting.posts.markup import fit, marker
from pytest_hetgpu.store.cells import CellRecord, RunRecord, format_utc
from pytest_hetgpu.store.text import escape_markdown, neutral_line

_NEWS = {Verdict.NEW: "new", Verdict.CHANGED: "changed", Verdict.FIXED: "fixed"}
_WORDS = {**_NEWS, Verdict.KNOWN: "known", Verdict.OK: "ok", Verdict.NOT_RUN: "not run"}
_ADDRESS = re.compile(r"https?://[^\s<>\"`|\\\[\]()]+")
_FRAME = 2000
"""Characters of the comment besides its rows."""


@dataclass(frozen=True, slots=True)
class CommentText:
    """The comment: its first line is `marker`. `news` is False if nothing is new."""

    marker: str
    body: str
    news: bool


def render_comment(run: Path, record: RunRecord, limit: int, *, name: str = "", link: str = "") -> CommentText:
    """Render the comment of a run in at most `limit` characters.

    Jobs that run the same matrices beside each other need a `name` each, as one comment per name is kept. `link` leads
    to the run in CI.
    """
    matrices = sorted({cell.matrix for cell in record.cells})
    mark = marker("comment", name, *matrices)
    counted = Counter(cell.outcome.verdict for cell in record.cells)
    news = ", ".join(f"{counted[verdict]} {word}" for verdict, word in _NEWS.items() if counted[verdict])
    title = f"{escape_markdown(name)}: " if name else ""
    parts = [f"{mark}\n### pytest-hetgpu: {neutral_line(title)}{news or 'nothing new'}"]
    if news:
        parts.append("\n".join(_table(record, len(matrices) > 1, limit - _FRAME)))
    parts.append(f"{neutral_line(_totals(counted, matrices))} {describe_run(run, record, link)}")
    return CommentText(mark, fit("\n\n".join(parts) + "\n", limit), bool(news))


def _table(record: RunRecord, named: bool, budget: int) -> Iterator[str]:
    yield "| | cell | outcome | signature |"
    yield "|---|---|---|---|"
    cells = [cell for verdict in _NEWS for cell in record.cells if cell.outcome.verdict is verdict]
    for place, cell in enumerate(cells):
        row = neutral_line(_row(cell, named))
        budget -= len(row) + 1
        if budget < 0:
            yield f"\n{len(cells) - place} more are left out here."
            return
        yield row


def _row(cell: CellRecord, named: bool) -> str:
    outcome = cell.outcome
    symbol = markdown.SYMBOLS[outcome.verdict][0]
    label = escape_markdown(f"{cell.matrix}: {cell.label}" if named else cell.label, 200)
    what = display_kind(outcome.kind)
    if outcome.verdict is not Verdict.NEW:
        what += f", expected {describe_expectation(outcome.expectation)}"
    elif outcome.why:
        what += f": {outcome.why}"
    # A table ends an entry at a bar, also at one in code.
    key = markdown.code(outcome.signature.key, 200).replace("|", r"\|") if outcome.signature else ""
    return f"| {symbol} {_WORDS[outcome.verdict]} | {label} | {escape_markdown(what, 200)} | {key} |"


def _totals(counted: Counter[Verdict], matrices: list[str]) -> str:
    words = ", ".join(f"{counted[verdict]} {word}" for verdict, word in _WORDS.items() if counted[verdict])
    named = ", ".join(escape_markdown(one, 100) for one in matrices[:10])
    return f"Cells of {named or 'no matrix'}: {words or 'none'}."


def describe_run(run: Path, record: RunRecord, link: str) -> str:
    """Name a run, its time and its address in CI, as Markdown."""
    when = f", {format_utc(record.sessions[0].started)}" if record.sessions else ""
    there = f" ([in CI]({check_link(link)}))" if link else ""
    return f"Run {markdown.code(run_id(run, record), 100)}{when}{there}."


def run_id(run: Path, record: RunRecord) -> str:
    """Return the id of a run, also if its folder was copied."""
    return next((session.id for session in record.sessions if session.id), run.resolve().name)


def check_link(link: str) -> str:
    """Return a web address. Raise UsageError for any other text."""
    if not _ADDRESS.fullmatch(link):
        raise UsageError(f"--link: {link!r} is not a web address")
    return link
