"""Runs a job: lease, record, run. The only effects between a plan and its judgement."""

from __future__ import annotations

import time
from pathlib import Path

from pytest_hetgpu import leases
from pytest_hetgpu.cluster import Cluster
from pytest_hetgpu.errors import LaunchError
from pytest_hetgpu.evidence import RunResult
from pytest_hetgpu.model import Job
from pytest_hetgpu.reporting.folder import RunFolder
from pytest_hetgpu.reporting.journal import Journal

COMMAND_NOT_FOUND = 127


def execute(cluster: Cluster, folder: RunFolder, journal: Journal) -> RunResult:
    """The job's result, already on disk; a launcher that cannot be started ends with 127, as a shell would say it.

    A measuring job has its hosts alone, whoever else runs cells on this machine; waiting for them is not its time.
    """
    job = cluster.job
    output = folder.prepare(job.label)
    folder.write_job(job)
    with leases.hold(job.hosts):
        journal.started(job)
        try:
            result = cluster.launcher.run(job.command, output=output, timeout=job.timeout)
        except LaunchError as error:
            result = _not_started(job, output, str(error))
    folder.write_job(job, result)
    journal.finished(job, result)
    return result


def _not_started(job: Job, output: Path, error: str) -> RunResult:
    with output.open("a", encoding="utf-8") as log:
        log.write(f"{error}\n")
    return RunResult(job.command.argv, COMMAND_NOT_FOUND, str(output), time.time(), 0.0)
