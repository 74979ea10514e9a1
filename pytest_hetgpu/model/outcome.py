"""The nouns of what happened: a run, what its output said, and what was made of it.

Units everywhere: bytes, seconds, and 1e9 B/s for bandwidths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.program_output import BenchmarkResult, ExitMeaning
from pytest_hetgpu.model.records import Device, Hello, Measurement, MessagePoint, RankExit, Row
from pytest_hetgpu.model.transport_classes import Connection
from pytest_hetgpu.model.verdict import Kind, Verdict

__all__ = [
    "Attempt",
    "DebugRun",
    "Device",
    "Evidence",
    "Finding",
    "Hello",
    "KnownFailure",
    "LinkBandwidth",
    "Measurement",
    "Outcome",
    "ProgramOutput",
    "RankExit",
    "RankOutcome",
    "Row",
    "RunResult",
    "Signature",
    "Span",
    "Timeline",
]


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """What the way between the nodes of a placement can carry, found in the run itself: a limit for bandwidths.

    `gbs` is 1e9 bytes a second one way, from the first to the second of `between`, who are the slowest; None where it
    is not known, and `why` says why. `source` is whose figure it is: `pump 1, 4 streams`, `rate of mlx5_0:1 on node0`.
    `rtt` is the median round trip of a small message there, in us; `caveats` are what casts doubt on the figure.
    """

    gbs: float | None = None
    source: str = ""
    between: tuple[str, ...] = ()
    rtt: float | None = None
    caveats: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a started command left, whatever runtime started it.

    `returncode` is as subprocess gives it (-N: the launcher itself died of signal N). `started` is seconds since the
    epoch, `quiet` the seconds without any output before the end. `interrupted` names the signal that cut the run short
    from outside; `survivors` are processes that outlived their launcher and had to be stopped. `lost` says which nodes
    were out of reach at the end, and why; `traffic` are the bytes that each node's fabric interface moved meanwhile.
    `wire` is what the way between the nodes can carry, None where nobody asked. `spent` says why it had to end before
    its own time was over, `left_out` how many bytes of its output were not kept. `unleased` names hosts that others
    may have used meanwhile; `leased_here` those that only what this machine starts was kept off, and why. `unplugged`
    are interfaces that nodes had when they were made, and not after a run that failed: `eth0 of node1 is gone`.
    `launcher_gone` is set if the launcher, a file of this machine, was not there any more after a run that failed.
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
    wire: LinkBandwidth | None = None
    spent: str = ""
    left_out: int = 0
    unleased: tuple[str, ...] = ()
    leased_here: Mapping[str, str] = field(default_factory=dict)
    unplugged: tuple[str, ...] = ()
    launcher_gone: bool = False

    @property
    def signal(self) -> int | None:
        """The signal that ended the launcher, or that it reports of a rank in the 128+N convention."""
        code = self.returncode
        if code is None:
            return None
        return -code if code < 0 else code - 128 if 128 < code < 128 + 65 else None


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a foreign program printed, as its reader took it; `exited` is what its exit code says, None for nothing bad.

    `tool` is the program with its version, `memory` where its data was, "" for not known; `absent` says which nodes
    lack the program, and where it was looked for.
    """

    reading: BenchmarkResult
    tool: str
    memory: str = ""
    exited: ExitMeaning | None = None
    absent: str = ""
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's output after one streaming pass; all that judges look at besides the job and its RunResult.

    `checks` maps a rank to the points it verified and the number of wrong elements at each.
    `transports` are the components seen between ranks, `connections` the same by path and by kind of connection;
    `versions` are what the libraries said of themselves.
    `signatures` are all failures read, the most telling first. `figures` are what programs measured beside times.
    `lacks` is what ranks found missing of what they were to use, and how they know. `told` is what a foreign program
    printed. `ended` is when ranks were done and `last_row` when rank 0 last reported a time, in seconds since 1970 by
    the clocks of their own nodes.
    """

    hellos: Mapping[int, Hello] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    checks: Mapping[int, Mapping[MessagePoint, int]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    done: frozenset[int] = frozenset()
    transports: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    exits: tuple[RankExit, ...] = ()
    signatures: tuple[Signature, ...] = ()
    tail: tuple[str, ...] = ()
    figures: tuple[Measurement, ...] = ()
    devices: tuple[Device, ...] = ()
    lacks: tuple[str, ...] = ()
    told: ProgramOutput | None = None
    ended: Mapping[int, float] = field(default_factory=dict)
    last_row: float | None = None
    connections: tuple[Connection, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """What conditions may ask of a run: versions; of a foreign program also `tool` and `memory`."""
        told = {"tool": self.told.tool, "memory": self.told.memory} if self.told else {}
        return {**self.versions, **{name: value for name, value in told.items() if value}}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one judge has to say of a run, in one line."""

    judge: str
    kind: Kind
    why: str
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What became of one rank, in words: `finished`, `crashed (SIGSEGV)`, `was stopped`, `never started`.

    `node` and `platform` say where it ran; `own` is whether it ended for a reason of its own.
    """

    rank: int
    node: str
    platform: str
    fate: str
    own: bool = False


class Span(NamedTuple):
    """From when to when a rank was there, in seconds after its job's start; None for what is not known.

    `node` is the index of its node's name in the timeline.
    """

    rank: int
    node: int
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """When the ranks of a job of `seconds` were there, each by its own node's clock, which may be off.

    A start is a rank's greeting, an end is when it had done its work. Of `ranks` a few are kept where they are many;
    `rest` is the earliest start and the latest end of the others. `limit` is the job's time limit in seconds, 0 for
    none; `last_row` is when rank 0 last reported a time.
    """

    spans: tuple[Span, ...]
    nodes: tuple[str, ...]
    ranks: int
    seconds: float
    limit: float = 0.0
    rest: tuple[float | None, float | None] = (None, None)
    last_row: float | None = None


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
class Attempt:
    """An attempt at a cell that another one followed: `key` is its signature's, "" where there was none.

    `log` is the path of its output from the run's folder.
    """

    kind: Kind
    key: str
    why: str
    log: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judged result of a scenario. `findings` holds what every judge said, the decisive one first.

    `concerns` are what was known of the nodes before, and feared for the cell; `known` is what knowledge has on the
    signature, `others` are further failures in the log, and `fates` what became of each rank of a run that failed;
    `debug` is the debug rerun, which decides nothing; `facts` are the versions and settings that conditions ask for;
    `wire` is the run's. `notes` decide nothing either; an `unsettled` cell must be run again before it can be judged.
    `attempts` are those that failed before the one that this is the outcome of; `timeline` is None where no rank said
    when it was there. `away` is `engine` or `stack` where the cell failed for want of that, which had been there.
    `carried` names the components that carried data, by path.
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
    known: tuple[KnownFailure, ...] = ()
    others: tuple[Signature, ...] = ()
    fates: tuple[RankOutcome, ...] = ()
    debug: DebugRun | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    wire: LinkBandwidth | None = None
    notes: tuple[str, ...] = ()
    unsettled: bool = False
    attempts: tuple[Attempt, ...] = ()
    timeline: Timeline | None = None
    away: str = ""
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def flaky(self) -> bool:
        """Whether it failed and then passed."""
        return self.kind is Kind.PASSED and bool(self.attempts)
