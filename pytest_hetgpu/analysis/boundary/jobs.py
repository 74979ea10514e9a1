"""Points, hosts and facts of cells, from their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.planning.variant import job_settings
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.folder import RunFolder, read_job


class CellJobs:
    """Access to the jobs of cells. Nothing is known here; a subclass reads them."""

    def points(self, _: CellRecord) -> Sequence[MessagePoint]:
        """Return the points that a job measures, in its order; none of a program of another project."""
        return ()

    def hosts(self, _: CellRecord) -> Sequence[str]:
        """Return the hosts of a job; none for processes of this machine."""
        return ()

    def facts(self, _: CellRecord) -> Mapping[str, str]:
        """Return the facts that follow from a job: its ranks, nodes, hardware, transport family and settings."""
        return {}


NO_JOBS = CellJobs()


class StoredJobs(CellJobs):
    """The jobs in the folders of runs, by the identity of their cells."""

    def __init__(self, runs: Iterable[tuple[RunFolder, Sequence[CellRecord]]]) -> None:
        self._folders = {id(cell): folder for folder, cells in runs for cell in cells}

    def points(self, cell: CellRecord) -> Sequence[MessagePoint]:
        job = self._job(cell)
        return job.demand.points if job and job.demand.measured and job.demand.external is None else ()

    def hosts(self, cell: CellRecord) -> Sequence[str]:
        job = self._job(cell)
        return tuple(dict.fromkeys(node.host for node in job.nodes)) if job and job.is_multi_host else ()

    def facts(self, cell: CellRecord) -> Mapping[str, str]:
        job = self._job(cell)
        if job is None:
            return {}
        kinds = [node.hardware for node in job.nodes]
        return {
            "platform": _joined(kind.accelerator.platform for kind in kinds),
            "arch": _joined(kind.accelerator.arch or "none" for kind in kinds),
            "fabric": _joined(kind.fabric.kind for kind in kinds),
            "ranks": str(sum(node.ranks for node in job.nodes)),
            "nodes": str(len(kinds)),
            "family": job.demand.transport_family,
            **job_settings(job),
        }

    def _job(self, cell: CellRecord) -> Job | None:
        folder = self._folders.get(id(cell))
        try:
            return read_job(folder.job(cell.label)) if folder else None
        except (OSError, RecordError):
            return None


def _joined(values: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(values))
