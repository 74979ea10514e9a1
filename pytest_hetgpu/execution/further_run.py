"""Runs after the tests: of a cell that was not selected, and of variants of cells, which decide no verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.execution.retry.policy import attempt_of, taints
from pytest_hetgpu.execution.runner import CellRunner
from pytest_hetgpu.execution.steps import plan, provision, through
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Attempt, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.variant import Variant, with_variant


@dataclass(frozen=True, slots=True)
class FurtherRun:
    """The job that was run, and its outcome; `attempt` is the record of both."""

    job: Job
    outcome: Outcome
    attempt: Attempt


def further_run(run: RunContext, scenario: Scenario, variant: Variant, name: str) -> FurtherRun | None:
    """Run a variant of a cell in the folder `name`; None if it was stopped, or reached the end of the run's time.

    Raise NotHere, ProvisionError or MatrixError if it cannot run.
    """
    suite, scenario = with_variant(run.suite, scenario, variant)
    cell = replace(run.cell(scenario), suite=suite)
    cluster = through(run, cell, plan, provision).cluster
    job, beside = cluster.job, run.folder.for_attempt(name)
    result = execute(cluster, beside, None, run.options)
    if result.spent or result.interrupted:
        return None
    outcome = run.judge(job, result)
    if job.is_multi_host and taints(outcome, result):
        run.pool.taint(job)
    run.health.ran(job, outcome, result)
    run.release()
    return FurtherRun(job, outcome, attempt_of(outcome, str(beside.log(job.label).relative_to(run.folder.path))))


def last_number(run: RunContext, name: str) -> int:
    """Return the highest number of the folders `NAME-N` beside the cells of a run, also of its earlier parts."""
    numbers = (path.name.removeprefix(f"{name}-") for path in run.folder.path.glob(f"scenarios/*/{name}-*"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def run_cell(runner: CellRunner, scenario: Scenario) -> Outcome:
    """Run a cell that was not selected; it is recorded like any other."""
    try:
        _, outcome, _ = runner.run(runner.provision(scenario))
    except ProvisionError as error:
        _, outcome, _ = runner.fail(scenario, error)
    except NotHere as error:
        runner.skip(scenario, str(error))
        outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=str(error))
    runner.release()
    return outcome
