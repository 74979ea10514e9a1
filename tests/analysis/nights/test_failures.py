"""Histories of failures: first and last seen, fixed or back again, on which hosts."""

from __future__ import annotations

from pytest_hetgpu.analysis.nights.failures import (
    FailureState,
    failure_histories,
    hosts_of,
    hosts_with_own_failures,
)
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns

SEND = {"transport": "ucx", "workload": "send"}


def outcome(letter: str, hosts: str = "") -> PastOutcome | None:
    nodes = {"hosts": hosts} if hosts else {}
    if letter == ".":
        return PastOutcome(Kind.PASSED, Verdict.OK, nodes=nodes)
    if letter == "-":
        return PastOutcome(Kind.SKIPPED, Verdict.NOT_RUN)
    return PastOutcome(Kind.CRASH, Verdict.NEW, f"SIGSEGV@{letter}", nodes=nodes, issue="https://example.org/1")


def past(**cells: tuple[str, str]) -> PastRuns:
    """Runs of cells: by placement the letters of their outcomes, and the hosts of their nodes."""
    length = max(len(letters) for letters, _ in cells.values())
    runs = tuple(PastRun(f"r{place}", 1e9 + place) for place in range(length))
    found = {
        PastCell("", "aws", f"{name}-ucx-send", {"placement": name, **SEND}): tuple(
            outcome(letter, hosts) for letter in letters
        )
        for name, (letters, hosts) in cells.items()
    }
    return PastRuns(runs, found)


def test_states_and_runs() -> None:
    found = {
        one.name: one
        for one in failure_histories(
            past(
                a=("......aa..", ""),
                b=(".....bbbbb", ""),
                c=("cc.......c", ""),
                d=(".d.d..d.d.", ""),
                e=("eeeeeeeeee", ""),
            )
        )
    }
    states = {name[-1]: (one.state, one.since, one.first, one.last, one.runs) for name, one in found.items()}
    assert states["b"] == (FailureState.OPEN, 5, 5, 9, 5)
    assert states["e"] == (FailureState.OPEN, 0, 0, 9, 10)
    assert states["d"][0] is FailureState.FLAKY
    assert found["crash SIGSEGV@b"].issue == "https://example.org/1"


def test_fixed_and_back_again() -> None:
    [fixed] = failure_histories(past(a=("aaaaaaaaaaaaaaa............", "")))
    assert (fixed.state, fixed.since, fixed.last) == (FailureState.FIXED, 15, 14)
    [back] = failure_histories(past(a=("aa" + "." * 30 + "aaa", "")))
    assert (back.state, back.since, back.first) == (FailureState.REGRESSED, 32, 0)


def test_a_failure_behind_another_one_is_not_fixed() -> None:
    found = {one.name[-1]: one for one in failure_histories(past(a=("....aaaaabbbbbbbbbbbb", "")))}
    assert (found["a"].state, found["a"].last) == (FailureState.OPEN, 8)
    assert (found["b"].state, found["b"].since) == (FailureState.OPEN, 9)


def test_the_latest_is_first_and_cells_are_together() -> None:
    found = failure_histories(past(a=("aaaaaaaa..", ""), b=("....bbbbbb", ""), c=(".....bbbbb", "")))
    assert [one.name[-1] for one in found] == ["b", "a"]
    assert [cell.scenario for cell in found[0].cells] == ["b-ucx-send", "c-ucx-send"]


def test_a_failure_of_one_host_only() -> None:
    runs = past(left=("..xxx", "n1 | n2"), right=(".....", "n2 | n3"), other=("..xxx", "n1 | n3"))
    [found] = failure_histories(runs)
    assert (found.hosts, found.only_on) == (("n1", "n2", "n3"), "n1")
    assert [(host, [one.name for one in own]) for host, own in hosts_with_own_failures([found])] == [
        ("n1", ["crash SIGSEGV@x"])
    ]


def test_nothing_is_blamed_on_the_only_host() -> None:
    [found] = failure_histories(past(left=("..xxx", "n1")))
    assert found.only_on == ""
    [found] = failure_histories(past(left=("..xxx", "n1 | n2"), right=(".....", "n3")))
    assert found.only_on == "", "either of two may be the cause"


def test_hosts() -> None:
    assert hosts_of(PastOutcome(Kind.PASSED, Verdict.OK, nodes={"hosts": "a | b | a"})) == ("a", "b")
    assert hosts_of(PastOutcome(Kind.PASSED, Verdict.OK)) == ()
