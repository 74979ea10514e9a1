"""The cause of a run's end, from the course of the run, the first event that ended its progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.config.known_failures.load import known_failures

STEPS = "\n".join(f"rank 0: step {step} residual {1 / step:.4e}" for step in range(1, 9))
RULE = "-" * 74
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in step\n    send(x)\n'
OOM = "slurmstepd: error: Detected 3 oom_kill events in StepId=41.batch. Some of the tasks have been OOM Killed."
LIMIT = "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-03-04T10:00:00 DUE TO TIME LIMIT ***"
ABORT = f"{RULE}\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 3.\n{RULE}"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Explanation]:
    def explained(*parts: str) -> Explanation:
        log = tmp_path / "output.log"
        log.write_text("\n".join(parts) + "\n")
        return explain(log, known_failures())

    return explained


Read = Callable[..., Explanation]


@pytest.mark.parametrize(
    ("outcome", "key", "parts"),
    [
        # A limit, and what the launcher reports while it ends the ranks.
        (
            "timeout",
            "time-limit@slurm",
            (
                STEPS,
                "srun: Job step aborted: Waiting up to 32 seconds",
                LIMIT,
                "srun: error: n1: task 0: Terminated",
                "srun: error: n2: task 1: Killed",
            ),
        ),
        ("timeout", "time-limit@slurm", (STEPS, "srun: error: n1: task 0: Terminated", LIMIT)),
        (
            "timeout",
            "time-limit@slurm",
            (
                STEPS,
                LIMIT,
                RULE,
                "ORTE has lost communication with a remote daemon.",
                "",
                "  HNP daemon   : [[1,0],0] on node n1",
                "  Remote daemon: [[1,0],1] on node n2",
                RULE,
            ),
        ),
        (
            "timeout",
            "time-limit@slurm",
            (
                STEPS,
                LIMIT,
                "[n1:00077] *** Process received signal ***",
                "[n1:00077] Signal: Segmentation fault (11)",
                "[n1:00077] Signal code: Address not mapped (1)",
                "[n1:00077] [ 0] /lib/libc.so.6(+0x42520)[0x7f]",
                "[n1:00077] [ 1] mpirun(prte_quit+0x5)[0x40]",
                "[n1:00077] *** End of error message ***",
            ),
        ),
        (
            "out_of_memory",
            None,
            (
                STEPS,
                "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-03-04T10:00:00 ***",
                OOM,
            ),
        ),
        # A rank that was killed before the limit, for which the others waited.
        ("crash", "SIGKILL", (STEPS, "srun: error: n1: task 1: Killed", LIMIT, "srun: error: n1: task 0: Terminated")),
        # The program's own words about the signal.
        ("timeout", "time-limit@slurm", (STEPS, "ERROR: main process received SIGTERM, exiting", LIMIT)),
        # A library that the loader missed long before a crash.
        (
            "crash",
            None,
            (
                "load: /lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /opt/libx.so)",
                STEPS,
                "[n1:12:0:12] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
            ),
        ),
        # An error that a rank had got over before.
        ("timeout", "time-limit@slurm", (STEPS, f"rank 1: {TRACEBACK}ConnectionError: no answer", STEPS, STEPS, LIMIT)),
        # A failure before the limit, with no progress after it: the others waited for the dead rank.
        ("error", "ValueError@train.py!step", (STEPS, f"{TRACEBACK}ValueError: bad", LIMIT)),
        # Scripts that prepare a run.
        (
            "error",
            "ValueError@train.py!step",
            (
                "start.sh: line 3: conda: command not found",
                "Error: No such file or directory",
                STEPS,
                f"{TRACEBACK}ValueError: bad",
            ),
        ),
        # The program's own reason above the launcher that relays it.
        (
            "error",
            None,
            (
                STEPS,
                "Assertion `rows > 0' failed: mesh is empty, cannot continue",
                ABORT,
                "srun: error: n1: task 1: Exited with exit code 3",
            ),
        ),
        (
            "error",
            None,
            (
                STEPS,
                "Verification failed: (rel_error < 1e-6) is false:",
                " --> norm is wrong",
                " ... in function: int main()",
                " ... in file: ex1.cpp:99",
                "",
                ABORT,
            ),
        ),
    ],
)
def test_the_first_event_that_ended_progress_is_the_cause(
    read: Read, outcome: str, key: str | None, parts: tuple[str, ...]
) -> None:
    found = read("$ srun -n 2 ./sim", *parts)
    assert found.signature is not None
    assert found.outcome.value == outcome
    assert key in (None, found.signature.key)


def test_ranks_that_made_progress_have_not_failed_to_launch(read: Read) -> None:
    lost = (
        f"{RULE}\nAn ORTE daemon has unexpectedly failed after launch and before\ncommunicating back to mpirun.\n{RULE}"
    )
    found = read("$ mpirun -np 2 ./sim", STEPS, f"{TRACEBACK}ValueError: bad", lost)
    assert found.signature is not None
    assert found.signature.key == "ValueError@train.py!step"


def test_two_banners_of_an_abort_that_are_interleaved(read: Read) -> None:
    said = [f"MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD" for rank in (0, 1)]
    banner = (RULE, RULE, *said, "with errorcode 3.", "with errorcode 3.", RULE, RULE)
    found = read("$ mpirun -np 2 ./sim", STEPS, "rank 0: cannot read input: bad header", *banner)
    assert found.signature is not None
    assert found.signature.primary_line == "rank 0: cannot read input: bad header"


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
