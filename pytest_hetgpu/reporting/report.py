"""Builds the reports of a run from its journal, even if the run was killed with `kill -9`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.cell_text import Rerun, describe_private_logs
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.cells import CellRecord, RunRecord, missing_logs, read_run
from pytest_hetgpu.store.files import write_atomically
from pytest_hetgpu.store.folder import PAST, RunFolder
from pytest_hetgpu.store.redaction.anonymity import anonymised, is_anonymous
from pytest_hetgpu.store.text import escape_markdown, one_line

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.analysis.boundary.summary import Summary
    from pytest_hetgpu.reporting.since import Pasts
    from pytest_hetgpu.store.environment import PlacementFacts
    from pytest_hetgpu.store.history_place import HistoryPlace


LOADED_LATE = (
    "pytest_hetgpu.reporting.junit",
    "pytest_hetgpu.store.run_summary",
    "pytest_hetgpu.store.history",
    "pytest_hetgpu.reporting.bandwidth_table",
    "pytest_hetgpu.reporting.upstream.write_issues",
    "pytest_hetgpu.reporting.html.page_data",
)
"""Modules that only reports need, which `get_ready` loads."""
LONGEST_LABEL = 1000
"""Characters of a cell's name on the page."""


class ReportError(HetgpuError):
    """A run whose reports were not all written; the message names them and the reasons."""


def build(
    run_folder: Path, rerun: Rerun, trouble: list[str] | None = None, *, history: HistoryPlace | None = None
) -> RunRecord:
    """Write `junit.xml`, `summary.md`, `issues/` and `index.html`, each in full or not at all; return the record.

    The reports name since when cells fail, by the earlier runs in `history`; without it, by those stored in the folder.

    `rerun(matrix, label)` returns the command that runs just that cell again. It may be a text instead, in which
    `{matrix}` and `{label}` are filled in. A failure to write one report does not stop the others. It adds a line to
    `trouble`; without that list, ReportError is raised at the end. The page compares the run with the previous one in
    `history`, by default the file beside the run. Raises UsageError if the folder holds no journal.
    """
    record = read_run(run_folder)
    folder = RunFolder(run_folder)
    _publish_pending_logs(record, folder)
    unsaved = _save_past(record, folder, history) if history else ""
    if unsaved and trouble is not None:
        trouble.append(unsaved)
    with anonymised(record, folder) if is_anonymous(run_folder) else nullcontext():
        unwritten = list(_write_reports(record, folder, rerun, history=history or folder.history))
    if unwritten:
        message = f"{', '.join(unwritten)}; `hetgpu report {shlex.quote(str(run_folder))}` builds the reports again"
        if trouble is None:
            raise ReportError(f"not written: {message}")
        trouble.append(f"reports: not written: {message}")
    return record


def get_ready(meanwhile: Callable[[], object]) -> None:
    """Load all that reports of most runs need, and call `meanwhile`.

    An error is suppressed: it occurs again when the reports are built.
    """
    with suppress(Exception), ThreadPoolExecutor(max_workers=1) as pool:
        from pytest_hetgpu.reporting.html import page

        pool.submit(page.packed_charts)  # compression does not hold the interpreter's lock
        _load_builders()
        meanwhile()
        page.template()


def _load_builders() -> None:
    """Import the modules that the functions below import when they are called."""
    from pytest_hetgpu.analysis import baseline  # noqa: F401
    from pytest_hetgpu.analysis.compare import sides  # noqa: F401
    from pytest_hetgpu.reporting import bandwidth_table, junit, nodes_table  # noqa: F401
    from pytest_hetgpu.reporting.html import page, page_data  # noqa: F401
    from pytest_hetgpu.reporting.upstream import write_issues  # noqa: F401
    from pytest_hetgpu.store import environment, history, run_summary  # noqa: F401


def _publish_pending_logs(record: RunRecord, folder: RunFolder) -> None:
    """Publish the redacted output of commands of killed processes. Publish nothing of running ones."""
    writers = {folder.log(cell.label).parent.name: cell.writer for cell in record.cells}
    for attempt, name in folder.unpublished_logs():
        if name in writers and not writer_lock.writer_alive(folder.path / "journal" / f"{writers[name]}.jsonl"):
            with suppress(OSError):  # reports show published logs only
                attempt.publish(name, ended=False)
    folder.remove_empty_folders()


def _write_reports(record: RunRecord, folder: RunFolder, rerun: Rerun, *, history: HistoryPlace) -> Iterator[str]:
    """Write all reports, those that CI needs first; yield each one that could not be written, with the reason."""
    from pytest_hetgpu.reporting import junit
    from pytest_hetgpu.reporting.upstream import write_issues
    from pytest_hetgpu.store import environment

    run_folder = folder.path
    lost = missing_logs(record, folder)
    placements = environment.read_all(run_folder)
    issues: dict[str, str] = {}
    limits = _boundaries(record, folder)
    condition = _conditions(limits)
    past = _pasts(record, folder)

    def log(label: str) -> str | None:
        path = folder.log(label)
        return str(path.relative_to(run_folder)) if path.exists() else None

    def summary() -> str:
        sections = chain(_where(limits), _node_sections(record, placements, folder))
        texts = markdown.CellTexts(log, rerun, past.line) if past else markdown.CellTexts(log, rerun)
        return markdown.render(record, texts, sections, lost)

    def page() -> bytes:
        parts = _PageParts(issues, _page_conditions(record, limits), _since(record, past), history)
        return _page(record, folder, rerun, placements, parts)

    parts: dict[str, Callable[[], object]] = {
        "junit.xml": lambda: write_atomically(
            run_folder / "junit.xml",
            junit.render(record, folder, rerun, condition, *([past.properties] if past else [])),
        ),
        "summary.md": lambda: write_atomically(run_folder / "summary.md", summary().encode("utf-8")),
        "issues": lambda: issues.update(write_issues.write_issues(record, folder, placements, condition)),
        "boundary.json": lambda: _write_boundaries(run_folder, limits),
        "index.html": lambda: write_atomically(run_folder / "index.html", page()),
    }
    for name, write in parts.items():
        try:
            write()
        except OSError as error:
            yield f"{name} ({error.strerror or error})"
        except Exception as error:
            if name != "issues":
                raise
            # The lines of an issue come from a runtime, which may be another package's.
            yield f"{name} ({type(error).__name__}: {error})"


def _boundaries(record: RunRecord, folder: RunFolder) -> Mapping[str, Sequence[Summary]]:
    """Return the conditions of the failures of a run by matrix; none, without an import, if no cell failed."""
    if not any(cell.outcome.kind.failed for cell in record.cells):
        return {}
    from pytest_hetgpu.analysis.boundary.jobs import StoredJobs
    from pytest_hetgpu.analysis.boundary.of_run import with_left_out
    from pytest_hetgpu.reporting.boundary import boundaries

    found = boundaries(with_left_out(record), StoredJobs([(folder, record.cells)]), record.tried)
    return {matrix: several for matrix, several in found if several}


def _save_past(record: RunRecord, folder: RunFolder, history: HistoryPlace) -> str:
    """Store the outcomes of earlier runs in the folder of this run. Return "", or a line if that fails."""
    if isinstance(history, Path) and not history.is_file():
        return ""
    from pytest_hetgpu.store import saved_past

    try:
        saved_past.save_earlier_runs(folder.path, record, history)
    except HetgpuError:
        return ""  # the history cannot be read: the line on this run, which it lacks, names the reason
    except Exception as error:  # noqa: BLE001 - the run is over, and its reports are wanted
        return f"history: the reports lack since when cells fail ({error})"
    return ""


def _pasts(record: RunRecord, folder: RunFolder) -> Pasts | None:
    """Return the history of each cell, None if this is the first run."""
    if not (folder.path / PAST).exists():
        return None
    from pytest_hetgpu.reporting.since import pasts

    return pasts(record, folder.path)


def _since(record: RunRecord, past: Pasts | None) -> Mapping[str, str]:
    """Return for the page since when cells fail, by label."""
    lines = ((cell, past.line(cell)) for cell in record.cells) if past else ()
    return {one_line(cell.label, LONGEST_LABEL): line for cell, line in lines if line}


def _conditions(limits: Mapping[str, Sequence[Summary]]) -> Callable[[CellRecord], Summary | None]:
    """Return a function from a cell to the condition of its failure."""
    if not limits:
        return lambda _: None
    from pytest_hetgpu.reporting.boundary import of_cell

    return partial(of_cell, limits)


def _where(limits: Mapping[str, Sequence[Summary]]) -> Iterator[str]:
    """Yield the section on where cells fail."""
    if limits:
        from pytest_hetgpu.reporting.boundary import paragraphs

        yield from paragraphs(limits, escape_markdown)


def _write_boundaries(run_folder: Path, limits: Mapping[str, Sequence[Summary]]) -> None:
    """Write `boundary.json`, or remove that of an earlier judgement if nothing failed."""
    path = run_folder / "boundary.json"
    if limits:
        from pytest_hetgpu.reporting.boundary_file import boundary_json

        write_atomically(path, boundary_json(limits))
    else:
        path.unlink(missing_ok=True)


def _page_conditions(record: RunRecord, limits: Mapping[str, Sequence[Summary]]) -> Sequence[Mapping[str, object]]:
    """Return the conditions of failures for the page."""
    if not limits:
        return ()
    from pytest_hetgpu.reporting.boundary import page_conditions

    return page_conditions(limits, record)


class _PageParts(NamedTuple):
    """Parts of the page besides the record: links to issues, conditions of failures, the history."""

    issues: Mapping[str, str]
    conditions: Sequence[Mapping[str, object]]
    #: since when cells fail, by label
    since: Mapping[str, str]
    history: HistoryPlace


def _page(
    record: RunRecord,
    folder: RunFolder,
    rerun: Rerun,
    placements: Sequence[PlacementFacts],
    parts: _PageParts,
) -> bytes:
    """Build the page, with what other reports found: links to the written issues, and conditions of failures."""
    from pytest_hetgpu.analysis.baseline import saved_baseline
    from pytest_hetgpu.reporting.html import page, page_data

    try:
        baseline = saved_baseline(folder.path)
    except HetgpuError:
        baseline = None
    earlier = None if baseline else _previous_run(record, folder, parts.history)
    found = page_data.page_data(record, folder, rerun, placements, baseline or earlier)
    if earlier:
        found["baseline"] = f"the run before, {earlier.side.runs[0].id}"
    more = {"issues": parts.issues, "conditions": parts.conditions, "since": parts.since}
    return page.render({**found, **more}).encode("utf-8")


def _previous_run(record: RunRecord, folder: RunFolder, place: HistoryPlace) -> Baseline | None:
    """Return the previous run, if the history has one."""
    if not record.sessions or (isinstance(place, Path) and not place.is_file()):
        return None
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.analysis.compare.sides import Side
    from pytest_hetgpu.store import history

    first = record.sessions[0]
    matrices = {matrix.name for session in record.sessions for matrix in session.matrices}
    found = history.previous_run(place, first.id or folder.path.resolve().name, matrices, first.started)
    return Baseline(Side("the run before", (found,))) if found else None


def _node_sections(record: RunRecord, placements: Sequence[PlacementFacts], folder: RunFolder) -> Iterator[str]:
    """Yield the place of raw logs, and the sections on nodes and bandwidth. Import only needed modules."""
    yield from filter(None, [escape_markdown(describe_private_logs(folder))])
    if placements:
        from pytest_hetgpu.reporting import bandwidth_table, nodes_table

        yield from bandwidth_table.render(record.cells, placements)
        yield from nodes_table.render(placements)
