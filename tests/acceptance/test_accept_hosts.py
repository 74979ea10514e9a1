"""Several workers on several hosts: what starts when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("xdist.plugin")
pytestmark = pytest.mark.usefixtures("stacks")

Latest = Callable[[], Path]
RunPytest = Callable[..., pytest.RunResult]

MATRIX = """\
name: hosts
hardware:
  left: {platform: cpu}
  right: {platform: cpu}
axes:
  placement: {left: [left, left], right: [right, right], both: [left, right]}
  transport: {ob1-tcp: {family: ob1}}
  workload: {allreduce: {sizes: [8, 1K]}}
  how: {a: {env: {BEHAVE: good}}, b: {env: {BEHAVE: good}}, c: {env: {BEHAVE: crash}}}
"""
INVENTORY = "hardware: {left: [127.0.0.1], right: [localhost]}\n"


@pytest.fixture
def two_hosts(pytester: pytest.Pytester) -> None:
    """A matrix over two hosts."""
    (pytester.path / "hosts.yaml").write_text(MATRIX)
    (pytester.path / "where.yaml").write_text(INVENTORY)


def spans(run: Path) -> dict[str, list[tuple[float, float]]]:
    """When each placement was occupied: from `started` to `finished`."""
    found: dict[str, list[tuple[float, float]]] = {}
    for journal in (run / "journal").glob("*.jsonl"):
        begun = 0.0
        for line in journal.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "started":
                begun = event["epoch"]
            if event["event"] == "finished":
                found.setdefault(event["scenario"].split("-")[0], []).append((begun, event["epoch"]))
    return found


@pytest.mark.usefixtures("two_hosts")
@pytest.mark.parametrize("workers", ["1", "2", "4"])
def test_every_cell_runs_once_and_no_host_is_booked_twice(run_pytest: RunPytest, latest: Latest, workers: str) -> None:
    done = run_pytest("--hetgpu-matrix", "hosts.yaml", "--hetgpu-inventory", "where.yaml", "-n", workers, "-v")
    assert done.ret == 1
    done.assert_outcomes(passed=6, failed=3)
    done.stdout.fnmatch_lines(["*scheduling tests via HostScheduling*"])
    seen = spans(latest())
    for one, other in (("left", "both"), ("right", "both")):
        for begin, end in seen[one]:
            assert all(end <= since or until <= begin for since, until in seen[other])


@pytest.mark.usefixtures("two_hosts")
def test_another_distribution_is_xdists_own(run_pytest: RunPytest) -> None:
    done = run_pytest(
        "--hetgpu-matrix", "hosts.yaml", "--hetgpu-inventory", "where.yaml", "-n2", "-v", "--dist", "loadfile"
    )
    done.assert_outcomes(passed=6, failed=3)
    assert "HostScheduling" not in done.stdout.str()


@pytest.mark.slow
@pytest.mark.usefixtures("two_hosts")
def test_stops_after_the_first_failure_and_goes_on_with_those_that_failed(run_pytest: RunPytest) -> None:
    arguments = ("--hetgpu-matrix", "hosts.yaml", "--hetgpu-inventory", "where.yaml", "-n2")
    stopped = run_pytest(*arguments, "-x")
    assert stopped.ret in (1, 2)
    assert "INTERNALERROR" not in stopped.stdout.str() + stopped.stderr.str()
    assert sum(stopped.parseoutcomes().values()) < 9
    whole = run_pytest(*arguments)
    whole.assert_outcomes(passed=6, failed=3)
    again = run_pytest(*arguments, "--lf")
    again.assert_outcomes(failed=3)


@pytest.mark.usefixtures("two_hosts")
def test_other_tests_run_beside_cells(run_pytest: RunPytest, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.parametrize("n", range(6))
        def test_plain(n):
            pass

        @pytest.mark.parametrize("times", [1, 2])
        def test_cell(run, times):
            assert run(check=False)
        """
    )
    done = run_pytest("--hetgpu-matrix", "hosts.yaml", "--hetgpu-inventory", "where.yaml", "-n2", "test_mine.py")
    outcomes = done.parseoutcomes()
    assert outcomes["passed"] >= 6 + 12, outcomes
