"""Results of remedies, and the smallest set of settings."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.boundary.trials import TrialResult, cure_text, result_of, smallest, smallest_text
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Attempt, Finding, Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.events import Shrunk, Tried

KEY = "SIGSEGV@lib!f"
RAN = Attempt(Kind.PASSED, "", "", "log", 1.0)


def failed(key: str) -> Outcome:
    return Outcome(Kind.CRASH, Verdict.NEW, signature=Signature(Kind.CRASH, key, "line", 1))


def test_results() -> None:
    fallback = Finding("transport", Kind.TRANSPORT_UNAVAILABLE, "silent fallback: asked for ucx, used ob1")
    slow = Finding("speed", Kind.PASSED, "as fast as before")
    other = Outcome(Kind.TRANSPORT_UNAVAILABLE, Verdict.NEW, findings=(fallback, slow))
    assert result_of(Outcome(Kind.PASSED, Verdict.OK), KEY) is TrialResult.CURED
    assert result_of(other, KEY) is TrialResult.OTHER_TRANSPORT
    assert result_of(failed(KEY), KEY) is TrialResult.NO_EFFECT
    assert result_of(failed("SIGBUS@lib"), KEY) is TrialResult.CHANGED
    assert result_of(Outcome(Kind.HANG, Verdict.NEW), "hang") is TrialResult.NO_EFFECT
    assert result_of(Outcome(Kind.SLOW, Verdict.OK), KEY) is TrialResult.CURED
    for kind in (Kind.UNKNOWN, Kind.SKIPPED):
        assert result_of(Outcome(kind, Verdict.NEW), KEY) is TrialResult.INCONCLUSIVE
    wrong = Finding("data", Kind.WRONG_RESULT, "wrong")
    both = Outcome(Kind.TRANSPORT_UNAVAILABLE, Verdict.NEW, findings=(fallback, wrong))
    assert result_of(both, KEY) is TrialResult.CHANGED


def tried(settings: str, result: TrialResult, why: str = "", runs: int = 1) -> Tried:
    return Tried("m", "c", KEY, settings, "https://x", result.value, why, (RAN,) * runs)


def test_in_words() -> None:
    none = [tried("A=1", TrialResult.NO_EFFECT), tried("B=1", TrialResult.CHANGED, "SIGBUS@lib")]
    assert cure_text(none) == "none of 2 tried; B=1 changes the failure (SIGBUS@lib)"
    one = [*none, tried("C=1", TrialResult.CURED, runs=3), tried("D=1", TrialResult.IMPOSSIBLE, "no such thing")]
    assert cure_text(one) == "C=1 (3 of 3); 1 of 3 tried; B=1 changes the failure (SIGBUS@lib)"
    assert cure_text([tried("pml=ob1", TrialResult.OTHER_TRANSPORT)]) == (
        "none of 1 tried; pml=ob1 cured by another transport"
    )
    assert cure_text([tried("D=1", TrialResult.IMPOSSIBLE), tried("E=1", TrialResult.INCONCLUSIVE)]) == ""


def test_the_smallest_job_in_words() -> None:
    job = Shrunk("m", "c", KEY, 2, 1, ("size 8",), ("pml=ucx", "UCX_TLS=tcp,self"), 22, 19, 3, 3, "log")
    assert smallest_text(job) == "2 ranks, size 8, 2 of 22 settings: pml=ucx UCX_TLS=tcp,self (3 of 3)"
    bare = Shrunk("m", "c", KEY, 4, 2, (), (), 0, 1, 2, 3, "log")
    assert smallest_text(bare) == "4 ranks on 2 nodes (2 of 3)"


@given(st.integers(0, 24), st.data())
def test_of_settings_those_that_are_needed_are_left(count: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, max(0, count - 1)), max_size=min(4, count)))
    asked: list[Sequence[int]] = []

    def fails(some: Sequence[int]) -> bool:
        asked.append(some)
        return needed <= set(some)

    assert set(smallest(range(count), fails)) == needed
    assert len(asked) <= 40


@given(st.sets(st.frozensets(st.integers(0, 11), min_size=1, max_size=3), min_size=1, max_size=3))
def test_each_that_is_left_is_needed_even_if_there_are_several_ways(ways: set[frozenset[int]]) -> None:
    def fails(some: Sequence[int]) -> bool:
        return any(way <= set(some) for way in ways)

    found = smallest(range(12), fails)
    assert fails(found)
    assert all(not fails([one for one in found if one != item]) for item in found)


def test_the_number_of_runs_for_three_of_twenty_two() -> None:
    asked = 0

    def fails(some: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return {3, 11, 17} <= set(some)

    assert smallest(range(22), fails) == [3, 11, 17]
    assert asked <= 24
