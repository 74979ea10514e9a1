"""One process's part of a run: makes cells ready, runs, judges and journals them; the first process also reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu import cluster as clusters
from pytest_hetgpu import leases, wording
from pytest_hetgpu.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.evidence import DebugRun, Finding, Outcome, RunResult
from pytest_hetgpu.execute import execute, not_started
from pytest_hetgpu.judge import SCENARIO, judge_output
from pytest_hetgpu.knowledge.entries import Knowledge
from pytest_hetgpu.knowledge.load import knowledge
from pytest_hetgpu.metrics import has_bandwidth
from pytest_hetgpu.model import Job, Kind, Scenario, Verdict
from pytest_hetgpu.reporting import anonymity
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal, matrix_file
from pytest_hetgpu.reporting.pairs import Pair, to_pairs
from pytest_hetgpu.reporting.report import build
from pytest_hetgpu.runtimes.base import Runtime
from pytest_hetgpu.speed.held import Speeds
from pytest_hetgpu.suite import Suite

if TYPE_CHECKING:
    from pytest_hetgpu.preflight.concern import Concern
    from pytest_hetgpu.speed.baseline import Baseline
    from pytest_hetgpu.standing import Placements
    from pytest_hetgpu.surroundings import Surroundings
    from pytest_hetgpu.wire.measure import Wires

# After these a node may hold what the next cell should not meet.
_SPOILT = frozenset((Kind.CRASH, Kind.HANG, Kind.TIMEOUT, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE, Kind.UNKNOWN))

_TO_DEBUG = frozenset((Verdict.NEW, Verdict.CHANGED))
DEBUG = "debug"


class Recorder:
    """Writes to one run's folder as `writer`; whatever it returns is on disk already."""

    def __init__(self, suite: Suite, folder: RunFolder, writer: str) -> None:
        self.suite = suite
        self.folder = folder
        self.journal = Journal(folder.path, writer)
        self.runtimes: dict[str, Runtime] = {}
        self.placements: Placements | None = None
        self.surroundings: Surroundings | None = None
        self.spoilt: Job | None = None
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        self.preflight = "warn"
        self.debug_rerun = False
        self.anonymous = False
        self.wire: float | str = "off"
        self.wires: Wires | None = None
        self.options: Sequence[str] = ()
        self.history: Path | None = None
        self.baseline: Baseline | None = None

    @classmethod
    def start(
        cls,
        suite: Suite,
        reports: Path,
        arguments: Sequence[str],
        options: Sequence[str] = (),
        baseline: Baseline | None = None,
    ) -> Recorder:
        """Opens a new run below the folder `reports`. UsageError where that cannot be written.

        `arguments` is the command line, `options` the part of it (and of what else was set) that its cells need again;
        its `baseline` is kept with it.
        """
        recorder = cls(suite, RunFolder.create(reports), "main")
        recorder.baseline = baseline
        if baseline:
            kept = baseline.keep(recorder.folder.path)
            options = (*options, "--hetgpu-baseline", wording.shown(kept))
        recorder.options = options
        matrices = [matrix_file(document.name, Path(document.file)) for document in suite.documents.values()]
        recorder.journal.run(matrices, arguments, options)
        return recorder

    @classmethod
    def join(cls, suite: Suite, run: Path, writer: str) -> Recorder:
        """Takes part in a run that another process opened."""
        return cls(suite, RunFolder(run), writer)

    def skip(self, scenario: Scenario, reason: str, issue: str | None = None) -> list[Pair]:
        """Records that a cell is not run; gives what its test report is to hold."""
        self.journal.skipped(
            scenario, reason, issue=issue, position=self.suite.position(scenario.matrix, scenario.label)
        )
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason)
        return to_pairs(outcome, label=scenario.label, matrix=scenario.matrix)

    def provision(self, scenario: Scenario) -> Cluster:
        """The nodes of a cell. NotHere where one, or its stack, is missing; ProvisionError where one cannot be made.

        Making nodes takes their hosts' leases: it would disturb whoever measures there.
        """
        cluster = self._cluster(scenario)
        if self.preflight == "off":
            return cluster
        from pytest_hetgpu import surroundings
        from pytest_hetgpu.preflight.check import check

        if self.surroundings is None:
            self.surroundings = surroundings.Surroundings(self.folder.path)
        with leases.hold(cluster.job.hosts):
            seen = self.surroundings.of(cluster)
        job = surroundings.informed(cluster.job, seen)
        return replace(cluster.informed(seen), job=job, concerns=check(job, seen))

    def _cluster(self, scenario: Scenario, *, verbose: bool = False) -> Cluster:
        """The nodes of a cell, with its job as it is to be started on them."""
        job = self.suite.job(scenario, verbose=verbose)
        if not job.joined:
            return clusters.local(job, self.runtimes)
        if self.placements is None:
            from pytest_hetgpu.standing import Placements

            self.placements = Placements(self.folder.path.name)
        with leases.hold(job.hosts):
            standing = self.placements.of(job)
        members = {berth.node.index: berth.member for berth in standing.berths}
        environments = dict(enumerate(standing.environments))
        return clusters.gathered(self.suite.job(scenario, standing.sights, verbose=verbose), members, environments)

    def broken(self, scenario: Scenario, error: ProvisionError) -> tuple[Job, Outcome, list[Pair]]:
        """Records a cell whose nodes could not be made ready: it is judged like one that did not start."""
        job = self.suite.job(scenario)
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        # One line of ours, and what shows more behind a mark: a compiler's words are not for those who read failures.
        told = " ".join(str(error).split())
        _, outcome, pairs = self._never_started(
            job, [f"hetgpu: not ready: {told}", *(f"| {line}" for line in error.log)]
        )
        return job, outcome, pairs

    def _never_started(
        self, job: Job, lines: Sequence[str], concerns: Sequence[Concern] = ()
    ) -> tuple[RunResult, Outcome, list[Pair]]:
        output = self.folder.prepare(job.label)
        self.journal.started(job)
        result = not_started(job, output, lines)
        self.folder.write_job(job, result)
        self.journal.finished(job, result)
        return self._judged(job, result, concerns)

    @cached_property
    def speeds(self) -> Speeds:
        """What the cells' times are held against."""
        judged = partial(judge_output, knowledge=self._knowledge())
        return Speeds(self.suite, self.folder, self.journal.path.stem, self._cluster, judged, self.baseline)

    def _judged(
        self, job: Job, result: RunResult, concerns: Sequence[Concern], further: Sequence[RunResult] = ()
    ) -> tuple[RunResult, Outcome, list[Pair]]:
        judged = judge_output(job, result, self._knowledge(), further)
        outcome = replace(judged, concerns=tuple(map(str, concerns)))
        self.journal.judged(job, outcome)
        self.outcomes[job.matrix, job.label] = outcome
        return result, outcome, to_pairs(outcome, label=job.label, matrix=job.matrix)

    def _knowledge(self) -> Knowledge | None:
        """The known failures of this run; None for the shipped ones alone, which are read when they are needed."""
        return knowledge(self.suite.knowledge_files) if self.suite.knowledge_files else None

    def overrule(self, scenario: Scenario, why: str) -> list[Pair] | None:
        """Records that a cell's test failed for a reason of its own; None where its outcome is a failure already."""
        cell = (scenario.matrix, scenario.label)
        before = self.outcomes.get(cell)
        if before is None:
            self.journal.planned(scenario, position=self.suite.position(*cell))
        elif before.verdict.fails:
            return None
        finding = Finding(SCENARIO, Kind.ERROR, f"its test failed: {why}")
        outcome = before or Outcome(Kind.ERROR, Verdict.NEW)
        outcome = replace(
            outcome,
            kind=Kind.ERROR,
            verdict=Verdict.NEW,
            why=finding.why,
            signature=None,
            expectation=None,
            findings=(finding, *outcome.findings),
        )
        self.outcomes[cell] = outcome
        self.journal.judged(scenario, outcome)
        return to_pairs(outcome, label=scenario.label, matrix=scenario.matrix)

    def run(self, cluster: Cluster) -> tuple[RunResult, Outcome, list[Pair]]:
        """Executes and judges one cell; what judges read is on disk before they do.

        Where preflight is strict and certain of a failure, that is the verdict, and nothing is started.
        """
        job = cluster.job
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        feared = self._feared(cluster)
        if feared:
            return self._never_started(job, [f"hetgpu: preflight: {feared}"], cluster.concerns)
        cluster = self.speeds.held(self._wired(cluster))
        job = cluster.job
        result = execute(cluster, self.folder, self.journal)
        further = self.speeds.launched_again(cluster, result)
        stopped = next((one.interrupted for one in further if one.interrupted), result.interrupted)
        result, outcome, pairs = self._judged(job, replace(result, interrupted=stopped), cluster.concerns, further)
        if job.joined and (outcome.kind in _SPOILT or result.lost or result.survivors):
            self.spoilt = job
        to_debug = outcome.verdict in _TO_DEBUG and outcome.kind is not Kind.SLOW
        if self.debug_rerun and to_debug and result.interrupted is None:
            outcome = self._debugged(job, outcome)
        return result, outcome, pairs

    def _wired(self, cluster: Cluster) -> Cluster:
        """The cluster with what the way between its nodes can carry, where its job measures a bandwidth over it."""
        job = cluster.job
        bandwidth = job.demand.measured and has_bandwidth(job.demand.operation)
        if not (isinstance(self.wire, float) and bandwidth and job.joined and len(job.nodes) > 1):
            return cluster
        if self.wires is None:
            from pytest_hetgpu.wire.measure import Wires

            self.wires = Wires(self.folder.path, self.journal, self.wire)
        return replace(cluster, wire=self.wires.of(cluster))

    def _debugged(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome with what the cell did when it was run once more; the verdict is on disk before, and stays.

        Nodes that the failure spoilt are made anew; where that fails there is no debug rerun.
        """
        self.release()
        scenario = self.suite.scenarios[self.suite.position(job.matrix, job.label)]
        folder = self.folder.further(DEBUG)
        try:
            cluster = self._cluster(scenario, verbose=True)
        except (NotHere, ProvisionError):
            return outcome
        result = execute(cluster, folder, None)
        seen = judge_output(cluster.job, result, self._knowledge())
        log = str(folder.log(job.label).relative_to(self.folder.path))
        rerun = DebugRun(seen.kind, seen.signature.key if seen.signature else "", log, result.seconds)
        if job.joined:
            self.spoilt = job
        outcome = replace(outcome, debug=rerun)
        self.journal.judged(job, outcome)
        self.outcomes[job.matrix, job.label] = outcome
        return outcome

    def _feared(self, cluster: Cluster) -> Concern | None:
        if self.preflight != "strict":
            return None
        from pytest_hetgpu.preflight.check import decisive

        return decisive(cluster.concerns)

    def release(self) -> None:
        """The cell is over: nodes that a crash, a hang or a kill has been on are not for the next one."""
        if self.placements and self.spoilt:
            self.placements.discard(self.spoilt)
        self.spoilt = None

    def describe(self, job: Job, outcome: Outcome) -> str:
        """The text of a failing test."""
        log = wording.shown(self.folder.log(job.label))
        return wording.describe(job, outcome, log, self.again(job.matrix, job.label))

    def again(self, matrix: str, label: str) -> str:
        """The command that runs just this cell once more."""
        return wording.again(self.suite, matrix, label, self.options)

    def close(self) -> None:
        """Lets go of all nodes and ends the journal."""
        try:
            if self.placements:
                self.placements.close()
        finally:
            self.journal.close()

    def report(self) -> list[str]:
        """Builds junit.xml and summary.md from everything that was journalled, and puts the run into the history.

        Gives what the user should be told of the history.
        """
        if self.anonymous:
            anonymity.keep(self.folder.path)
        record = build(self.folder.path, self.again)
        if self.history is None or not record.cells:
            return []
        from pytest_hetgpu.reporting import history
        from pytest_hetgpu.reporting.past import past

        return history.kept(self.history, past(record, self.folder.path))
