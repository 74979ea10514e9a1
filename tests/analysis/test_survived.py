"""Failures that a run got over, and those that it did not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_hetgpu.analysis.explain import Explanation
from tests.analysis.logs_in_parts import RULE, STEPS, TRACEBACK

Read = Callable[..., Explanation]


@pytest.mark.parametrize(
    "parts",
    [
        (f"{TRACEBACK}RuntimeError: store is gone", "attempt 2 of 3", STEPS, "exit code: 0"),
        (
            f"{TRACEBACK}RuntimeError: store is gone",
            "Restarting the job in 30 s ...",
            STEPS,
            "Training completed successfully",
        ),
        ("upload failed: Connection reset by peer, retrying", STEPS, "finished, exit status 0"),
        (f"{TRACEBACK}ValueError: bad", "WARNING: ignoring the broken sample, continuing", STEPS, "done"),
        ("WARNING: no fused kernel, falling back:", f"{TRACEBACK}ImportError: fused", STEPS, "Total time: 3.0 s"),
        (STEPS, "ssh: connect to host n3 port 22: Connection timed out", STEPS, "Total time: 3.0 s"),
        (f"{TRACEBACK}ValueError: bad", "Exited with exit code 1.", STEPS, "Successfully completed."),
        ("tests/test_a.py::test_error", f"{TRACEBACK}ValueError: bad", "===== 12 passed in 3.20s ====="),
        (
            "[ RUN      ] Comm.fails",
            "MPI_ERR_COMM: invalid communicator",
            "[       OK ] Comm.fails (1 ms)",
            "[  PASSED  ] 3 tests.",
        ),
    ],
)
def test_what_a_run_got_over_is_no_failure(read: Read, parts: tuple[str, ...]) -> None:
    found = read("$ mpirun -np 2 ./sim", *parts)
    assert (found.outcome.value, found.signature) == ("passed", None)
    assert found.success is not None


def test_an_exception_that_nobody_reports_as_caught_is_a_failure(read: Read) -> None:
    assert read("$ mpirun -np 2 ./sim", f"{TRACEBACK}ValueError: bad", STEPS, "done").outcome.value == "error"


def test_a_first_attempt_that_failed_is_mentioned(read: Read) -> None:
    found = read("$ torchrun train.py", f"{TRACEBACK}RuntimeError: gone", "attempt 2 of 3", STEPS, "exit code: 0")
    assert [other.key for other in found.survived] == ["RuntimeError@train.py!step"]
    assert found.success is not None
    assert found.success.quote == "exit code: 0"


def test_a_script_that_ends_after_a_failed_launch_shows_no_success(read: Read) -> None:
    launch = (
        f"{RULE}\nmpirun was unable to launch the specified application as it could not access\n"
        f"or execute an executable:\n\nExecutable: ./sim\nNode: n1\n\nwhile attempting to start process rank 0.\n{RULE}"
    )
    assert read("$ mpirun -np 2 ./sim", launch, ">>> Job Ends").outcome.value == "launch_failure"


def test_an_attempt_that_failed_after_another_is_the_failure(read: Read) -> None:
    again = ("attempt 2 of 3", STEPS, f"{TRACEBACK}KeyError: 'x'", "srun: error: n1: task 0: Exited with exit code 1")
    found = read("$ srun -n 2 python train.py", f"{TRACEBACK}RuntimeError: gone", *again)
    assert found.outcome.value == "error"
