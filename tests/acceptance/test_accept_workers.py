"""Several workers, several sessions, workers that die: every cell that can has a result, no host has two cells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.test_accept_hosts import two_hosts

pytest.importorskip("xdist.plugin")
pytestmark = pytest.mark.usefixtures("stacks", "two_hosts")
__all__ = ["two_hosts"]

GIVEN = ("--hetgpu-matrix", "hosts.yaml", "--hetgpu-inventory", "where.yaml", "-p", "no:cacheprovider")
KILLED = "left-ob1-tcp-allreduce-b"
KILLING = f"""\
import os, signal

def test_cell(scenario, run):
    if scenario.id == "{KILLED}":
        os.kill(os.getpid(), signal.SIGKILL)
    run()
"""


def events(run: Path) -> list[dict[str, object]]:
    """All that the journals of a run hold."""
    return [json.loads(line) for path in (run / "journal").glob("*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("workers", ["1", "2", "4"])
def test_a_worker_that_is_killed_costs_the_cell_that_it_ran(
    pytester: pytest.Pytester,
    run_pytest: Callable[..., pytest.RunResult],
    latest: Callable[[], Path],
    workers: str,
) -> None:
    pytester.path.joinpath("test_killing.py").write_text(KILLING)
    done = run_pytest(*GIVEN, "-n", workers, "test_killing.py")
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"worker 'gw*' crashed while running 'test_killing.py::test_cell[[]{KILLED}]'"])
    judged = [one["scenario"] for one in events(latest()) if one["event"] == "judged"]
    assert len(judged) == len(set(judged)) == 8
    assert KILLED not in judged
    done.assert_outcomes(passed=5, failed=4)


def test_two_sessions_at_once_share_the_hosts(pytester: pytest.Pytester) -> None:
    command = (sys.executable, "-m", "pytest", *GIVEN, "-n2")
    reports = [pytester.path / name for name in ("mine", "yours")]
    sessions = [
        subprocess.Popen((*command, "--hetgpu-reports", str(one)), cwd=pytester.path, stdout=subprocess.PIPE, text=True)
        for one in reports
    ]
    said = [session.communicate(timeout=120)[0] for session in sessions]
    assert [session.returncode for session in sessions] == [1, 1], said
    spans = []
    for one in reports:
        found = [event["result"] for event in events((one / "latest").resolve()) if event["event"] == "finished"]
        assert len(found) == 9
        for result in found:
            assert isinstance(result, dict)
            spans.append((result["started"], result["started"] + result["seconds"]))
    # All of them are on this machine.
    assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))
