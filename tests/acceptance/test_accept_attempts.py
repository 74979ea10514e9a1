"""Retries, flaky cells, the run's time, and failures that are counted; without xdist, with -n0 and with -n2."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]
Write = Callable[..., Path]
Latest = Callable[[], Path]
CELL = "two-ob1-tcp-allreduce-"
ROUTE = "No-route-to-host@mca_btl_tcp_endpoint_complete_connect"


def properties(path: Path) -> dict[str, dict[str, str]]:
    """The properties of each case of a JUnit file."""
    return {
        case.name: {one.get("name"): one.get("value") for one in case._elem.iter("property")}
        for suite in JUnitXml.fromfile(str(path))
        for case in suite
    }


def events(run: Path) -> list[str]:
    """The names of all events of a run."""
    return [json.loads(line)["event"] for path in (run / "journal").iterdir() for line in path.read_text().splitlines()]


def test_failed_then_passed_is_flaky_everywhere_and_no_failure(
    run_pytest: Run, matrix: Write, latest: Latest, mode: tuple[str, ...]
) -> None:
    matrix(["network-then-good", "good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "1", "--junitxml", "own.xml", *mode)
    assert done.ret == 0
    done.assert_outcomes(passed=2)
    flaky = f"{CELL}network-then-good"
    done.stdout.fnmatch_lines(
        [f"flaky *{flaky} *passed at attempt 2, after network failure; busbw *", f"flaky: {flaky} passed at attempt 2*"]
    )
    run = latest()
    found = properties(run / "junit.xml")
    assert list(found) == [flaky, f"{CELL}good"]
    assert found[flaky]["attempts"] == "2"
    assert found[flaky]["attempt_1"].startswith(f"network failure: {ROUTE}")
    assert found[flaky]["attempt_1"].endswith(f"(scenarios/{flaky}/attempt-1/output.log)")
    assert "attempts" not in found[f"{CELL}good"]
    assert found[flaky] == next(
        iter(one for name, one in properties(run.parents[1] / "own.xml").items() if flaky in name)
    )
    assert "No route to host" in (run / "scenarios" / flaky / "attempt-1" / "output.log").read_text()
    assert "No route to host" not in (run / "scenarios" / flaky / "output.log").read_text()
    assert "Of 2 cells, 2 work, 1 of all is flaky" in (run / "summary.md").read_text()
    assert "passed at attempt 2" in (run / "index.html").read_text()
    assert events(run).count("attempted") == 1


def test_every_attempt_is_judged_again_from_its_log(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester
) -> None:
    matrix(["network-then-good"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "2").ret == 0
    first = latest() / "scenarios" / f"{CELL}network-then-good" / "attempt-1" / "output.log"
    again = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(latest()))
    again.stdout.fnmatch_lines(["0 verdicts changed*"])
    assert properties(latest() / "junit.xml")[f"{CELL}network-then-good"]["attempts"] == "2"
    # As if a better reading found that the first attempt was no environment's failure.
    first.write_text(
        first.read_text().replace("No route to host (113)", "") + "*** stack smashing detected ***: terminated\n"
    )
    again = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "report", str(latest()))
    again.stdout.fnmatch_lines([f"{CELL}network-then-good: was passed (ok), is * (new)*"])
    compared = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "compare", str(latest()), str(latest()))
    assert "flaky" not in compared.stdout.str()


def test_compare_lists_what_is_flaky(run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester) -> None:
    matrix(["network-then-good"])
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "1").ret == 0
    first = latest()
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "1").ret == 0
    told = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "compare", str(latest()), str(first))
    told.stdout.fnmatch_lines(
        ["note    flaky after: two-*-network-then-good passed at attempt 2, after network failure"]
    )
    assert told.ret == 0


@pytest.mark.parametrize(
    ("how", "kind", "attempts"),
    [
        ("crash-then-good", "crash", None),
        ("wrong-then-good", "wrong_result", None),
        ("exit3-then-good", "error", None),
        ("network-then-crash-then-good", "crash", "2"),
        ("network-then-network-then-network-then-good", "network_failure", "3"),
    ],
)
def test_a_bug_stays_one(
    run_pytest: Run, matrix: Write, latest: Latest, how: str, kind: str, attempts: str | None
) -> None:
    matrix([how])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "2")
    assert done.ret == 1
    found = properties(latest() / "junit.xml")[f"{CELL}{how}"]
    assert (found["outcome"], found.get("attempts")) == (kind, attempts)


def test_an_expected_failure_is_not_tried_again(run_pytest: Run, matrix: Write, latest: Latest) -> None:
    matrix(["network-then-good"], "expect:\n  - {where: {how: network-then-good}, outcome: network_failure}\n")
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "2")
    assert done.ret == 0
    done.assert_outcomes(xfailed=1)
    assert "attempted" not in events(latest())


def test_only_the_environments_failures_can_be_retried(run_pytest: Run, matrix: Write) -> None:
    matrix(["good"])
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retry-on", "crash")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["*--hetgpu-retry-on: 'crash' is none of *about what is tested*make a pass of a bug*"])


@pytest.mark.slow
def test_a_run_whose_time_is_spent_starts_nothing_more(
    run_pytest: Run,
    matrix: Write,
    latest: Latest,
    mode: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    fifo.touch()
    monkeypatch.setenv("STANDIN_FIFO", str(fifo))
    hows = (
        ["hang", *(f"good{number}" for number in range(5))] if mode[0] != "-n2" else ["hang", "hang-then-good", "good"]
    )
    matrix(hows)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-budget", "8", *mode)
    assert done.ret == 1
    run = latest()
    found = properties(run / "junit.xml")
    assert found[f"{CELL}hang"]["outcome"] == "unknown"
    assert "the run's time was spent (--hetgpu-budget 8)" in found[f"{CELL}hang"]["why"]
    assert found[f"{CELL}hang"]["verdict"] == "not_run"
    left = [one for name, one in found.items() if one["verdict"] == "not_run" and name != f"{CELL}hang"]
    assert left
    assert {one["why"] for one in left} == {"not run: the run's time was spent (--hetgpu-budget 8)"}
    done.stdout.fnmatch_lines(["*the run's time was spent*not run]"])


def test_maxfail_counts_cells(run_pytest: Run, matrix: Write, mode: tuple[str, ...]) -> None:
    expected = "expect:\n  - {where: {how: crash}, outcome: crash}\n  - {where: {how: good}, outcome: crash}\n"
    # Known, a cell of three attempts, fixed; then the limit of two is reached.
    hows = ["crash", "network-then-network-then-network", "good", *(f"good{number}" for number in range(6))]
    matrix(hows, expected)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-retries", "2", "--maxfail", "2", *mode)
    assert done.ret in (1, 2)
    outcomes = done.parseoutcomes()
    assert outcomes["failed"] == 2
    assert outcomes["xfailed"] == 1
    if mode[0] != "-n2":
        assert "passed" not in outcomes
    done.stdout.fnmatch_lines(["*stopping after 2 failures*"])


NODES = """\
name: demo
hardware:
  far: {runtime: ssh}
  cpu: {platform: cpu}
axes:
  placement: {away: [far, far], two: [cpu, cpu]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: [8, 1K]}}
  how: {a: {}, b: {}, c: {}, d: {}}
"""


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs an ssh client")
@pytest.mark.parametrize("limit", ["", "1", "off"])
@pytest.mark.parametrize("retries", ["0", "1"])
def test_cells_of_a_node_that_does_not_come_up_are_skipped(
    run_pytest: Run, pytester: pytest.Pytester, latest: Latest, mode: tuple[str, ...], limit: str, retries: str
) -> None:
    pytester.path.joinpath("demo.yaml").write_text(NODES)
    far = "hardware: {far: [{address: 127.0.0.1, port: 1}, {address: 127.0.0.1, port: 1}]}\n"
    pytester.path.joinpath("hosts.yaml").write_text(far)
    given = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hosts.yaml", "--hetgpu-retries", retries, *mode)
    done = run_pytest(*given, *(("--hetgpu-quarantine", limit) if limit else ()))
    assert done.ret == 1
    cells = [one for name, one in properties(latest() / "junit.xml").items() if name.startswith("away-")]
    failed = [one for one in cells if one["verdict"] == "new"]
    skipped = [one for one in cells if one["verdict"] == "not_run"]
    assert len(cells) == 4
    if limit == "off":
        assert len(failed) == 4
        assert {one.get("attempts") for one in failed} == {None if retries == "0" else "2"}
        return
    # Two workers may meet it at the same time.
    assert 1 <= len(failed) <= (2 if mode[0] == "-n2" else 1)
    assert {one["outcome"] for one in failed} == {"launch_failure"}
    why = "far on 127.0.0.1 is in quarantine: "
    assert all(one["why"].startswith(why) and "onnection refused" in one["why"] for one in skipped)
    done.stdout.fnmatch_lines([f"{why}*not run]"])
    assert f"## Nodes in quarantine\n\n- {why}" in (latest() / "summary.md").read_text()


LOST_ONCE = """
import pytest_hetgpu.execution.steps as steps
from pytest_hetgpu.errors import ProvisionError

real, calls = steps.execute, []

def lost_once(*given):
    calls.append(given)
    if len(calls) == 1:
        raise ProvisionError("node0", "the way to its lease broke")
    return real(*given)

steps.execute = lost_once
"""


def test_a_host_that_is_lost_before_the_command_starts_is_an_attempt_like_any_other(
    run_pytest: Run, matrix: Write, latest: Latest, pytester: pytest.Pytester
) -> None:
    matrix(["good"])
    pytester.makeconftest(LOST_ONCE)
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "-p", "no:xdist")
    assert done.ret == 1
    (cell,) = properties(latest() / "junit.xml").values()
    assert (cell["outcome"], cell["verdict"]) == ("launch_failure", "new")
    assert "the way to its lease broke" in cell["why"]
    assert run_pytest("--hetgpu-matrix", "demo.yaml", "-p", "no:xdist", "--hetgpu-retries", "1").ret == 0
    (cell,) = properties(latest() / "junit.xml").values()
    assert cell["outcome"] == "passed"
