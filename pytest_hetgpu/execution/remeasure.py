"""What the speed of cells is held against, and how a cell that seems slow is made sure of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.execute import BOUNDS, Bounds, execute
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning import references
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.planning.references import Thresholds, Times
from pytest_hetgpu.store.folder import RunFolder, read_job, read_result

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline

AGAIN = "launch"
BESIDE = "reference"
_MICRO = 1e6

Judged = Callable[..., Outcome]
"""`judge_output` with what the run knows of failures."""


@dataclass(frozen=True)
class Speeds:
    """Of one process's part of a run; `provision` gives the nodes of a cell, `writer` is this process's name."""

    suite: MatrixSet
    folder: RunFolder
    writer: str
    provision: Callable[[Scenario], Cluster]
    judged: Judged
    baseline: Baseline | None = None
    bounds: Bounds = BOUNDS

    def held(self, cluster: Cluster) -> Cluster:
        """The nodes with the job as it is judged: with everything that its times are held against."""
        job = cluster.job
        scenario = self.suite.scenario(job)
        found: list[Thresholds] = [job.demand.limits]
        found.append(references.from_link(scenario.references, job.demand, cluster.wire))
        found.append(references.from_cells(scenario.references, job.demand, lambda cell: self._measured(job, cell)))
        if self.baseline:
            found.append(self.baseline.limits(job))
        if not any(found[1:]):
            return cluster
        before = self.baseline.facts(job) if self.baseline else {}
        demand = replace(job.demand, limits=references.merged(*found), before=before)
        return replace(cluster, job=replace(job, demand=demand))

    def launched_again(self, cluster: Cluster, result: RunResult) -> tuple[RunResult, ...]:
        """Further launches of a cell that seems slow, until that is sure or cleared up, or its nodes are gone."""
        job = cluster.job
        for folder, _ in launches(self.folder, job.label):
            folder.forget(job.label)
        further: list[RunResult] = []
        while job.demand.limits and self.judged(job, result, further=further).unsettled:
            if self.bounds.budget.spent:
                break
            folder = self.folder.further(f"{AGAIN}-{len(further) + 2}")
            try:
                again = execute(cluster, folder, None, self.bounds)
            except (NotHere, ProvisionError):  # a host was taken or lost meanwhile: what was measured stands
                break
            if again.spent:
                break
            further.append(again)
        return tuple(further)

    def _measured(self, job: Job, cell: str) -> Times | str:
        """What another cell measured in this run, or why it did not; one that has not ended is run beside this one."""
        scenario = next(one for one in self.suite.scenarios if (one.matrix, one.id) == (job.matrix, cell))
        beside = self.folder.further(f"{BESIDE}-{self.writer}")
        for folder in (self.folder, beside):
            outcome = self._ended(folder, scenario.label)
            if outcome:
                return _times(outcome)
        try:
            cluster = self.provision(scenario)
        except (NotHere, ProvisionError) as error:
            return f"it cannot be run here ({error})"
        return _times(self.judged(cluster.job, execute(cluster, beside, None, self.bounds)))

    def _ended(self, folder: RunFolder, label: str) -> Outcome | None:
        """What became of a cell, but for its speed; None where it has not ended, or is not run."""
        path = folder.job(label)
        result = read_result(path) if path.exists() else None
        if result is None:
            return None
        job = read_job(path)
        bare = replace(job, demand=replace(job.demand, limits={}))
        return self.judged(bare, replace(result, output=str(folder.log(label))))


def _times(outcome: Outcome) -> Times | str:
    if outcome.kind is not Kind.PASSED:
        return f"it failed ({outcome.kind.value}: {outcome.signature.key if outcome.signature else outcome.why})"
    found = (one for one in outcome.measurements if one.metric == "latency")
    return {one.point: tuple(value / _MICRO for value in one.samples or (one.value,)) for one in found}


def launches(folder: RunFolder, label: str) -> Iterator[tuple[RunFolder, RunResult]]:
    """The further launches of a cell that were kept and came to an end of their own, in their order."""
    number = 2
    while (again := folder.further(f"{AGAIN}-{number}")).job(label).exists():
        result = read_result(again.job(label))
        if result is not None and not result.spent:
            yield again, replace(result, output=str(again.log(label)))
        number += 1
