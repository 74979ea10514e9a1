"""Cells that a matrix does not have: their differences from a cell, and their jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.model.job import Job
from pytest_hetgpu.planning.derived import Alias, DerivedCell, Doubts, derived_cells, has_same_nodes
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.planning.plan import plan
from pytest_hetgpu.planning.variant import job_settings, with_variant
from tests.planning.plan_cases import SITE, TEXT, Reads

NONE = Doubts()
ADDED = """\
exclude: [{placement: odd, reason: two only}]
include:
  - placement: {name: lone, nodes: [lo2, lo2]}
    transport: {name: posix, family: ob1, btl: [sm, self]}
    workload: pairs
"""


def derived(reads: Reads, cell: str, doubts: Doubts, text: str = TEXT) -> list[tuple[DerivedCell, Job]]:
    """The cells that are derived from a cell, with their jobs."""
    matrix = reads(text)
    suite = MatrixSet({matrix.name: matrix}, tuple(expand(matrix)), SITE.inventory, (), 60.0)
    (one,) = (scenario for scenario in suite.scenarios if scenario.id == cell)
    values = {scenario.values for scenario in suite.scenarios}
    found = []
    for each in derived_cells(matrix, values, one, plan(matrix, one, SITE), doubts):
        changed, scenario = with_variant(suite, one, each.variant)
        job = plan(changed.matrices[matrix.name], scenario, replace(SITE, dropped=changed.dropped))
        assert (job.scenario, job.label) == (one.id, one.label)
        found.append((each, job))
    return found


def test_a_cell_on_two_kinds_of_hardware(reads: Reads) -> None:
    found = derived(reads, "mixed-ob1-pairs", NONE)
    # The matrix has [cpu, cpu].
    assert [each.values for each, _ in found] == [{"placement": "[lo2, lo2]"}, {"placement": "[lo2, cpu]"}]
    assert [[node.hardware.name for node in job.nodes] for _, job in found] == [["lo2", "lo2"], ["lo2", "cpu"]]
    # Their nodes are no nodes of the placement of the cell: facts and containers are kept apart.
    assert [job.axes["placement"] for _, job in found] == ["[lo2, lo2]", "[lo2, cpu]"]
    assert derived(reads, "two-ob1-pairs", NONE) == []


def test_a_setting_less(reads: Reads) -> None:
    doubts = Doubts([Alias("transport", "btl"), Alias("transport", "family"), Alias("stack", "btl")])
    ((one, job),) = derived(reads, "two-ob1-pairs", doubts)
    assert (one.values, one.reason) == ({"transport": "ob1 without btl"}, "without btl")
    assert "btl" not in job_settings(job)
    assert job_settings(job)["pml"] == "ob1"


@pytest.mark.parametrize(
    ("cell", "ranks", "name"),
    [("two-ob1-pairs", 2, "two with 2 ranks"), ("odd-ob1-allreduce", 3, "odd with 3 ranks")],
)
def test_fewer_ranks(reads: Reads, cell: str, ranks: int, name: str) -> None:
    text = TEXT.replace("[cpu, cpu]", "{nodes: [cpu, cpu], ranks_per_node: 2}")
    text = text.replace("[cpu, cpu, cpu]", "{nodes: [cpu, cpu, cpu], ranks_per_node: 2}")
    ((one, job),) = derived(reads, cell, Doubts(ranks=True), text)
    assert one.values == {"placement": name}
    assert sum(node.ranks for node in job.nodes) == ranks
    assert derived(reads, cell, NONE, text) == []


def test_no_fewer_ranks_than_two(reads: Reads) -> None:
    assert derived(reads, "two-ob1-pairs", Doubts(ranks=True)) == []
    text = TEXT.replace("    odd: [cpu, cpu, cpu]", "    odd: {nodes: [cpu], ranks_per_node: 4}")
    ((one, job),) = derived(reads, "odd-ob1-pairs", Doubts(ranks=True), text)
    assert (one.values, job.demand.ranks) == ({"placement": "odd with 2 ranks"}, 2)


def test_another_placement(reads: Reads) -> None:
    """A transport that an include adds is on one placement only; what is excluded is not run."""
    doubts = Doubts([Alias("transport", "placement")])
    found = derived(reads, "lone-posix-pairs", doubts, TEXT + ADDED)
    assert [each.values for each, _ in found] == [{"placement": "two"}, {"placement": "mixed"}]
    assert [job_settings(job)["btl"] for _, job in found] == ["sm,self"] * 2
    assert [node.hardware.name for node in found[1][1].nodes] == ["cpu", "lo2"]
    assert derived(reads, "lone-posix-pairs", NONE, TEXT + ADDED) == []
    # The placement that the include adds is one, too.
    ((one, _),) = derived(reads, "two-ob1-pairs", doubts, TEXT + ADDED)
    assert (one.values, one.reason) == ({"placement": "lone"}, "on another placement")


def test_the_nodes_of_a_derived_cell() -> None:
    axes = {"placement": "two", "transport": "ob1"}
    assert has_same_nodes(axes, {"transport": "ob1 without btl"})
    assert has_same_nodes(axes, {"placement": "two with 2 ranks"})
    assert not has_same_nodes(axes, {"placement": "[amd, amd]"})
    assert not has_same_nodes(axes, {"placement": "two-far"})
