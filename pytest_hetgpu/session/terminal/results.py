"""The results in the terminal: a line per finished cell, a table at the end, and the path of the reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.execution.retry.quarantine import IN_QUARANTINE
from pytest_hetgpu.model.bandwidth_text import gbs, percent
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.table import table
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.properties import CellPairs, from_pairs
from pytest_hetgpu.store.run_summary import PastCell
from pytest_hetgpu.store.text import shown

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.compare.sides import Side

MARKUP = {
    Verdict.OK: {"green": True},
    Verdict.KNOWN: {"yellow": True},
    Verdict.NEW: {"red": True},
    Verdict.CHANGED: {"red": True},
    Verdict.FIXED: {"red": True},
    Verdict.NOT_RUN: {"cyan": True},
}
MOST_FEARS = 8
LEAST_SHARE = 0.001
_BANDWIDTHS = ("busbw", "bandwidth", "bidirectional_bandwidth", "aggregate_bandwidth")
_UNRUN = re.compile(rf"{IN_QUARANTINE}|the run's time was spent")
_LEFT = ("index.html", "summary.md", "junit.xml", "journal/", "scenarios/")
_METRIC = re.compile(r"(\w+)\[(\d+),(\w+)(,in)?\]")


class TerminalReporter:
    """Hooks of the process that has the terminal: a line per cell, and the summary.

    `reports` is the folder of the run. The summary compares the run with `before`: a side of a comparison, or the
    history that has the run before. `resumed` is a line about the resumed run, `trouble` are warnings for the end.
    """

    def __init__(
        self,
        config: Any,
        cells: Sequence[Scenario],
        reports: Path,
        before: Side | Path | None = None,
        resumed: str = "",
    ) -> None:
        self.config = config
        self.cells = {(cell.matrix, cell.label): cell for cell in cells}
        self.reports = reports
        self.seen: dict[tuple[str, str], CellPairs] = {}
        self.trouble: list[str] = []
        self.added: list[str] = []
        self.resumed = [resumed] if resumed else []
        self.before = before
        self.others = 0
        self.started = False
        self.width = min(60, max((len(cell.label) for cell in cells), default=0))

    def warn(self, *lines: str) -> None:
        """Add warnings to the summary."""
        self.trouble += lines

    def add_lines(self, lines: Iterable[str]) -> None:
        """Add lines of `pytest_hetgpu_report` to the summary."""
        self.added += lines

    def move(self, reports: Path, why: str) -> None:
        """Take over the new place of a run folder that was moved or deleted. There is nothing to compare with."""
        self.reports, self.before = reports, None
        self.warn(why)

    @property
    def nothing_ran(self) -> bool:
        """Whether there were cells and neither one of them nor any other test was run."""
        return bool(self.seen) and not self.others and all(p.verdict is Verdict.NOT_RUN for p in self.seen.values())

    def pytest_report_header(self) -> list[str]:
        """Return the line about the resumed run."""
        return self.resumed

    def pytest_report_teststatus(self, report: Any, config: Any) -> tuple[str, str, Any] | None:
        """Leave the line to `pytest_runtest_logreport`, except with -v (our line is the word) and -q (letters)."""
        pairs = cell_pairs(report)
        verbosity = config.get_verbosity()
        if pairs is None or verbosity < 0 or report.when == "teardown":
            return None
        category, word = _category(report)
        if verbosity > 0:
            word = f"{word} {verdict(pairs)} {said(pairs).strip()}"
        return category, "", (word, markup(pairs))

    def pytest_runtest_logreport(self, report: Any) -> None:
        pairs = cell_pairs(report)
        if pairs is None:
            self.others += report.when == "call" and report.passed
        elif report.when != "teardown":
            self.seen[pairs.matrix, pairs.scenario] = pairs
            if not self.config.get_verbosity():
                self.show(report, pairs)

    def show(self, report: Any, pairs: CellPairs) -> None:
        """Print the line of a finished cell."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        if not self.started:
            terminal.ensure_newline()
            self.started = True
        self.config.get_terminal_writer().line(self.line(pairs), **markup(pairs))
        # Our lines end themselves; pytest need not print the file's name before each.
        terminal.currentfspath = self.config.rootpath / report.nodeid.split("::")[0]

    def line(self, pairs: CellPairs) -> str:
        """Return `ok       two-ranks-ob1-tcp-allreduce   0.9 s  busbw 1.32 GB/s at 4M float32`."""
        told = f"{said(pairs)}{'  (kept)' * bool(pairs.kept)}"
        return f"{verdict(pairs):8} {pairs.scenario:{self.width}} {told}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table, the warnings, the changes and the path of the reports."""
        writer = terminalreporter
        if not (self.seen or self.trouble or self.added or self.resumed):
            return
        cells = [record(cell, self.seen[key]) for key, cell in self.cells.items() if key in self.seen]
        writer.write_sep("=", "hetgpu")
        for row in table(cells):
            for text, markup in row:
                writer.write(text, **markup)
            writer.write("\n")
        for line, markup in self.wires():
            writer.write_line(line, **markup)
        for line in self.resumed:
            writer.write_line(line)
        seen = self.seen.values()
        for line in (*flaky(seen), *unrun(seen), *feared(seen), *noted(seen), *self.trouble):
            writer.write_line(line, yellow=True)
        for line, markup in self.news():
            writer.write_line(line, **markup)
        for line in self.added:
            writer.write_line(line)
        if self.reports.is_dir():  # one that was deleted is named by what is said of that
            there = ", ".join(name for name in _LEFT if (self.reports / name).exists())
            writer.write_line(f"reports: {shown(self.reports)}{f'  ({there})' if there else ''}")

    def news(self) -> Iterator[tuple[str, dict[str, bool]]]:
        """Yield unexpected outcomes and changes since the run before; with -q only unexpected outcomes."""
        from pytest_hetgpu.session.terminal import changes

        yield from changes.unexpected(self.seen.values())
        side = self.side() if self.seen and self.config.get_verbosity() >= 0 else None
        if side:
            labels = {(cell.matrix, cell.id): cell.label for cell in self.cells.values()}
            now = {(key[0], cell.id): was(cell, self.seen[key]) for key, cell in self.cells.items() if key in self.seen}
            yield from changes.since(side, now, labels)

    def side(self) -> Side | None:
        """Return the side of the comparison that this run is compared with."""
        if not isinstance(self.before, Path):
            return self.before
        from pytest_hetgpu.analysis.compare.sides import Side
        from pytest_hetgpu.store import history

        found = history.before(self.before, self.reports.name, {matrix for matrix, _ in self.seen})
        return Side(found.id, (found,)) if found else None

    def wires(self) -> Iterator[tuple[str, dict[str, bool]]]:
        """Yield a line per placement about the bandwidth between its nodes, or about the reason why none is known."""
        known = {}
        for key, pairs in self.seen.items():
            if pairs.wire_told and key in self.cells:
                # The last word: where a node was lost meanwhile, a later cell may know.
                known[key[0], self.cells[key].value("placement")] = pairs
        for (_, placement), pairs in known.items():
            limit = f"{gbs(pairs.wire)} GB/s, " if pairs.wire else ""
            yield f"wire of {placement}: {limit}{pairs.wire_told}", {} if pairs.wire else {"yellow": True}


def verdict(pairs: CellPairs) -> str:
    """Return the first word of a cell's line."""
    return "flaky" if pairs.flaky and pairs.verdict is Verdict.OK else pairs.verdict.value.replace("_", " ")


def markup(pairs: CellPairs) -> Mapping[str, bool]:
    """Return the colour of that line."""
    return {"yellow": True} if verdict(pairs) == "flaky" else MARKUP[pairs.verdict]


def flaky(seen: Iterable[CellPairs]) -> Iterator[str]:
    """Yield the cells that failed and then passed."""
    found = [f"{pairs.scenario} {pairs.flaky}" for pairs in seen if pairs.flaky]
    yield from (f"flaky: {one}" for one in found[:MOST_FEARS])
    if len(found) > MOST_FEARS:
        yield f"flaky: {len(found) - MOST_FEARS} more, see summary.md"


def unrun(seen: Iterable[CellPairs]) -> Iterator[str]:
    """Yield cells that were not run because of a quarantine, or because the time of the run was over."""
    why = Counter(pairs.why for pairs in seen if pairs.verdict is Verdict.NOT_RUN and _UNRUN.search(pairs.why))
    yield from (f"{one} [{cells} cell{'s' * (cells > 1)} not run]" for one, cells in why.most_common(MOST_FEARS))


def feared(seen: Iterable[CellPairs]) -> Iterator[str]:
    """Yield each warning of preflight once, with its number of cells."""
    return _counted("preflight", "preflight", (pairs.preflight for pairs in seen))


def noted(seen: Iterable[CellPairs]) -> Iterator[str]:
    """Yield each note about cells once, with its number of cells."""
    return _counted("note", "notes", (pairs.notes for pairs in seen))


def _counted(word: str, name: str, said: Iterable[str]) -> Iterator[str]:
    found = Counter(one for text in said for one in text.split(" | ") if one)
    for one, cells in found.most_common(MOST_FEARS):
        yield f"{word}: {one} [{cells} cell{'s' * (cells > 1)}]"
    if len(found) > MOST_FEARS:
        yield f"{word}: {len(found) - MOST_FEARS} more, as the property `{name}` of their cells"


def record(cell: Scenario, pairs: CellPairs) -> CellRecord:
    """Return a cell for the table, from the properties of its report."""
    outcome = Outcome(pairs.kind, pairs.verdict, carried=pairs.carried)
    return CellRecord(cell.matrix, cell.id, cell.label, dict(zip(cell.axes, cell.values, strict=True)), outcome=outcome)


def was(cell: Scenario, pairs: CellPairs) -> PastCell:
    """Return a cell for a comparison."""
    return PastCell(cell.matrix, cell.id, pairs.kind, pairs.verdict, signature=pairs.signature or "", why=pairs.why)


def said(pairs: CellPairs) -> str:
    """Return seconds, then bandwidth or signature or reason."""
    if pairs.verdict is Verdict.NOT_RUN:
        return pairs.why
    detail = best(pairs) if pairs.kind.value == "passed" else ""
    if pairs.flaky:
        detail = f"{pairs.flaky}; {detail}".removesuffix("; ")
    if pairs.kind.value != "passed":
        detail = f"{pairs.kind.value}: {pairs.signature or pairs.why}"
    elif pairs.verdict.fails:
        detail = pairs.why
    return f"{pairs.seconds:6.1f} s  {detail}".rstrip()


def best(pairs: CellPairs) -> str:
    """Return the highest bus bandwidth, else the highest of the first kind, and the latency of the smallest message."""
    found = [
        (m[1], int(m[2]), m[3] + " in place" * bool(m[4]), value)
        for name, value in pairs.measurements.items()
        if (m := _METRIC.fullmatch(name))
    ]
    kind = next((kind for kind in _BANDWIDTHS if any(metric == kind for metric, *_ in found)), "")
    bandwidths = [(value, size, dtype) for metric, size, dtype, value in found if metric == kind]
    latencies = [(size, value, dtype) for metric, size, dtype, value in found if metric == "latency"]
    parts = []
    if bandwidths:
        value, size, dtype = max(bandwidths)
        # Where small messages are all there is, nothing is said of the wire.
        fraction = value / pairs.wire if pairs.wire else 0.0
        share = f" ({percent(fraction)} of the wire)" if fraction >= LEAST_SHARE else ""
        parts.append(f"{kind.replace('_', ' ')} {value:.2f} GB/s at {show_size(size)} {dtype}{share}")
    if latencies:
        size, value, dtype = min(latencies)
        parts.append(f"latency {value:.1f} us" + (f" at {show_size(size)}" if size else ""))
    return ", ".join(parts)


def cell_pairs(report: Any) -> CellPairs | None:
    """Return the properties of a cell from its report; None without an outcome."""
    return from_pairs((str(name), value) for name, value in getattr(report, "user_properties", ()))


def _category(report: Any) -> tuple[str, str]:
    """Return pytest's own category and word."""
    if hasattr(report, "wasxfail"):
        return ("xfailed", "XFAIL") if report.skipped else ("xpassed", "XPASS")
    if report.failed and report.when == "setup":
        return "error", "ERROR"
    return str(report.outcome), str(report.outcome).upper()
