"""`summary.md`: a run for a reader new to this project. All texts of cells are escaped, cut and redacted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from pytest_hetgpu.execution.retry.quarantine import IN_QUARANTINE
from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.transport_classes import describe_carriers
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import numbers_table
from pytest_hetgpu.reporting.cell_text import (
    Rerun,
    describe_debug_rerun,
    describe_expectation,
    display_kind,
    format_rerun,
    label_known,
)
from pytest_hetgpu.reporting.grid import Grid, carrier_lines, grids
from pytest_hetgpu.store.cells import CellRecord, RunRecord, format_utc
from pytest_hetgpu.store.properties import attempt_lines, describe_flaky
from pytest_hetgpu.store.text import escape_markdown, one_line

T = TypeVar("T")

#: Bytes of the summary: GitHub and GitLab show no more.
LIMIT = 1_000_000
#: Bytes of the parts that can grow.
GRID_BUDGET, DETAILS_BUDGET, SKIPS_BUDGET = 450_000, 350_000, 100_000
MANY_WORKLOADS = 12
LABELS_PER_REASON = 20
MANY_COLUMNS = 200
_LONGEST_SINCE = 1000

SYMBOLS = {
    Verdict.OK: ("✅", "works"),
    Verdict.NEW: ("❌", "new failure"),
    Verdict.CHANGED: ("🟠", "fails, but not as expected"),
    Verdict.FIXED: ("🔧", "works, but was expected to fail"),
    Verdict.KNOWN: ("🟡", "known failure"),
    Verdict.NOT_RUN: ("⚪", "not run"),
}
_QUALIFIERS = {Verdict.NEW: "new", Verdict.CHANGED: "not as expected", Verdict.KNOWN: "known"}
_COUNT_PHRASES = {
    Verdict.OK: ("works", "work"),
    Verdict.NEW: ("is a new failure", "are new failures"),
    Verdict.CHANGED: ("fails, but not as expected", "fail, but not as expected"),
    Verdict.FIXED: ("works, but was expected to fail", "work, but were expected to fail"),
    Verdict.KNOWN: ("is a known failure", "are known failures"),
    Verdict.NOT_RUN: ("was not run", "were not run"),
}
_LINK = re.compile(r"https?://[^\s<>\"`|\\]+")


class CellTexts(NamedTuple):
    """Functions to what the summary has of a cell besides its record."""

    #: from the label of a cell to the path of its log from the summary's folder, or None
    log: Callable[[str], str | None]
    #: the command that runs the cell again
    rerun: Rerun
    #: since when it fails; "" if that is unknown
    since: Callable[[CellRecord], str] = lambda _: ""


def render(record: RunRecord, texts: CellTexts, nodes: Iterable[str] = (), lost: Sequence[str] = ()) -> str:
    """Build the summary of a run. `nodes` are paragraphs on the nodes. `lost` are the cells whose log is missing."""
    parts = [f"# Compatibility of {_list(_matrices(record)) or 'nothing'}", _sentence(record), _totals(record)]
    parts += [
        f"Sample of {escape_markdown(one.matrix)} ({escape_markdown(one.strategy)}): {escape_markdown(one.text)}."
        for one in record.samples.values()
    ]
    parts += _grids(record)
    parts += _not_ok(record, texts)
    parts += _flaky(record)
    parts += _skips(record)
    parts += _quarantine(record)
    parts += numbers_table.paragraphs(record)
    parts += _further(record)
    parts += nodes
    parts += _legend(record)
    parts += _missing_logs(lost)
    return _truncate("\n\n".join(parts) + "\n")


def _further(record: RunRecord) -> Iterator[str]:
    """Yield sections that few runs have."""
    told = any(one.suite or one.concerns or one.notes for one in (cell.outcome for cell in record.cells))
    if record.may_scale or record.bisected or told:
        from pytest_hetgpu.reporting import further_sections

        yield from further_sections.paragraphs(record, escape_markdown)


def code(text: str, limit: int = 300) -> str:
    """Format a text, in one line, as a code span, whatever backticks it holds."""
    line = one_line(text, limit)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _link(text: str) -> str:
    line = one_line(text, 1000)
    return f"<{line}>" if _LINK.fullmatch(line) else escape_markdown(line)


def _truncate(text: str) -> str:
    """Cut a text at the size limit, which unforeseen input (ten thousand columns) may exceed."""
    data = text.encode()
    if len(data) <= LIMIT:
        return text
    kept = data[: LIMIT - 100].decode("utf-8", "ignore").rpartition("\n")[0]
    return f"{kept}\n\n(The rest is left out here; `junit.xml` has every cell.)\n"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(escape_markdown, texts))


def _matrices(record: RunRecord) -> list[str]:
    return list(dict.fromkeys(cell.matrix for cell in record.cells))


def _sentence(record: RunRecord) -> str:
    if record.merged:
        from pytest_hetgpu.reporting.sites import site_lines

        lines = "\n".join(f"- {escape_markdown(line, 1000)}" for line in site_lines(record))
        return f"Runs of {len(record.merged)} sites:\n\n{lines}"
    files = {matrix.name: matrix.file for session in record.sessions for matrix in session.matrices}
    named = [
        f"{escape_markdown(name)} ({code(files[name])})" if name in files else escape_markdown(name)
        for name in _matrices(record)
    ]
    times = [session.started for session in record.sessions[:1]] or [c.started for c in record.cells if c.started]
    hosts = dict.fromkeys(session.host for session in record.sessions)
    stacks = dict.fromkeys(cell.outcome.stack for cell in record.cells if cell.outcome.stack)
    text = f"The matrix {' and '.join(named) or '(none)'} was run"
    text += f" on {format_utc(min(times))}" if times else ""
    taken_up = [format_utc(session.started) for session in record.sessions[1:]]
    text += f" (taken up again on {_list(taken_up)})" if taken_up else ""
    text += f" from the host {_list(hosts)}" if hosts else ""
    return f"{text}, {f'with {_list(stacks)}' if stacks else 'and no rank reported which MPI it loaded'}."


def _totals(record: RunRecord) -> str:
    counted = Counter(cell.outcome.verdict for cell in record.cells)
    parts = [f"{counted[v]} {_COUNT_PHRASES[v][counted[v] != 1]}" for v in SYMBOLS if counted[v]]
    shaky = sum(cell.outcome.flaky for cell in record.cells)
    parts += [f"{shaky} of all {'is' if shaky == 1 else 'are'} flaky"] if shaky else []
    cells = "1 cell" if len(record.cells) == 1 else f"{len(record.cells)} cells"
    return f"**Of {cells}, {', '.join(parts)}.**" if parts else "**No cell was recorded.**"


def _grids(record: RunRecord) -> Iterator[str]:
    yield "## What works, and what does not"
    found = grids(record.cells)
    for grid in found:
        if len(found) > 1:
            yield f"### {escape_markdown(grid.matrix)}"
        heading = [" / ".join(map(escape_markdown, grid.axes)) or "cell", *map(escape_markdown, grid.columns)]
        kept, left = _fit_budget(grid.rows, partial(_row, grid), GRID_BUDGET // len(found))
        yield "\n".join((f"| {' | '.join(heading)} |", "|---" * len(heading) + "|", *kept))
        if left:
            yield f"{left} more rows are left out here; `junit.xml` has every cell."
        if lines := carrier_lines(grid, MANY_COLUMNS):
            yield "\n".join(("The data was carried by:", "", *(f"- {escape_markdown(line)}" for line in lines)))


def _row(grid: Grid, row: str) -> str:
    return f"| {escape_markdown(row)} | {' | '.join(_entries(grid, row, column) for column in grid.columns)} |"


def _entries(grid: Grid, row: str, column: str) -> str:
    """Format the outcome of each workload in one entry of the grid; only count working ones if there are many."""
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
        return f"{symbol} {escape_markdown(workload)}{' (flaky)' if outcome.flaky else ''}"
    if outcome.verdict in _QUALIFIERS:
        meaning = f"{display_kind(outcome.kind)} ({_QUALIFIERS[outcome.verdict]})"
    return f"{symbol} {escape_markdown(workload)}: {meaning}"


def _not_ok(record: RunRecord, texts: CellTexts) -> Iterator[str]:
    budget = DETAILS_BUDGET
    for verdict in (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED, Verdict.KNOWN):
        cells = [cell for cell in record.cells if cell.outcome.verdict is verdict]
        if not cells:
            continue
        symbol, meaning = SYMBOLS[verdict]
        yield f"## {symbol} {meaning.capitalize()}: {len(cells)}"
        kept, left = _fit_budget(cells, lambda cell: "\n".join(_detail_lines(cell, texts)), budget)
        budget -= sum(len(text.encode()) for text in kept)
        yield from kept
        if left:
            yield f"{left} more are left out here; `junit.xml` has every cell."


def _detail_lines(cell: CellRecord, texts: CellTexts) -> Iterator[str]:
    outcome = cell.outcome
    yield f"### {escape_markdown(cell.label)}\n"
    yield f"- {display_kind(outcome.kind)}: {escape_markdown(outcome.why) or 'no reason was given'}"
    if line := texts.since(cell):
        yield f"- {escape_markdown(line, _LONGEST_SINCE)}"
    if outcome.signature:
        yield f"- signature: {code(outcome.signature.key)}"
        yield f"- line {outcome.signature.line} of its log: {code(outcome.signature.primary_line)}"
    if outcome.carried:
        yield f"- data carried by: {escape_markdown(describe_carriers(outcome.carried))}"
    if ranks := rank_outcome.describe(outcome.rank_outcomes):
        yield f"- ranks: {escape_markdown(ranks)}"
    yield from _known_failure_lines(outcome.known)
    if outcome.verdict in (Verdict.CHANGED, Verdict.FIXED):
        yield f"- expected: {code(describe_expectation(outcome.expectation))}"
    if cell.issue:
        yield f"- issue: {_link(cell.issue)}"
    yield from (f"- attempt {number}: {escape_markdown(line)}" for number, line in enumerate(attempt_lines(outcome), 1))
    if outcome.debug:
        yield f"- {escape_markdown(describe_debug_rerun(outcome))}"
    yield from (f"- preflight: {escape_markdown(concern)}" for concern in outcome.concerns)
    yield from (f"- note: {escape_markdown(note)}" for note in outcome.notes)
    yield f"- run just this cell again: {code(format_rerun(cell, texts.rerun), 2000)}"
    if path := texts.log(cell.label):
        stacks = f", [stacks.json]({quote(path.rpartition('/')[0])}/stacks.json)" if _has_stacks(outcome) else ""
        yield f"- log: [output.log]({quote(path)}){stacks}"


def _has_stacks(outcome: Outcome) -> bool:
    """Return whether the stacks of the cell's ranks were dumped, by our own line in the log."""
    lines = (finding.signature.primary_line for finding in outcome.findings if finding.signature)
    return any(line.startswith(("hetgpu: stuck", "hetgpu: slow")) for line in lines)


def _known_failure_lines(known: Iterable[KnownFailure]) -> Iterator[str]:
    """Yield lines on each known failure."""
    for entry in known:
        label = label_known(entry)
        yield f"- {label}, {code(entry.id)}: {escape_markdown(entry.title)}. {escape_markdown(entry.cause)}"
        if entry.unproven:
            yield f"  - proven if {escape_markdown(' and '.join(entry.unproven))}"
        settings = " ".join(code(setting) for setting in entry.typed)
        if entry.fix or settings:
            yield f"  - cure: {' '.join(filter(None, (escape_markdown(entry.fix), settings)))}"
        if entry.links:
            yield f"  - {', '.join(map(_link, entry.links))}"


def _flaky(record: RunRecord) -> Iterator[str]:
    """Yield the cells that failed and then passed: they work, but not reliably."""
    cells = [cell for cell in record.cells if cell.outcome.flaky]
    if not cells:
        return
    yield f"## Flaky: {len(cells)}"
    kept, left = _fit_budget(cells, _attempts, SKIPS_BUDGET)
    yield "\n".join(kept)
    if left:
        yield f"{left} more are left out here; `junit.xml` has every cell."


def _attempts(cell: CellRecord) -> str:
    lines = (
        f"  - attempt {number}: {escape_markdown(line)}" for number, line in enumerate(attempt_lines(cell.outcome), 1)
    )
    return "\n".join((f"- {escape_markdown(cell.label)} {describe_flaky(cell.outcome)}", *lines))


def _quarantine(record: RunRecord) -> Iterator[str]:
    """Yield the nodes in quarantine. Their cells are also listed as not run."""
    reasons = (cell.outcome.why for cell in record.cells if cell.outcome.verdict is Verdict.NOT_RUN)
    nodes = dict.fromkeys(one for why in reasons for one in why.split("; ") if IN_QUARANTINE in one)
    if nodes:
        yield "## Nodes in quarantine"
        yield "\n".join(f"- {escape_markdown(line)}" for line in nodes)


def _skips(record: RunRecord) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in record.cells:
        if cell.outcome.verdict is Verdict.NOT_RUN:
            reasons.setdefault((cell.outcome.why, cell.issue or ""), []).append(cell.label)
    if not reasons:
        return
    yield f"## {SYMBOLS[Verdict.NOT_RUN][0]} Not run: {sum(map(len, reasons.values()))}"
    kept, left = _fit_budget(tuple(reasons.items()), _skip, SKIPS_BUDGET)
    yield "\n".join(kept)
    if left:
        yield f"{left} more reasons are left out here; `junit.xml` has every cell."


def _skip(group: tuple[tuple[str, str], list[str]]) -> str:
    (why, issue), labels = group
    shown = ", ".join(map(escape_markdown, labels[:LABELS_PER_REASON]))
    more = len(labels) - LABELS_PER_REASON
    link = f" ({_link(issue)})" if issue else ""
    return f"- {escape_markdown(why) or 'no reason was given'}{link}: {shown}{f' and {more} more' if more > 0 else ''}"


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
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(record.unread.items()))
        yield f"Lines of the journal that could not be read: {counts}. Cells may be missing here."


def _missing_logs(labels: Sequence[str]) -> Iterator[str]:
    if labels:
        more = f" and {len(labels) - LABELS_PER_REASON} more" if len(labels) > LABELS_PER_REASON else ""
        shown = f"{', '.join(map(escape_markdown, labels[:LABELS_PER_REASON]))}{more}"
        yield f"Logs that are not there any more, so that nothing is quoted from them and no verdict changes: {shown}."


def _fit_budget(items: Sequence[T], text: Callable[[T], str], budget: int) -> tuple[list[str], int]:
    """Return the texts of as many items as fit in `budget` bytes, and the number of items left out."""
    kept: list[str] = []
    for item in items:
        made = text(item)
        budget -= len(made.encode()) + 2
        if budget < 0:
            break
        kept.append(made)
    return kept, len(items) - len(kept)
