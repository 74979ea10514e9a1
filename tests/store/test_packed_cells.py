"""Sets of cells as one number."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.store import packed_cells
from pytest_hetgpu.store.packed_cells import axes_of, pack, unpack

NAMES = ("placement", "transport", "workload")
ALL = tuple(itertools.product(("a", "b", "c"), ("x", "y"), ("p", "q", "r", "s", "t")))


@given(st.sets(st.sampled_from(ALL)))
def test_what_is_packed_comes_back_in_the_order_of_the_product(some: set[tuple[str, ...]]) -> None:
    axes = axes_of(NAMES, ALL)
    assert list(unpack(axes, pack(axes, some))) == [cell for cell in ALL if cell in some]


def test_a_product_that_is_too_large_is_not_packed() -> None:
    axes = {name: tuple(map(str, range(200))) for name in NAMES}
    assert packed_cells.MOST_BITS < 200**3
    assert pack(axes, [("1", "2", "3")]) == ""
    assert not list(unpack(axes, "ff"))


def test_of_no_axes() -> None:
    assert not list(unpack({}, ""))
