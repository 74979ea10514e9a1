"""Lines that show success, and lines that only look so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.analysis.logs.success import Proof, SuccessSigns, sign_of_success, signs_at_end


@pytest.mark.parametrize(
    ("line", "proof"),
    [
        ("exit code: 0", Proof.STATUS),
        ("Job 41 exited with exit code 0.", Proof.STATUS),
        ("State: COMPLETED (exit code 0)", Proof.STATUS),
        ("   JobState=COMPLETED Reason=None ExitCode=0:0", Proof.STATUS),
        ("Successfully completed.", Proof.STATUS),
        ("[INFO] [launch.py:367:main] Process 12 exits successfully.", Proof.STATUS),
        ("Finished: SUCCESS", Proof.STATUS),
        ("===== 12 passed, 1 skipped in 3.20s =====", Proof.TESTS),
        ("[  PASSED  ] 3 tests.", Proof.TESTS),
        ("100% tests passed, 0 tests failed out of 7", Proof.TESTS),
        ("# Out of bounds values : 0 OK", Proof.RESULT),
        ("rank 0: 0 bad elements", Proof.RESULT),
        ("rank 3 allreduce result: tensor(12.0)", Proof.RESULT),
        ('@hetgpu:0021:09862b74:{"t":"done","rank":0}', Proof.RESULT),
        ("1048576              3277.19              Pass", Proof.RESULT),
        ("[rank 1] finished", Proof.WORDS),
        ("Test completed successfully", Proof.RESULT),
        ("Total wall time: 0:00:26", Proof.WORDS),
        ("Solve time (sec) = 27.14", Proof.WORDS),
        ("100%|##########| 100/100 [02:34<00:00,  1.54s/it]", Proof.WORDS),
        ("n1:2:3 [0] NCCL INFO comm 0x55 rank 1 nranks 2 cudaDev 1 busId 65000 - Destroy COMPLETE", Proof.FINALIZE),
    ],
)
def test_signs(line: str, proof: Proof) -> None:
    found = sign_of_success(parse_line(line, 7))
    assert found is not None
    assert (found.proof, found.line, found.quote) == (proof, 7, line.strip())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "exit code: 1",
        "real\t1m49.151s",
        "Time (steps) = 27",
        "End time: 1725152869",
        "checkpoint 3 saved successfully",
        "exit code 0x80",
        "step 1 residual 2.0",
        "epoch 3/10",
        " 97%|#########7| 97/100 [02:29<00:04,  1.55s/it]",
        "Not all tests passed",
        "training was not finished",
        "could not complete the run: job finished with errors",
        "===== 1 failed, 12 passed in 3.20s =====",
        '  File "done.py", line 3, in finished',
        "Error: run completed with errors",
        "srun: error: n1: task 0: Exited with exit code 3",
        "JobState=FAILED ExitCode=1:0",
        "thus causing the job to be terminated. The first process to do so was:",
    ],
)
def test_lines_that_show_none(line: str) -> None:
    assert sign_of_success(parse_line(line, 1)) is None


def test_of_many_signs_the_last_are_kept() -> None:
    signs = SuccessSigns()
    for number in range(1, 1000):
        signs.feed(parse_line("rank 0: 0 bad elements", number))
    assert signs.found[-1].line == 999
    assert len(signs.found) < 100


def test_a_report_of_named_figures_at_the_end_is_a_sign() -> None:
    lines = [parse_line(text, number) for number, text in enumerate(("CPU MPI: 0.2 s", "GPU MPI: 0.1 s", "Size: 8"), 1)]
    assert [sign.line for sign in signs_at_end(lines)] == [3]
    assert not list(signs_at_end(lines[:2]))


def test_a_table_over_sizes_is_a_sign_and_steps_of_a_solver_are_none() -> None:
    def signs(*rows: str) -> list[int]:
        return [sign.line for sign in signs_at_end([parse_line(row, number) for number, row in enumerate(rows, 1)])]

    assert signs("524288  3.9e-04  6.5", "1048576 7.6e-04 8.8", "[1] 7633") == [2]
    assert signs("11 0.5 0.3", "12 0.4 0.3") == []


@given(st.text(max_size=300))
def test_no_line_raises(text: str) -> None:
    sign_of_success(parse_line(text, 1))
