"""What a journal's lines say: one dataclass an event, and the published JSON Schema of all of them.

A line is `{"schema": 1, "event": NAME, "epoch": S, "order": N, "part": P, "clock": S, ...the event's own fields}`:
`epoch` is seconds since 1970 when it was written, `order` grows by one with each line of a writer. What was before what
follows from `part`, which grows whenever the run is taken up again, and within a part from `clock`, the machine's
monotonic clock in seconds, which all writers of a part share: a wall clock may go back. A version that changes the
meaning of a field or takes one away counts `schema` up; a new field with a default does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hetgpu.model.bandwidth import LinkReport
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """A matrix of the run: its name, its file as given, and the SHA-256 of what was read (hexadecimal)."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Run:
    """A session began: `argv` is pytest's command line, `started` in seconds since 1970, `package` our version.

    `options` is what must be typed for a cell to be the same again (also what came from ini files and variables), and
    `folder` the one that it is typed in. `id` is the name that the run's folder was made with, `pid` the process that
    pytest was started as. `basis` is what verdicts rest on, by name: digests of files, images, versions, options.
    """

    package: str
    matrices: tuple[MatrixFile, ...]
    argv: tuple[str, ...]
    host: str
    started: float
    options: tuple[str, ...] = ()
    folder: str = ""
    id: str = ""
    pid: int = 0
    basis: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell will be run with `argv`. `position` is its place in the order of the matrix files."""

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str]
    argv: tuple[str, ...] = ()
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """A cell waits for a host: `why` says for which, and who holds it; "" once it has what it waited for."""

    matrix: str
    scenario: str
    label: str
    why: str


@dataclass(frozen=True, slots=True)
class Started:
    """A cell's command is about to be started by process `pid`."""

    matrix: str
    scenario: str
    pid: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell's command ended, however it did."""

    matrix: str
    scenario: str
    result: RunResult


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell has its outcome."""

    matrix: str
    scenario: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Accepted:
    """The test of a cell passed though its outcome is a failure: it looks at that by itself."""

    matrix: str
    scenario: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt at a cell failed, and another one follows; `number` counts from 1."""

    matrix: str
    scenario: str
    number: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cell is not run, and why; `issue` is the link that the matrix gives for it."""

    matrix: str
    scenario: str
    label: str
    reason: str
    axes: Mapping[str, str] = field(default_factory=dict)
    issue: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Wired:
    """What the way between the nodes of a placement can carry was found out."""

    matrix: str
    placement: str
    report: LinkReport


@dataclass(frozen=True, slots=True)
class Health:
    """What a job over several nodes told of them: they are `HARDWARE on HOST`, once each.

    `came_up` is whether a rank reported, `failed` says of nodes why they are blamed; `suspect` is a failure to start
    that names none of them, "" for none. They are not `ready` where no job could be started on them.
    """

    matrix: str
    scenario: str
    nodes: tuple[str, ...]
    came_up: bool
    failed: Mapping[str, str] = field(default_factory=dict)
    suspect: str = ""
    ready: bool = True


CellEvent = Planned | Started | Finished | Attempted | Judged | Accepted | Skipped
Event = Run | Wired | Health | Waits | CellEvent

EVENTS: Mapping[str, type[Event]] = {
    "run": Run,
    "wire": Wired,
    "planned": Planned,
    "waits": Waits,
    "started": Started,
    "finished": Finished,
    "attempted": Attempted,
    "health": Health,
    "judged": Judged,
    "accepted": Accepted,
    "skipped": Skipped,
}
NAMES: Mapping[type[Event], str] = {cls: name for name, cls in EVENTS.items()}


def journal_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line of a journal."""
    from pydantic import TypeAdapter

    adapters = [(name, "validation", TypeAdapter(cls)) for name, cls in EVENTS.items()]
    references, schema = TypeAdapter.json_schemas(adapters)  # type: ignore[arg-type]
    definitions = schema["$defs"]
    for name, cls in EVENTS.items():
        shape = definitions[cls.__name__]
        shape["properties"] = {**_envelope(name), **_LATER, **shape["properties"]}
        shape["required"] = [*_envelope(name), *shape["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a pytest-hetgpu journal",
        "oneOf": [references[name, "validation"] for name in EVENTS],
        "$defs": definitions,
    }


# Lines of earlier versions have none.
_LATER = {"part": {"type": "integer", "minimum": 0}, "clock": {"type": "number"}}


def _envelope(name: str) -> dict[str, Any]:
    return {
        "schema": {"const": SCHEMA},
        "event": {"const": name},
        "epoch": {"type": "number"},
        "order": {"type": "integer", "minimum": 0},
    }
