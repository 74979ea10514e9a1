"""One more run of a failed cell with the debug output of its libraries. It does not change the verdict."""

from __future__ import annotations

from collections.abc import Callable

from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.errors import NotHere, ProvisionError
from pytest_hetgpu.execution.context import RunContext
from pytest_hetgpu.execution.execute import execute
from pytest_hetgpu.execution.options import RunOptions
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import DebugRun, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict

DEBUG = "debug"
_FAILURES = frozenset((Verdict.NEW, Verdict.CHANGED))


def wants_debug_rerun(options: RunOptions, outcome: Outcome, result: RunResult) -> bool:
    """Return whether the user wants debug output of such a failure, and there is time left for it."""
    failed = outcome.verdict in _FAILURES and outcome.kind is not Kind.SLOW
    return options.debug_rerun and failed and result.interrupted is None and not options.budget.spent


def rerun_with_debug_output(run: RunContext, job: Job, connect: Callable[[], Cluster]) -> DebugRun | None:
    """Run a cell once more on the nodes that `connect` returns. Return None if it cannot be run there."""
    beside = run.folder.for_attempt(DEBUG)
    try:
        cluster = connect()
        result = execute(cluster, beside, None, run.options)
    except (NotHere, ProvisionError):
        return None
    seen = run.judge(cluster.job, result)
    log = str(beside.log(job.label).relative_to(run.folder.path))
    return DebugRun(seen.kind, seen.signature.key if seen.signature else "", log, result.seconds)
