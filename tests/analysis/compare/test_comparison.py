"""Two sides held against each other, and what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.compare.comparison import compare
from pytest_hetgpu.analysis.compare.sides import Side, Way
from pytest_hetgpu.analysis.compare.wording import as_json, as_text, percent
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import PastCell
from tests.analysis.compare.compare_samples import KEY, absent, bad, busbw, good, latency, run, series, side

BEFORE = side(
    good("a", busbw(1.25), latency(10.0)),
    good("b", busbw(1.0)),
    bad("c"),
    good("d"),
    bad("e", verdict=Verdict.KNOWN),
)
AFTER = side(
    good("a", busbw(1.0), latency(8.0)),
    bad("b"),
    good("c"),
    good("f"),
    absent("g"),
    bad("e", verdict=Verdict.KNOWN),
    name="B",
)


def text(before: Side, after: Side, tolerance: float = 0.1, **how: bool) -> list[str]:
    return list(as_text(compare(before, after, tolerance, **how)))


def test_everything_that_differs_in_words() -> None:
    assert text(BEFORE, AFTER) == [
        "before  A (r1), 2023-11-14 22:13:20 UTC: aws",
        "after   B (r1), 2023-11-14 22:13:20 UTC: aws",
        "",
        "worse:",
        f"  b: passed -> crash {KEY} (new)",
        "  d: was passed, is not there any more",
        "  a:",
        "    1K float32  busbw 1.25 -> 1 GB/s (-20.0 %)",
        "",
        "better:",
        f"  c: crash {KEY} (new) -> passed",
        "  a:",
        "    8 float32  latency 10 -> 8 us (-20.0 %)",
        "",
        "appeared:",
        "  f: not there before, passed",
        "  g: not there before, not run (needs rocm)",
        "",
        "signatures:",
        f"  moved {KEY}: now in b, no longer in c",
        "",
        "something is worse: of 4 cells in common 2 are as they were; of 2 numbers 0 are within 10 %",
    ]


def test_the_same_is_said_in_one_line() -> None:
    assert text(BEFORE, BEFORE)[2:] == [
        "",
        "nothing is worse: of 5 cells in common 5 are as they were; of 3 numbers 3 are within 10 %",
    ]


def test_only_what_both_have() -> None:
    made = compare(BEFORE, AFTER, 0.1, common=True)
    assert {one.scenario for one in made.cells} == {"a", "b", "c", "e"}
    assert not compare(side(good("a"), good("b")), side(good("a"), bad("c")), 0.1, common=True).worse


def test_several_runs_are_told_with_their_spread() -> None:
    base = series(*([good("a", busbw(value)), bad("b")] for value in (1.0, 1.1, 1.0, 0.9, 0.1)))
    said = text(base, side(good("a", busbw(0.5)), good("b"), name="B"))
    assert said[0] == "before  last:9, 5 runs from 2023-11-14 22:13:16 UTC to 2023-11-14 22:13:20 UTC: aws"
    assert "    1K float32  busbw 1 [0.9 to 1.1 in 4 runs, 1 outlier] -> 0.5 GB/s (-50.0 %)" in said
    assert f"  b: crash {KEY} (new, 5 of 5 runs) -> passed" in said


def test_a_single_run_is_told_with_the_spread_of_its_repeats() -> None:
    middle = replace(busbw(1.0), samples=(0.95, 0.98, 1.02, 1.05))
    alike = replace(busbw(0.5), samples=(0.5, 0.5, 0.5))
    found = compare(side(good("c", middle)), side(good("c", alike), name="B"), 0.1)
    assert "    1K float32  busbw 1 [0.95 to 1.05 in 4 repeats] -> 0.5 GB/s (-50.0 %)" in as_text(found)
    assert json.loads(as_json(found))["numbers"][0]["before"]["of"] == "repeat"


def test_missing_and_unlike_numbers_are_told() -> None:
    before = side(good("a", busbw(1.0), busbw(1.0, 2048), busbw(1.0, 4096), latency(1.0)))
    after = side(good("a", busbw(float("nan")), busbw(1.0, 4096, ranks=4), latency(1.0), busbw(1.0, 8192)), name="B")
    said = text(before, after)
    assert said[said.index("worse:") :][:10] == [
        "worse:",
        "  a:",
        "    1K float32  busbw 1 GB/s, then nan is no number",
        "    2K float32  busbw 1 GB/s, then not measured any more",
        "",
        "appeared:",
        "  a: 1 number",
        "",
        "not compared:",
        "  a:",
    ]
    assert "    4K float32  busbw: ranks 2 before and 4 after" in said


def test_notes_say_what_may_explain_it() -> None:
    before = Side("A", (run(good("a", facts={"ucx": "1.18", "memory": "host"}, transports=("tcp",)), sha="1"),))
    cell = good("a", facts={"ucx": "1.20", "memory": "host"}, transports=("sm", "tcp"))
    other = replace(run(cell, good("a", matrix="more"), sha="2", machine="other"), package="0.2")
    assert compare(before, Side("B", (other,), "B is half a run"), 0.1).notes == (
        "B is half a run",
        "the matrix more is only in B",
        "the file of the matrix aws is not the same any more: a cell may mean something else",
        "machine: h before, other after",
        "version of hetgpu: 0.1 before, 0.2 after",
        "transport seen: tcp before, sm, tcp after [1 cell]",
        "ucx: 1.18 before, 1.20 after [1 cell]",
    )
    assert "  more.a: not there before, passed" in text(before, Side("B", (other,)))


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (
            side(good("a", matrix="lumi"), name="B"),
            r"nothing in common: A is of another matrix \(aws\) than B \(lumi\)",
        ),
        (side(good("z"), name="B"), "nothing in common: A and B have no cell of aws in common"),
        (side(name="B"), "B holds no cell"),
        (
            side(good("a", busbw(1.0, ranks=4)), name="B"),
            r"no number of B can be compared with one of A \(a: ranks 2 before and 4 after\)",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(after: Side, why: str) -> None:
    with pytest.raises(UsageError, match=f"^{why}$"):
        compare(side(good("a", busbw(1.0))), after, 0.1)


def test_unlike_numbers_do_not_hide_what_is_worse() -> None:
    before = side(good("a", busbw(1.0)), good("b"))
    assert compare(before, side(good("a", busbw(1.0, ranks=4)), bad("b")), 0.1).worse


def test_the_same_as_data() -> None:
    made = json.loads(as_json(compare(BEFORE, AFTER, 0.1)))
    assert (made["schema"], made["worse"], made["tolerance"], made["same"]) == (
        1,
        True,
        10.0,
        {"cells": 2, "numbers": 0},
    )
    assert made["before"] == {
        "name": "A",
        "matrices": ["aws"],
        "runs": [{"id": "r1", "folder": "/r/r1", "started": 1.7e9, "machine": "h", "package": "0.1"}],
    }
    ways = {one["cell"]: one["way"] for one in made["cells"]}
    assert ways == {"b": "worse", "c": "better", "d": "worse", "f": "appeared", "g": "appeared"}
    [moved] = made["signatures"]
    assert (moved["key"], moved["what"], len(moved["before"])) == (KEY, "moved", 2)
    assert moved["after"] == [{"matrix": "aws", "cell": "b"}, {"matrix": "aws", "cell": "e"}]
    slower = next(one for one in made["numbers"] if one["way"] == "worse")
    assert (slower["metric"], slower["size"], slower["before"]["median"], slower["after"]["median"]) == (
        "busbw",
        1024,
        1.25,
        1.0,
    )
    assert slower["percent"] == pytest.approx(-20)


def test_hostile_names_are_harmless() -> None:
    evil = "\x1b[31mred\nnext\u202e"
    before, after = side(good(evil)), side(bad(evil, key=evil), name=evil)
    said = text(before, after)
    assert all(line.isprintable() for line in said)
    assert "  red next: passed -> crash red next (new)" in said
    many = text(side(*(good(f"c{place}") for place in range(300))), side(good("c0"), name="x" * 5000))
    assert "  and 199 more lines (--json has all)" in many
    assert max(map(len, many)) <= 1000


def test_percent() -> None:
    assert [percent(one) for one in (-0.2, 0.123, float("inf"), None, 1e9)] == [
        *("-20.0 %", "+12.3 %", "from nothing", "from nothing", "1e+09 x"),
    ]


WORDS = st.text(max_size=5)
NUMBERS = st.builds(
    Measurement,
    st.sampled_from(["busbw", "algbw", "latency"]),
    st.floats(),
    st.sampled_from(["GB/s", "us"]),
    st.builds(MessagePoint, st.integers(-1, 3), st.sampled_from(["a", ""]), st.sampled_from(["", "in"])),
    st.integers(0, 2),
)
CELLS = st.builds(
    PastCell,
    st.sampled_from(["m", "n"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(Kind),
    st.sampled_from(Verdict),
    signature=WORDS,
    why=WORDS,
    transports=st.lists(WORDS, max_size=2).map(tuple),
    facts=st.dictionaries(WORDS, WORDS, max_size=2),
    measurements=st.lists(NUMBERS, max_size=4).map(tuple),
)
SIDES = st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=3).map(lambda runs: series(*runs))


@given(SIDES, SIDES, st.floats(0, 5), st.booleans())
def test_whatever_the_runs_hold_there_is_an_answer(before: Side, after: Side, tolerance: float, common: bool) -> None:
    try:
        made = compare(before, after, tolerance, common=common)
    except UsageError:
        return

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    data = json.loads(as_json(made), parse_constant=refuse)
    assert data["worse"] == made.worse == any(one["way"] == "worse" for one in (*data["cells"], *data["numbers"]))
    assert list(as_text(made))[-1].startswith("something is worse" if made.worse else "nothing is worse")


@given(SIDES)
def test_a_run_is_not_worse_than_itself(some: Side) -> None:
    one = Side("A", some.runs[:1])
    made = compare(one, one, 0.0)
    assert not made.worse
    assert {cell.way for cell in made.cells} == {Way.SAME}
    assert not made.keys
    assert not made.notes
