"""Points, hosts and facts of cells, from their stored jobs."""

from __future__ import annotations

from pathlib import Path

from pytest_hetgpu.analysis.boundary.jobs import NO_JOBS, StoredJobs
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.folder import RunFolder
from tests.reporting.report_samples import job


def test_a_stored_job(tmp_path: Path) -> None:
    folder, one = RunFolder.create(tmp_path), job("mixed-ucx-allreduce")
    folder.prepare(one.label)
    folder.write_job(one)
    cell = CellRecord(one.matrix, one.scenario, one.label, one.axes)
    jobs = StoredJobs([(folder, [cell])])
    assert jobs.points(cell) == one.demand.points
    facts = jobs.facts(cell)
    assert facts["ranks"] == str(sum(node.ranks for node in one.nodes))
    assert facts["family"] == one.demand.transport_family
    assert facts["platform"] == "+".join(dict.fromkeys(node.hardware.accelerator.platform for node in one.nodes))
    assert set(jobs.hosts(cell)) == ({node.host for node in one.nodes} if one.is_multi_host else set())


def test_a_job_that_is_not_there_or_broken_shows_nothing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    cells = [CellRecord("m", name, name) for name in ("none", "broken", "other")]
    folder.prepare("broken")
    folder.job("broken").write_text("{")
    jobs = StoredJobs([(folder, cells[:2])])
    for cell in cells:
        assert (jobs.points(cell), jobs.hosts(cell), jobs.facts(cell)) == ((), (), {})
        assert (NO_JOBS.points(cell), NO_JOBS.hosts(cell), NO_JOBS.facts(cell)) == ((), (), {})
