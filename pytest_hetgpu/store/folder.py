"""The folder of a run: the place of each report, and of the stored job of each cell."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.store.encode import RecordError, from_json, to_json
from pytest_hetgpu.store.files import FOLDER, PRIVATE, PRIVATE_FOLDER, make_folder, read_input, write_atomically
from pytest_hetgpu.store.redaction.log import contains_secrets, publish
from pytest_hetgpu.store.redaction.redact import basis, redact_json

__all__ = [
    "HISTORY",
    "LONGEST_NAME",
    "PAST",
    "SCHEMA",
    "RunFolder",
    "read_job",
    "read_result",
    "update_latest",
    "write_atomically",
]

T = TypeVar("T")

SCHEMA = 1
LONGEST_NAME = 200
_MOST_TRIES = 5
ATTEMPT = "attempt-"
"""The prefix of folders of attempts at a cell that another attempt followed."""
HISTORY = "history.sqlite"
"""The file with the history of all runs in the same folder."""
PAST = "past.json"
"""The file in a run's folder with the outcomes of the runs before it (`saved_past.py`)."""
PRIVATE_LOGS = ".private"
"""The folder beside all runs that holds their raw logs. Nothing publishes it."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`reports/<run>/`: `journal/`, `scenarios/<label>/output.log` and `job.json`, and the reports made of them.

    The files of a further `attempt` lie in a folder of that name below the cell's. Raw logs lie in
    `reports/.private/<run>/`, which only its owner may read.
    """

    path: Path
    attempt: str = ""

    @classmethod
    def create(cls, reports: Path) -> RunFolder:
        """Create a folder `YYYYMMDD-HHMMSS-xxxx` (local time) below `reports`, and point `reports/latest` to it.

        Raises UsageError, naming `reports`, if that fails.
        """
        try:
            make_folder(reports)
            path = _new_folder(reports)
            for name in ("journal", "scenarios"):
                make_folder(path / name)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"reports folder {reports}: not a directory ({error.filename} is in the way)") from None
        except OSError as error:
            raise UsageError(f"reports folder {reports}: not writable ({error.strerror})") from None
        update_latest(path)
        return cls(path)

    @property
    def history(self) -> Path:
        """The default place of the history."""
        return self.path.parent / HISTORY

    def for_attempt(self, attempt: str) -> RunFolder:
        """Return the folder of the same run for the files of a further attempt."""
        return replace(self, attempt=attempt)

    def scenario(self, label: str) -> Path:
        """Return the folder of a cell's files: always below `scenarios/`, whatever the label."""
        return _cell_folder(self.path, self._name(label), self.attempt)

    @staticmethod
    def _name(label: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_.+-]", "_", label)[:LONGEST_NAME]
        return name if name.strip(".") else f"_{name}"

    @property
    def private(self) -> Path:
        """The folder of raw logs: those of running cells, and those with secrets."""
        return self.path.parent / PRIVATE_LOGS / self.path.name

    def log(self, label: str) -> Path:
        """Return the file of a cell's redacted output, which exists once its command has ended."""
        return self.scenario(label) / "output.log"

    def raw(self, label: str) -> Path:
        """Return the file that receives a cell's output unchanged."""
        return self.private / self.attempt / f"{self._name(label)}.log"

    def job(self, label: str) -> Path:
        """Return the file of a cell's Job and RunResult."""
        return self.scenario(label) / "job.json"

    def stacks(self, label: str) -> Path:
        """Return the file of the stacks of a cell's ranks, if they were dumped (`cluster/stack_dump.py`)."""
        return self.scenario(label) / "stacks.json"

    def trace(self, label: str) -> Path:
        """Return the file of a cell's profiler trace, in Chrome's format, if there is one."""
        return self.scenario(label) / "trace.json"

    def prepare(self, label: str) -> Path:
        """Create a cell's folder; return the file of its redacted output.

        Raises OSError if the run's folder is missing.
        """
        make_folder(self.scenario(label), below=self.path)
        return self.log(label)

    def start_log(self, label: str) -> Path:
        """Remove earlier output of a cell; return the file for the raw output of its next command."""
        self.prepare(label).unlink(missing_ok=True)
        self.make_private_folders()
        self.raw(label).unlink(missing_ok=True)
        return self.raw(label)

    def publish(self, label: str, *, ended: bool = True) -> Path:
        """Write the redacted output of a cell into its folder once the command has `ended`. Raises OSError."""
        publish(self.raw(label), self.prepare(label), ended=ended)
        return self.log(label)

    def unpublished_logs(self) -> list[tuple[RunFolder, str]]:
        """List raw logs without redacted text, as attempt and name of the cell's folder."""
        raws = [path.relative_to(self.private) for path in self.private.rglob("*.log") if path.is_file()]
        found = [(self.for_attempt(_attempt_name(path.parent)), path.stem) for path in sorted(raws)]
        return [(folder, name) for folder, name in found if not folder.log(name).exists()]

    def redact_again(self, label: str) -> None:
        """Redact a cell's logs that an earlier version wrote, or that hold secrets known since. Raises OSError."""
        for log in sorted(self.scenario(label).rglob("output.log")):
            folder = self.for_attempt(_attempt_name(log.parent.relative_to(self.scenario(label))))
            if not folder.raw(label).exists() and contains_secrets(log):
                folder.make_private_folders()
                log.replace(folder.raw(label))
                folder.publish(label)

    def count_raw_logs(self) -> int:
        """Count the private logs of the run, each of which holds a secret."""
        return sum(1 for path in self.private.rglob("*.log") if path.is_file()) if self.private.is_dir() else 0

    def remove_empty_folders(self) -> None:
        """Remove the private folders that hold no log."""
        for folder in (*sorted(self.private.rglob("*"), reverse=True), self.private):
            with contextlib.suppress(OSError):
                folder.rmdir()
        above = self.private.parent
        with contextlib.suppress(OSError):
            if [path.name for path in above.iterdir()] == [".gitignore"]:
                (above / ".gitignore").unlink()
            above.rmdir()

    def make_private_folders(self) -> None:
        """Create the private folders. Try again if another run that ends removes them meanwhile."""
        place = self.raw("x").parent
        above = self.private.parent
        for _ in range(_MOST_TRIES):
            with contextlib.suppress(FileNotFoundError):
                # Almost always they are there: a cell in the middle of a run makes none of them.
                if place.is_dir() and (above / ".gitignore").exists() and not above.stat().st_mode & 0o077:
                    return
                for folder in reversed((place, *place.parents)):
                    if folder == above or above in folder.parents:
                        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                if above.stat().st_mode & 0o077:
                    above.chmod(PRIVATE_FOLDER)
                if not (above / ".gitignore").exists():
                    write_atomically(above / ".gitignore", b"*\n", PRIVATE)
                if place.is_dir():
                    return

    def take_raw_logs(self, before: RunFolder) -> None:
        """Move the raw logs of the run from its former place `before` to private folders here. Raises OSError."""
        if before.private == self.private or not before.private.is_dir():
            return
        for log in sorted(before.private.rglob("*.log")):
            to = self.private / log.relative_to(before.private)
            self.for_attempt(_attempt_name(to.parent.relative_to(self.private))).make_private_folders()
            if self.private.parent.lstat().st_uid != os.geteuid():
                raise PermissionError(errno.EACCES, "belongs to another user", str(self.private.parent))
            if not to.exists():
                log.replace(to)
        before.remove_empty_folders()

    def move_attempt(self, label: str, attempt: RunFolder) -> None:
        """Move the files of an attempt at a cell into the folder of that attempt."""
        attempt.prepare(label)
        self.move_raw_log(label, attempt)
        for path in (self.log, self.job, self.stacks):
            if path(label).exists():
                path(label).replace(attempt.scenario(label) / path(label).name)

    def move_raw_log(self, label: str, attempt: RunFolder) -> None:
        """Move a cell's raw log, if there is one, to an attempt."""
        if self.raw(label).exists():
            attempt.make_private_folders()
            self.raw(label).replace(attempt.raw(label))

    def remove(self, label: str) -> None:
        """Remove all files of an attempt at a cell."""
        shutil.rmtree(self.scenario(label), ignore_errors=True)
        self.raw(label).unlink(missing_ok=True)

    def archive_raw_logs(self, label: str, part: str) -> None:
        """Move the raw logs of all attempts at a cell into the folder of an earlier part. Raises OSError."""
        for attempt, name in self.unpublished_logs():
            # A killed part may leave output that was never redacted.
            if name == self._name(label):
                attempt.publish(name, ended=False)
        for path in sorted(self.private.rglob(f"{self._name(label)}.log")):
            before = path.parent.relative_to(self.private)
            if not before.parts or not before.parts[0].startswith(part.rstrip("0123456789")):
                self.for_attempt(_attempt_name(before)).move_raw_log(label, self.for_attempt(str(Path(part, before))))

    def remove_attempts(self, label: str) -> None:
        """Remove the folders of attempts at a cell that another attempt followed."""
        for folder in self.scenario(label).glob(f"{ATTEMPT}*"):
            self.for_attempt(folder.name).remove(label)

    def write_job(self, job: Job, result: RunResult | None = None) -> None:
        """Store the redacted job, with its result once there is one. Replace the file of before."""
        self.prepare(job.label)
        left = json.dumps(redact_json({"result": to_json(result)})["result"]) if result else "null"
        # One line per part: the indenting encoder is many times slower, and each cell writes this file twice.
        text = f'{{"schema": {SCHEMA},\n"job": {_job_text(job)},\n"result": {left}}}\n'
        write_atomically(self.job(job.label), text.encode("ascii"), PRIVATE)


class _LastJob:
    """The job that was written last, the basis of its redaction, and its text."""

    job: ClassVar[tuple[Job | None, object, str]] = (None, None, "")


def _job_text(job: Job) -> str:
    """Return a job as redacted JSON, made once for both writes."""
    last, by, text = _LastJob.job
    now = basis()  # before the text: secrets that are learnt meanwhile make it anew
    if last is not job or by != now:
        text = json.dumps(redact_json({"job": to_json(job)})["job"])
        _LastJob.job = (job, now, text)
    return text


@lru_cache(maxsize=64)
def _cell_folder(run: Path, name: str, attempt: str) -> Path:
    """Return the folder of a cell. Each cell needs it about twenty times."""
    return run / "scenarios" / name / attempt


def read_job(path: Path) -> Job:
    """Read the Job that `write_job` stored. Raises RecordError, naming the file, if it cannot be read."""
    return _decode_member(path, Job, _load(path).get("job"))


def read_result(path: Path) -> RunResult | None:
    """Read the RunResult in the file `path`; None if the job never ended. Raises RecordError as `read_job` does."""
    data = _load(path).get("result")
    return None if data is None else _decode_member(path, RunResult, data)


def _new_folder(reports: Path) -> Path:
    while True:
        path = reports / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=FOLDER)
        except FileExistsError:
            continue
        return path


def _attempt_name(attempt: Path) -> str:
    """Return the name of an attempt by its path, which is `.` for the cell's own folder."""
    return str(attempt) if attempt.parts else ""


def update_latest(run: Path) -> None:
    """Let `latest` lead to a run: as a link, or as the file `latest.txt` on a file system without links."""
    link = run.parent / "latest"
    temporary = run.parent / f".latest.{run.name}"
    try:
        temporary.symlink_to(run.name, target_is_directory=True)
        temporary.replace(link)
    except OSError:
        temporary.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            write_atomically(run.parent / "latest.txt", f"{run.name}\n".encode())


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_input(path))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: not JSON ({error})") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is not int:
        raise RecordError(f"{path}: not the job of a cell (it has no schema number)")
    if schema > SCHEMA:
        raise RecordError(f"{path}: written by a newer version (schema {schema}, known: {SCHEMA})")
    return dict(data)


def _decode_member(path: Path, cls: type[T], data: object) -> T:
    try:
        return from_json(cls, data)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
