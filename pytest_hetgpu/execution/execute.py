"""The launch of a job: lease its hosts, run it, record the result."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.logs.scan_result import ENDED_WITH
from pytest_hetgpu.cluster import oom_kills
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.cluster.leases.hold import lease_hosts
from pytest_hetgpu.errors import LaunchError, ProvisionError
from pytest_hetgpu.execution.options import DEFAULTS, RunOptions
from pytest_hetgpu.execution.output_limit import limited
from pytest_hetgpu.extensions.runtimes.base import OnTimeout, TimeoutInfo, ignore
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.store.files import PRIVATE
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction.redact import redact, register_secrets

if TYPE_CHECKING:
    from pytest_hetgpu.execution.failure_search import FailureSearch

COMMAND_NOT_FOUND = 127


def execute(cluster: Cluster, folder: RunFolder, journal: Journal | None, options: RunOptions = DEFAULTS) -> RunResult:
    """Run a job and return its result, which is on disk. A launcher that cannot be started gives exit code 127.

    A launch that is not the cell's own run, as a debug rerun, has no journal. The hosts of a measuring job are leased;
    the wait for them does not count as time of the job. It is stopped at the end of its own time or of the run's.
    """
    job = cluster.job
    register_secrets(job.command.env, list(job.command.argv))
    output = folder.start_log(job.label)
    folder.write_job(job)
    with lease_hosts(job, journal.waiting if journal else None) as holding:
        if journal:
            journal.started(job)
        try:
            result = _run(cluster, folder, options)
        except (LaunchError, ProvisionError) as error:
            result = not_started(job, output, [str(error)])
        result = replace(result, unleased=holding.lost, leased_here=holding.here)
    result = replace(result, launcher_gone=_launcher_gone(job, result))
    return _recorded(job, result, folder, journal)


def _recorded(job: Job, result: RunResult, folder: RunFolder, journal: Journal | None) -> RunResult:
    """Redact the output, write the result to disk, and return it.

    A process that outlived its launcher, or the connection of its node, may still write to the raw output.
    """
    ended = not (result.survivors or result.lost)
    result = replace(result, output=str(folder.publish(job.label, ended=ended)))
    raw = folder.raw(job.label)
    if not result.refuted and raw.exists() and (search := _failure_search(job)):
        # Redaction has changed the text that judges get.
        result = replace(result, refuted=redact(search.file(raw)))
    folder.write_job(job, result)
    if journal:
        journal.finished(job, result)
    return result


def _run(cluster: Cluster, folder: RunFolder, options: RunOptions) -> RunResult:
    """Return the result with the observations of its nodes. At the end of the run's time no stacks are collected."""
    job, left = cluster.job, options.budget.left
    output = folder.raw(job.label)
    if not left:
        why = options.budget.why
        _note(output, [f"hetgpu: not started: {why}"])
        return RunResult(job.command.argv, None, str(output), time.time(), 0.0, timed_out=True, spent=why)
    short = left < job.timeout
    before, hca_before, kills_before = cluster.traffic(), cluster.hca_traffic(), cluster.oom_kills()
    overdue: OnTimeout = ignore if short else partial(_look, cluster, output, folder.stacks(job.label))
    search = _failure_search(job)
    searching = limited(output, options.output_limit, search.feed if search else bytes)
    with cluster.with_variables(), searching as finish:
        result = cluster.launcher.run(job.command, output=output, timeout=min(left, job.timeout), overdue=overdue)
        left_out = finish()
    if search:
        result = replace(result, refuted=redact(search.finish()))
    spent = options.budget.why if short and result.timed_out else ""
    result = _settled(cluster, replace(result, spent=spent, left_out=left_out), before, hca_before)
    after = cluster.oom_kills()
    killed = [oom_kills.describe(node, count, after.get(node)) for node, count in kills_before.items()]
    _note(output, [line for line in killed if line])
    if result.returncode and result.signal is None and not result.timed_out:
        # `hetgpu explain` reads the status here, and so gives the answer that the judges give.
        _note(output, [f"{ENDED_WITH}{result.returncode}"])
    return result


def _failure_search(job: Job) -> FailureSearch | None:
    """Return the search for the pattern `failure` of a user's program; None for a job without one."""
    if job.demand.external is None:
        return None
    from pytest_hetgpu.execution.failure_search import failure_search

    return failure_search(job.demand.external)


def never_started(job: Job, folder: RunFolder, journal: Journal, why: Sequence[str]) -> RunResult:
    """Record a job that was not started; its log has only the lines `why`."""
    output = folder.start_log(job.label)
    journal.started(job)
    return _recorded(job, not_started(job, output, why), folder, journal)


def not_started(job: Job, output: Path, why: Sequence[str]) -> RunResult:
    """Return the result of a job that was not started, with the lines `why` in its log."""
    _note(output, why)
    return RunResult(job.command.argv, COMMAND_NOT_FOUND, str(output), time.time(), 0.0)


def _look(cluster: Cluster, output: Path, kept: Path, overdue: TimeoutInfo) -> None:
    """Collect the stacks of all ranks at a timeout, before the job is stopped."""
    from pytest_hetgpu.cluster import stack_dump

    stack_dump.record(overdue, cluster.stack_dumpers(), output, cluster.job.demand.ranks, kept)


def _settled(
    cluster: Cluster, result: RunResult, before: Mapping[str, int], hca_before: Mapping[str, int]
) -> RunResult:
    """Return the result with the observations of the nodes: traffic, survivors, lost nodes and interfaces."""
    after = cluster.traffic() if before else {}
    moved = {node: count - before[node] for node, count in after.items() if node in before}
    # An HCA that had counted nothing before may not have been known to count.
    hca = {node: count - hca_before.get(node, 0) for node, count in cluster.hca_traffic().items()}
    survivors, lost = cluster.sweep()
    unplugged = cluster.unplugged() if result.returncode or result.timed_out else ()
    _note(Path(result.output), [f"hetgpu: {why}" for why in (*lost, *(f"interface {one}" for one in unplugged))])
    survivors = (*result.survivors, *survivors)
    result = replace(result, survivors=survivors, lost=lost, unplugged=unplugged, wire=cluster.link)
    return replace(result, traffic=moved, hca_traffic=hca)


def _launcher_gone(job: Job, result: RunResult) -> bool:
    """Return whether a job of this machine failed and its launcher is no longer where the plan found it."""
    program = next(iter(job.command.argv), "")
    failed = result.returncode != 0 or result.timed_out
    return failed and not job.is_multi_host and program.startswith("/") and shutil.which(program) is None


def _note(output: Path, lines: Sequence[str]) -> None:
    if lines:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)
