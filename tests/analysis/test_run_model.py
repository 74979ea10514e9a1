"""The cause of a run's end, from the course of the run, the first event that ended its progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_hetgpu.analysis.explain import Explanation
from tests.analysis.logs_in_parts import ABORT, LIMIT, OOM, RULE, STEPS, TRACEBACK

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


def test_a_scheduler_s_report_of_a_limit_shows_no_rank(read: Read) -> None:
    words = "opal_os_dirpath_create: Error: Unable to create the sub-directory"
    failed = f"[n1:11816] {words} (/tmp/o/0) of (/tmp/o/0/2), mkdir failed [28]"
    found = read(failed, "=>> PBS: job killed: walltime 617 exceeded limit 600", "mpirun: killing job...")
    assert found.signature is not None
    assert (found.outcome.value, found.signature.key) == ("launch_failure", "no-session-directory@openmpi")


def test_a_module_that_cannot_be_loaded_is_no_cause_of_a_later_crash(read: Read) -> None:
    lmod = 'Lmod has detected the following error: Cannot load module "a/1"'
    found = read(lmod, *[""] * 9, STEPS, "srun: error: n1: task 0: Segmentation fault")
    assert found.signature is not None
    assert (found.signature.key, found.others[-1].key) == ("SIGSEGV", "failed@lmod")


def test_two_banners_of_an_abort_that_are_interleaved(read: Read) -> None:
    said = [f"MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD" for rank in (0, 1)]
    banner = (RULE, RULE, *said, "with errorcode 3.", "with errorcode 3.", RULE, RULE)
    found = read("$ mpirun -np 2 ./sim", STEPS, "rank 0: cannot read input: bad header", *banner)
    assert found.signature is not None
    assert found.signature.primary_line == "rank 0: cannot read input: bad header"
