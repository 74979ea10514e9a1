"""Many who want the same hosts: one at a time has it, all get it, and nobody is passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import pytest_hetgpu
from pytest_hetgpu.cluster.leases.hold import FOLDER_VARIABLE

CROWD, TIMES = 8, 20
PROGRAM = Path(__file__).with_name("crowd.py")

Turn = tuple[float, float, float]


def crowd(folder: Path, wishes: list[list[str]], seconds: float) -> list[list[Turn]]:
    """What each of a crowd got of the hosts it wished for: when in line for (the last of) them, got and freed them."""
    root = str(Path(pytest_hetgpu.__file__).parent.parent)
    env = {**os.environ, FOLDER_VARIABLE: str(folder), "PYTHONPATH": root}
    pipe = subprocess.PIPE
    people = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(TIMES), str(seconds), *wish], stdin=pipe, stdout=pipe, text=True, env=env
        )
        for wish in wishes
    ]
    for one in people:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in people:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate(timeout=120)[0] for one in people]
    assert [one.returncode for one in people] == [0] * len(people)
    turns: list[list[Turn]] = []
    for text in said:
        rows = (line.split() for line in text.splitlines())
        turns.append([(float(in_line), float(granted), float(freed)) for in_line, granted, freed in rows])
    return turns


def passed_over(turns: list[list[Turn]]) -> int:
    """How often at most one of the others got the host while somebody was in line for it."""
    return max(
        sum(in_line < got < granted for _, got, _ in others)
        for mine in turns
        for in_line, granted, _ in mine
        for others in turns
        if others is not mine
    )


def test_no_two_have_a_host_at_a_time_and_nobody_is_passed_over(tmp_path: Path) -> None:
    turns = crowd(tmp_path, [["gpu1"]] * CROWD, 0.005)
    held = sorted((granted, freed) for mine in turns for _, granted, freed in mine)
    assert len(held) == CROWD * TIMES
    assert all(freed <= granted for (_, freed), (granted, _) in pairwise(held))
    assert passed_over(turns) == 1  # no more often, and there was a line


@pytest.mark.parametrize("order", [1, -1])
def test_jobs_of_many_hosts_each_named_in_another_order_all_come_to_an_end(tmp_path: Path, order: int) -> None:
    hosts = ["a", "b", "c", "d"]
    wishes = [[hosts[(place + step * order) % 4] for step in range(2 + place % 2)] for place in range(CROWD)]
    assert [len(mine) for mine in crowd(tmp_path, wishes, 0.001)] == [TIMES] * CROWD
