"""Points, hosts and facts of cells, from their stored jobs."""

from __future__ import annotations

from pathlib import Path

from pytest_hetgpu.analysis.boundary.jobs import NO_JOBS, StoredJobs
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.planning.shell.script import placement_name
from pytest_hetgpu.store.cells import CellRecord
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts, write
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
    # What shows the transport in the log, and how daemons reach each other, is no fact of a failure.
    assert not [name for name in facts if name.startswith(("plm_", "oob_")) or "LOG_LEVEL" in name or "display" in name]
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


def test_facts_that_differ_between_the_nodes(tmp_path: Path) -> None:
    folder, one = RunFolder.create(tmp_path), job("mixed-ucx-allreduce")
    folder.prepare(one.label)
    folder.write_job(one)
    seen = ({"ucx": found("1.18.0"), "os": found("Debian 12")}, {"ucx": found("1.20.1"), "os": found("Debian 12")})
    nodes = {f"node{n}": NodeFacts("cpu", f"h{n}", Environment(facts)) for n, facts in enumerate(seen)}
    write(folder.path, PlacementFacts(placement_name(one), nodes))
    facts = StoredJobs([(folder, [cell := CellRecord(one.matrix, one.scenario, one.label, one.axes)])]).facts(cell)
    assert {name: value for name, value in facts.items() if name.startswith("skew")} == {
        "skew of ucx": "1.18.0, 1.20.1"
    }


def test_the_job_of_a_further_run(tmp_path: Path) -> None:
    folder, one = RunFolder.create(tmp_path), job("mixed-ucx-allreduce")
    beside = folder.for_attempt("control-3")
    beside.prepare(one.label)
    beside.write_job(one)
    cell = CellRecord(one.matrix, one.scenario, one.label, one.axes)
    jobs = StoredJobs([(folder, [cell])])
    assert jobs.facts(cell) == {}
    assert jobs.facts(cell, "control-3")["family"] == one.demand.transport_family
