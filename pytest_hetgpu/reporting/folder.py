"""The folder of a run: where each report lies, and how a cell's job is kept so that it can be judged again."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.evidence import RunResult
from pytest_hetgpu.model import Job
from pytest_hetgpu.reporting.files import FOLDER, PRIVATE, make_folder, write_atomically
from pytest_hetgpu.reporting.redaction import redact_json
from pytest_hetgpu.reporting.serial import RecordError, from_json, to_json

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
ATTEMPT = "attempt-"
"""Begins the names of the folders that hold attempts at a cell which another one followed."""
HISTORY = "history.sqlite"
"""The file beside all runs of a folder that knows of every one of them."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`reports/<run>/`: `journal/`, `scenarios/<label>/output.log` and `job.json`, and the reports made of them.

    What a further `attempt` leaves lies in a folder of that name below the cell's.
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
        name = re.sub(r"[^A-Za-z0-9_.+-]", "_", label)[:LONGEST_NAME]
        return self.path / "scenarios" / (name if name.strip(".") else f"_{name}") / self.attempt

    def log(self, label: str) -> Path:
        """Where a cell's output goes, as its command printed it."""
        return self.scenario(label) / "output.log"

    def job(self, label: str) -> Path:
        """Where a cell's Job and RunResult are kept."""
        return self.scenario(label) / "job.json"

    def stacks(self, label: str) -> Path:
        """Where the stacks of a cell's ranks are kept, if they were taken (`forensics.FILE`)."""
        return self.scenario(label) / "stacks.json"

    def prepare(self, label: str) -> Path:
        """Makes a cell's folder; returns where its output goes. Raises OSError where the run's folder is gone."""
        make_folder(self.scenario(label), below=self.path)
        return self.log(label)

    def set_aside(self, label: str, attempt: RunFolder) -> None:
        """Moves what an attempt at a cell left into the folder of that attempt."""
        attempt.prepare(label)
        for path in (self.log, self.job, self.stacks):
            if path(label).exists():
                path(label).replace(attempt.scenario(label) / path(label).name)

    def forget_attempts(self, label: str) -> None:
        """Removes the folders of attempts at a cell that another one followed."""
        for folder in self.scenario(label).glob(f"{ATTEMPT}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def write_job(self, job: Job, result: RunResult | None = None) -> None:
        """Keeps the job, and what it left once that is known, redacted. Replaces what was kept before."""
        self.prepare(job.label)
        kept = {"schema": SCHEMA, "job": to_json(job), "result": to_json(result) if result else None}
        # A part a line: the encoder that indents is many times slower, and this is written twice a cell.
        parts = ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in redact_json(kept).items())
        write_atomically(self.job(job.label), f"{{{parts}}}\n".encode("ascii"), PRIVATE)


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
