"""`hetgpu merge`: makes one report and one history of runs of several sites."""

from __future__ import annotations

import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.cli.report import rebuild
from pytest_hetgpu.errors import StorageError, UsageError
from pytest_hetgpu.reporting.sites import site_lines
from pytest_hetgpu.store.cells import CellState, RunRecord, read_run
from pytest_hetgpu.store.files import FOLDER, make_folder, refuse_links
from pytest_hetgpu.store.folder import HISTORY, RunFolder
from pytest_hetgpu.store.merge import SiteRun, copy_runs, is_merged
from pytest_hetgpu.store.merged_history import MergedHistory
from pytest_hetgpu.store.redaction.anonymity import is_anonymous

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}")
_LONGEST_SITE = 40


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The options of the command."""

    output: Path
    force: bool = False


def run(given: Sequence[str], options: MergeOptions, print_line: Callable[[str], object]) -> int:
    """Merge runs, given as `FOLDER` or `NAME=FOLDER`, into the folder of a new run; return 0.

    Raises UsageError, before anything is written, for wrong names or folders. Raises StorageError or HistoryError if
    the folder cannot be written; then an existing one is as it was.
    """
    runs = named_runs(given)
    output = options.output
    _check_output(output, runs, force=options.force)
    made = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    history = MergedHistory(made / HISTORY)
    try:
        make_folder(output.parent)
        made.mkdir(mode=FOLDER)
        copy_runs(runs, made)
        history.add(runs)
        _move(made, output)
    except OSError as error:
        raise StorageError(f"{error.filename or made}: {error.strerror}; nothing was merged") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    record = read_run(output)
    for line in (*_lines(runs, record), *rebuild(RunFolder(output), record), *_ending(output, record, history)):
        print_line(line)
    return 0


def named_runs(given: Sequence[str]) -> list[SiteRun]:
    """Read the runs and name their sites. The default name is the host of pytest, and a number in anonymous runs.

    Raises UsageError.
    """
    if len(given) < 2:
        raise UsageError("give two or more runs to merge")
    split = [_split(one) for one in given]
    records = [(name, folder, _read(folder)) for name, folder in split]
    anonymous = any(is_anonymous(folder) for _, folder, _ in records)
    runs = [
        SiteRun(name or (f"site-{number}" if anonymous else _default_name(record)), folder, record)
        for number, (name, folder, record) in enumerate(records, 1)
    ]
    _check_runs(runs)
    return runs


def _split(text: str) -> tuple[str, Path]:
    """Split `NAME=FOLDER`; the name is "" if there is none. Raises UsageError for a bad name."""
    name, equals, folder = text.partition("=")
    if not equals or _is_folder(Path(text)):
        return "", Path(text)
    if not _SITE.fullmatch(name):
        raise UsageError(
            f"{text}: {name!r} cannot name a site: 1 to {_LONGEST_SITE} of the characters A-Z a-z 0-9 _ . + -, "
            "the first a letter or a digit"
        )
    return name, Path(folder)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name too long, a null byte
        return False


def _read(folder: Path) -> RunRecord:
    if not _is_folder(folder):
        raise UsageError(f"{folder}: no such folder")
    try:
        refuse_links(folder)
        record = read_run(folder)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}") from None
    if record.merged:
        raise UsageError(f"{folder} was merged from several runs: give these runs, and their folders")
    return record


def _default_name(record: RunRecord) -> str:
    """Return the host of pytest, made fit for a name."""
    host = next((session.host for session in record.sessions), "")
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", host).lstrip("_.+-")[:_LONGEST_SITE] or "site"


def _check_runs(runs: Sequence[SiteRun]) -> None:
    """Refuse equal names, and a run that is given twice."""
    for number, run in enumerate(runs):
        for other in runs[:number]:
            if other.folder.resolve() == run.folder.resolve() or _same_run(run, other):
                raise UsageError(f"{other.folder} and {run.folder} are the same run")
            if other.site.lower() == run.site.lower():
                raise UsageError(
                    f"{other.folder} and {run.folder} are both of the site {run.site}: name them, NAME=FOLDER"
                )


def _same_run(run: SiteRun, other: SiteRun) -> bool:
    starts = [[session.started for session in one.record.sessions[:1]] for one in (run, other)]
    return run.id == other.id and bool(starts[0]) and starts[0] == starts[1]


def _check_output(output: Path, runs: Sequence[SiteRun], *, force: bool) -> None:
    """Raise UsageError if the folder is in use. With `force`, it may be that of an earlier merge."""
    for run in runs:
        here, place = run.folder.resolve(), output.resolve()
        if here.is_relative_to(place) or place.is_relative_to(here):
            raise UsageError(f"{output} overlaps with the run {run.folder}: choose another folder")
    if output.resolve() == Path.cwd().resolve() or not output.name:
        raise UsageError(f"{output} is the current directory: choose a folder in it")
    try:
        if output.is_symlink() or (output.exists() and not output.is_dir()):
            raise UsageError(f"{output} is in the way: it is no folder")
        if not output.exists() or not any(output.iterdir()):
            return
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}") from None
    if not is_merged(output):
        raise UsageError(f"{output} is not empty, and no merge made it: choose another folder")
    if not force:
        raise UsageError(f"{output} is not empty: choose another folder, or replace the earlier merge with --force")


def _move(made: Path, output: Path) -> None:
    """Move the new folder to its place. An earlier merge is removed after that, with its raw logs."""
    before = output.with_name(f"{made.name}.before")
    replaced = output.exists() and any(output.iterdir())
    if replaced:
        output.rename(before)
    try:
        made.rename(output)
    except OSError:
        if replaced:
            before.rename(output)
        raise
    if replaced:
        shutil.rmtree(before, ignore_errors=True)
        with suppress(OSError):
            shutil.rmtree(RunFolder(output).private)


def _lines(runs: Sequence[SiteRun], record: RunRecord) -> Iterator[str]:
    """Yield a line per site, and what is missing of it."""
    yield from site_lines(record, stacks=False)
    for run in runs:
        cells = [cell for cell in record.cells if record.sites.get(cell.matrix) == run.site]
        open_cells = sum(cell.state in (CellState.STARTED, CellState.FINISHED) for cell in cells)
        if any(run.writers.values()):
            yield f"{run.site}: still running; {open_cells} of its cells had begun: merge again after its end"
        elif open_cells:
            yield f"{run.site}: cut short: {open_cells} of {len(cells)} cells"
        pending = len(RunFolder(run.folder.resolve()).unpublished_logs())
        if pending:
            yield f"{run.site}: left out as not redacted: {pending} logs; first run hetgpu report {run.folder}"


def _ending(output: Path, record: RunRecord, history: MergedHistory) -> Iterator[str]:
    counted = Counter(cell.outcome.verdict.value.replace("_", " ") for cell in record.cells)
    yield from (f"history: {note}" for note in history.notes)
    runs = ", ".join(f"{count} of {site or 'no site'}" for site, count in history.runs.items())
    yield f"history: {history.runs.total()} runs, {runs}: hetgpu history --reports {output}"
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counted.items())
    yield f"{len(record.cells)} cells of {len(record.merged)} sites ({verdicts or 'none'}): {output}/index.html"
