"""One process's part of a run: makes cells ready, runs, judges and journals them; the first process also reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.judge import get_ready, judge_output
from pytest_hetgpu.cluster import cluster as clusters
from pytest_hetgpu.cluster.cleanup.guard import guarded
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.cluster.leases.hold import held, shut
from pytest_hetgpu.config.known_failures.entries import Knowledge
from pytest_hetgpu.config.known_failures.load import knowledge
from pytest_hetgpu.errors import ENGINE_AWAY, HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.execution.execute import Bounds, execute, never_started
from pytest_hetgpu.execution.lru import Remembered
from pytest_hetgpu.execution.remeasure import Speeds
from pytest_hetgpu.execution.resume.aside import put_aside
from pytest_hetgpu.execution.retry.debugging import debugged
from pytest_hetgpu.execution.retry.health import NodeHealth
from pytest_hetgpu.execution.retry.output import LIMIT
from pytest_hetgpu.execution.retry.policy import spoils
from pytest_hetgpu.execution.retry.trying import Trying
from pytest_hetgpu.extensions.runtimes.base import Runtime
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.references import over_wire
from pytest_hetgpu.planning.suite import Suite
from pytest_hetgpu.store.disk_errors import writing
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal, matrix_file
from pytest_hetgpu.store.properties import Pair, to_pairs
from pytest_hetgpu.store.text import shown

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.cluster.bandwidth.measure import Wires
    from pytest_hetgpu.cluster.facts_cache import EarlyLook, Surroundings
    from pytest_hetgpu.cluster.pool import Placements
    from pytest_hetgpu.cluster.preflight.concern import Concern

_TO_DEBUG = frozenset((Verdict.NEW, Verdict.CHANGED))
MAIN = "main"


@dataclass(frozen=True)
class Beginning:
    """How a session was started, and what the verdicts of its cells rest on (`execution/resume/basis.py`).

    `arguments` is the command line, `options` the part of it (and of what else was set) that cells need again.
    """

    arguments: Sequence[str] = ()
    options: Sequence[str] = ()
    basis: Mapping[str, str] = field(default_factory=dict)


class Recorder:
    """Writes to one run's folder and `journal`; whatever it returns is on disk already."""

    def __init__(self, suite: Suite, folder: RunFolder, journal: Journal) -> None:
        self.suite = suite
        self.folder = folder
        self.journal = journal
        self._entered: set[str] = set()
        self.guard = guarded(folder.path.name)
        self.trying = Trying(folder, self.journal)
        self.health = NodeHealth(self.journal)
        self.output: float = LIMIT
        self.runtimes: dict[str, Runtime] = {}
        self.placements: Placements | None = None
        self.early: EarlyLook | None = None
        self.surroundings: Surroundings | None = None
        self.spoilt: Job | None = None
        self.outcomes = Remembered()
        self.preflight = "warn"
        self.debug_rerun = False
        self.anonymous = False
        self.wire: float | str = "off"
        self.wires: Wires | None = None
        self.meanwhile: Callable[[Job], object] = get_ready
        self.change_job: Callable[[Scenario, Job], Job] = lambda _, job: job
        self.options: Sequence[str] = ()
        self.history: Path | None = None
        self.baseline: Baseline | None = None

    @classmethod
    def start(cls, suite: Suite, reports: Path, begun: Beginning, baseline: Baseline | None = None) -> Recorder:
        """Opens a new run below the folder `reports`; its `baseline` is kept with it. UsageError, StorageError."""
        folder = RunFolder.create(reports)
        if baseline:
            with writing(folder.path):
                baseline.save(folder.path)
        recorder = cls(suite, folder, Journal(folder.path, MAIN, sole=True))
        recorder.begin(begun, baseline)
        return recorder

    def begin(self, begun: Beginning, baseline: Baseline | None) -> None:
        """Journals that a session begins, held against that baseline, which lies in the run's folder."""
        self.baseline = baseline
        against = ("--hetgpu-baseline", shown(baseline.path_in(self.folder.path))) if baseline else ()
        self.options = (*begun.options, *against)
        matrices = [matrix_file(document.name, Path(document.file)) for document in self.suite.documents.values()]
        self.journal.run(matrices, begun.arguments, self.options, begun.basis)

    @classmethod
    def join(cls, suite: Suite, run: Path, writer: str, part: int = 0, owner: str = "") -> Recorder:
        """Takes part in a run that another process opened, in that part of it; `owner` is that process's label."""
        recorder = cls(suite, RunFolder(run), Journal(run, writer, part))
        recorder.guard.shared = owner or recorder.guard.label
        return recorder

    def skip(self, scenario: Scenario, reason: str, issue: str | None = None) -> list[Pair]:
        """Records that a cell is not run; gives what its test report is to hold."""
        self.journal.skipped(
            scenario, reason, issue=issue, position=self.suite.position(scenario.matrix, scenario.label)
        )
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason)
        return to_pairs(outcome, label=scenario.label, matrix=scenario.matrix)

    def provision(self, scenario: Scenario) -> Cluster:
        """The nodes of a cell. NotHere where one, or its stack, is missing; ProvisionError where one cannot be made.

        It is NotHere, too, where the run's time is spent, or a node was given up. Nodes that cannot be made are an
        attempt at the cell like any other. Making nodes takes their hosts' leases: it would disturb whoever measures
        there.
        """
        if self.journal.part and scenario.label not in self._entered:
            put_aside(self.folder, scenario.label, self.journal.part)
        self._entered.add(scenario.label)
        while True:
            tried = self.trying.tried(scenario)
            if self.trying.budget.spent and not tried:
                raise NotHere(f"not run: {self.trying.budget.spent}")
            try:
                return self._provision(scenario)
            except NotHere as error:
                if tried:  # what has failed is not skipped
                    raise ProvisionError("for another attempt", str(error)) from None
                raise
            except ProvisionError as error:
                if not (self.trying.retries.most or ENGINE_AWAY in str(error)):
                    raise
                job = self.suite.job(scenario)
                _, outcome = self._not_ready(job, error)
                if not self.trying.again(outcome, job) or self.health.unfit(job):
                    raise
                self.trying.failed(job, outcome)

    def _provision(self, scenario: Scenario) -> Cluster:
        cluster = self._cluster(scenario)
        if self.preflight == "off":
            return cluster
        from pytest_hetgpu.cluster import facts_cache
        from pytest_hetgpu.cluster.preflight.check import check

        if self.surroundings is None:
            self.surroundings = facts_cache.Surroundings(self.folder.path, self.early)
        hold, meanwhile = partial(held, cluster.job, self.journal.waits), partial(self.meanwhile, cluster.job)
        seen = self.surroundings.of(cluster, hold, meanwhile)
        job = facts_cache.informed(cluster.job, seen)
        return replace(cluster.informed(seen), job=job, concerns=(*check(job, seen), *self.surroundings.moved(cluster)))

    def _cluster(self, scenario: Scenario, *, verbose: bool = False) -> Cluster:
        """The nodes of a cell, with its job as it is to be started on them."""
        job = self.suite.job(scenario, verbose=verbose)
        if not job.joined:
            return clusters.local(self.change_job(scenario, job), self.runtimes)
        if self.placements is None:
            from pytest_hetgpu.cluster.pool import Placements

            self.placements = Placements(self.folder.path.name, self.journal.waits, self.meanwhile)
        unfit = self.health.unfit(job)
        budget, back = self.trying.budget, self.trying.returning
        if not (unfit or self.placements.ready(job)):
            unfit = back.away(job, budget, met=self.health.met(job))
        if unfit:
            raise NotHere(unfit)
        with held(job, self.journal.waits):
            make, forgive = partial(self.placements.of, job), partial(self.placements.forgive, job)
            standing = self.health.made(job, partial(back.made, job, make, forgive, budget), forgive)
        members = {berth.node.index: berth.member for berth in standing.berths}
        environments = dict(enumerate(standing.environments))
        job = self.change_job(scenario, self.suite.job(scenario, standing.sights, verbose=verbose))
        return clusters.gathered(job, members, environments)

    def broken(self, scenario: Scenario, error: ProvisionError) -> tuple[Job, Outcome, list[Pair]]:
        """Records a cell whose nodes could not be made ready: it is judged like one that did not start."""
        job = self.suite.job(scenario)
        _, outcome = self._not_ready(job, error)
        return job, *self._over(job, outcome)

    def _not_ready(self, job: Job, error: HetgpuError) -> tuple[RunResult, Outcome]:
        self.trying.begin(job)
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        # One line of ours, and what shows more behind a mark: a compiler's words are not for those who read failures.
        told = " ".join(str(error).split())
        log = error.log if isinstance(error, ProvisionError) else ()
        return self._never_started(job, [f"hetgpu: not ready: {told}", *(f"| {line}" for line in log)])

    def _never_started(
        self, job: Job, lines: Sequence[str], concerns: Sequence[Concern] = ()
    ) -> tuple[RunResult, Outcome]:
        result = never_started(job, self.folder, self.journal, lines)
        return result, self._judged(job, result, concerns)

    @property
    def bounds(self) -> Bounds:
        """What a cell may take."""
        return Bounds(self.trying.budget, self.output)

    @cached_property
    def speeds(self) -> Speeds:
        """What the cells' times are held against."""
        judged = partial(judge_output, knowledge=self._knowledge())
        writer = self.journal.path.stem
        return Speeds(self.suite, self.folder, writer, self._cluster, judged, self.baseline, self.bounds)

    def _judged(
        self, job: Job, result: RunResult, concerns: Sequence[Concern], further: Sequence[RunResult] = ()
    ) -> Outcome:
        judged = judge_output(job, result, self._knowledge(), further)
        return replace(judged, concerns=tuple(map(str, concerns)))

    def _over(self, job: Job, outcome: Outcome) -> tuple[Outcome, list[Pair]]:
        """The cell has its outcome, with the attempts that came before: it goes to the journal."""
        outcome = self.trying.told(outcome)
        self.journal.judged(job, outcome)
        self.outcomes[job.matrix, job.label] = outcome
        self.trying.over()
        return outcome, to_pairs(outcome, label=job.label, matrix=job.matrix)

    def _knowledge(self) -> Knowledge | None:
        """The known failures of this run; None for the shipped ones alone, which are read when they are needed."""
        return knowledge(self.suite.knowledge_files) if self.suite.knowledge_files else None

    def run(self, cluster: Cluster) -> tuple[RunResult, Outcome, list[Pair]]:
        """Executes and judges one cell, again after failures that are to be tried again.

        What judges read is on disk before they do. Where preflight is strict and certain of a failure, that is the
        verdict, and nothing is started.
        """
        job = cluster.job
        self.trying.begin(job)
        self.journal.planned(job, position=self.suite.position(job.matrix, job.label))
        job, result, outcome = self._tried(job, lambda: cluster)
        while self.trying.again(outcome, job):
            self.trying.failed(job, outcome)
            self.release()
            job, result, outcome = self._tried(job, partial(self._provision, self.suite.scenario(job)))
        outcome, pairs = self._over(job, outcome)
        to_debug = outcome.verdict in _TO_DEBUG and outcome.kind is not Kind.SLOW
        if self.debug_rerun and to_debug and result.interrupted is None and not self.trying.budget.spent:
            outcome = self._debugged(job, outcome)
        return result, outcome, pairs

    def _tried(self, job: Job, made: Callable[[], Cluster]) -> tuple[Job, RunResult, Outcome]:
        """One attempt, on the nodes that `made` gives; that they cannot be made or held is its failure.

        NotHere at the first attempt: such a cell is skipped.
        """
        try:
            return self._attempt(made())
        except (NotHere, ProvisionError) as error:
            if isinstance(error, NotHere) and not self.trying.before:
                raise
            return job, *self._not_ready(job, error)

    def _attempt(self, cluster: Cluster) -> tuple[Job, RunResult, Outcome]:
        """Runs a cell's job on its nodes, and judges what came of it."""
        feared = self._feared(cluster)
        if feared:
            return cluster.job, *self._never_started(cluster.job, [f"hetgpu: preflight: {feared}"], cluster.concerns)
        cluster = self.speeds.held(self._wired(cluster))
        job = cluster.job
        result = execute(cluster, self.folder, self.journal, self.bounds)
        further = self.speeds.launched_again(cluster, result)
        stopped = next((one.interrupted for one in further if one.interrupted), result.interrupted)
        result = replace(result, interrupted=stopped)
        outcome = self._judged(job, result, cluster.concerns, further)
        if outcome.inconclusive and self.trying.budget.spent:
            result = replace(result, spent=self.trying.budget.why)
            self.folder.write_job(job, result)
            self.journal.finished(job, result)
            outcome = self._judged(job, result, cluster.concerns, further)
        if job.joined and spoils(outcome, result):
            self.spoilt = job
        self.health.ran(job, outcome, result)
        return job, result, outcome

    def _wired(self, cluster: Cluster) -> Cluster:
        """The cluster with what the way between its nodes can carry, where its job measures a bandwidth over it."""
        if not isinstance(self.wire, float) or not over_wire(cluster.job):
            return cluster
        if self.wires is None:
            from pytest_hetgpu.cluster.bandwidth.measure import Wires

            self.wires = Wires(self.folder.path, self.journal, self.wire)
        return replace(cluster, wire=self.wires.of(cluster))

    def _debugged(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome with what the cell did when it was run once more; the verdict is on disk before, and stays.

        Nodes that the failure spoilt are made anew; where that fails there is no debug rerun.
        """
        self.release()
        provision = partial(self._cluster, self.suite.scenario(job), verbose=True)
        rerun = debugged(job, self.folder, provision, partial(judge_output, knowledge=self._knowledge()), self.bounds)
        if rerun is None:
            return outcome
        if job.joined:
            self.spoilt = job
        outcome = replace(outcome, debug=rerun)
        self.journal.judged(job, outcome)
        self.outcomes[job.matrix, job.label] = outcome
        return outcome

    def _feared(self, cluster: Cluster) -> Concern | None:
        if self.preflight != "strict":
            return None
        from pytest_hetgpu.cluster.preflight.check import decisive

        return decisive(cluster.concerns)

    def release(self) -> None:
        """The cell is over: nodes that a crash, a hang or a kill has been on are not for the next one."""
        if self.placements and self.spoilt:
            self.placements.discard(self.spoilt)
        self.spoilt = None

    def close(self) -> None:
        """Lets go of all nodes and ends the journal."""
        try:
            if self.placements:
                self.placements.close()
        finally:
            shut()
            self.guard.close()
            self.journal.close()
