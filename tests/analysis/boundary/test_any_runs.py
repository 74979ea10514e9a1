"""Whatever the runs of cells were, they have conditions that can be printed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.boundary.condition import Ran, RunEnd, against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.space import Space
from pytest_hetgpu.analysis.boundary.summary import summary
from pytest_hetgpu.reporting.boundary_lines import boundary_lines

CELLS = tuple(
    {"a": a, "b": b, "size": size} for a, b, size in itertools.product(("x", "y", "z"), ("p", "q"), ("1", "2", "4"))
)
SPACE = Space(CELLS, ("a", "b", "size"), {"size": ("1", "2", "4")})
ENDS = st.one_of(
    st.just(RunEnd(Ran.PASSED)),
    st.builds(RunEnd, st.sampled_from((Ran.FAILED, Ran.LOST)), st.sampled_from(("k", "k@lib", "other@x"))),
)


@given(st.dictionaries(st.integers(0, len(CELLS) - 1), st.lists(ENDS, min_size=1, max_size=3).map(tuple)))
def test_they_have_conditions(runs: dict[int, tuple[RunEnd, ...]]) -> None:
    found = [*conditions(SPACE, runs), judged(SPACE, against_passes(SPACE, runs))]
    for one in found:
        printed = summary(SPACE, runs, one)
        assert printed.support.failing <= printed.support.run <= printed.support.matching
        assert len(dict(boundary_lines(printed))) >= 4
