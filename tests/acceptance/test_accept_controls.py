"""Further runs that show where exactly a failure occurs; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.main import main

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Latest = Callable[[], Path]
MATRIX = """\
name: demo
hardware:
  cpu: {platform: cpu}
axes:
  placement: {two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: [8, 1K]}}
  tuning: {north: {env: {ANY: n}}, south: {env: {ANY: s}}, west: {env: {ANY: w}}}
  how: {good: {env: {BEHAVE: good}}, crash: {env: {BEHAVE: crash}}}
"""
FEW = ("-k", "(north and crash) or (south and good)")
KEY = "SIGSEGV@libuct.so!uct_tcp_ep_am_short"


@pytest.fixture(autouse=True)
def _matrix(pytester: pytest.Pytester) -> None:
    (pytester.path / "demo.yaml").write_text(MATRIX)


def controls(run: Path) -> list[dict[str, Any]]:
    """The events of further runs."""
    lines = [json.loads(line) for path in (run / "journal").iterdir() for line in path.read_text().splitlines()]
    return sorted((line for line in lines if line["event"] == "control"), key=lambda line: int(line["number"]))


def condition(run: Path) -> dict[str, Any]:
    (several,) = json.loads((run / "boundary.json").read_text())["matrices"].values()
    found: dict[str, Any] = several[-1]
    return found


def test_without_the_option_nothing_more_is_run(run_pytest: Run, latest: Latest) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", *FEW)
    done.assert_outcomes(passed=1, failed=1, deselected=4)
    assert controls(latest()) == []
    assert condition(latest())["state"] != "established"


def test_they_establish_the_condition(run_pytest: Run, latest: Latest, mode: tuple[str, ...]) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", *FEW, *mode)
    assert done.ret == 1
    done.assert_outcomes(passed=1, failed=1, **({} if mode == ("-n2",) else {"deselected": 4}))
    run = latest()
    found = controls(run)
    ended = [(one["reason"], one["attempt"]["key"]) for one in found if one.get("attempt")]
    repeats = [one for one in found if one["reason"] == "repeats the failure"]
    # The variable is one name of the value: without it the cell passes.
    assert ended == [("repeats the failure", KEY)] * len(repeats) + [("without BEHAVE", "")]
    assert len({one["scenario"] for one in found if not one.get("attempt")}) == len(found) - len(ended)
    one = condition(run)
    assert (one["key"], one["where"], one["state"]) == (KEY, "how=crash (i.e. BEHAVE=crash)", "established")
    done.stdout.fnmatch_lines([f"control 3: two-ob1-tcp-allreduce-* (separates * from *, for {KEY})"])
    done.stdout.fnmatch_lines(
        [f"{KEY}   established by {len(found)} further runs", "  where       how=crash (i.e. BEHAVE=crash)"]
    )
    done.stdout.fnmatch_lines(["  required    how: good, crash without BEHAVE pass"])
    done.stdout.fnmatch_lines([f"control {len(found)}: * (crash without BEHAVE): passed (without BEHAVE, for {KEY})"])
    logs = [run / one["attempt"]["log"] for one in repeats]
    assert all("Segmentation fault" in log.read_text() for log in logs)


def test_they_end_at_their_number(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "1", *FEW)
    assert len(controls(latest())) == 1


def test_they_change_no_exit_code(run_pytest: Run, latest: Latest) -> None:
    expect = "expect: [{where: {how: crash, tuning: north}, outcome: crash, reason: r}]\n"
    Path("demo.yaml").write_text(MATRIX + expect)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", *FEW)
    assert done.ret == 0
    assert controls(latest())
    # A cell that was not selected has a verdict all the same.
    assert "new" in (latest() / "junit.xml").read_text()


def test_nothing_more_is_run_if_nothing_failed_or_the_run_was_ended(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", "-k", "good")
    assert controls(latest()) == []
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", "-x")
    assert controls(latest()) == []


def test_a_resumed_run_goes_on_with_them(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "2", *FEW)
    before = [(one["scenario"], one["reason"]) for one in controls(latest())]
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-resume", "--hetgpu-controls", "9", *FEW)
    after = [(one["scenario"], one["reason"]) for one in controls(latest())]
    assert after[: len(before)] == before
    assert condition(latest())["state"] == "established"


def test_reports_of_stored_runs_have_the_same_sentences(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", *FEW)
    before = (latest() / "boundary.json").read_text()
    assert main(["report", str(latest())]) == 0
    assert (latest() / "boundary.json").read_text() == before


def test_they_end_with_the_time_of_the_run(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9", "--hetgpu-budget", "0.001", *FEW)
    assert controls(latest()) == []


def test_auto_is_a_number_of_its_own(run_pytest: Run, latest: Latest) -> None:
    run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "auto", *FEW)
    assert 1 <= len(controls(latest())) <= 10


@pytest.mark.parametrize("value", ["-1", "many"])
def test_another_value_is_a_usage_error(run_pytest: Run, value: str) -> None:
    done = run_pytest("--hetgpu-matrix", "demo.yaml", f"--hetgpu-controls={value}")
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: --hetgpu-controls: '{value}' is not a number from 0 on, nor auto"])


TWO_KINDS = """\
name: demo
hardware:
  good: {platform: cpu}
  bad: {platform: cpu, env: {BEHAVE: crash}}
axes:
  placement: {mixed: [good, bad]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: [8, 1K]}}
"""


def test_a_cell_on_two_kinds_of_hardware_is_run_on_each_alone(run_pytest: Run, latest: Latest) -> None:
    Path("demo.yaml").write_text(TWO_KINDS)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-controls", "9")
    assert done.ret == 1
    run = latest()
    ended = [(one["values"].get("placement"), one["attempt"]["kind"]) for one in controls(run)]
    assert ended == [
        *[(None, "crash")] * 2,
        ("[good, good]", "passed"),
        ("[bad, bad]", "crash"),
        ("[bad, good]", "crash"),
    ]
    done.stdout.fnmatch_lines(["  where       BEHAVE=crash", "*", "  required    BEHAVE: without it passes"])
    assert (run / "index.html").is_file()
    before = (run / "boundary.json").read_text()
    assert main(["report", str(run)]) == 0
    assert (run / "boundary.json").read_text() == before
