"""`junit.xml`: one suite per placement, one case per cell.

Its readers need unique classnames and names, a plain decimal `time`, and a one-line `message`. The full text is in the
body. The first `<system-out>` holds the end of the log and the `[[ATTACHMENT|path]]` lines. Numbers are properties,
too. junitparser takes 50 ms to import, so import this module only when it is used.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import junitparser
from junitparser import Error, Failure, Skipped, TestCase, xunit2

from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.cell_text import Rerun, brief_lines, detail_lines, headline
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.properties import to_properties
from pytest_hetgpu.store.text import clean, one_line, tail

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.boundary.summary import Summary

_xml: Any = junitparser  # typed, but for half of what is used here
_xunit2: Any = xunit2
#: Bytes; GitLab refuses a report above 30 MB.
LARGEST_REPORT = 29_000_000
#: Characters of log tails in all.
MOST_TAILS = 8 * 1024 * 1024
#: With more measurements, none becomes a property.
MOST_MEASUREMENTS = 200_000
LONGEST_TIME = 1e9  # seconds
_MOST_WORDS = 1000
LOG_MISSING = "(the log is not there any more)"
TAIL_OMITTED = "(the end of the log is left out here, this report would grow too large: see the file)"


class SizeBudget(NamedTuple):
    """The contents of a report: the characters of log tails, and whether it holds measurements and full details."""

    tails: int
    measured: bool
    full: bool = True


def render(
    record: RunRecord,
    folder: RunFolder,
    rerun: Rerun,
    conditions: Callable[[CellRecord], Summary | None] = lambda _: None,
    past: Callable[[CellRecord], Iterable[tuple[str, str]]] = lambda _: (),
) -> bytes:
    """Build the XML of a run. `folder` holds the logs; `rerun` gives the command for a cell.

    `conditions` gives the condition under which cells fail as this one does. `past` gives properties by earlier runs.

    If the XML is too large for its readers, build it again with less in it.
    """
    measured = sum(len(cell.outcome.measurements) for cell in record.cells) <= MOST_MEASUREMENTS
    data = b""
    for budget in (
        SizeBudget(MOST_TAILS, measured),
        SizeBudget(MOST_TAILS // 2, measured=False),
        SizeBudget(0, measured=False, full=False),
    ):
        data = _render_within(record, _CaseWriter(RunFolder(folder.path.resolve()), rerun, conditions, past, budget))
        if len(data) <= LARGEST_REPORT:
            break
    return data


def _render_within(record: RunRecord, writer: _CaseWriter) -> bytes:
    suites: dict[tuple[str, str], list[CellRecord]] = {}
    for cell in record.cells:
        suites.setdefault((cell.matrix, _axis(cell, "placement")), []).append(cell)
    several = len({cell.matrix for cell in record.cells}) > 1
    root = _xunit2.JUnitXml("pytest-hetgpu")  # its attributes are those of the published schemas
    for (matrix, placement), cells in suites.items():
        suite = _xml.TestSuite(one_line(f"{matrix}.{placement}" if several else placement))
        suite.hostname = one_line(_host(record, matrix))
        suite.timestamp = _timestamp(cells, record)
        for cell in cells:
            suite.append(writer.case(cell))
        root.append(suite)
    root.update_statistics()
    _clean(root._elem)  # noqa: SLF001 - junitparser names its elements one kind at a time
    out = io.BytesIO()
    root.write(out)
    return out.getvalue()


def _clean(root: ElementTree.Element) -> None:
    """Remove from all texts and attributes what XML cannot hold. Names of facts and properties are free text, too."""
    for element in root.iter():
        element.text = element.text and clean(element.text)
        for name, value in element.attrib.items():
            element.attrib[name] = clean(value)


def _host(record: RunRecord, matrix: str) -> str:
    """Return the last host of pytest with this matrix, else the last one."""
    every = [session.host for session in record.sessions]
    had = [session.host for session in record.sessions if any(one.name == matrix for one in session.matrices)]
    return next(reversed(had or every), "localhost")


@dataclass
class _CaseWriter:
    """A builder of cases; `tails` counts the characters of log in them so far."""

    folder: RunFolder
    rerun: Rerun
    conditions: Callable[[CellRecord], Summary | None]
    past: Callable[[CellRecord], Iterable[tuple[str, str]]]
    budget: SizeBudget
    here: Path = field(default_factory=Path.cwd)
    tails: int = 0

    def case(self, cell: CellRecord) -> TestCase:
        """Convert a cell to a case."""
        classname = f"{_axis(cell, 'placement')}.{_axis(cell, 'transport')}"
        case = _xml.TestCase(clean(cell.label), one_line(classname), _seconds(cell))
        properties = _properties(cell, self.conditions(cell), measured=self.budget.measured)
        for name, value in self.past(cell):
            properties.append(_xml.Property(name, value))
        case.append(properties)
        result = _result(cell)
        lines = list(self._output(cell))
        if result is not None:
            case.append(result)
            text = "\n".join(detail_lines(cell, self.rerun) if self.budget.full else brief_lines(cell, self.rerun))
            if isinstance(result, Skipped):
                lines.insert(0, f"{_without_attachments(text)}\n")
            else:
                result.text = text
        if lines:
            case.append(_xml.SystemOut("\n".join(lines)))
        made: TestCase = case
        return made

    def _output(self, cell: CellRecord) -> Iterator[str]:
        """Yield the end of the log if the cell is not ok, then a line per file of the cell."""
        log = self.folder.log(cell.label)
        if cell.outcome.verdict not in (Verdict.OK, Verdict.NOT_RUN):
            end = _without_attachments(tail(log)) if self.tails < self.budget.tails else TAIL_OMITTED
            self.tails += len(end)
            if end:
                yield end
            elif cell.result and not log.exists():
                yield LOG_MISSING
        for path in (log, self.folder.stacks(cell.label), self.folder.job(cell.label)):
            if path.exists():
                yield f"[[ATTACHMENT|{_attachment_path(self.here, path)}]]"


def _without_attachments(text: str) -> str:
    """Escape attachment marks in the text of a log, so that GitLab attaches no file that a log names."""
    return text.replace("[[ATTACHMENT|", "[ [ATTACHMENT|")


def _axis(cell: CellRecord, name: str) -> str:
    return cell.axes.get(name, "-")


def _properties(cell: CellRecord, condition: Summary | None, *, measured: bool) -> Any:
    outcome = cell.outcome if measured else replace(cell.outcome, measurements=())
    properties = _xml.Properties()
    for name, value in to_properties(outcome, label=cell.label, matrix=cell.matrix):
        properties.append(_xml.Property(name, str(value)))
    if condition is not None:
        from pytest_hetgpu.analysis.boundary.words import where

        properties.append(_xml.Property("boundary", one_line(where(condition), _MOST_WORDS)))
        properties.append(_xml.Property("boundary_state", condition.state))
    return properties


def _result(cell: CellRecord) -> Failure | Error | Skipped | None:
    kind, verdict = cell.outcome.kind, cell.outcome.verdict
    if verdict is Verdict.OK:
        return None
    if verdict in (Verdict.KNOWN, Verdict.NOT_RUN):
        return Skipped(headline(cell), kind.value)
    if kind is Kind.UNKNOWN:
        return Error(headline(cell), kind.value)
    return Failure(headline(cell), kind.value)


def _seconds(cell: CellRecord) -> float:
    """Round and bound the duration, so that it is never written with an exponent."""
    seconds = cell.outcome.seconds
    return round(min(max(seconds, 0.0), LONGEST_TIME), 3) if math.isfinite(seconds) else 0.0


def _timestamp(cells: Iterable[CellRecord], record: RunRecord) -> str:
    """Return the start of the suite's first cell in UTC, in the only format that the Ant schema allows."""
    epochs = [cell.started for cell in cells if cell.started is not None] or [s.started for s in record.sessions]
    try:
        return f"{datetime.fromtimestamp(min(epochs, default=0.0), timezone.utc):%Y-%m-%dT%H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "1970-01-01T00:00:00"


def _attachment_path(here: Path, path: Path) -> str:
    """Return a path relative to the current directory if inside it (for GitLab), else absolute (for Jenkins)."""
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
