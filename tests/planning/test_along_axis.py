"""Groups of cells that differ in their value on one axis only."""

from __future__ import annotations

import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.planning.along_axis import along, ends
from pytest_hetgpu.planning.expand import expand
from tests.planning.plan_cases import Reads

TEXT = """\
name: demo
hardware: {cpu: }
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1: {}, ucx: {}}
  workload: {allreduce: {}}
  size: {4K: {sizes: 4K}, 512: {sizes: 512}, 1K: {sizes: 1K}, 2K: {sizes: 2K}}
exclude: [{where: {transport: ucx, size: 4K}, reason: r}]
"""


def test_groups_are_in_the_order_of_the_axis(reads: Reads) -> None:
    one, other = along(expand(reads(TEXT)), "size")
    assert [cell.value("size") for cell in one.cells] == ["512", "1K", "2K", "4K"]
    assert [cell.value("size") for cell in other.cells] == ["512", "1K", "2K"]
    assert other.others == {"placement": "two", "transport": "ucx", "workload": "allreduce"}


def test_ends(reads: Reads) -> None:
    found = ends(expand(reads(TEXT)), "size")
    assert [(cell.value("transport"), cell.value("size")) for cell in found] == [
        ("ob1", "4K"),
        ("ob1", "512"),
        ("ucx", "512"),
        ("ucx", "2K"),
    ]


@pytest.mark.parametrize(
    ("axis", "why"),
    [("sizes", "has an axis 'sizes' \\(known: .*size"), ("transport", "of transport have no order: 'ob1' is no size")],
)
def test_other_axes_are_usage_errors(reads: Reads, axis: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ends(expand(reads(TEXT)), axis)
