"""The end of a session: close its nodes, build its reports, return its exit code."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.reporting import messages
from pytest_hetgpu.reporting.cell_text import describe_private_logs
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.session import failure_text, hooks, signals
from pytest_hetgpu.store.disk_errors import storage_errors
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.rescue import FolderLost

if TYPE_CHECKING:
    from pytest_hetgpu.execution.context import RunContext
    from pytest_hetgpu.session.terminal.results import TerminalReporter

NOTHING_NEW = 0
NOT_FINISHED = 1
UNREPORTED = 3
NOTHING_RAN = 10


def end(run: RunContext, live: TerminalReporter | None, code: int, lost: str = "") -> int:
    """End a session, whose exit code is `code` so far, and return its exit code. `lost` is a loss that a worker met.

    The process with the terminal has a `live` reporter, and builds the reports even after a KeyboardInterrupt. A
    report that cannot be written is named, and the exit code is not 0.
    """
    with suppress(FolderLost):
        run.journal.check()
    try:
        run.close()
    finally:
        if live is not None:
            with signals.deferred():
                code, reports = _end(run, live, code, run.journal.lost or lost)
            if reports:  # signals end hooks as usual: they may wait for a server that does not answer
                added, failed = hooks.report_lines(live.config, reports)
                live.add_lines(added)
                live.warn(*failed)
    return code


def _end(run: RunContext, live: TerminalReporter, code: int, lost: str) -> tuple[int, Path | None]:
    """Build the reports, and hand their lines to the terminal. Return the exit code, and the folder of the reports."""
    folder = run.folder
    if lost:
        code, folder = UNREPORTED, RunFolder(run.journal.folder)
        live.move(folder.path, f"error: {lost}")
    if code == NOTHING_NEW and (live.cut_short or live.nothing_ran):
        code = NOT_FINISHED if live.cut_short else NOTHING_RAN
    try:
        with storage_errors(folder.path):
            live.warn(*report(run, folder))
    except (StorageError, UsageError, FileNotFoundError) as error:  # the last two: the folder is gone
        # If the journal is lost, a line says so, and there is nothing to build reports of.
        live.warn(*(() if lost else (messages.describe_unwritten_reports(folder.path, error),)))
        return UNREPORTED if code in (NOTHING_NEW, NOTHING_RAN) else code, None
    return code, folder.path


def report(run: RunContext, folder: RunFolder) -> list[str]:
    """Build the reports from the journal in `folder`, and add the run to the history.

    Return lines for the user: reports that could not be written, and the state of the history.
    """
    if run.options.anonymise:
        anonymity.mark_anonymous(folder.path)
    trouble = [run.guard.trouble] if run.guard.trouble else []
    if run.guard.restarts:
        trouble.append(f"the watchdog of this run was killed, and started again ({run.guard.restarts} x)")
    record = build(folder.path, partial(failure_text.again, run), trouble, history=run.options.history)
    trouble += filter(None, [describe_private_logs(folder)])
    # The folder of a history that was renamed, or deleted, with the run is not made again.
    place, lost = run.options.history, bool(run.journal.lost)
    if place is None or not record.cells or (lost and isinstance(place, Path) and not place.parent.is_dir()):
        return trouble
    from pytest_hetgpu.store import history
    from pytest_hetgpu.store.run_summary import summarise

    return [*trouble, *history.put_or_explain(place, summarise(record, folder.path))]
