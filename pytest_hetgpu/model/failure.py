"""The nouns of what a log tells: kinds of outcome, ranks, times, failures, and what is known of a failure.

Apart from `model.py` and `evidence.py`, which have them too: whoever only reads a log need not wait for their nouns.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Kind(str, enum.Enum):
    """What became of a scenario, worst last: of several findings the worst is the outcome."""

    PASSED = "passed"
    SKIPPED = "skipped"
    SLOW = "slow"
    NETWORK_FAILURE = "network_failure"
    TIMEOUT = "timeout"
    HANG = "hang"
    TRANSPORT_UNAVAILABLE = "transport_unavailable"
    MISSING_LIBRARY = "missing_library"
    GPU_ARCH_MISMATCH = "gpu_arch_mismatch"
    LAUNCH_FAILURE = "launch_failure"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    CRASH = "crash"
    ERROR = "error"
    UNKNOWN = "unknown"

    @property
    def severity(self) -> int:
        """Position in the list above; larger is worse."""
        return _SEVERITY[self]


_SEVERITY = {kind: place for place, kind in enumerate(Kind)}


class Verdict(str, enum.Enum):
    """A kind held against what was expected of the scenario."""

    OK = "ok"
    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    FIXED = "fixed"
    NOT_RUN = "not_run"

    @property
    def fails(self) -> bool:
        """Whether a run with such a scenario exits with 1."""
        return self in (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED)


@dataclass(frozen=True, slots=True)
class Point:
    """One measured point: message size in bytes, element type, and `in` as `place` where the operation is in place.

    What moves no data has one point, of size 0 and dtype `none`.
    """

    size: int
    dtype: str
    place: str = ""

    def __str__(self) -> str:
        return ",".join(filter(None, (str(self.size), self.dtype, self.place)))


@dataclass(frozen=True, slots=True)
class Hello:
    """What one rank said of itself when it started; `node` is the index of its node in the job, where it knows that.

    `at` is when, in seconds since 1970 by the clock of its node; None for a rank that did not say.
    """

    rank: int
    size: int
    host: str
    pid: int
    library: str
    libmpi: str
    node: int | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """The accelerator that a rank used: `memory` it has, and at most was allocated by the rank (`peak`), in bytes."""

    rank: int
    index: int
    name: str
    arch: str
    memory: int
    peak: int


@dataclass(frozen=True, slots=True)
class Row:
    """One timed point as rank 0 printed it: seconds for one operation, mean over iterations and ranks.

    `repeat` counts the times that the point was come back to.
    """

    operation: str
    point: Point
    ranks: int
    iterations: int
    seconds: float
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """`metric` is latency (us), algbw or busbw (GB/s, 1e9 bytes a second), or what a program calls its own figure.

    Where it was measured several times `samples` has all values, and `value` is the median of those that are no
    outliers.
    """

    metric: str
    value: float
    unit: str
    point: Point
    ranks: int
    samples: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """`busbw[1048576,float32]`, in place `busbw[1048576,float32,in]`: the name it has in reports."""
        return f"{self.metric}[{self.point}]"


@dataclass(frozen=True, slots=True)
class RankExit:
    """How a launcher said that a rank ended: by `signal`, with `code`, or by calling abort."""

    rank: int
    signal: int | None = None
    code: int | None = None
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """Why a run failed, as one of the log's own lines says it.

    `key` holds no address, pid, host name or date: it is equal for equal bugs. `line` counts from 1.
    """

    kind: Kind
    key: str
    primary_line: str
    line: int
    signal: str | None = None
    detail: str | None = None
    library: str | None = None
    function: str | None = None
    entry_point: str | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of an expectation's `when`: a fact's name and what it must be (`<1.18`, or a plain word)."""

    fact: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is established about a failure, whatever run it is met in.

    `settings` are the `env` and `mca` that cure it, where it is settings; `status` says how well the cause is
    established: established (maintainers or documentation say so), reported (a workaround is confirmed), plausible.
    """

    id: str
    title: str
    cause: str
    fix: str = ""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    status: str = "established"
    fixed_in: str | None = None

    @property
    def url(self) -> str | None:
        """The link to read first."""
        return self.links[0] if self.links else None

    @property
    def typed(self) -> tuple[str, ...]:
        """Its settings as one types them: `UCX_TLS=tcp`, `--mca pml ucx`."""
        return tuple(
            f"--mca {name} {value}" if kind == "mca" else f"{name}={value}"
            for kind, values in self.settings.items()
            for name, value in values.items()
        )
