"""`summary.md`: a run for a person who never saw this project. What is known of a cell is escaped, cut and redacted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from pytest_hetgpu.execution.retry.quarantine import IN_QUARANTINE
from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.transport_classes import describe_carriers
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import scaling_table
from pytest_hetgpu.reporting.cell_text import Rerun, again, debugged, expected, words
from pytest_hetgpu.reporting.grid import Grid, carried, grids
from pytest_hetgpu.store.cells import CellRecord, RunRecord, utc
from pytest_hetgpu.store.properties import before, flaky
from pytest_hetgpu.store.text import escape, one_line

T = TypeVar("T")

# Bytes in all, which GitHub and GitLab still show, and bytes for the parts that can grow.
LIMIT = 1_000_000
GRID_BUDGET, DETAILS_BUDGET, SKIPS_BUDGET = 450_000, 350_000, 100_000
MANY_WORKLOADS = 12
LABELS_A_REASON = 20
MANY_COLUMNS = 200

SYMBOLS = {
    Verdict.OK: ("✅", "works"),
    Verdict.NEW: ("❌", "new failure"),
    Verdict.CHANGED: ("🟠", "fails, but not as expected"),
    Verdict.FIXED: ("🔧", "works, but was expected to fail"),
    Verdict.KNOWN: ("🟡", "known failure"),
    Verdict.NOT_RUN: ("⚪", "not run"),
}
_QUALIFIED = {Verdict.NEW: "new", Verdict.CHANGED: "not as expected", Verdict.KNOWN: "known"}
_COUNTED = {
    Verdict.OK: ("works", "work"),
    Verdict.NEW: ("is a new failure", "are new failures"),
    Verdict.CHANGED: ("fails, but not as expected", "fail, but not as expected"),
    Verdict.FIXED: ("works, but was expected to fail", "work, but were expected to fail"),
    Verdict.KNOWN: ("is a known failure", "are known failures"),
    Verdict.NOT_RUN: ("was not run", "were not run"),
}
_LINK = re.compile(r"https?://[^\s<>\"`|\\]+")


def render(
    record: RunRecord,
    log: Callable[[str], str | None],
    rerun: Rerun,
    nodes: Iterable[str] = (),
    lost: Sequence[str] = (),
) -> str:
    """The summary of a run. `log` gives the path of a cell's log from the summary's folder, None if there is none.

    `nodes` are paragraphs on what the nodes were found to be; `lost` are cells whose log is not there any more.
    """
    parts = [f"# Compatibility of {_list(_matrices(record)) or 'nothing'}", _sentence(record), _totals(record)]
    parts += _grids(record)
    parts += _not_ok(record, log, rerun)
    parts += _flaky(record)
    parts += _skips(record)
    parts += _quarantine(record)
    parts += scaling_table.paragraphs(record, escape)
    parts += nodes
    parts += _legend(record)
    parts += _lost(lost)
    return _cut("\n\n".join(parts) + "\n")


def code(text: str, limit: int = 300) -> str:
    """Text in one line as a code span, whatever backticks it holds."""
    line = one_line(text, limit)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _link(text: str) -> str:
    line = one_line(text, 1000)
    return f"<{line}>" if _LINK.fullmatch(line) else escape(line)


def _cut(text: str) -> str:
    """What no part could foresee, say ten thousand columns, ends here."""
    data = text.encode()
    if len(data) <= LIMIT:
        return text
    kept = data[: LIMIT - 100].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{kept}\n\n(The rest is left out here; `junit.xml` has every cell.)\n"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(escape, texts))


def _matrices(record: RunRecord) -> list[str]:
    return list(dict.fromkeys(cell.matrix for cell in record.cells))


def _sentence(record: RunRecord) -> str:
    files = {matrix.name: matrix.file for session in record.sessions for matrix in session.matrices}
    named = [f"{escape(name)} ({code(files[name])})" if name in files else escape(name) for name in _matrices(record)]
    times = [session.started for session in record.sessions[:1]] or [c.started for c in record.cells if c.started]
    hosts = dict.fromkeys(session.host for session in record.sessions)
    stacks = dict.fromkeys(cell.outcome.stack for cell in record.cells if cell.outcome.stack)
    said = f"The matrix {' and '.join(named) or '(none)'} was run"
    said += f" on {utc(min(times))}" if times else ""
    taken_up = [utc(session.started) for session in record.sessions[1:]]
    said += f" (taken up again on {_list(taken_up)})" if taken_up else ""
    said += f" from the host {_list(hosts)}" if hosts else ""
    return f"{said}, {f'with {_list(stacks)}' if stacks else 'and no rank said which MPI it loaded'}."


def _totals(record: RunRecord) -> str:
    counted = Counter(cell.outcome.verdict for cell in record.cells)
    said = [f"{counted[v]} {_COUNTED[v][counted[v] != 1]}" for v in SYMBOLS if counted[v]]
    shaky = sum(cell.outcome.flaky for cell in record.cells)
    said += [f"{shaky} of all {'is' if shaky == 1 else 'are'} flaky"] if shaky else []
    cells = "1 cell" if len(record.cells) == 1 else f"{len(record.cells)} cells"
    return f"**Of {cells}, {', '.join(said)}.**" if said else "**No cell was recorded.**"


def _grids(record: RunRecord) -> Iterator[str]:
    yield "## What works, and what does not"
    found = grids(record.cells)
    for grid in found:
        if len(found) > 1:
            yield f"### {escape(grid.matrix)}"
        heading = [" / ".join(map(escape, grid.axes)) or "cell", *map(escape, grid.columns)]
        kept, left = _within(grid.rows, partial(_row, grid), GRID_BUDGET // len(found))
        yield "\n".join((f"| {' | '.join(heading)} |", "|---" * len(heading) + "|", *kept))
        if left:
            yield f"{left} more rows are left out here; `junit.xml` has every cell."
        if lines := carried(grid, MANY_COLUMNS):
            yield "\n".join(("The data was carried by:", "", *(f"- {escape(line)}" for line in lines)))


def _row(grid: Grid, row: str) -> str:
    return f"| {escape(row)} | {' | '.join(_entries(grid, row, column) for column in grid.columns)} |"


def _entries(grid: Grid, row: str, column: str) -> str:
    """What became of each workload in a place of the grid; many that work are only counted."""
    found = [(name, grid.cells.get((row, column, name))) for name in grid.workloads]
    present = [(name, outcome) for name, outcome in found if outcome]
    good = sum(outcome.verdict is Verdict.OK for _, outcome in present)
    if len(present) <= MANY_WORKLOADS or not good:
        return "<br>".join(_entry(name, outcome) for name, outcome in present)
    bad = [_entry(name, one) for name, one in present if one.verdict is not Verdict.OK or one.flaky]
    return "<br>".join((f"{SYMBOLS[Verdict.OK][0]} {good} of {len(present)} work", *bad))


def _entry(workload: str, outcome: Outcome) -> str:
    symbol, meaning = SYMBOLS[outcome.verdict]
    if outcome.verdict is Verdict.OK:
        return f"{symbol} {escape(workload)}{' (flaky)' if outcome.flaky else ''}"
    if outcome.verdict in _QUALIFIED:
        meaning = f"{words(outcome.kind)} ({_QUALIFIED[outcome.verdict]})"
    return f"{symbol} {escape(workload)}: {meaning}"


def _not_ok(record: RunRecord, log: Callable[[str], str | None], rerun: Rerun) -> Iterator[str]:
    budget = DETAILS_BUDGET
    for verdict in (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED, Verdict.KNOWN):
        cells = [cell for cell in record.cells if cell.outcome.verdict is verdict]
        if not cells:
            continue
        symbol, meaning = SYMBOLS[verdict]
        yield f"## {symbol} {meaning.capitalize()}: {len(cells)}"
        kept, left = _within(cells, lambda cell: "\n".join(_detail(cell, log(cell.label), rerun)), budget)
        budget -= sum(len(text.encode()) for text in kept)
        yield from kept
        if left:
            yield f"{left} more are left out here; `junit.xml` has every cell."


def _detail(cell: CellRecord, log: str | None, rerun: Rerun) -> Iterator[str]:
    outcome = cell.outcome
    yield f"### {escape(cell.label)}\n"
    yield f"- {words(outcome.kind)}: {escape(outcome.why) or 'no reason was given'}"
    if outcome.signature:
        yield f"- signature: {code(outcome.signature.key)}"
        yield f"- line {outcome.signature.line} of its log: {code(outcome.signature.primary_line)}"
    if outcome.carried:
        yield f"- data carried by: {escape(describe_carriers(outcome.carried))}"
    if ranks := rank_outcome.describe(outcome.fates):
        yield f"- ranks: {escape(ranks)}"
    yield from _known(outcome.known)
    if outcome.verdict in (Verdict.CHANGED, Verdict.FIXED):
        yield f"- expected: {code(expected(outcome.expectation))}"
    if cell.issue:
        yield f"- issue: {_link(cell.issue)}"
    yield from (f"- attempt {number}: {escape(line)}" for number, line in enumerate(before(outcome), 1))
    if outcome.debug:
        yield f"- {escape(debugged(outcome))}"
    yield from (f"- preflight: {escape(concern)}" for concern in outcome.concerns)
    yield from (f"- note: {escape(note)}" for note in outcome.notes)
    yield f"- run just this cell again: {code(again(cell, rerun), 2000)}"
    if log:
        stacks = f", [stacks.json]({quote(log.rpartition('/')[0])}/stacks.json)" if _looked(outcome) else ""
        yield f"- log: [output.log]({quote(log)}){stacks}"


def _looked(outcome: Outcome) -> bool:
    """Whether the stacks of the cell's ranks were taken: a line of ours says so."""
    said = (finding.signature.primary_line for finding in outcome.findings if finding.signature)
    return any(line.startswith(("hetgpu: stuck", "hetgpu: slow")) for line in said)


def _known(known: Iterable[KnownFailure]) -> Iterator[str]:
    """What is established about a failure."""
    for entry in known:
        sure = "" if entry.status == "established" else f" ({entry.status})"
        yield f"- known{sure}, {code(entry.id)}: {escape(entry.title)}. {escape(entry.cause)}"
        settings = " ".join(code(setting) for setting in entry.typed)
        if entry.fix or settings:
            yield f"  - cure: {' '.join(filter(None, (escape(entry.fix), settings)))}"
        if entry.links:
            yield f"  - {', '.join(map(_link, entry.links))}"


def _flaky(record: RunRecord) -> Iterator[str]:
    """Cells that failed and then passed: they work, and are not to be relied on."""
    cells = [cell for cell in record.cells if cell.outcome.flaky]
    if not cells:
        return
    yield f"## Flaky: {len(cells)}"
    kept, left = _within(cells, _attempts, SKIPS_BUDGET)
    yield "\n".join(kept)
    if left:
        yield f"{left} more are left out here; `junit.xml` has every cell."


def _attempts(cell: CellRecord) -> str:
    lines = (f"  - attempt {number}: {escape(line)}" for number, line in enumerate(before(cell.outcome), 1))
    return "\n".join((f"- {escape(cell.label)} {flaky(cell.outcome)}", *lines))


def _quarantine(record: RunRecord) -> Iterator[str]:
    """Nodes that were given up: cells that were not run for that are among those above."""
    reasons = (cell.outcome.why for cell in record.cells if cell.outcome.verdict is Verdict.NOT_RUN)
    nodes = dict.fromkeys(one for why in reasons for one in why.split("; ") if IN_QUARANTINE in one)
    if nodes:
        yield "## Nodes in quarantine"
        yield "\n".join(f"- {escape(line)}" for line in nodes)


def _skips(record: RunRecord) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in record.cells:
        if cell.outcome.verdict is Verdict.NOT_RUN:
            reasons.setdefault((cell.outcome.why, cell.issue or ""), []).append(cell.label)
    if not reasons:
        return
    yield f"## {SYMBOLS[Verdict.NOT_RUN][0]} Not run: {sum(map(len, reasons.values()))}"
    kept, left = _within(tuple(reasons.items()), _skip, SKIPS_BUDGET)
    yield "\n".join(kept)
    if left:
        yield f"{left} more reasons are left out here; `junit.xml` has every cell."


def _skip(group: tuple[tuple[str, str], list[str]]) -> str:
    (why, issue), labels = group
    shown = ", ".join(map(escape, labels[:LABELS_A_REASON]))
    more = len(labels) - LABELS_A_REASON
    link = f" ({_link(issue)})" if issue else ""
    return f"- {escape(why) or 'no reason was given'}{link}: {shown}{f' and {more} more' if more > 0 else ''}"


def _legend(record: RunRecord) -> Iterator[str]:
    yield "## How to read this"
    yield (
        "A cell is one parallel job: a *workload* (what its processes do) over a *transport* (the software path that "
        "carries their data) on a *placement* (the kinds of machine that take part)."
    )
    yield "\n".join(f"- {symbol} {meaning}" for symbol, meaning in SYMBOLS.values())
    yield (
        "A *signature* names a failure without addresses, process ids, hosts or dates, so equal bugs have equal "
        "signatures. A known failure is one that the matrix file expects."
    )
    if record.unread:
        said = ", ".join(f"{count} {reason}" for reason, count in sorted(record.unread.items()))
        yield f"Lines of the journal that could not be read: {said}."


def _lost(labels: Sequence[str]) -> Iterator[str]:
    if labels:
        more = f" and {len(labels) - LABELS_A_REASON} more" if len(labels) > LABELS_A_REASON else ""
        shown = f"{', '.join(map(escape, labels[:LABELS_A_REASON]))}{more}"
        yield f"Logs that are not there any more, so that nothing is quoted from them and no verdict changes: {shown}."


def _within(items: Sequence[T], text: Callable[[T], str], budget: int) -> tuple[list[str], int]:
    """The texts of as many items as fit in `budget` bytes, from the first on, and how many items are left."""
    kept: list[str] = []
    for item in items:
        made = text(item)
        budget -= len(made.encode()) + 2
        if budget < 0:
            break
        kept.append(made)
    return kept, len(items) - len(kept)
