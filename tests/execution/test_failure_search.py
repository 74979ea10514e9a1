"""The search for a user's pattern `failure` in output before any of it is dropped."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.execution.failure_search import FailureSearch

pytest.importorskip("re2")

LOG = b"[1,0]<stdout>:fine\n[1,1]<stdout>:BAD [1,0]<stdout>:more\n[1,1]<stdout>:DATA\nend"


@given(st.lists(st.integers(1, len(LOG) - 1), max_size=6))
def test_it_is_found_however_the_bytes_arrive(cuts: list[int]) -> None:
    search = FailureSearch("^BAD DATA$", "open-mpi-4")
    places = [0, *sorted(set(cuts)), len(LOG)]
    for start, end in itertools.pairwise(places):
        search.feed(LOG[start:end])
    assert search.finish() == "'^BAD DATA$' was found on rank 1: BAD DATA"


def test_what_is_not_there_is_not_found() -> None:
    search = FailureSearch("WORSE", "")
    search.feed(LOG)
    assert search.finish() == ""
