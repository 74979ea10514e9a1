"""The lines of a journal: one dataclass per event, and the published JSON Schema of all of them.

A line is `{"schema": 1, "event": NAME, "epoch": S, "order": N, "part": P, "clock": S, ...the fields of the event}`.
`epoch` is the time of writing in seconds since 1970. `order` grows by one with each line of a writer. `part` grows
whenever the run is resumed. `clock` is the machine's monotonic clock in seconds, which all writers of a part share.

`part` and then `clock` give the order of events, because a wall clock may go back. A version that changes the meaning
of a field, or removes one, increments `schema`. A new field with a default does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_hetgpu.model.bandwidth import LinkReport
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.model.scenario import Scaling

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """A matrix of the run: its name, its file as given, and the SHA-256 of the contents (hexadecimal)."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The start of a pytest session."""

    #: our version
    package: str
    matrices: tuple[MatrixFile, ...]
    #: the command line of pytest
    argv: tuple[str, ...]
    host: str
    #: seconds since 1970
    started: float
    #: all that must be typed to repeat a cell, from ini files and variables, too
    options: tuple[str, ...] = ()
    #: the current directory
    folder: str = ""
    #: the name of the run's folder when it was created
    id: str = ""
    #: the process of pytest
    pid: int = 0
    #: the inputs of the verdicts, by name: digests of files, images, versions, options
    basis: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The cells of a matrix that a strategy chose, and all `allowed` ones; sets as in `packed_cells.py`."""

    matrix: str
    strategy: str
    #: what the sample covers, in words
    text: str
    axes: Mapping[str, tuple[str, ...]]
    chosen: str
    allowed: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell that will run with `argv`; `position` is its place in the order of the matrix files."""

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str]
    argv: tuple[str, ...] = ()
    position: int | None = None
    #: the kind of the series that it is a cell of
    scaling: Scaling | None = None


@dataclass(frozen=True, slots=True)
class WaitingForHost:
    """A cell of process `pid` that waits for a host: `why` names the host and its holder; "" ends the wait."""

    matrix: str
    scenario: str
    label: str
    why: str
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The imminent start of a cell's command by process `pid`."""

    matrix: str
    scenario: str
    pid: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a cell's command, whether it succeeded or not."""

    matrix: str
    scenario: str
    result: RunResult


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of a cell."""

    matrix: str
    scenario: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Accepted:
    """A test that passed although the outcome of its cell is a failure: the test inspects the outcome itself."""

    matrix: str
    scenario: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """A failed attempt at a cell, which another attempt follows; `number` counts from 1."""

    matrix: str
    scenario: str
    number: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Controlled:
    """A further run for the condition of the failure `key`, with its reason.

    It is a cell that was not selected and follows with its own events, or, with an `attempt`, a repeat of a cell that
    was run. `values` are those in which the repeat differs from the cell; `number` counts the further runs from 1.
    """

    matrix: str
    scenario: str
    label: str
    number: int
    key: str
    reason: str
    axes: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """Runs of a failed cell with a remedy, for the failure `key`; `result` is a TrialResult."""

    matrix: str
    scenario: str
    key: str
    #: the settings as `NAME=VALUE`
    settings: str
    #: a link, or the id of a known failure
    source: str
    result: str
    #: the key of the other failure, or the reason why it could not be tried
    why: str = ""
    runs: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest job that fails like a cell, with the failure `key`.

    `settings` are those it needs, as `NAME=VALUE`, of `settings_before`. It failed in the same way in `same` of `runs`,
    the last runs of `tries`.
    """

    matrix: str
    scenario: str
    key: str
    ranks: int
    nodes: int
    points: tuple[str, ...]
    settings: tuple[str, ...]
    settings_before: int
    tries: int
    same: int
    runs: int
    #: the path of its output from the run's folder
    log: str
    #: its command line
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bisected:
    """Changes of the outcome along an axis, for cells with these `values` on the other axes.

    For the axis `stack` it is the version of a cell's MPI; `scenario` is then that cell.
    """

    matrix: str
    axis: str
    values: Mapping[str, str]
    #: `ok to 2K, SIGSEGV@lib from 4K (5 runs)`
    text: str
    scenario: str = ""

    @property
    def line(self) -> str:
        """The result in one line: `size: ok to 2K, SIGSEGV@lib from 4K (5 runs), with transport=ucx`."""
        values = {"cell": self.scenario, **self.values} if self.scenario else self.values
        others = " ".join(f"{axis}={value}" for axis, value in values.items())
        return f"{self.axis}: {self.text}{f', with {others}' if others else ''}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cell that is not run, with the reason; `issue` is the link that the matrix gives for it."""

    matrix: str
    scenario: str
    label: str
    reason: str
    axes: Mapping[str, str] = field(default_factory=dict)
    issue: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class BandwidthMeasured:
    """The bandwidth between the nodes of a placement."""

    matrix: str
    placement: str
    report: LinkReport


@dataclass(frozen=True, slots=True)
class HealthReported:
    """The health of nodes (`HARDWARE on HOST`, once each) as seen by a job over several of them."""

    matrix: str
    scenario: str
    nodes: tuple[str, ...]
    #: whether a rank reported
    came_up: bool
    #: the reason for each node that is blamed
    failed: Mapping[str, str] = field(default_factory=dict)
    #: a failure to start that names no node; "" for none
    suspect: str = ""
    #: False if no job could be started on the nodes
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Merged:
    """The run of a site that was merged into this one, with its first `host`.

    `matrices` are its matrices by their names here, `NAME@SITE`.
    """

    site: str
    #: the id of the run
    run: str
    host: str
    matrices: Mapping[str, str] = field(default_factory=dict)
    #: whether each writer was alive, by its name here; null if unknown
    writers: Mapping[str, bool | None] = field(default_factory=dict)


CellEvent = Planned | Started | Finished | Attempted | Judged | Accepted | Skipped | Controlled
Event = (
    SessionStarted
    | Sampled
    | Tried
    | Shrunk
    | Bisected
    | BandwidthMeasured
    | HealthReported
    | WaitingForHost
    | Merged
    | CellEvent
)

EVENTS: Mapping[str, type[Event]] = {
    "run": SessionStarted,
    "sample": Sampled,
    "wire": BandwidthMeasured,
    "planned": Planned,
    "waits": WaitingForHost,
    "started": Started,
    "finished": Finished,
    "attempted": Attempted,
    "health": HealthReported,
    "judged": Judged,
    "accepted": Accepted,
    "control": Controlled,
    "tried": Tried,
    "shrunk": Shrunk,
    "bisected": Bisected,
    "skipped": Skipped,
    "merged": Merged,
}
NAMES: Mapping[type[Event], str] = {cls: name for name, cls in EVENTS.items()}


def journal_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one line of a journal."""
    from pydantic import TypeAdapter

    adapters = [(name, "validation", TypeAdapter(cls)) for name, cls in EVENTS.items()]
    references, schema = TypeAdapter.json_schemas(adapters)  # type: ignore[arg-type]
    definitions = schema["$defs"]
    for name, cls in EVENTS.items():
        shape = definitions[cls.__name__]
        shape["properties"] = {**_envelope(name), **_ADDED_LATER, **shape["properties"]}
        shape["required"] = [*_envelope(name), *shape["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a pytest-hetgpu journal",
        "oneOf": [references[name, "validation"] for name in EVENTS],
        "$defs": definitions,
    }


# Fields that lines of earlier versions lack.
_ADDED_LATER = {"part": {"type": "integer", "minimum": 0}, "clock": {"type": "number"}}


def _envelope(name: str) -> dict[str, Any]:
    return {
        "schema": {"const": SCHEMA},
        "event": {"const": name},
        "epoch": {"type": "number"},
        "order": {"type": "integer", "minimum": 0},
    }
