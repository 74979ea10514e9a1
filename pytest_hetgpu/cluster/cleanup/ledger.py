"""The list of places where a process has started things: one file a process, which outlives it when it is killed.

The first line says whose it is, each further one is a place, or that one needs no more looking at. Lines that were cut
off are passed over: what they would have named was not started yet.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_hetgpu.cluster.cleanup.owner import Owner, parse
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.process.segments import Segments
from pytest_hetgpu.model.job import ConnectionInfo

FOLDER_VARIABLE = "HETGPU_LEDGERS"
ENDING = ".ledger"
_SEGMENTS = "SEGMENTS"
_TLS = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@dataclass(frozen=True, slots=True)
class Spot:
    """A place where something may be: `kind` is processes (of this machine), engine, host or namespace.

    `environ` has what is needed besides: to reach an engine over TLS; of a namespace NAMESPACE, KUBECONFIG and KINDS,
    `host` being the context; of processes SEGMENTS, the shared memory that was here before them.
    """

    kind: str
    host: str = ""
    reach: ConnectionInfo = field(default_factory=ConnectionInfo)
    environ: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """One file's contents."""

    path: Path
    owner: Owner
    spots: tuple[Spot, ...] = field(default=())


def engine_spot(reach: ConnectionInfo, environ: Mapping[str, str]) -> Spot:
    """The place of an engine, so that it is found again without the environment it was found in."""
    url = reach.engine or environ.get("DOCKER_HOST", "")
    tls = url.startswith(("tcp://", "https://"))
    needed = tuple((name, environ[name]) for name in _TLS if tls and name in environ)
    return Spot("engine", "", ConnectionInfo(url, reach.user, reach.port, reach.key), needed)


def namespace_spot(context: str, namespace: str, config: str, kinds: Sequence[str]) -> Spot:
    """A namespace of Kubernetes, where objects of these kinds may be."""
    given = (("NAMESPACE", namespace), ("KUBECONFIG", config), ("KINDS", ",".join(kinds)))
    return Spot("namespace", context, environ=tuple((name, value) for name, value in given if value))


def processes_spot() -> Spot:
    """Name this machine as it is before the first process of ours."""
    return Spot("processes", environ=((_SEGMENTS, " ".join(sorted(Segments().before))),))


def segments_before(spot: Spot) -> Segments | None:
    """Return the shared memory that was here before the processes of a spot; None if that is not known."""
    before = dict(spot.environ).get(_SEGMENTS) if spot.kind == "processes" else None
    return None if before is None else Segments(before.split())


def head(owner: Owner) -> str:
    """The first line."""
    return json.dumps({"owner": owner.text}) + "\n"


def opened(number: int, spot: Spot) -> str:
    """The line for a place, called by its number when it is closed."""
    reach = {name: getattr(spot.reach, name) for name in ConnectionInfo.__dataclass_fields__}
    return json.dumps({"at": number, "kind": spot.kind, "host": spot.host, **reach, "environ": spot.environ}) + "\n"


def closed(number: int) -> str:
    """The line that says that nothing is at a place any more."""
    return json.dumps({"closed": number}) + "\n"


def read(path: Path) -> Ledger | None:
    """A ledger; None for a file that is none, or is not there any more."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    entries = [entry for entry in map(_entry, lines) if entry]
    owner = parse(str(entries[0].get("owner"))) if entries else None
    if owner is None:
        return None
    spots: dict[str, Spot] = {}
    for entry in entries[1:]:
        if "closed" in entry:
            spots.pop(str(entry["closed"]), None)
        elif entry.get("kind") in ("processes", "engine", "host", "namespace"):
            spots[str(entry.get("at"))] = _spot(entry)
    return Ledger(path, owner, tuple(dict.fromkeys(spots.values())))


def _entry(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _spot(entry: Mapping[str, Any]) -> Spot:
    reach = ConnectionInfo(*(entry.get(name) for name in ConnectionInfo.__dataclass_fields__))  # type: ignore[arg-type]
    environ = tuple((str(name), str(value)) for name, value in entry.get("environ") or ())
    return Spot(str(entry["kind"]), str(entry.get("host") or ""), reach, environ)


def ledgers(folder: Path) -> Iterable[Ledger]:
    """All that a folder holds."""
    return [ledger for path in sorted(folder.glob(f"*{ENDING}")) if (ledger := read(path))]


def home() -> Path:
    """The folder of this user's ledgers: $HETGPU_LEDGERS, else below XDG's folder for state, else for temporary files.

    Made with mode 0700. UsageError where it is not ours alone to write to.
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
    """`folder`, made with mode 0700 if need be. UsageError unless it is ours, and only ours to write to."""
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
