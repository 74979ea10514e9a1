"""One more run of a cell, or of a variant of it, in a folder beside the cell's. It decides no verdict."""

from __future__ import annotations

from dataclasses import replace

from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.execution.retry.policy import attempt_of, taints
from pytest_hetgpu.execution.steps import plan, provision, through
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import Attempt
from pytest_hetgpu.planning.variant import Variant, with_variant


def further_run(run: RunContext, scenario: Scenario, variant: Variant, name: str) -> Attempt | None:
    """Run a variant of a cell in the folder `name`; None if it was stopped, or reached the end of the run's time.

    Raise NotHere, ProvisionError or MatrixError if it cannot run.
    """
    cell = replace(run.cell(scenario), suite=with_variant(run.suite, scenario, variant))
    cluster = through(run, cell, plan, provision).cluster
    beside = run.folder.for_attempt(name)
    result = execute(cluster, beside, None, run.options)
    if result.spent or result.interrupted:
        return None
    outcome = run.judge(cluster.job, result)
    if cluster.job.is_multi_host and taints(outcome, result):
        run.pool.taint(cluster.job)
    run.health.ran(cluster.job, outcome, result)
    run.release()
    return attempt_of(outcome, str(beside.log(cluster.job.label).relative_to(run.folder.path)))
