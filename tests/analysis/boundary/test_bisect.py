"""Where along ordered values the outcome changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.boundary.bisect import bisected, changes_text

SIZES = [f"{8 << step}" for step in range(8)]


def found(outcomes: Sequence[str | None]) -> tuple[str, int]:
    asked: list[int] = []

    def outcome(place: int) -> str | None:
        asked.append(place)
        return outcomes[place]

    known = bisected(len(outcomes), outcome)
    return changes_text(SIZES * 3, known), len(asked)


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        (["", "", "", "", "k", "k", "k", "k"], "ok to 64, k from 128 (5 runs)"),
        (["k", "", "", "", "", "", "", ""], "k to 8, ok from 16 (5 runs)"),
        (["", "", "j", "j", "j", "k", "k", "k"], "ok to 16, j from 32 to 128, k from 256 (7 runs)"),
        (["", "", "", ""], "ok from 8 to 64 (2 runs)"),
        (["k"], "k from 8 to 8 (1 run)"),
        ([None, None], "nothing is known (0 runs)"),
        (["", "", None, "k"], "ok to 16, k from 64 (3 runs)"),
        ([None, "", "k", None], "ok to 16, k from 32 (2 runs)"),
    ],
)
def test_changes(outcomes: list[str | None], text: str) -> None:
    assert found(outcomes)[0] == text


@given(st.integers(1, 64), st.data())
def test_a_threshold_is_found_in_few_runs(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, count))
    known = bisected(count, lambda place: "k" if place >= first else "")
    if 0 < first < count:
        assert {first - 1, first} <= known.keys()
    assert len(known) <= 2 + (count - 1).bit_length()


@given(st.lists(st.sampled_from(["", "j", "k", None]), min_size=1, max_size=20))
def test_whatever_the_outcomes_are_it_ends(outcomes: list[str | None]) -> None:
    text, asked = found(outcomes)
    assert asked <= len(outcomes)
    assert text
