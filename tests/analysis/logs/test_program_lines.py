"""Lines that only a run writes, and lines of the program itself."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.program_lines import is_program_line, is_program_running, last_program_line


@pytest.mark.parametrize(
    "line",
    [
        "$ mpirun -np 2 ./a.out",
        "$ A=1 /opt/ompi/bin/mpiexec.hydra -n 2 ./a.out",
        "$ cd x&&mpirun ./a.out",
        "root@node1:/# torchrun --standalone train.py",
        "[1795176874.905069] [node1:412  :0]           debug.c:1149 UCX  DEBUG using",
        "[node1:00852] Read -1, expected 33554432, errno = 1",
        "n1:1:2 [0] NCCL INFO Bootstrap : Using lo",
        "# OSU MPI Latency Test v7.4",
        "rank 0 exchanging 32 MiB",
        "Process 3 of 4 on n1",
        "step 10 residual 6.0e+00",
        "1048576              3277.19",
        "8 2 float32 sum -1 12.3 0.1 0.1 0",
        "libfabric:2951:1795177561::core:core:fi_param_get_():372<info> variable",
    ],
)
def test_signs_of_a_run(line: str) -> None:
    assert is_program_running([line])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Collecting torch==2.13.0",
        "Requirement already satisfied: numpy in ./lib",
        "drwxr-xr-x 2 root root 4096 Nov 20 20:10 cases",
        "# A project",
        "Step 3/7 : RUN apt-get update",
        "make: *** [Makefile:3: all] Error 2",
        "# Parameters of mpirun are read from here",
        "$ timeout 20 man mpirun.openmpi",
        "$ man mpirun",
    ],
)
def test_what_is_no_run(line: str) -> None:
    assert not is_program_running([line])


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("step 2 residual 5.2", True),
        ("done", True),
        ("host allreduce: 3", True),
        ("--------------------------", False),
        ("", False),
        ("[1795176874.9] [node1:412  :0]  x.c:1 UCX  ERROR no", False),
        ("[node1:00852] PML ucx cannot be selected", False),
        ("n1:1:2 [0] NCCL WARN x", False),
        ("srun: error: n1: task 0: Exited with exit code 1", False),
        ("#5  0x0000563a94232231 in main (c=3, v=0x7fffc68ea968) at market.cpp:88", False),
        ("[proxy:0@n1] HYD_x (x.c:1): assert", False),
        ("internal_File_open(4099)........: MPI_File_open(MPI_COMM_WORLD, filename=/x) failed", False),
        ("ADIO_RESOLVEFILETYPE_FNCALL(468): Invalid file name /x", False),
        ("f(x): 3", True),
        ('{"timestamp":1724465413.27,"name":"done"}', False),
    ],
)
def test_the_programs_own_lines(line: str, own: bool) -> None:
    assert is_program_line(line) is own


RULE = "-" * 74


def test_a_help_text_is_not_the_programs() -> None:
    assert last_program_line(["x", RULE, "WARNING: it", "may be this.", RULE, ""]) == 0
    assert last_program_line(["x", RULE, "WARNING: it", "may be this.", RULE, "step 2"]) == 5
    assert last_program_line(["step 1", "UCX  ERROR no", ""], {1}) == 0
    assert last_program_line([RULE, "x", RULE]) is None


def test_a_second_failure_is_no_sign_that_the_program_went_on() -> None:
    assert last_program_line(["rank 0: cannot open a", "rank 1: cannot open a"], {0, 1}) is None
