"""Parsers that are tables: features of a row, and bounds on what a log can make them store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind


class Table(RuleParser):
    rules = (
        MatchRule("harmless failure"),
        MatchRule("failure", key="failure@{where}", pattern=r"failure in (?P<where>\w+)"),
        MatchRule(
            "banner",
            Kind.TIMEOUT,
            "banner@{where}!{what}",
            then=r"where=(?P<where>\S+)(?: what=(?P<what>\S+))?",
            within=2,
        ),
        MatchRule("said by 2 tools", key="{trigger}@{where}", pattern=r"said by .* in (?P<where>\w+)"),
        MatchRule("quote", key="quote", then=r"this line (?P<detail>.*)", quote_then=True),
        MatchRule(
            "named", key="named", pattern=r"named (?P<library>\w+) (?P<function>\w+) (?P<entry>\w+) (?P<rank>\d+)"
        ),
    )


def parse_all(*lines: str) -> Sequence[FailureMatch]:
    table = Table()
    for number, line in enumerate(lines, 1):
        table.feed(parse_line(line, number))
    return table.finish()


def keys(*lines: str) -> list[str]:
    return [match.signature.key for match in parse_all(*lines)]


def test_triggers_and_context_come_from_the_rules() -> None:
    assert Table.triggers == (b"harmless failure", b"failure", b"banner", b"said by 2 tools", b"quote", b"named")
    assert Table.context == 10


def test_a_key_may_be_made_of_the_words_that_are_looked_for() -> None:
    assert keys("said by 2 tools in f") == ["said-by-tools@f"]


def test_the_first_rule_that_fits_takes_the_line() -> None:
    assert keys("harmless failure in f") == []
    assert keys("failure in f", "failure of all") == ["failure@f"]


def test_the_second_line_is_awaited_for_so_long() -> None:
    assert keys("banner", "foreign", "where=/a/b") == ["banner@b"]
    assert keys("banner", "where=a what=b") == ["banner@a!b"]
    assert keys("banner", "foreign", "foreign", "where=a") == ["banner"]
    assert keys("banner") == ["banner"]


def test_which_line_is_quoted() -> None:
    (banner,) = parse_all("first", "banner", "where=a")
    assert (banner.signature.primary_line, banner.signature.line) == ("banner", 2)
    (quote,) = parse_all("quote", "  this line here ")
    assert (quote.signature.primary_line, quote.signature.line, quote.signature.detail) == (
        "this line here",
        2,
        "here ",
    )


def test_named_groups_fill_the_signature() -> None:
    (one,) = parse_all("[n1:7] named lib f MPI_Send 3", "[n2:8] named lib f MPI_Send 1")
    found = one.signature
    assert (found.library, found.function, found.entry_point) == ("lib", "f", "MPI_Send")
    assert (found.ranks, found.hosts, one.process) == ((1, 3), ("n1", "n2"), ("n1", 7))


FLOODS = {
    "openmpi_crash": ("[h:{0}] *** Process received signal ***", "[h:{0}] Signal: Segmentation fault (11)"),
    "openmpi_exits": (
        "noticed that process rank {0} with PID {0} on node h exited on signal 4 (Illegal instruction).",
    ),
    "openmpi_errors": ("[h:{0}] *** An error occurred in MPI_F{0}", "[h:{0}] *** MPI_ERR_COMM: invalid communicator"),
    "python_errors": ("Traceback (most recent call last):", '  File "f{0}.py", line 1, in f', "ValueError: {0}"),
    "ucx": (
        "[h:{0} :0:{0}] Caught signal 11 (Segmentation fault)",
        "[1.2] [h:{0} :0]  a.c:1 UCX  ERROR word{0:b} failed",
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_failures_is_bounded(name: str) -> None:
    parser = find("signatures", name, LogParser)()  # type: ignore[type-abstract]
    for number in range(1, 12_001):
        for line in FLOODS[name]:
            parser.feed(parse_line(line.format(number), number))
    assert 0 < len(parser.finish()) <= 10_000


def test_every_rank_and_host_counts() -> None:
    (one,) = parse_all(*(f"[n{rank}:7] named lib f MPI_Send {rank}" for rank in range(5000)))
    assert one.signature.ranks == tuple(range(5000))
    assert one.signature.hosts == tuple(f"n{rank}" for rank in range(5000))


def test_a_number_without_end_is_no_rank() -> None:
    (one,) = parse_all(f"named lib f MPI_Send {'9' * 5000}")
    assert one.signature.ranks == ()
