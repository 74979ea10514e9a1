"""Matching of entries and failures."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.config.known_failures import patterns
from pytest_hetgpu.config.known_failures.entries import FailureEntry, KnownFailures, MatchCriteria
from pytest_hetgpu.model.failure import Condition, KnownFailure, Signature
from pytest_hetgpu.model.verdict import Kind

CRASH = Signature(Kind.CRASH, "SIGSEGV@libx.so!f", "Caught signal 11 (invalid permissions)", 7, detail="invalid")


def entry(name: str = "it", **parts: Any) -> FailureEntry:
    known = KnownFailure(name, "title", "cause", status=parts.pop("status", "established"))
    when, harmless = parts.pop("when", ()), parts.pop("harmless", False)
    return FailureEntry(known, MatchCriteria(**parts), when, harmless)


def about(
    *entries: FailureEntry, texts: tuple[str, ...] = (), others: tuple[Signature, ...] = (), **facts: str
) -> list[str]:
    knowledge = KnownFailures({one.id: one for one in entries})
    return [known.id for known in knowledge.known_causes(CRASH, dict.fromkeys(texts, 1), facts, others=others)]


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({"signatures": ("SIGSEGV@libx.so!*",)}, True),
        ({"signatures": ("SIGABRT@*", "*!f")}, True),
        ({"signatures": ("SIGABRT@*",)}, False),
        ({"pattern": r"signal \d+"}, True),
        ({"pattern": "^invalid$"}, False),
        ({"pattern": "(?m)^invalid$"}, True),
        ({"pattern": "permissions", "kinds": (Kind.ERROR,)}, False),
        ({"pattern": "permissions", "kinds": (Kind.ERROR, Kind.CRASH)}, True),
        ({"signatures": ("*",), "texts": ("rocm",)}, False),
        ({"signatures": ("*",), "texts": ("seen",)}, True),
        ({"signatures": ("*",), "texts": ("seen", "rocm")}, False),
        ({"signatures": ("*",), "any_texts": ("seen", "rocm")}, True),
        ({"signatures": ("*",), "any_texts": ("rocm",)}, False),
    ],
)
def test_all_that_is_asked_for_must_be_there(parts: dict[str, Any], fits: bool) -> None:
    assert about(entry(**parts), texts=("seen",)) == ["it"] * fits


def test_a_condition_that_is_known_not_to_hold_rules_an_entry_out() -> None:
    old = entry(signatures=("*",), when=(Condition("ucx", "<1.18"),))
    assert about(old) == about(old, ucx="1.17.0") == ["it"]
    assert about(old, ucx="1.18.0") == []


def test_a_further_failure_that_may_be_the_reason_rules_an_entry_out() -> None:
    bare = entry(signatures=("*",), unless=(Kind.OUT_OF_MEMORY, Kind.CRASH))
    memory = Signature(Kind.OUT_OF_MEMORY, "oom-kill@kernel", "Killed process 7", 9)
    assert about(bare) == about(bare, others=(replace(memory, kind=Kind.NETWORK_FAILURE),)) == ["it"]
    assert about(bare, others=(memory,)) == []
    # The same failure of another rank is no further one.
    assert about(bare, others=(replace(CRASH, line=9),)) == ["it"]


def test_no_pattern_keeps_the_tool_busy() -> None:
    pytest.importorskip("re2")
    long = replace(CRASH, detail="x" * 5000)
    assert KnownFailures({"it": entry(pattern="(x+x+)+y")}).known_causes(long, {}, {}) == ()
    assert KnownFailures({"it": entry(pattern="(x+x+)+$")}).known_causes(long, {}, {})


def test_without_re2_patterns_are_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    patterns._compiled.cache_clear()
    try:
        assert about(entry(pattern=r"signal \d+")) == ["it"]
        assert about(entry(pattern=r"signal [a-z]+")) == []
        assert patterns.check("(?=x)") == "(?=x)"
    finally:
        patterns._compiled.cache_clear()


def test_the_best_established_comes_first_then_what_fits_most_closely() -> None:
    loose = entry("loose", signatures=("SIG*",))
    close = entry("close", signatures=("SIG*",), pattern="signal", texts=("seen",))
    guess = entry("guess", signatures=("SIG*",), pattern="signal", texts=("seen",), status="plausible")
    assert about(guess, loose, close, texts=("seen",)) == ["close", "loose", "guess"]


def test_what_is_harmless_explains_nothing_and_is_named_with_its_line() -> None:
    noise = entry(texts=("scary",), signatures=("*",), harmless=True)
    knowledge = KnownFailures({"it": noise})
    assert knowledge.known_causes(CRASH, {"scary": 3}, {}) == ()
    assert [(one.entry.id, one.line, one.text) for one in knowledge.harmless_texts_in({"scary": 3})] == [
        ("it", 3, "scary")
    ]
    assert knowledge.harmless_texts_in({}) == ()
    assert knowledge.texts == {"scary"}


def test_in_the_log_of_a_good_run_only_what_is_harmless_is_looked_for() -> None:
    both = KnownFailures(
        {"a": entry(texts=("scary",), any_texts=("odd",), harmless=True), "b": entry(texts=("fatal",))}
    )
    assert both.harmless_texts == {"scary", "odd"}
    assert both.texts == {"scary", "odd", "fatal"}


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        ("a  scary\tthing", "a scary thing"),
        (f"a scary thing {'x' * 60}", f"a scary thing {'x' * 46}..."),
        (f"{'x' * 60} a scary thing", "...scary thing"),
        ("", ""),
    ],
)
def test_noise_is_quoted_from_its_beginning_unless_it_stands_further_on(line: str, quote: str) -> None:
    (noise,) = KnownFailures({"it": entry(texts=("scary",), harmless=True)}).harmless_texts_in({"scary": 3})
    assert noise.quoted(line).quote == quote


def test_a_failure_without_a_detail_can_be_known() -> None:
    bare = replace(CRASH, detail=None)
    assert KnownFailures({"it": entry(pattern="permissions")}).known_causes(bare, {}, {})
