"""A failed cell run once more with its libraries' debug output, for whoever looks into it. It decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.execute import Bounds, execute
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import DebugRun, Outcome, RunResult
from pytest_hetgpu.store.folder import RunFolder

DEBUG = "debug"


def debugged(
    job: Job,
    folder: RunFolder,
    provision: Callable[[], Cluster],
    judged: Callable[[Job, RunResult], Outcome],
    bounds: Bounds,
) -> DebugRun | None:
    """What a cell did when it was run once more, on what `provision` gives; None where it cannot be run there."""
    beside = folder.for_attempt(DEBUG)
    try:
        cluster = provision()
        result = execute(cluster, beside, None, bounds)
    except (NotHere, ProvisionError):
        return None
    seen = judged(cluster.job, result)
    log = str(beside.log(job.label).relative_to(folder.path))
    return DebugRun(seen.kind, seen.signature.key if seen.signature else "", log, result.seconds)
