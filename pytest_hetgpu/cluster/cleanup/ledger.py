"""The list of locations at which a process has made resources: one file per process, which outlives a killed process.

The first line names the owner. Each further line opens a location, or closes one that needs no more cleanup. Truncated
lines are skipped: their resources were not started yet.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_hetgpu.cluster.cleanup.owner import Owner, parse
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.process.segments import Segments
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

FOLDER_VARIABLE = "HETGPU_LEDGERS"
ENDING = ".ledger"
_SEGMENTS = "SEGMENTS"


@dataclass(frozen=True, slots=True)
class Ledger:
    """One file's contents."""

    path: Path
    owner: Owner
    locations: tuple[Location, ...] = field(default=())


def processes_location() -> Location:
    """Return the location of this machine, with its state before the first process of the run."""
    return Location("processes", environ=((_SEGMENTS, " ".join(sorted(Segments().before))),))


def segments_before(location: Location) -> Segments | None:
    """Return the shared memory that was here before the processes of a location; None if that is not known."""
    before = dict(location.environ).get(_SEGMENTS) if location.kind == "processes" else None
    return None if before is None else Segments(before.split())


def head(owner: Owner) -> str:
    """Return the first line."""
    return json.dumps({"owner": owner.text}) + "\n"


def opened(number: int, location: Location) -> str:
    """Return the line that opens a location. The number names it again when it is closed."""
    reach = {name: getattr(location.reach, name) for name in ConnectionInfo.__dataclass_fields__}
    return (
        json.dumps({"at": number, "kind": location.kind, "host": location.host, **reach, "environ": location.environ})
        + "\n"
    )


def closed(number: int) -> str:
    """Return the line that closes a location: nothing is left there."""
    return json.dumps({"closed": number}) + "\n"


def read(path: Path) -> Ledger | None:
    """Read a ledger; None for a file that is no ledger, or does not exist any more."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    entries = [entry for entry in map(_entry, lines) if entry]
    owner = parse(str(entries[0].get("owner"))) if entries else None
    if owner is None:
        return None
    locations: dict[str, Location] = {}
    for entry in entries[1:]:
        if "closed" in entry:
            locations.pop(str(entry["closed"]), None)
        elif entry.get("kind") and "at" in entry:
            locations[str(entry.get("at"))] = _location(entry)
    return Ledger(path, owner, tuple(dict.fromkeys(locations.values())))


def _entry(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _location(entry: Mapping[str, Any]) -> Location:
    reach = ConnectionInfo(*(entry.get(name) for name in ConnectionInfo.__dataclass_fields__))  # type: ignore[arg-type]
    environ = tuple((str(name), str(value)) for name, value in entry.get("environ") or ())
    return Location(str(entry["kind"]), str(entry.get("host") or ""), reach, environ)


def ledgers(folder: Path) -> Iterable[Ledger]:
    """Read all ledgers of a folder."""
    return [ledger for path in sorted(folder.glob(f"*{ENDING}")) if (ledger := read(path))]


def home() -> Path:
    """Return the folder of this user's ledgers, made with mode 0700.

    It is $HETGPU_LEDGERS, else below the XDG folder for state, else below the one for temporary files. Raise UsageError
    if others can write to it.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return private(Path(chosen))
    state = os.path.join(os.sep, os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))  # noqa: PTH111, PTH118
    try:
        folder = Path(state, "hetgpu")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return private(folder / "ledgers")
    except OSError:  # no home, a full disk, one that is mounted read-only
        return private(private(Path(tempfile.gettempdir(), f"hetgpu-{os.geteuid()}")) / "ledgers")


def private(folder: Path) -> Path:
    """Return `folder`, made with mode 0700 if needed. Raise UsageError unless this user owns it and alone can write."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    problem = None
    if not stat.S_ISDIR(found.st_mode):
        problem = "is a symbolic link"
    elif found.st_uid != os.geteuid():
        problem = f"belongs to user id {found.st_uid}, not to you ({os.geteuid()})"
    elif found.st_mode & 0o022:
        problem = f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    if problem:
        raise UsageError(
            f"{folder} cannot hold ledgers: it {problem}; "
            f"remove it, or set {FOLDER_VARIABLE} to a folder that only you can write to"
        )
    return folder
