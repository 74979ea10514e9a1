"""The results in the terminal: a line per finished cell, a table at the end, and the path of the reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.model.bandwidth_text import gbs
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.table import table
from pytest_hetgpu.session.terminal.lines import details, flaky, markup, not_run, notes, verdict, warnings
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.properties import CellProperties, from_properties
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.run_summary import CellSummary
from pytest_hetgpu.store.text import display_path, printable

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.compare.sides import Side
    from pytest_hetgpu.store.history_place import HistoryPlace

BOUNDARIES = "boundary.json"
_NAME = 11
_LEFT = ("index.html", "summary.md", "junit.xml", "journal/", "scenarios/")


class TerminalReporter:
    """Hooks of the process that has the terminal: a line per cell, and the summary.

    `reports` is the folder of the run. The summary compares the run with `before`: a side of a comparison, or the
    history that has the run before. `told` are lines about the run, `trouble` are warnings for the end.
    """

    def __init__(
        self,
        config: Any,
        cells: Sequence[Scenario],
        reports: Path,
        before: Side | HistoryPlace | None = None,
        told: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.cells = {(cell.matrix, cell.label): cell for cell in cells}
        self.reports = reports
        self.seen: dict[tuple[str, str], CellProperties] = {}
        self.trouble: list[str] = []
        self.added: list[str] = []
        self.told = list(told)
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

    @property
    def cut_short(self) -> bool:
        """Whether the end of the run cut a cell short, which then has no verdict of its own."""
        return any(p.kind is Kind.UNKNOWN and p.verdict is Verdict.NOT_RUN for p in self.seen.values())

    def pytest_report_header(self) -> list[str]:
        """Return the lines about a resumed run and samples."""
        return self.told

    def pytest_report_teststatus(self, report: Any, config: Any) -> tuple[str, str, Any] | None:
        """Leave the line to `pytest_runtest_logreport`, except with -v (our line is the word) and -q (letters)."""
        verbosity = config.get_verbosity()
        pairs = None if verbosity < 0 or report.when == "teardown" else cell_pairs(report)
        if pairs is None:
            return None
        category, word = _category(report)
        if verbosity > 0:
            word = printable(f"{word} {verdict(pairs)} {details(pairs).strip()}")
        return category, "", (word, markup(pairs))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "teardown":
            return
        pairs = cell_pairs(report)
        if pairs is None:
            self.others += report.when == "call" and report.passed
        else:
            self.seen[pairs.matrix, pairs.scenario] = pairs
            if not self.config.get_verbosity():
                self.show(report, pairs)

    def show(self, report: Any, pairs: CellProperties) -> None:
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

    def announce(self, label: str, line: str) -> None:
        """Print a line about a further run of a cell, which has ended."""
        view = self.config.pluginmanager.get_plugin("hetgpu-watching")
        if view is not None:
            view.screen.end(label)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and self.config.get_verbosity() >= 0:
            terminal.ensure_newline()
            terminal.write_line(printable(redact(line)))

    def line(self, pairs: CellProperties) -> str:
        """Return `ok       two-ranks-ob1-tcp-allreduce   0.9 s  busbw 1.32 GB/s at 4M float32`."""
        told = f"{details(pairs)}{'  (kept)' * bool(pairs.kept)}"
        return printable(f"{verdict(pairs):8} {pairs.scenario:{self.width}} {told}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table, the warnings, the changes and the path of the reports."""
        if not (self.seen or self.trouble or self.added or self.told):
            return
        cells = [record(cell, self.seen[key]) for key, cell in self.cells.items() if key in self.seen]
        writer = terminalreporter
        writer.write_sep("=", "hetgpu")
        for row in table(cells):
            for text, colours in row:
                writer.write(text, **colours)
            writer.write("\n")
        for line, colours in self._summary():
            writer.write_line(printable(line), **colours)
        if self.reports.is_dir():  # one that was deleted is named by what is said of that
            there = ", ".join(name for name in _LEFT if (self.reports / name).exists())
            writer.write_line(f"reports: {display_path(self.reports)}{f'  ({there})' if there else ''}")

    def _summary(self) -> Iterator[tuple[str, dict[str, bool]]]:
        """Yield the lines between the table and the path of the reports."""
        yield from self.links()
        yield from ((line, {}) for line in self.told)
        seen = self.seen.values()
        yield from (
            (line, {"yellow": True})
            for line in (*flaky(seen), *not_run(seen), *warnings(seen), *notes(seen), *self.trouble)
        )
        yield from self.news()
        yield from ((line, {}) for line in (*self.boundaries(), *self.added))

    def boundaries(self) -> Iterator[str]:
        """Yield where cells fail, as the reports have it; nothing with -q."""
        path = self.reports / BOUNDARIES
        if not path.is_file() or self.config.get_verbosity() < 0:
            return
        import json

        for several in json.loads(path.read_bytes())["matrices"].values():
            for one in several:
                yield f"{one['key'] or 'any failure'}   {one['summary']}"
                yield from (f"  {name:{_NAME}} {text}" for name, text in one["facts"].items())

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
        if self.before is None:
            return None
        from pytest_hetgpu.analysis.compare.sides import Side

        if isinstance(self.before, Side):
            return self.before
        from pytest_hetgpu.store import history

        found = history.previous_run(self.before, self.reports.name, {matrix for matrix, _ in self.seen})
        return Side(found.id, (found,)) if found else None

    def links(self) -> Iterator[tuple[str, dict[str, bool]]]:
        """Yield a line per placement about the bandwidth between its nodes, or about the reason why none is known."""
        known = {}
        for key, pairs in self.seen.items():
            if pairs.link_text and key in self.cells:
                # The last word: where a node was lost meanwhile, a later cell may know.
                known[key[0], self.cells[key].value("placement")] = pairs
        for (_, placement), pairs in known.items():
            limit = f"{gbs(pairs.link)} GB/s, " if pairs.link else ""
            yield f"wire of {placement}: {limit}{pairs.link_text}", {} if pairs.link else {"yellow": True}


def record(cell: Scenario, pairs: CellProperties) -> CellRecord:
    """Return a cell for the table, from the properties of its report."""
    outcome = Outcome(pairs.kind, pairs.verdict, carried=pairs.carried)
    return CellRecord(cell.matrix, cell.id, cell.label, dict(zip(cell.axes, cell.values, strict=True)), outcome=outcome)


def was(cell: Scenario, pairs: CellProperties) -> CellSummary:
    """Return a cell for a comparison."""
    return CellSummary(cell.matrix, cell.id, pairs.kind, pairs.verdict, signature=pairs.signature or "", why=pairs.why)


def cell_pairs(report: Any) -> CellProperties | None:
    """Return the properties of a cell from its report; None without an outcome."""
    return from_properties((str(name), value) for name, value in getattr(report, "user_properties", ()))


def _category(report: Any) -> tuple[str, str]:
    """Return pytest's own category and word."""
    if hasattr(report, "wasxfail"):
        return ("xfailed", "XFAIL") if report.skipped else ("xpassed", "XPASS")
    if report.failed and report.when == "setup":
        return "error", "ERROR"
    return str(report.outcome), str(report.outcome).upper()
