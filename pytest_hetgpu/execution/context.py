"""The two objects that the steps of a cell share: the run, which does not change, and the cell's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_hetgpu.analysis.judge import get_ready, judge_output
from pytest_hetgpu.cluster.cleanup.tracker import LedgerTracker
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.cluster.leases.hold import close_connections
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.signature_rules.load import signature_rules
from pytest_hetgpu.execution.lru import LruCache
from pytest_hetgpu.execution.options import DEFAULTS, RunOptions
from pytest_hetgpu.execution.retry.engine_restart import EngineRestarts
from pytest_hetgpu.execution.retry.health import NodeHealth
from pytest_hetgpu.execution.retry.state import RetryState
from pytest_hetgpu.extensions.runtimes.base import Runtime
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal, matrix_file

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.bandwidth.measure import LinkBandwidths
    from pytest_hetgpu.cluster.facts_cache import FactsCache
    from pytest_hetgpu.cluster.pool import ClusterPool, ProvisionedPlacement
    from pytest_hetgpu.cluster.preflight.warning import PreflightWarning

UNSET: Any = None


def unchanged(_scenario: Scenario, job: Job) -> Job:
    """Return the planned job."""
    return job


@dataclass(frozen=True)
class Invocation:
    """The start of a session: its command line, and the inputs that its verdicts depend on."""

    arguments: Sequence[str] = ()
    fingerprint: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """One process's part of a run. Caches of nodes and facts are made, and their modules imported, on first use."""

    suite: MatrixSet
    folder: RunFolder
    journal: Journal
    guard: LedgerTracker
    options: RunOptions = DEFAULTS
    #: Called with each planned job; returns the job to start (`pytest_hetgpu_job`).
    change_job: Callable[[Scenario, Job], Job] = unchanged
    #: Called with a job while its nodes start or are inspected.
    meanwhile: Callable[[Job], object] = get_ready
    #: Runtimes of this machine by name.
    runtimes: dict[str, Runtime] = field(default_factory=dict)
    #: The last outcomes, by matrix and label.
    outcomes: LruCache = field(default_factory=LruCache)
    _closing: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Register what `close` ends. It is closed in the opposite order."""
        for close in (self.journal.close, self.guard.close, close_connections):
            self._closing.callback(close)

    @cached_property
    def health(self) -> NodeHealth:
        """The failures of nodes that all processes of this run have seen."""
        return NodeHealth(self.journal, self.options.quarantine)

    @cached_property
    def engines(self) -> EngineRestarts:
        """The waits for container engines that restart."""
        return EngineRestarts(self.journal, self.options.budget)

    @cached_property
    def pool(self) -> ClusterPool:
        """The provisioned nodes of this process."""
        from pytest_hetgpu.cluster.pool import ClusterPool

        pool = ClusterPool(self.folder.path.name, self.journal.waiting, self.meanwhile)
        self._closing.callback(pool.close)
        return pool

    @cached_property
    def facts(self) -> FactsCache:
        """The environments of nodes that this process has inspected."""
        from pytest_hetgpu.cluster.facts_cache import FactsCache

        return FactsCache(self.folder.path)

    @cached_property
    def links(self) -> LinkBandwidths:
        """The bandwidths of links that this process has measured."""
        from pytest_hetgpu.cluster.bandwidth.measure import LinkBandwidths

        return LinkBandwidths(self.folder.path, self.journal, self.options.link_seconds or 0.0)

    def cell(self, scenario: Scenario, *, verbose: bool = False) -> CellRun:
        """Return the state of a cell before its first step."""
        return CellRun(scenario, RetryState(self.folder, self.journal, self.engines, self.options), self.suite, verbose)

    def begin(self, invocation: Invocation) -> None:
        """Record the start of a session in the journal."""
        matrices = [matrix_file(matrix.name, Path(matrix.file)) for matrix in self.suite.matrices.values()]
        self.journal.session_started(matrices, invocation.arguments, self.options.typed, invocation.fingerprint)

    def position(self, cell: Job | Scenario) -> int:
        """Return the place of a cell in the order of the matrices."""
        return self.suite.position(cell.matrix, cell.label)

    def judge(
        self, job: Job, result: RunResult, further: Sequence[RunResult] = (), concerns: Sequence[PreflightWarning] = ()
    ) -> Outcome:
        """Judge a recorded run with the known failures and rules of this run; `further` are repeated launches."""
        # The shipped known failures are read only if a run fails.
        known = known_failures(self.suite.knowledge_files) if self.suite.knowledge_files else None
        own = signature_rules(self.suite.signature_files)
        outcome = judge_output(job, result, known, further, own)
        return replace(outcome, concerns=(*map(str, concerns), *outcome.concerns))

    def release(self) -> None:
        """Close the nodes that a crash, a hang or a kill has tainted. The next cell gets fresh ones."""
        if "pool" in vars(self):
            self.pool.evict()

    def close(self) -> None:
        """Close all nodes, leases, the cleanup ledger and the journal."""
        self._closing.close()


@dataclass(frozen=True)
class CellRun:
    """The state of one cell. Each step returns a new one; a field is unset until the step that sets it."""

    scenario: Scenario
    retry: RetryState
    #: The matrices by which it is planned; a further run has a variant of its cell in them.
    suite: MatrixSet
    #: Whether its libraries print debug output.
    verbose: bool = False
    #: Set by `plan`, final after `launch`.
    job: Job = UNSET
    #: Set by `acquire`, unless all nodes are processes of this machine.
    placement: ProvisionedPlacement | None = None
    #: Set by `provision`; always of the cell's job.
    cluster: Cluster = UNSET
    #: Set by `launch`; `launched` is False if the command was not started.
    result: RunResult = UNSET
    launched: bool = False
    #: Set by `remeasure`.
    further: tuple[RunResult, ...] = ()
    #: Set by `judge`, with attempts and notes by `record`.
    outcome: Outcome = UNSET

    def on(self, cluster: Cluster) -> CellRun:
        """Return the cell with a cluster, and with the cluster's job."""
        return replace(self, cluster=cluster, job=cluster.job)
