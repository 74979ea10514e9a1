"""The nouns of what happened: a run, what its output said, and what was made of it.

Units everywhere: bytes, seconds, and 1e9 B/s for bandwidths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_hetgpu.model import Expectation, Kind, Point, Verdict


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a started command left, whatever runtime started it.

    `returncode` is as subprocess gives it (-N: the launcher itself died of signal N). `started` is seconds since the
    epoch, `quiet` the seconds without any output before the end. `interrupted` names the signal that cut the run short
    from outside; `survivors` are processes that outlived their launcher and had to be stopped. `lost` says which nodes
    were out of reach at the end, and why; `traffic` are the bytes that each node's fabric interface moved meanwhile.
    """

    argv: tuple[str, ...]
    returncode: int | None
    output: str
    started: float
    seconds: float
    timed_out: bool = False
    quiet: float = 0.0
    interrupted: str | None = None
    survivors: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    traffic: Mapping[str, int] = field(default_factory=dict)

    @property
    def signal(self) -> int | None:
        """The signal that ended the launcher, or that it reports of a rank in the 128+N convention."""
        code = self.returncode
        if code is None:
            return None
        return -code if code < 0 else code - 128 if 128 < code < 128 + 65 else None


@dataclass(frozen=True, slots=True)
class Hello:
    """What one rank said of itself when it started."""

    rank: int
    size: int
    host: str
    pid: int
    library: str
    libmpi: str


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
class Evidence:
    """A run's output after one streaming pass; all that judges look at besides the job and its RunResult.

    `checks` maps a rank to the points it verified and the number of wrong elements at each.
    `transports` are the components seen between ranks, `versions` what the libraries said of themselves.
    `signatures` are all failures read, the most telling first.
    """

    hellos: Mapping[int, Hello] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    checks: Mapping[int, Mapping[Point, int]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    done: frozenset[int] = frozenset()
    transports: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    exits: tuple[RankExit, ...] = ()
    signatures: tuple[Signature, ...] = ()
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """`metric` is latency (us), algbw or busbw (GB/s, 1e9 bytes a second).

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
class Finding:
    """What one judge has to say of a run, in one line."""

    judge: str
    kind: Kind
    why: str
    signature: Signature | None = None


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


@dataclass(frozen=True, slots=True)
class RankFate:
    """What became of one rank, in words: `finished`, `crashed (SIGSEGV)`, `was stopped`, `never started`.

    `node` and `platform` say where it ran; `own` is whether it ended for a reason of its own.
    """

    rank: int
    node: str
    platform: str
    fate: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class DebugRun:
    """What a failed cell did when it was run once more with its libraries' debug output.

    `key` is the signature's, "" where there was none; `log` is the path of its output from the run's folder.
    """

    kind: Kind
    key: str
    log: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judged result of a scenario. `findings` holds what every judge said, the decisive one first.

    `concerns` are what was known of the nodes before, and feared for the cell; `known` is what knowledge has on the
    signature, `others` are further failures in the log, and `fates` what became of each rank of a run that failed;
    `debug` is the debug rerun, which decides nothing; `facts` are the versions and settings that conditions ask for.
    `notes` decide nothing either; an `unsettled` cell must be run again before it can be judged.
    """

    kind: Kind
    verdict: Verdict
    why: str = ""
    signature: Signature | None = None
    expectation: Expectation | None = None
    findings: tuple[Finding, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    transports: tuple[str, ...] = ()
    stack: str = ""
    seconds: float = 0.0
    concerns: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()
    others: tuple[Signature, ...] = ()
    fates: tuple[RankFate, ...] = ()
    debug: DebugRun | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unsettled: bool = False
