"""Results of test suites in the output of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.extensions.output_patterns import CommandSettings
from pytest_hetgpu.extensions.readers._suites import READERS
from pytest_hetgpu.extensions.readers.command import CommandParser
from pytest_hetgpu.model.program_output import MOST_NAMES, BenchmarkResult, SuiteResult
from pytest_hetgpu.model.verdict import Kind
from tests.extensions.readers.feeding import read, read_ranks

pytest.importorskip("re2")


def run(form: str, *lines: str) -> BenchmarkResult:
    return read("command", "\n".join(lines), settings=CommandSettings.model_validate({"tests": form}))


def run_ranks(form: str, *ranks: Sequence[str], **settings: str) -> BenchmarkResult:
    given = CommandSettings.model_validate({"tests": form, **settings})
    return read_ranks(given, *("\n".join(lines) for lines in ranks))


TAP = ("TAP version 14", "1..4", "ok 1 - adds", "not ok 2 - divides", "ok 3 - flies # SKIP no wings", "ok 4")


def test_tap_of_two_ranks_is_one_suite() -> None:
    # Rank 1 fails where rank 0 does not.
    second = [line.replace("not ok 2", "ok 2").replace("ok 1", "not ok 1") for line in TAP]
    found = run_ranks("tap", TAP, second)
    assert found.suite == SuiteResult(4, ("divides", "adds"), 1)
    meaning = CommandParser.meaning_of_exit(0, found)
    assert meaning == (Kind.WRONG_RESULT, "2 of 4 tests failed: divides, adds")


def test_what_is_to_do_and_what_is_skipped_has_not_failed() -> None:
    found = run("tap", "not ok 1 - later # TODO write it", "ok 2 - escapes \\# in a name", "1..2")
    assert found.suite == SuiteResult(2)
    assert str(found.suite) == "2 tests passed"
    assert CommandParser.meaning_of_exit(0, found) is None


def test_planned_tests_that_did_not_run_are_no_success() -> None:
    found = run("tap", "1..5", "ok 1 - a", "ok 2 - b")
    assert found.suite == SuiteResult(5, missing=3, whole=False)
    assert CommandParser.meaning_of_exit(0, found) == (Kind.WRONG_RESULT, "3 of 5 planned tests did not run")
    # A run that was stopped is a hang or a timeout, whatever it did not come to.
    assert CommandParser.meaning_of_stop(found) is None
    # A test that had failed before is a failure nevertheless; giving up may follow from the stop.
    failed = run("tap", "1..5", "not ok 1 - a")
    assert CommandParser.meaning_of_stop(failed) == (Kind.WRONG_RESULT, "1 of 5 tests failed: a")
    assert CommandParser.meaning_of_stop(run("tap", "1..5", "ok 1", "Bail out! JUnit file: No such file")) is None


def test_a_suite_that_gives_up_has_failed() -> None:
    suite = run("tap", "ok 1 - a", "Bail out! no memory").suite
    assert suite == SuiteResult(1, ("Bail out! no memory",), whole=False)


@pytest.mark.parametrize(
    "lines",
    [
        ("1..2", "ok", "ok"),
        ("1..3", "ok - a", "ok - b", "ok - a"),
        ("ok 1 - in 13 ms", "1..1", "ok 1 - in 14 ms", "1..1"),
    ],
)
def test_what_passes_by_the_specification_passes(lines: tuple[str, ...]) -> None:
    found = run("tap", *lines)
    assert found.suite
    assert found.suite.whole
    assert CommandParser.meaning_of_exit(0, found) is None


UNITTEST = """\
..F.E
======================================================================
ERROR: setUpClass (test_win.TestWin)
----------------------------------------------------------------------
Traceback (most recent call last):
FAIL: testRevoke (test_ulfm.TestWorld.testRevoke)
FAIL: testRevoke (test_ulfm.TestSelf)
FAIL: testInfo (test_abi.TestABI.testInfo) (name='real2')
----------------------------------------------------------------------
Ran 2083 tests in 8.123s

FAILED (failures=3, errors=1, skipped=90)
"""


def test_unittest_of_every_python() -> None:
    assert run_ranks("unittest", UNITTEST.splitlines(), UNITTEST.splitlines()).suite == SuiteResult(
        2083,
        (
            "test_win.TestWin.setUpClass",
            "test_ulfm.TestWorld.testRevoke",
            "test_ulfm.TestSelf.testRevoke",
            "test_abi.TestABI.testInfo (name='real2')",
        ),
        90,
    )
    passed = run("unittest", "Ran 3 tests in 0.1s", "", "OK (skipped=2)").suite
    assert str(passed) == "1 test passed, 2 skipped"


@pytest.mark.parametrize(
    ("lines", "had"),
    [
        (("Ran 0 tests in 0.000s", "", "NO TESTS RAN"), "0, of which 0"),
        (("Ran 2 tests in 0.1s", "", "OK (skipped=2)"), "2, of which 2"),
    ],
)
def test_a_suite_of_which_nothing_ran_is_no_success(lines: tuple[str, ...], had: str) -> None:
    meaning = CommandParser.meaning_of_exit(0, run("unittest", *lines))
    assert meaning == (Kind.WRONG_RESULT, f"no test ran: the suite has {had} were skipped")


def test_an_output_without_results_is_no_success() -> None:
    found = run("unittest", "Segmentation fault")
    assert found.suite is None
    meaning = CommandParser.meaning_of_exit(0, found)
    assert meaning == (Kind.WRONG_RESULT, "no results of tests (unittest) in the output")
    assert CommandParser.meaning_of_exit(3, found) == (Kind.ERROR, "exit code 3")


def test_a_failure_on_every_rank_is_one() -> None:
    lines = [f"not ok {number} - {'x' * 300}{number}" for number in range(300)]
    suite = run("tap", *lines * 8).suite
    assert suite
    assert len(suite.failed) + suite.more <= 300


@pytest.mark.parametrize(
    ("form", "ranks", "why"),
    [
        ("tap", (["ok 1 - a"],), "the tests have no plan (1..N)"),
        ("tap", (["1..2", "ok 1", "ok 2"], ["1..2", "ok 1"]), "1 of 2 planned tests did not run on rank 1"),
        ("tap", (["1..2", "ok 1", "ok 2"], ["ok 1", "ok 2"]), "the tests have no plan (1..N) on rank 1"),
        # A second document that stops; the numbers of the first do not count for it.
        ("tap", (["1..2", "ok 1", "ok 2", "1..2", "ok 1"],), "1 of 4 planned tests did not run"),
        ("tap", (["ok 1", "ok 2", "1..2", "ok 1"],), "the tests have no plan (1..N)"),
        ("tap", (["1..1", "ok 1", "ok 2"],), "the tests have numbers beyond their plan (1..N)"),
        ("tap", (["1..0 # SKIP no GPU", "ok 1"],), "the tests have numbers beyond their plan (1..N)"),
        # A rank that began its suite, and ran none of it.
        ("tap", (["1..2", "ok 1", "ok 2"], ["1..2"]), "2 of 2 planned tests did not run on rank 1"),
        ("tap", (["1..1", "ok 1"], ["1..0 # SKIP only rank 0 has tests"]), ""),
        ("unittest", (["Ran 2 tests in 0.1s"],), "the tests did not end with `OK` or `FAILED`"),
        ("unittest", (["Ran 2 tests in 0.1s", "OK"], ["Ran 0 tests in 0.0s", "NO TESTS RAN"]), ""),
    ],
)
def test_a_suite_that_did_not_finish_is_no_success(form: str, ranks: tuple[list[str], ...], why: str) -> None:
    meaning = CommandParser.meaning_of_exit(0, run_ranks(form, *ranks))
    assert (meaning.why if meaning else "") == (why if " on rank" in why or not why else f"{why} on rank 0")


def test_each_rank_must_have_run_tests_if_the_matrix_says_so() -> None:
    ran, idle = ["Ran 2 tests in 0.1s", "OK"], ["Ran 0 tests in 0.0s", "NO TESTS RAN"]
    found = run_ranks("unittest", ran, idle, proof="each")
    assert found.missing_success == "no test ran: the suite has 0, of which 0 were skipped"
    silent = run_ranks("unittest", ran, [], proof="each")
    assert silent.missing_success.endswith("on 1 of 2 ranks (`proof: each`)")


def test_a_failed_end_without_headings_has_failed() -> None:
    suite = run("unittest", "Ran 2 tests in 0.1s", "FAILED (errors=1)").suite
    assert suite == SuiteResult(2, ("FAILED (errors=1)",), whole=True)


def test_the_names_of_failed_tests_are_limited() -> None:
    suite = run("tap", *(f"not ok {number} - t{number}" for number in range(MOST_NAMES + 9))).suite
    assert suite
    assert (len(suite.failed), suite.more) == (MOST_NAMES, 9)
    assert "and 206 more" in str(suite)
    assert suite.failure_key == "failed@t0 and 208 more"


@given(st.sampled_from(sorted(READERS)), st.lists(st.text(max_size=60), max_size=20))
def test_no_line_breaks_a_reader(form: str, lines: list[str]) -> None:
    reader = READERS[form]()
    for line in lines:
        reader.feed(line)
    found = reader.finish()
    assert found is None or found.tests >= len(found.failed)
