"""The folder of a run: where each report lies, and how a cell's job is kept so that it can be judged again."""

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
from pytest_hetgpu.store.files import FOLDER, PRIVATE, PRIVATE_FOLDER, make_folder, write_atomically
from pytest_hetgpu.store.redaction.log import holds_secrets, publish
from pytest_hetgpu.store.redaction.redact import basis, redact_json

__all__ = [
    "HISTORY",
    "LONGEST_NAME",
    "SCHEMA",
    "RunFolder",
    "point_to",
    "read_job",
    "read_result",
    "write_atomically",
]

T = TypeVar("T")

SCHEMA = 1
LONGEST_NAME = 200
_TRIES = 5
ATTEMPT = "attempt-"
"""Begins the names of the folders that hold attempts at a cell which another one followed."""
HISTORY = "history.sqlite"
"""The file beside all runs of a folder that knows of every one of them."""
RAW = ".private"
"""The folder beside all runs that holds their raw logs. Nothing publishes it."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`reports/<run>/`: `journal/`, `scenarios/<label>/output.log` and `job.json`, and the reports made of them.

    What a further `attempt` leaves lies in a folder of that name below the cell's. Raw logs lie in
    `reports/.private/<run>/`, whose owner alone may read it.
    """

    path: Path
    attempt: str = ""

    @classmethod
    def create(cls, reports: Path) -> RunFolder:
        """A new folder `YYYYMMDD-HHMMSS-xxxx` (local time) below `reports`; `reports/latest` points to it.

        Raises UsageError, naming `reports`, where it cannot be made.
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
        point_to(path)
        return cls(path)

    @property
    def history(self) -> Path:
        """Where the run is remembered unless the user wants it elsewhere."""
        return self.path.parent / HISTORY

    def further(self, attempt: str) -> RunFolder:
        """The same run's folder, for what a further attempt of each cell leaves."""
        return replace(self, attempt=attempt)

    def scenario(self, label: str) -> Path:
        """Where the files of a cell lie: always below `scenarios/`, whatever the label."""
        return _scenario(self.path, self._name(label), self.attempt)

    @staticmethod
    def _name(label: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_.+-]", "_", label)[:LONGEST_NAME]
        return name if name.strip(".") else f"_{name}"

    @property
    def private(self) -> Path:
        """Where the raw logs of the run are: those of running cells, and those in which secrets were found."""
        return self.path.parent / RAW / self.path.name

    def log(self, label: str) -> Path:
        """Where the redacted output of a cell is, once its command has ended."""
        return self.scenario(label) / "output.log"

    def raw(self, label: str) -> Path:
        """Where a cell's output goes, as its command prints it."""
        return self.private / self.attempt / f"{self._name(label)}.log"

    def job(self, label: str) -> Path:
        """Where a cell's Job and RunResult are kept."""
        return self.scenario(label) / "job.json"

    def stacks(self, label: str) -> Path:
        """Where the stacks of a cell's ranks are kept, if they were taken (`cluster/stack_dump.py`)."""
        return self.scenario(label) / "stacks.json"

    def prepare(self, label: str) -> Path:
        """Makes a cell's folder; returns where its redacted output goes. Raises OSError if the run's folder is gone."""
        make_folder(self.scenario(label), below=self.path)
        return self.log(label)

    def begin(self, label: str) -> Path:
        """Makes room for a command's output, in the place of any before it; returns where it goes, raw."""
        self.prepare(label).unlink(missing_ok=True)
        self.make_private()
        self.raw(label).unlink(missing_ok=True)
        return self.raw(label)

    def publish(self, label: str, *, ended: bool = True) -> Path:
        """Puts the redacted output of a cell whose command has `ended` into its folder. Raises OSError."""
        publish(self.raw(label), self.prepare(label), ended=ended)
        return self.log(label)

    def unpublished(self) -> list[tuple[RunFolder, str]]:
        """Raw logs of which there is no redacted text yet, by attempt and name of the cell's folder."""
        raws = [path.relative_to(self.private) for path in self.private.rglob("*.log") if path.is_file()]
        found = [(self.further(_named(path.parent)), path.stem) for path in sorted(raws)]
        return [(folder, name) for folder, name in found if not folder.log(name).exists()]

    def redact_again(self, label: str) -> None:
        """Redacts a cell's logs that an earlier version wrote, or in which secrets are known now. Raises OSError."""
        for log in sorted(self.scenario(label).rglob("output.log")):
            folder = self.further(_named(log.parent.relative_to(self.scenario(label))))
            if not folder.raw(label).exists() and holds_secrets(log):
                folder.make_private()
                log.replace(folder.raw(label))
                folder.publish(label)

    def raw_logs(self) -> int:
        """How many logs of the run are private: redaction found something in each."""
        return sum(1 for path in self.private.rglob("*.log") if path.is_file()) if self.private.is_dir() else 0

    def tidy(self) -> None:
        """Removes the private folders that hold no log."""
        for folder in (*sorted(self.private.rglob("*"), reverse=True), self.private):
            with contextlib.suppress(OSError):
                folder.rmdir()
        above = self.private.parent
        with contextlib.suppress(OSError):
            if [path.name for path in above.iterdir()] == [".gitignore"]:
                (above / ".gitignore").unlink()
            above.rmdir()

    def make_private(self) -> None:
        """Makes the private folders. Another run that ends may remove them meanwhile; then they are made again."""
        place = self.raw("x").parent
        above = self.private.parent
        for _ in range(_TRIES):
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

    def take_private(self, before: RunFolder) -> None:
        """Moves the raw logs of the run here, which was at `before`; to a folder of ours alone. Raises OSError."""
        if before.private == self.private or not before.private.is_dir():
            return
        for log in sorted(before.private.rglob("*.log")):
            to = self.private / log.relative_to(before.private)
            self.further(_named(to.parent.relative_to(self.private))).make_private()
            if self.private.parent.lstat().st_uid != os.geteuid():
                raise PermissionError(errno.EACCES, "belongs to somebody else", str(self.private.parent))
            if not to.exists():
                log.replace(to)
        before.tidy()

    def set_aside(self, label: str, attempt: RunFolder) -> None:
        """Moves what an attempt at a cell left into the folder of that attempt."""
        attempt.prepare(label)
        self.move_raw(label, attempt)
        for path in (self.log, self.job, self.stacks):
            if path(label).exists():
                path(label).replace(attempt.scenario(label) / path(label).name)

    def move_raw(self, label: str, attempt: RunFolder) -> None:
        """Makes a cell's raw log, if there is one, that of an attempt."""
        if self.raw(label).exists():
            attempt.make_private()
            self.raw(label).replace(attempt.raw(label))

    def forget(self, label: str) -> None:
        """Removes what an attempt left."""
        shutil.rmtree(self.scenario(label), ignore_errors=True)
        self.raw(label).unlink(missing_ok=True)

    def put_aside(self, label: str, part: str) -> None:
        """Moves the raw logs of a cell, of all its attempts, into the folder of an earlier part. Raises OSError."""
        for attempt, name in self.unpublished():
            # Commands of a part that was killed may have printed what nobody has redacted.
            if name == self._name(label):
                attempt.publish(name, ended=False)
        for path in sorted(self.private.rglob(f"{self._name(label)}.log")):
            before = path.parent.relative_to(self.private)
            if not before.parts or not before.parts[0].startswith(part.rstrip("0123456789")):
                self.further(_named(before)).move_raw(label, self.further(str(Path(part, before))))

    def forget_attempts(self, label: str) -> None:
        """Removes the folders of attempts at a cell that another one followed."""
        for folder in self.scenario(label).glob(f"{ATTEMPT}*"):
            self.further(folder.name).forget(label)

    def write_job(self, job: Job, result: RunResult | None = None) -> None:
        """Keeps the job, and what it left once that is known, redacted. Replaces what was kept before."""
        self.prepare(job.label)
        left = json.dumps(redact_json({"result": to_json(result)})["result"]) if result else "null"
        # A part a line: the encoder that indents is many times slower, and this is written twice a cell.
        text = f'{{"schema": {SCHEMA},\n"job": {_job_text(job)},\n"result": {left}}}\n'
        write_atomically(self.job(job.label), text.encode("ascii"), PRIVATE)


class _Last:
    """The job that was written last, and what it was redacted by, with its text."""

    job: ClassVar[tuple[Job | None, object, str]] = (None, None, "")


def _job_text(job: Job) -> str:
    """A job as redacted JSON, made once for both times that it is written."""
    last, by, text = _Last.job
    now = basis()  # before the text: secrets that are learnt meanwhile make it anew
    if last is not job or by != now:
        text = json.dumps(redact_json({"job": to_json(job)})["job"])
        _Last.job = (job, now, text)
    return text


@lru_cache(maxsize=64)
def _scenario(run: Path, name: str, attempt: str) -> Path:
    """A cell asks for it some twenty times."""
    return run / "scenarios" / name / attempt


def read_job(path: Path) -> Job:
    """The Job that `write_job` kept in the file `path`. Raises RecordError, naming it, where it cannot be read."""
    return _member(path, Job, _load(path).get("job"))


def read_result(path: Path) -> RunResult | None:
    """The RunResult in the file `path`, None if the job never ended. Raises as `read_job`."""
    data = _load(path).get("result")
    return None if data is None else _member(path, RunResult, data)


def _new_folder(reports: Path) -> Path:
    while True:
        path = reports / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=FOLDER)
        except FileExistsError:
            continue
        return path


def _named(attempt: Path) -> str:
    """The name of an attempt by its path, which is `.` for the cell's own folder."""
    return str(attempt) if attempt.parts else ""


def point_to(run: Path) -> None:
    """Makes `latest` lead to a run: a link, or the file `latest.txt` where there can be no link of that name."""
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
        data = json.loads(path.read_bytes())
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


def _member(path: Path, cls: type[T], data: object) -> T:
    try:
        return from_json(cls, data)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
