"""Builds a run's reports from its journal: what was written before the last `kill -9` is enough."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.cell_text import Rerun, private
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.cells import RunRecord, lost_logs, read_run
from pytest_hetgpu.store.files import write_atomically
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction.anonymity import kept, without_names
from pytest_hetgpu.store.text import escape

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.store.environment import SeenPlacement


class ReportError(HetgpuError):
    """Not every report of a run could be written; it says which, and why."""


def build(run_folder: Path, rerun: Rerun, trouble: list[str] | None = None) -> RunRecord:
    """Writes `junit.xml`, `summary.md`, `issues/` and `index.html` into the run's folder, each in full or not at all.

    Returns what it read.

    `rerun(matrix, label)` is the command that runs just that cell again; a text may stand for it, in which `{matrix}`
    and `{label}` are filled in. One that cannot be written does not cost the others: `trouble` gets a line on it,
    without a list ReportError is raised at the end. Raises UsageError where the folder holds no journal.
    """
    record = read_run(run_folder)
    folder = RunFolder(run_folder)
    _settle(record, folder)
    with without_names(record, folder) if kept(run_folder) else nullcontext():
        unwritten = list(_build(record, folder, rerun))
    if unwritten:
        said = f"{', '.join(unwritten)}; `hetgpu report {shlex.quote(str(run_folder))}` builds the reports again"
        if trouble is None:
            raise ReportError(f"not written: {said}")
        trouble.append(f"reports: not written: {said}")
    return record


def get_ready(meanwhile: Callable[[], object]) -> None:
    """Load all that reports of most runs need, and call `meanwhile`.

    An error is suppressed: it comes again when the reports are built.
    """
    with suppress(Exception), ThreadPoolExecutor(max_workers=1) as pool:
        from pytest_hetgpu.reporting.html import page

        pool.submit(page.packed_charts)  # compressing takes no turn of the interpreter's
        _load_builders()
        meanwhile()
        page.template()


def _load_builders() -> None:
    """Import the modules that the functions below import when they are called."""
    from pytest_hetgpu.analysis import baseline  # noqa: F401
    from pytest_hetgpu.analysis.compare import sides  # noqa: F401
    from pytest_hetgpu.reporting import bandwidth_table, junit, nodes_table  # noqa: F401
    from pytest_hetgpu.reporting.html import facts, page  # noqa: F401
    from pytest_hetgpu.reporting.upstream import written  # noqa: F401
    from pytest_hetgpu.store import environment, history, run_summary  # noqa: F401


def _settle(record: RunRecord, folder: RunFolder) -> None:
    """Publishes the redacted output of commands that ran when their processes were killed; of running ones nothing."""
    writers = {folder.log(cell.label).parent.name: cell.writer for cell in record.cells}
    for attempt, name in folder.unpublished():
        if name in writers and not writer_lock.alive(folder.path / "journal" / f"{writers[name]}.jsonl"):
            with suppress(OSError):  # what is not published is not shown either
                attempt.publish(name, ended=False)
    folder.tidy()


def _build(record: RunRecord, folder: RunFolder, rerun: Rerun) -> Iterator[str]:
    """Writes all of it, what CI needs first; gives what could not be written, and why."""
    from pytest_hetgpu.reporting import junit
    from pytest_hetgpu.reporting.upstream import written
    from pytest_hetgpu.store import environment

    run_folder = folder.path
    lost = lost_logs(record, folder)
    placements = environment.read_all(run_folder)
    issues: dict[str, str] = {}

    def log(label: str) -> str | None:
        path = folder.log(label)
        return str(path.relative_to(run_folder)) if path.exists() else None

    def summary() -> str:
        return markdown.render(record, log, rerun, _nodes(record, placements, folder), lost)

    parts: dict[str, Callable[[], object]] = {
        "junit.xml": lambda: write_atomically(run_folder / "junit.xml", junit.render(record, folder, rerun)),
        "summary.md": lambda: write_atomically(run_folder / "summary.md", summary().encode("utf-8")),
        "issues": lambda: issues.update(written.write(record, folder, placements)),
        "index.html": lambda: write_atomically(
            run_folder / "index.html", _page(record, folder, rerun, placements, issues)
        ),
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


def _page(
    record: RunRecord, folder: RunFolder, rerun: Rerun, placements: Sequence[SeenPlacement], issues: Mapping[str, str]
) -> bytes:
    """The page, which links to the issues that were written."""
    from pytest_hetgpu.analysis.baseline import saved_baseline
    from pytest_hetgpu.reporting.html import facts, page

    try:
        baseline = saved_baseline(folder.path)
    except HetgpuError:
        baseline = None
    earlier = None if baseline else _before(record, folder)
    found = facts.page_facts(record, folder, rerun, placements, baseline or earlier)
    if earlier:
        found["baseline"] = f"the run before, {earlier.side.runs[0].id}"
    return page.render({**found, "issues": dict(issues)}).encode("utf-8")


def _before(record: RunRecord, folder: RunFolder) -> Baseline | None:
    """The run before, where the history beside this run knows of one."""
    if not (record.sessions and folder.history.is_file()):
        return None
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.analysis.compare.sides import Side
    from pytest_hetgpu.store import history

    first = record.sessions[0]
    matrices = {matrix.name for session in record.sessions for matrix in session.matrices}
    found = history.before(folder.history, first.id or folder.path.resolve().name, matrices, first.started)
    return Baseline(Side("the run before", (found,))) if found else None


def _nodes(record: RunRecord, placements: Sequence[SeenPlacement], folder: RunFolder) -> Iterator[str]:
    """Where raw logs are; what the nodes and the ways between them were found to be. Imports only what is needed."""
    yield from filter(None, [escape(private(folder))])
    if placements:
        from pytest_hetgpu.reporting import bandwidth_table, nodes_table

        yield from bandwidth_table.lines(record.cells, placements)
        yield from nodes_table.lines(placements)
