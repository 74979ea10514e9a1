"""The cells of one process, one after another: each passes through the steps in `steps.py`."""

from __future__ import annotations

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import ENGINE_AWAY, NotHere, ProvisionError
from pytest_hetgpu.execution.cell_errors import mark_stopped
from pytest_hetgpu.execution.context import CellRun, RunContext
from pytest_hetgpu.execution.resume.archive import archive
from pytest_hetgpu.execution.steps import (
    attempt,
    judge,
    launch,
    not_ready,
    plan,
    preflight,
    record,
    retry,
    through,
    write_outcome,
)
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.properties import Property, to_properties


class CellRunner:
    """The face of a run for the session. Everything that a method returns is on disk."""

    def __init__(self, run: RunContext) -> None:
        self.context = run
        #: The cell that is provisioned and has no outcome.
        self._cell: CellRun | None = None
        self._archived: set[str] = set()

    def skip(self, scenario: Scenario, reason: str, issue: str | None = None) -> list[Property]:
        """Record that a cell is not run; return the properties of its test report."""
        run = self.context
        run.journal.skipped(scenario, reason, issue=issue, position=run.position(scenario))
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason)
        return to_properties(outcome, label=scenario.label, matrix=scenario.matrix)

    def provision(self, scenario: Scenario) -> Cluster:
        """Return the nodes of a cell. A failure to make them is an attempt at the cell like any other.

        Raise NotHere if a node or the stack is missing, a node is quarantined, or the run's time is over. Raise
        ProvisionError if the nodes cannot be made.
        """
        run, cell = self.context, self._enter(scenario)
        while True:
            if run.options.budget.spent and not cell.retry.has_failed:
                raise NotHere(f"not run: {run.options.budget.spent}")
            try:
                self._cell = through(run, cell, plan, preflight)
            except NotHere as error:
                if cell.retry.has_failed:  # a cell that has failed is not skipped
                    raise ProvisionError("for another attempt", str(error)) from None
                raise
            except ProvisionError as error:
                if not (run.options.retries.most or ENGINE_AWAY in str(error)):
                    raise
                failed = not_ready(run, through(run, cell, plan, plan), error)
                if not cell.retry.should_retry(failed.outcome, failed.job) or run.health.why_quarantined(failed.job):
                    raise
                cell.retry.save(failed.job, failed.outcome)
            else:
                return self._cell.cluster

    def fail(self, scenario: Scenario, error: ProvisionError) -> tuple[Job, Outcome, list[Property]]:
        """Record a cell whose nodes could not be made ready."""
        run = self.context
        cell = through(run, self._enter(scenario), plan, plan)
        cell = write_outcome(run, not_ready(run, cell, error))
        self._cell = None
        return cell.job, cell.outcome, to_properties(cell.outcome, label=cell.job.label, matrix=cell.job.matrix)

    def run(self, cluster: Cluster) -> tuple[RunResult, Outcome, list[Property]]:
        """Run, judge and record the cell of a cluster, with its retries."""
        run, job = self.context, cluster.job
        cell = self._enter(run.suite.scenario(job)).on(cluster)
        cell.retry.begin(job)
        run.journal.planned(job, position=run.position(job))
        try:
            cell = attempt(run, cell, launch, judge)
            cell = through(run, cell, retry, record)
        except KeyboardInterrupt:
            mark_stopped(run, job)
            raise
        self._cell = None
        return cell.result, cell.outcome, to_properties(cell.outcome, label=job.label, matrix=job.matrix)

    def release(self) -> None:
        """Close the nodes that the last cell has tainted."""
        self.context.release()

    def close(self) -> None:
        """Close all nodes, leases and the journal."""
        self.context.close()

    def _enter(self, scenario: Scenario) -> CellRun:
        """Return the state of a cell: of its attempts so far, or a new one.

        The first time, move the files of an earlier part of the run out of the cell's folder.
        """
        run = self.context
        if run.journal.part and scenario.label not in self._archived:
            archive(run.folder, scenario.label, run.journal.part)
        self._archived.add(scenario.label)
        current = self._cell
        if current is None or (current.scenario.matrix, current.scenario.label) != (scenario.matrix, scenario.label):
            current = self._cell = run.cell(scenario)
        return current
