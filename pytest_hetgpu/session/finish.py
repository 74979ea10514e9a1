"""How a session ends: its nodes given up, its reports built, its exit code."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.reporting import messages
from pytest_hetgpu.reporting.cell_text import private
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.session import failure_text, hooks, signals
from pytest_hetgpu.store.disk_errors import writing
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.rescue import FolderLost

if TYPE_CHECKING:
    from pytest_hetgpu.execution.runner import Recorder
    from pytest_hetgpu.session.terminal.results import Live

NOTHING_NEW = 0
UNREPORTED = 3
NOTHING_RAN = 10


def end(recorder: Recorder, live: Live | None, code: int) -> int:
    """Ends a session, which is pytest's with the terminal where there is a `live`; gives its exit code, so far `code`.

    Whoever is in a hurry (KeyboardInterrupt) does not cost the reports. What cannot be written is said, and no success.
    """
    trouble: list[str] = []
    with suppress(FolderLost):
        recorder.journal.check()
    try:
        recorder.close()
    finally:
        if live is not None:
            with signals.postponed():
                if recorder.journal.lost:
                    code = UNREPORTED
                    live.trouble.append(f"error: {recorder.journal.lost}")
                    live.reports, live.before = recorder.journal.folder, None
                    recorder.folder = RunFolder(recorder.journal.folder)
                if live.nothing_ran and code == NOTHING_NEW:
                    code = NOTHING_RAN
                try:
                    with writing(recorder.folder.path):
                        trouble = report(recorder)
                    live.added, failed = hooks.report_lines(live.config, recorder.folder.path)
                    trouble += failed
                except (StorageError, UsageError, FileNotFoundError) as error:  # the last two: it is gone
                    # Where the journal is lost, that was said, and nothing is left to build reports of.
                    trouble = [] if recorder.journal.lost else [messages.unreported(recorder.folder.path, error)]
                    code = UNREPORTED if code in (NOTHING_NEW, NOTHING_RAN) else code
                live.trouble += trouble
    return code


def report(recorder: Recorder) -> list[str]:
    """Builds the reports from everything that was journalled, and puts the run into the history.

    Gives what the user should be told of that: reports that could not be written, what became of the history.
    """
    run = recorder.folder.path
    if recorder.anonymous:
        anonymity.keep(run)
    trouble = [recorder.guard.trouble] if recorder.guard.trouble else []
    record = build(run, partial(failure_text.again, recorder), trouble)
    trouble += filter(None, [private(recorder.folder)])
    # The folder of a history that was renamed, or deleted, with the run is not made again.
    lost = bool(recorder.journal.lost)
    if recorder.history is None or not record.cells or (lost and not recorder.history.parent.is_dir()):
        return trouble
    from pytest_hetgpu.store import history
    from pytest_hetgpu.store.run_summary import past

    return [*trouble, *history.kept(recorder.history, past(record, run))]
