"""Messages about what was around a failed run: a full file system, a network that was removed."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import FinishedRun
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import (
    BROKEN,
    case,
    signature,
)

CRASHED = {"returncode": 139}
BAD = {"run": CRASHED, "signatures": (signature(),), "exits": (RankExit(0, signal=11),), **BROKEN}


def outcome(of: FinishedRun) -> Outcome:
    return judge(of.job, of.result, of.evidence)


FULL = "TMPDIR /tmp/hetgpu-x has 0 MiB free"


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        ({"signatures": (signature(Kind.CRASH, "SIGBUS@libmpi.so!f", signal="SIGBUS"),)}, True),
        ({"signatures": (signature(Kind.CRASH, "SIGSEGV@libmpi.so!f", signal="SIGSEGV"),)}, False),
        ({"exits": (RankExit(0, signal=7),), "signatures": ()}, True),
        ({"exits": (), "signatures": (signature(Kind.LAUNCH_FAILURE, "no-space@session-dir"),)}, True),
    ],
)
def test_a_full_file_system_is_named_with_a_bus_error(seen: dict[str, Any], named: bool) -> None:
    returncode = 1 if seen.get("exits") == () else 139
    found = outcome(case(**{**BAD, "run": {"returncode": returncode, "full": (FULL,)}, **seen}))
    assert found.why.endswith(f"; {FULL}") is named


def test_a_network_that_was_removed_is_named_beside_a_crash() -> None:
    found = outcome(case(**{**BAD, "run": {**CRASHED, "unplugged": ("eth0 of node1 is gone",)}}))
    assert found.notes == ("the network was removed under the job: eth0 of node1 is gone",)
