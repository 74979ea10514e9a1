"""Runs a job: lease, record, run. The only effects between a plan and its judgement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_hetgpu import leases
from pytest_hetgpu.cluster import Cluster
from pytest_hetgpu.errors import LaunchError, ProvisionError
from pytest_hetgpu.evidence import RunResult
from pytest_hetgpu.model import Job
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal
from pytest_hetgpu.runtimes.base import Overdue

COMMAND_NOT_FOUND = 127


def execute(cluster: Cluster, folder: RunFolder, journal: Journal | None) -> RunResult:
    """The job's result, already on disk; a launcher that cannot be started ends with 127, as a shell would say it.

    What is not the cell's own run (its debug rerun) is kept in its folder, and goes into no journal.

    A measuring job has its hosts alone, whoever else runs cells on this machine; waiting for them is not its time.
    """
    job = cluster.job
    output = folder.prepare(job.label)
    folder.write_job(job)
    with leases.hold(job.hosts):
        if journal:
            journal.started(job)
        try:
            before = cluster.traffic()
            result = cluster.launcher.run(
                job.command, output=output, timeout=job.timeout, overdue=partial(_look, cluster, output)
            )
            result = _settled(cluster, result, before)
        except (LaunchError, ProvisionError) as error:
            result = not_started(job, output, [str(error)])
    folder.write_job(job, result)
    if journal:
        journal.finished(job, result)
    return result


def not_started(job: Job, output: Path, why: Sequence[str]) -> RunResult:
    """The result of a job that never ran, with the lines `why` in its log."""
    _note(output, why)
    return RunResult(job.command.argv, COMMAND_NOT_FOUND, str(output), time.time(), 0.0)


def _look(cluster: Cluster, output: Path, overdue: Overdue) -> None:
    """Keeps where the ranks of a job are whose time is over, before it is stopped."""
    from pytest_hetgpu import forensics

    forensics.record(overdue, cluster.looks(), output, cluster.job.demand.ranks)


def _settled(cluster: Cluster, result: RunResult, before: dict[str, int]) -> RunResult:
    """The result with what the nodes add to it: what moved and could have, what outlived the launcher, who is gone."""
    after = cluster.traffic() if before else {}
    moved = {node: count - before[node] for node, count in after.items() if node in before}
    survivors, lost = cluster.sweep()
    _note(Path(result.output), [f"hetgpu: {why}" for why in lost])
    return replace(result, survivors=(*result.survivors, *survivors), lost=lost, traffic=moved, wire=cluster.wire)


def _note(output: Path, lines: Sequence[str]) -> None:
    if lines:
        with output.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)
