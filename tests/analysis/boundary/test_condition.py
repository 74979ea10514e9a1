"""Conditions of the keys of one run: two levels, and runs that say nothing."""

from __future__ import annotations

import itertools

from pytest_hetgpu.analysis.boundary.condition import Ran, RunEnd, State, against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.space import Relation, Space
from pytest_hetgpu.analysis.boundary.summary import PASSES, summary

OK = (RunEnd(Ran.PASSED),)
CELLS = tuple(
    {"transport": transport, "memory": memory, "size": size}
    for transport, memory, size in itertools.product(("tcp", "shm", "rc"), ("host", "guarded"), ("1K", "2K", "4K"))
)
SPACE = Space(CELLS, ("transport", "memory", "size"), {"size": ("1K", "2K", "4K")})


def failed(key: str, ran: Ran = Ran.FAILED) -> tuple[RunEnd, ...]:
    return (RunEnd(ran, key),)


def runs() -> dict[int, tuple[RunEnd, ...]]:
    """Guarded memory fails: over tcp by size, elsewhere by one key."""
    found: dict[int, tuple[RunEnd, ...]] = {}
    for place, cell in enumerate(CELLS):
        if cell["memory"] == "host":
            found[place] = OK
        elif cell["transport"] == "tcp":
            found[place] = failed("small" if cell["size"] in ("1K", "2K") else "large")
        else:
            found[place] = failed("other")
    return found


def test_where_it_fails_and_which_way() -> None:
    small, large, other = conditions(SPACE, runs())
    assert [one.found.key for one in (small, large, other)] == ["small", "large", "other"]
    (term,) = small.found.terms
    assert {(one.literal.axis, one.literal.relation, one.literal.values) for one in term.literals} == {
        ("memory", Relation.EQUAL, ("guarded",)),
        ("transport", Relation.EQUAL, ("tcp",)),
        ("size", Relation.AT_MOST, ("2K",)),
    }
    assert small.found.keys == ("small", "large", "other")
    printed = summary(SPACE, runs(), small)
    assert (printed.support.matching, printed.support.failing, printed.support.failing_beyond) == (2, 2, 0)
    shown = {one.axis: (one.values, one.shown) for one in printed.required}
    assert shown["memory"] == (("host",), (PASSES,))
    assert shown["size"] == (("4K",), ("large",))
    assert shown["transport"] == (("shm", "rc"), ("other",))


def test_any_failure() -> None:
    found = judged(SPACE, against_passes(SPACE, runs()))
    (term,) = found.found.terms
    assert [one.literal.values for one in term.literals] == [("guarded",)]
    assert found.state is State.OPEN


def test_a_less_exact_key_says_nothing() -> None:
    seen = runs()
    seen[3] = failed("SIGSEGV@lib!f")
    seen[4] = failed("SIGSEGV")
    exact = next(one for one in conditions(SPACE, seen) if one.found.key == "SIGSEGV@lib!f")
    assert 4 not in exact.found.seen.passes
    assert 4 not in exact.found.seen.fails


def test_a_lost_network_counts_for_its_own_key_only() -> None:
    seen = runs()
    seen[0] = failed("peer-lost@n", Ran.LOST)
    small = next(one for one in conditions(SPACE, seen) if one.found.key == "small")
    lost = next(one for one in conditions(SPACE, seen) if one.found.key == "peer-lost@n")
    assert 0 not in {*small.found.seen.passes, *small.found.seen.fails}
    assert lost.found.seen.fails == {0: 1}


def test_a_cell_seen_both_ways_makes_its_condition_flaky() -> None:
    seen = {place: OK if cell["memory"] == "host" else failed("f") for place, cell in enumerate(CELLS)}
    seen[3] = (*OK, *failed("f"))
    (flaky,) = conditions(SPACE, seen)
    assert flaky.state is State.FLAKY
    assert [one.literal.values for one in flaky.found.terms[0].literals] == [("guarded",)]


def test_a_set_whose_values_fail_on_different_other_values_is_not_established() -> None:
    """Over tcp the cells fail that send, over shm those that receive: two conditions may look like one with a set."""
    names = ("transport", "memory", "workload", "dtype")
    values = (("tcp", "shm", "rc", "dc"), ("host", "guarded"), ("send", "receive"), ("int8", "int16"))
    cells = tuple(dict(zip(names, cell, strict=True)) for cell in itertools.product(*values))
    seen: dict[int, tuple[RunEnd, ...]] = {}
    for place, (transport, memory, workload, _) in enumerate(map(dict.values, cells)):
        if memory == "host" or transport in ("rc", "dc"):
            seen[place] = OK
        elif (transport, workload) in (("tcp", "send"), ("shm", "receive")):
            seen[place] = failed("f") * 3
    space = Space(cells, names)
    (one,) = conditions(space, seen)
    assert [{*literal.literal.values} for literal in one.found.terms[0].literals] == [{"guarded"}, {"tcp", "shm"}]
    assert one.state is State.OPEN
    assert one.separating is not None
    assert one.separating not in seen
    seen |= {place: failed("f") for place in range(len(cells)) if place not in seen}
    (one,) = conditions(space, seen)
    assert one.state is State.ESTABLISHED


def test_of_a_value_and_a_fact_the_value_is_named() -> None:
    """Of the cells without an interface, and of the others of UCX, one was run: its transport says more than UCX."""
    names = ("transport", "workload")
    cells = [
        {"transport": transport, "workload": workload, "family": family}
        for transport, family in (("ob1-tcp", "ob1"), ("ucx-none", "ucx"), ("ucx-tcp", "ucx"))
        for workload in ("none", "kill", "cut")
        if (transport == "ucx-none") <= (workload == "none")
    ]
    seen = {
        place: failed("no-transport@ucx") if cell["transport"] == "ucx-none" else OK
        for place, cell in enumerate(cells)
        if (cell["transport"], cell["workload"]) != ("ucx-tcp", "none")
    }
    seen |= {place: failed(cell["workload"]) for place, cell in enumerate(cells) if cell["workload"] != "none"}
    one = next(one for one in conditions(Space(tuple(cells), names), seen) if one.found.key == "no-transport@ucx")
    assert [[literal.literal.values for literal in term.literals] for term in one.found.terms] == [[("ucx-none",)]]
