"""What the matrix says of speeds, cell by cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.models import ReferenceShape
from pytest_hetgpu.model.thresholds import PerformanceReference
from pytest_hetgpu.planning.expand import expand

Reads = Callable[..., Matrix]

TEXT = """\
name: t
hardware:
  cpu: {fabric: {gbps: 10}}
axes:
  placement:
    two: [cpu, cpu]
  transport:
    ob1: {btl: [tcp, self]}
    ucx: {REFERENCE}
  workload:
    allreduce: {sizes: [1K, 1M, 2M]}
    barrier: {}
RULES
"""


def of(
    reads: Reads, reference: str = "", rules: str = "", **changes: str
) -> dict[str, tuple[PerformanceReference, ...]]:
    """The references of each cell that has any; `reference` stands at the transport ucx."""
    text = TEXT.replace("REFERENCE", f"reference: {reference}" if reference else "").replace("RULES", rules)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return {cell.id: cell.references for cell in expand(reads(text)) if cell.references}


def test_a_matrix_without_references_has_none(reads: Reads) -> None:
    assert of(reads) == {}


def test_numbers_at_a_value_are_for_all_its_cells(reads: Reads) -> None:
    found = of(reads, "{latency: 9.5, tolerance: 20%}")
    expected = (PerformanceReference("m.yaml:9", "latency", {0: 9.5}, tolerance=0.2),)
    assert found == {"two-ucx-allreduce": expected, "two-ucx-barrier": expected}


def test_numbers_by_size_and_several_metrics(reads: Reads) -> None:
    rules = "reference:\n  - where: {workload: allreduce}\n    busbw: {1M: 1.2, 2048K: 1.3}\n    latency: {1K: 30}\n"
    found = of(reads, rules=rules)
    assert found.keys() == {"two-ob1-allreduce", "two-ucx-allreduce"}
    assert found["two-ob1-allreduce"] == (
        PerformanceReference("m.yaml:14", "busbw", {1 << 20: 1.2, 2 << 20: 1.3}),
        PerformanceReference("m.yaml:14", "latency", {1024: 30.0}),
    )


def test_a_fraction_of_the_fabric_is_of_large_messages(reads: Reads) -> None:
    rules = "reference:\n  - {where: {workload: all*}, of: fabric, fraction: 0.6}\n"
    assert of(reads, rules=rules)["two-ob1-allreduce"] == (
        PerformanceReference("m.yaml:14", of="fabric", fraction=0.6, min_size=1 << 20),
    )
    rules = rules.replace("0.6", "0.6, min_size: 1K")
    assert of(reads, rules=rules)["two-ob1-allreduce"][0].min_size == 1024


def test_a_fraction_of_the_wire_needs_no_speed_in_the_matrix(reads: Reads) -> None:
    changes = {"cpu: {fabric: {gbps: 10}}": "cpu: {runtime: ssh}"}
    found = of(reads, rules="reference:\n  - {where: {workload: all*}, of: wire, fraction: 0.6}\n", **changes)
    assert found["two-ob1-allreduce"] == (PerformanceReference("m.yaml:14", of="wire", fraction=0.6, min_size=1 << 20),)


def test_another_cell_is_known_by_what_differs(reads: Reads) -> None:
    found = of(reads, "{of: {transport: ob1}, fraction: 0.9}")
    assert {cell: one.cell for cell, (one,) in found.items()} == {
        "two-ucx-allreduce": "two-ob1-allreduce",
        "two-ucx-barrier": "two-ob1-barrier",
    }
    assert {(one.of, one.fraction, one.min_size) for (one,) in found.values()} == {("cell", 0.9, 0)}


def test_nobody_is_held_against_himself(reads: Reads) -> None:
    rules = "reference:\n  - {where: {workload: allreduce}, of: {transport: ob1}}\n"
    assert of(reads, rules=rules).keys() == {"two-ucx-allreduce"}


def test_all_that_a_cells_values_and_rules_say_holds_side_by_side(reads: Reads) -> None:
    listed = "[{of: {transport: ob1}}, {latency: 100}]"
    rules = "reference:\n  - {where: {transport: ucx}, latency: 50}\n"
    changes = {"sizes: [1K, 1M, 2M]": "sizes: [1K, 1M, 2M], reference: {busbw: 1}"}
    found = of(reads, listed, rules, **changes)["two-ucx-allreduce"]
    assert [(one.origin, one.metric or one.cell) for one in found] == [
        ("m.yaml:9", "two-ob1-allreduce"),
        ("m.yaml:9", "latency"),
        ("m.yaml:11", "busbw"),
        ("m.yaml:14", "latency"),
    ]


def test_the_tolerance_is_the_references_own_or_the_cells(reads: Reads) -> None:
    changes = {"two: [cpu, cpu]": "two: {nodes: [cpu, cpu], tolerance: 25 %}"}
    found = of(reads, "[{latency: 9}, {latency: 9, tolerance: 3}]", **changes)["two-ucx-barrier"]
    assert [one.tolerance for one in found] == [0.25, 0.03]


def test_references_of_a_lower_layer_are_not_those_of_what_runs_over_it(reads: Reads) -> None:
    changes = {"barrier: {}": "barrier: {}\n", "    ucx": "    ucc: {over: ucx}\n    ucx"}
    assert {"ucc" in cell for cell in of(reads, "{latency: 9}", **changes)} == {False}


def test_excluded_cells_have_none_and_included_values_their_own(reads: Reads) -> None:
    rules = (
        "exclude:\n  - {transport: ucx, workload: barrier, reason: r}\n"
        "include:\n  - placement: two\n    transport: {name: mine, family: ob1, reference: {latency: 7}}\n"
        "    workload: barrier\n"
    )
    assert of(reads, "{latency: 9}", rules).keys() == {"two-ucx-allreduce", "two-mine-barrier"}


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("2.5 %", 0.025), ("7", 0.07), ("0", 0.0), ("0.5%", 0.005)])
def test_percentages(text: str, share: float) -> None:
    assert ReferenceShape.model_validate({"busbw": "1", "tolerance": text}).tolerance == pytest.approx(share)
