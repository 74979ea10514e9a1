"""Passed by a sign of success, or unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_hetgpu.analysis.explain import Explanation
from tests.analysis.logs_in_parts import STEPS

Read = Callable[..., Explanation]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rank 0 of 2\nstep 1 residual 2.0", "none shows success"),
        ("Traceback (most recent call last):\nrank 0 of 2\nfinished successfully", "looks like a failure"),
        ("rank 0 of 2: watchdog: rank 1 is stuck in allreduce\ntotal time: 3.0 s", "looks like a failure"),
        ("hello", "none is of a run"),
    ],
)
def test_without_a_sign_the_outcome_is_unknown_and_says_what_would_decide(read: Read, text: str, reason: str) -> None:
    found = read(text)
    assert found.outcome.value == "unknown"
    assert reason in found.missing


def test_a_result_after_a_crash_of_another_rank_is_no_success(read: Read) -> None:
    crash = "[n1:12:0:12] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))"
    assert read("$ mpirun -np 2 ./sim", STEPS, crash, "rank 1: total time: 3.0 s", "done").outcome.value == "crash"
