"""Nouns of the output side: a run, its evidence, and the judged outcome.

Units: bytes, seconds, and 1e9 B/s for bandwidths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.old_spellings import Renamed
from pytest_hetgpu.model.program_output import BenchmarkResult, ExitMeaning, SuiteResult
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


STOPPED = "the run was stopped"
"""Reason of a cell without a verdict, because a signal or an interrupt of pytest ended the run."""


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """The bandwidth between the nodes of a placement, measured in the run itself: an upper bound for bandwidths.

    Attributes:
        gbs: 1e9 bytes per second one way, from the first to the second of `between`, the slowest pair; None if not
            known.
        source: origin of the number: `pump 1, 4 streams`, `rate of mlx5_0:1 on node0`.
        rtt: median round trip of a small message between them, in us.
        caveats: reasons to doubt the number.
        why: reason why it is not known.

    """

    gbs: float | None = None
    source: str = ""
    between: tuple[str, ...] = ()
    rtt: float | None = None
    caveats: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a started command, the same for every runtime.

    Attributes:
        returncode: as subprocess gives it (-N: the launcher itself died of signal N).
        started: start in seconds since the epoch.
        quiet: seconds without any output before the end.
        interrupted: signal that stopped the run from outside.
        survivors: processes that outlived their launcher and had to be stopped.
        lost: nodes out of reach at the end, with the reason.
        traffic: bytes that each node's fabric interface moved during the run.
        hca_traffic: most bytes that each node's HCA can have moved by its own counters, where it has some.
        wire: bandwidth between the nodes, None if it was not measured.
        spent: reason why the run had to end before its own time limit.
        left_out: number of output bytes that were not kept.
        refuted: text that the pattern `failure` matched in output that was not kept, or redacted; "" without one.
        unleased: hosts that others may have used during the run.
        leased_here: hosts leased on this machine only, with the reason.
        unplugged: interfaces that existed before a failed run and not after it: `eth0 of node1 is gone`.
        full: full file systems that a failed run used: `TMPDIR /tmp/x has 0 MiB free`.
        frameless: reason why no core file of a failed run was read, "" if one was.
        launcher_gone: the launcher, a file of this machine, did not exist any more after a failed run.

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
    frameless: str = ""
    full: tuple[str, ...] = ()
    refuted: str = ""
    hca_traffic: Mapping[str, int] = field(default_factory=dict)

    @property
    def signal(self) -> int | None:
        """Return the signal that ended the launcher, or that it reports of a rank in the 128+N convention."""
        code = self.returncode
        if code is None:
            return None
        return -code if code < 0 else code - 128 if 128 < code < 128 + 65 else None


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The parsed output of a program of another project.

    Attributes:
        tool: the program with its version.
        memory: memory that held its data, "" if not known.
        exit_meaning: meaning of its exit code, None if the code is not bad.
        absent: nodes that lack the program, with the searched places; or what this version of it lacks.

    """

    benchmark: BenchmarkResult
    tool: str
    memory: str = ""
    exit_meaning: ExitMeaning | None = None
    absent: str = ""
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's output after one streaming pass. Judges see only this, the job and its RunResult.

    Attributes:
        checks: the points that each rank verified, with the number of wrong elements.
        transports: components seen between ranks.
        connections: the same by path and by kind of connection.
        versions: versions that libraries printed.
        signatures: all failures found, the most significant first.
        proven: the first of them shows by itself that the run failed; a run may survive others.
        figures: values that programs measured beside times.
        lacks: missing requirements that ranks reported, with the source.
        trace: how many parts of a profiler's trace arrived, and of how many.
        program: output of a program of another project.
        ended: end of each rank's work, in seconds since 1970 by its node's clock.
        last_row: last report of a time by rank 0, in the same unit.
        windows: connections of MPI windows, by path and by component.
        incompatible: warnings of libraries about versions that do not fit.

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
    trace: tuple[int, int] = (0, 0)
    program: ProgramOutput | None = None
    ended: Mapping[int, float] = field(default_factory=dict)
    last_row: float | None = None
    connections: tuple[Connection, ...] = ()
    proven: bool = False
    windows: tuple[Connection, ...] = ()
    incompatible: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """Return the facts for conditions: versions; `tool` and `memory` of a program of another project."""
        told = {"tool": self.program.tool, "memory": self.program.memory} if self.program else {}
        return {**self.versions, **{name: value for name, value in told.items() if value}}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one judge, in one line."""

    judge: str
    kind: Kind
    why: str
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """The end of one rank as text: `finished`, `crashed (SIGSEGV)`, `was stopped`, `never started`.

    `node` and `platform` give its place. `own`: it ended for a reason of its own.
    """

    rank: int
    node: str
    platform: str
    status: str = field(metadata={"key": "fate"})
    own: bool = False
    fate = Renamed("status")


class Span(NamedTuple):
    """The lifetime of a rank in seconds after its job's start; None if not known.

    `node` is the index of its node's name in the timeline.
    """

    rank: int
    node: int
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lifetimes of the ranks of a job, each by its own node's clock, which may be off.

    A start is a rank's greeting, an end is the end of its work. If there are many ranks, only a few are kept.

    Attributes:
        seconds: duration of the job.
        limit: the job's time limit in seconds, 0 for none.
        rest: earliest start and latest end of the ranks that are not kept.
        last_row: last report of a time by rank 0.

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
    """The rerun of a failed cell with its libraries' debug output.

    `key` is its signature's, "" without one. `log` is the path of its output from the run's folder.
    """

    kind: Kind
    key: str
    log: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a cell that was retried. `key` is its signature's, "" without one.

    `log` is the path of its output from the run's folder.
    """

    kind: Kind
    key: str
    why: str
    log: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judged result of a scenario.

    Attributes:
        findings: findings of every judge, the decisive one first.
        concerns: warnings about the cell: of preflight, and of libraries whose versions do not fit.
        known: known failures that match the signature.
        others: further failures in the log.
        rank_outcomes: outcomes of the ranks of a failed run.
        debug: the debug rerun, which decides nothing.
        facts: versions and settings for conditions.
        wire: bandwidth between the nodes.
        notes: remarks that decide nothing.
        inconclusive: the cell must run again before it can be judged.
        attempts: failed attempts before this one.
        timeline: lifetimes of ranks, None if no rank reported one.
        away: `engine` or `stack` if the cell failed because that had disappeared.
        carried: components that carried data, by path.
        suite: result of the program's own tests.

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
    rank_outcomes: tuple[RankOutcome, ...] = field(default=(), metadata={"key": "fates"})
    debug: DebugRun | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    wire: LinkBandwidth | None = None
    notes: tuple[str, ...] = ()
    inconclusive: bool = field(default=False, metadata={"key": "unsettled"})
    fates = Renamed("rank_outcomes")
    unsettled = Renamed("inconclusive")
    attempts: tuple[Attempt, ...] = ()
    timeline: Timeline | None = None
    away: str = ""
    carried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suite: SuiteResult | None = None

    @property
    def flaky(self) -> bool:
        """Return whether it failed and then passed."""
        return self.kind is Kind.PASSED and bool(self.attempts)
