"""Points, hosts and facts of cells, from their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.planning.shell.script import placement_name
from pytest_hetgpu.planning.variant import job_settings
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.environment import SUMMARY_FACTS, path_of, read
from pytest_hetgpu.store.folder import RunFolder, read_job

RANKS = "ranks"
# Settings that show in the log which transport carried the data. They follow from the transport and change nothing.
_SHOWS = lazy("verbose|display|LOG_LEVEL|DEBUG")
CONTROL = "control"
"""The folder of a further run for a condition, beside its cell, is this and its number."""


class CellJobs:
    """Access to the jobs of cells. Nothing is known here; a subclass reads them."""

    def points(self, _: CellRecord) -> Sequence[MessagePoint]:
        """Return the points that a job measures, in its order; none of a program of another project."""
        return ()

    def hosts(self, _: CellRecord) -> Sequence[str]:
        """Return the hosts of a job; none for processes of this machine."""
        return ()

    def facts(self, _: CellRecord, attempt: str = "") -> Mapping[str, str]:
        """Return the facts that follow from a job: its ranks, nodes, hardware, transport family and settings.

        `attempt` names a further run of the cell.
        """
        return {}


NO_JOBS = CellJobs()


class StoredJobs(CellJobs):
    """The jobs in the folders of runs, by the identity of their cells."""

    def __init__(self, runs: Iterable[tuple[RunFolder, Sequence[CellRecord]]]) -> None:
        self._folders = {id(cell): folder for folder, cells in runs for cell in cells}
        self._skews: dict[Path, Mapping[str, str]] = {}

    def points(self, cell: CellRecord) -> Sequence[MessagePoint]:
        job = self._job(cell)
        return job.demand.points if job and job.demand.measured and job.demand.external is None else ()

    def hosts(self, cell: CellRecord) -> Sequence[str]:
        job = self._job(cell)
        return tuple(dict.fromkeys(node.host for node in job.nodes)) if job and job.is_multi_host else ()

    def facts(self, cell: CellRecord, attempt: str = "") -> Mapping[str, str]:
        job = self._job(cell, attempt)
        if job is None:
            return {}
        kinds = [node.hardware for node in job.nodes]
        return {
            "platform": _joined(kind.accelerator.platform for kind in kinds),
            "arch": _joined(kind.accelerator.arch or "none" for kind in kinds),
            "fabric": _joined(kind.fabric.kind for kind in kinds),
            **_some("capability", "+".join(sorted(frozenset().union(*(kind.capabilities for kind in kinds))))),
            RANKS: str(sum(node.ranks for node in job.nodes)),
            "nodes": str(len(kinds)),
            "family": job.demand.transport_family,
            **{name: value for name, value in job_settings(job).items() if not _SHOWS.search(name)},
            **self._skew(job, self._folders[id(cell)].path),
        }

    def _skew(self, job: Job, run: Path) -> Mapping[str, str]:
        """Return the facts that differ between the nodes of a job: `skew of ucx`, as `1.18.0, 1.20.1`."""
        path = path_of(run, placement_name(job))
        if path not in self._skews:
            try:
                rows = read(path).skew
            except RecordError:
                rows = ()
            self._skews[path] = {
                f"skew of {row.fact}": ", ".join(row.values) for row in rows if row.fact in SUMMARY_FACTS
            }
        return self._skews[path]

    def _job(self, cell: CellRecord, attempt: str = "") -> Job | None:
        folder = self._folders.get(id(cell))
        try:
            return read_job(folder.for_attempt(attempt).job(cell.label)) if folder else None
        except (OSError, RecordError):
            return None


def _some(name: str, value: str) -> Mapping[str, str]:
    return {name: value} if value else {}


def _joined(values: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(values))
