"""The run to resume: find it, lock it, read it, and compare its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.execution.resume.fingerprint import differences
from pytest_hetgpu.execution.resume.reuse import Reusable, reusable
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.cells import RunRecord, read_run
from pytest_hetgpu.store.events import SCHEMA
from pytest_hetgpu.store.files import read_input, refuse_links
from pytest_hetgpu.store.journal import Journal

LATEST = "latest"
MAIN = "main"
_PATIENCE = 20.0  # seconds in which workers whose controller was killed end by themselves


@dataclass(frozen=True)
class PreviousRun:
    """A run so far, with its journal, which only this process may write to."""

    journal: Journal
    record: RunRecord

    @property
    def reusable(self) -> Reusable:
        """The cells that are not run again."""
        return reusable(self.record)


def find_run(name: str, reports: Path, here: Path) -> Path:
    """Return the folder of the run `name`: `latest`, a folder, or an id in `reports`. Raise UsageError."""
    places = (_latest(reports),) if name == LATEST else (here / name, reports / name)
    for place in places:
        with suppress(OSError, ValueError):
            if (place / "journal").is_dir():
                return place.resolve()
    runs: set[str] = set()
    with suppress(OSError):
        runs = {path.name for path in reports.iterdir() if (path / "journal").is_dir() and not path.is_symlink()}
    if name == LATEST and not runs:
        raise UsageError(f"there is no run in {reports} to resume; start one without --hetgpu-resume")
    if (here / name).is_file():
        raise UsageError(
            f"--hetgpu-resume took {name!r} for a run; write --hetgpu-resume=latest, or that option after all others"
        )
    raise UsageError(f"no run {name!r} to resume: neither a run's folder here nor in {reports} {known(name, runs)}")


def resume(folder: Path, basis: Mapping[str, str]) -> PreviousRun:
    """Return the run in `folder`, ready for its next part. Nothing is written yet.

    Raise UsageError if it is running, cannot be read or written, or has inputs other than `basis`.
    """
    refuse_links(folder)
    journal = Journal(folder, MAIN, sole=True)
    try:
        others = (path for path in sorted((folder / "journal").glob("*.jsonl")) if path != journal.path)
        writer_lock.wait_for_writers(others, _PATIENCE)
        record = read_run(folder)
        _check(folder, record, basis)
    except BaseException:
        journal.close()
        raise
    journal.part = record.part + 1
    return PreviousRun(journal, record)


def reusable_before(folder: Path, part: int) -> Reusable:
    """Return the cells that are not run again in that part of a run: the same for all its workers."""
    return reusable(read_run(folder, before=part)) if part else {}


def _check(folder: Path, record: RunRecord, basis: Mapping[str, str]) -> None:
    if record.merged:
        raise UsageError(f"{folder} cannot be resumed: it was merged from runs of several sites; resume these runs")
    newer = record.unread.get("newer", 0)
    if newer:
        raise UsageError(
            f"{folder} cannot be resumed: {newer} line{'s' * (newer > 1)} of its journal are of a newer version of "
            f"pytest-hetgpu (this one reads schema {SCHEMA}); resume it with that version"
        )
    if not record.sessions:
        raise UsageError(f"{folder} cannot be resumed: its journal does not record how it was started; start a new run")
    if not record.sessions[-1].basis:
        raise UsageError(
            f"{folder} cannot be resumed: pytest-hetgpu {record.sessions[-1].package}, which wrote it, did not keep "
            "what its verdicts rest on; `hetgpu report` builds its reports, for the rest start a new run"
        )
    changed = list(differences(record.sessions[-1].basis, basis))
    if changed:
        lines = "\n".join(f"  {line}" for line in changed)
        raise UsageError(
            f"{folder} cannot be resumed, what its verdicts rest on has changed:\n{lines}\n"
            "put that back, or start a new run without --hetgpu-resume"
        )


def _latest(reports: Path) -> Path:
    pointer = reports / f"{LATEST}.txt"  # where links cannot be made
    folder = reports / LATEST
    if not folder.is_dir():
        with suppress(OSError, UnicodeDecodeError):
            return reports / read_input(pointer).decode().strip()
    return folder
