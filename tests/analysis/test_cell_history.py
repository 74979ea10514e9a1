"""Since when a cell fails, over many runs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.cell_history import CellHistory, HistoryState, cell_history
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.past_runs import PastOutcome, PastRun

OK = PastOutcome(Kind.PASSED, Verdict.OK)
CRASH = PastOutcome(Kind.CRASH, Verdict.NEW, "SIGSEGV@libuct.so")
HANG = PastOutcome(Kind.HANG, Verdict.NEW)
SKIP = PastOutcome(Kind.SKIPPED, Verdict.NOT_RUN)
LETTERS = {".": OK, "C": CRASH, "H": HANG, "-": SKIP, " ": None}


def of(letters: str) -> CellHistory:
    runs = [PastRun(f"r{place}", 1e9 + 86400 * place) for place in range(len(letters))]
    return cell_history(runs, [LETTERS[letter] for letter in letters])


@pytest.mark.parametrize(
    ("letters", "state", "since"),
    [
        ("......", HistoryState.STEADY, 0),
        ("CCCCCC", HistoryState.STEADY, 0),
        (".....C", HistoryState.BROKEN, 5),  # it never failed before
        ("....CC", HistoryState.BROKEN, 4),
        ("....CHH", HistoryState.BROKEN, 4),
        ("CCHHH", HistoryState.BROKEN, 2),  # it always failed, and now in another way
        ("." * 41 + "CH" * 10, HistoryState.BROKEN, 41),
        ("CHCHCHC", HistoryState.BROKEN, 6),
        ("CCCC....", HistoryState.MENDED, 4),
        ("..- .C", HistoryState.BROKEN, 5),
        ("--- ", HistoryState.NOT_RUN, 0),
        ("..C...C.....C..", HistoryState.FLAKY, 13),
        ("..C...C....CCCCCC", HistoryState.BROKEN, 11),  # six in a row are no chance at that rate
        (".C.C.C........................", HistoryState.MENDED, 6),
    ],
)
def test_the_state_of_a_cell(letters: str, state: HistoryState, since: int) -> None:
    found = of(letters)
    assert (found.state, found.since if state is not HistoryState.NOT_RUN else 0) == (state, since)


def test_what_it_was_before_and_for_how_long() -> None:
    found = of("C......-..CC")
    assert (found.name, found.before, found.runs_before) == ("crash SIGSEGV@libuct.so", "ok", 8)
    assert (found.failed, found.ran) == (3, 11)


def test_another_failure_since_is_told_beside_the_first() -> None:
    found = of("." * 41 + "H" * 9 + "C")
    assert (found.state, found.since, found.name, found.before, found.runs_before) == (
        HistoryState.BROKEN,
        41,
        "hang",
        "ok",
        41,
    )
    assert found.later == (50, "crash SIGSEGV@libuct.so")


def test_what_changed_between_the_last_good_and_the_first_bad_run() -> None:
    runs = [
        PastRun("a", 1.0, {"matrix aws": "12ab", "host of pytest": "ci1"}),
        PastRun("b", 2.0, {"matrix aws": "12ab", "host of pytest": "ci1"}),
        PastRun("c", 3.0, {"matrix aws": "34cd", "host of pytest": "ci1"}),
    ]
    good = PastOutcome(Kind.PASSED, Verdict.OK, facts={"ucx": "1.18.0", "openmpi": "5.0.11"})
    bad = PastOutcome(Kind.CRASH, Verdict.NEW, "x", {"ucx": "1.20.0", "openmpi": "5.0.11", "gdrcopy": "2.5"})
    assert cell_history(runs, [good, None, bad]).changes == (
        "ucx 1.18.0 became 1.20.0",
        "gdrcopy none became 2.5",
        "matrix aws 12ab became 34cd",
    )


def test_a_planted_change_is_dated_to_its_run_and_a_flaky_cell_is_not_called_broken() -> None:
    dice = random.Random(24)
    wrong = 0
    for _ in range(200):
        night = dice.randrange(5, 55)
        assert of("." * night + "C" * (60 - night)).since == night
        flaky = "".join("C" if dice.random() < 0.1 else "." for _ in range(60))
        if "C" in flaky[:-10]:
            wrong += of(flaky).state is HistoryState.BROKEN
    assert wrong <= 4


@given(st.text("CH.- ", max_size=40))
def test_any_history_has_a_state(letters: str) -> None:
    found = of(letters)
    assert found.failed <= found.ran == sum(letter in "CH." for letter in letters)
