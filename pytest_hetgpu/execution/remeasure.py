"""Thresholds that a cell's numbers are compared with, and repeated launches of a cell that seems slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning import references
from pytest_hetgpu.planning.prepare import with_thresholds, without_thresholds
from pytest_hetgpu.planning.references import Numbers
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result

AGAIN = "launch"
BESIDE = "reference"

Connect = Callable[[Scenario], Cluster]


def add_thresholds(run: RunContext, cluster: Cluster, connect: Connect) -> Cluster:
    """Return the cluster with all thresholds of its job: of the link, of other cells, and of the baseline.

    A reference cell that has not ended in this run is run on the nodes that `connect` returns.
    """
    job, baseline = cluster.job, run.options.baseline
    given = run.suite.scenario(job).references
    found = [
        references.from_link(given, job.demand, cluster.link),
        references.from_cells(given, job.demand, lambda cell: _measure(run, job, cell, connect)),
        baseline.limits(job) if baseline else {},
    ]
    before = baseline.facts(job) if baseline else {}
    return replace(cluster, job=with_thresholds(job, *found, before=before))


def repeat_until_conclusive(run: RunContext, cluster: Cluster, result: RunResult) -> tuple[RunResult, ...]:
    """Launch a cell that seems slow again, until it is certain whether it is, or its nodes or the time are lost.

    Return the further results.
    """
    job = cluster.job
    for folder, _ in launches(run.folder, job.label):
        folder.remove(job.label)
    further: list[RunResult] = []
    while job.demand.limits and run.judge(job, result, further).inconclusive:
        if run.options.budget.spent:
            break
        folder = run.folder.for_attempt(f"{AGAIN}-{len(further) + 2}")
        try:
            again = execute(cluster, folder, None, run.options)
        except (NotHere, ProvisionError):  # a host was taken or lost meanwhile: the results so far count
            break
        if again.spent:
            break
        further.append(again)
    return tuple(further)


def _measure(run: RunContext, job: Job, cell: str, connect: Connect) -> Numbers | str:
    """Return the numbers of another cell, or why there are none. Run it in a folder of its own if it has not ended."""
    scenario = next(one for one in run.suite.scenarios if (one.matrix, one.id) == (job.matrix, cell))
    beside = run.folder.for_attempt(f"{BESIDE}-{run.journal.path.stem}")
    for folder in (run.folder, beside):
        outcome = _ended(run, folder, scenario.label)
        if outcome:
            return _numbers(outcome)
    try:
        cluster = connect(scenario)
    except (NotHere, ProvisionError) as error:
        return f"it cannot be run here ({error})"
    return _numbers(run.judge(cluster.job, execute(cluster, beside, None, run.options)))


def _ended(run: RunContext, folder: RunFolder, label: str) -> Outcome | None:
    """Return the outcome of a cell without its thresholds; None if it has not ended, or is not run."""
    path = folder.job(label)
    result = read_result(path) if path.exists() else None
    if result is None:
        return None
    bare = without_thresholds(read_job(path))
    return run.judge(bare, replace(result, output=str(folder.log(label))))


def _numbers(outcome: Outcome) -> Numbers | str:
    if outcome.kind is not Kind.PASSED:
        return f"it failed ({outcome.kind.value}: {outcome.signature.key if outcome.signature else outcome.why})"
    return outcome.measurements


def launches(folder: RunFolder, label: str) -> Iterator[tuple[RunFolder, RunResult]]:
    """Yield the repeated launches of a cell that were not cut short by the budget, in their order."""
    number = 2
    while (again := folder.for_attempt(f"{AGAIN}-{number}")).job(label).exists():
        result = read_result(again.job(label))
        if result is not None and not result.spent:
            yield again, replace(result, output=str(again.log(label)))
        number += 1
