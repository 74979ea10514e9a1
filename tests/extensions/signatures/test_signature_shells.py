"""Messages of shells about jobs that died, and about files that they tried to interpret."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import kind_and_key, matches


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("run.sh: line 7:  4711 Terminated              ./solver in.txt", "crash SIGTERM CONSEQUENCE"),
        ("run.sh: line 1:  1176 Killed                  mpirun -np 2 ./heat2d", "crash SIGKILL EXIT"),
        ("start.sh: line 1: 26574 Floating point exceptionmpiexec -n 2 ./heat2d", "crash SIGFPE EXIT"),
        ("bash: line 1: 12 Aborted                 (core dumped) ./heat2d", "crash SIGABRT EXIT"),
        ("/bin/bash: line 3: 12 Segmentation fault      (core dumped) ./heat2d < in | tee log", "crash SIGSEGV EXIT"),
        ("/var/spool/slurmd/job12/slurm_script: line 9: 77 Bus error               ./heat2d", "crash SIGBUS EXIT"),
        ("a.sh: line 9: 77 CPU time limit exceeded ./heat2d", "timeout cpu-time@ulimit LIMIT"),
        ("a.sh: line 9: 77 Trace/breakpoint trap   (core dumped) ./heat2d", "crash SIGTRAP EXIT"),
        ("job.sh: line 3:  1410 Killed                  timeout -s KILL 6 mpirun ./heat2d", "timeout time-limit@timeout SYMPTOM"),
        ("job.sh: line 3:  1410 Killed                  /usr/bin/timeout --signal=9 6 mpirun ./heat2d", "timeout time-limit@timeout SYMPTOM"),
        ("job.sh: line 3:  1410 Killed                  OMP_NUM_THREADS=1 timeout -k 5 60 mpirun ./heat2d", "timeout time-limit@timeout SYMPTOM"),
        ("job.sh: line 3:  1410 Segmentation fault      timeout 60 ./heat2d", "crash SIGSEGV EXIT"),
        ("zsh: segmentation fault (core dumped)  ./heat2d", "crash SIGSEGV EXIT"),
        ("zsh: killed     mpirun -np 2 ./heat2d", "crash SIGKILL EXIT"),
        ("[1]  + 1234 abort (core dumped)  ./heat2d", "crash SIGABRT EXIT"),
        ("./run.ksh[3]: 1234: Memory fault(coredump)", "crash SIGSEGV EXIT"),
        ("run.ksh: line 3: 1234: Killed", "crash SIGKILL EXIT"),
        ("fish: Job 1, './heat2d' terminated by signal SIGSEGV (Address boundary error)", "crash SIGSEGV EXIT"),
        ("fish: Process 12, 'heat2d' from job 1, './heat2d | cat' terminated by signal SIGBUS (Misaligned address error)", "crash SIGBUS EXIT"),
        ("a.sh: line 1: 26574 Floating point exception(core dumped) timeout 5 ./heat2d", "crash SIGFPE EXIT"),
        ("Segmentation fault", "crash SIGSEGV EXIT"),
        ("Floating point exception (core dumped)", "crash SIGFPE EXIT"),
        ("Segmentation fault (core dumped)", "crash SIGSEGV EXIT"),
        ("Aborted (core dumped) ./heat2d", "crash SIGABRT EXIT"),
        ("./redux.arm: 15: ./redux.arm: 15: Syntax error: \")\" unexpected", "launch_failure not-a-program@redux.arm CAUSE"),
        ("./redux: 1: Syntax error: word unexpected", "launch_failure not-a-program@redux CAUSE"),
        ("./redux: line 1: syntax error near unexpected token `)'", "launch_failure not-a-program@redux CAUSE"),
        ("job.sh: line 8: syntax error: unexpected end of file", "launch_failure syntax-error@job.sh RELAYED"),
        ("./notes: 1: this: not found", "launch_failure not-a-program@notes CAUSE"),
        ("./notes: 3: a word: not found", "launch_failure not-a-program@notes RELAYED"),
        ("./heat2d: ./heat2d: cannot execute binary file", "launch_failure not-a-program@heat2d CAUSE"),
    ],
)  # fmt: skip
def test_what_shells_say(line: str, means: str) -> None:
    (match,) = matches("shells", line)
    assert f"{kind_and_key(match)} {match.priority.name}" == means


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: node2: task 1: Segmentation fault (core dumped)",
        "make[1]: *** [Makefile:3: run] Segmentation fault (core dumped)",
        "run.sh: line 9:  4711 Terminated              sleep 100",
        "run.sh: line 9:  4711 Killed                  nvidia-smi dmon > gpu.log",
        "run.sh: line 9:  4711 Terminated              while true; do free; done",
        "the solver was Killed by a dragon",
        "job.sh: 3: srun: not found",
        "[vm:1] Signal: Segmentation fault (11)",
        "[vm:1] *** Process received signal *** Aborted",
        "mpirun noticed that process rank 0 with PID 7 on node vm exited on signal 11 (Segmentation fault).",
    ],
)
def test_what_shells_do_not_say(line: str) -> None:
    assert matches("shells", line) == []


@pytest.mark.parametrize(
    ("line", "fatal"),
    [
        ("Killed", False),
        ("Terminated", False),
        ("Aborted", False),
        ("Aborted (core dumped)", True),
        ("Segmentation fault", True),
        ("run.sh: line 1:  1176 Killed                  mpirun", True),
    ],
)
def test_a_bare_word_may_be_anybodys(line: str, fatal: bool) -> None:
    (match,) = matches("shells", line)
    assert match.fatal is fatal
    assert match.priority in (Priority.EXIT, Priority.CONSEQUENCE)


def test_keys_hold_nothing_of_one_run() -> None:
    lines = [f"run.sh: line {n}: {n}00 Terminated   ./a" for n in (1, 23)]
    assert {match.signature.key for line in lines for match in matches("shells", line)} == {"SIGTERM"}
