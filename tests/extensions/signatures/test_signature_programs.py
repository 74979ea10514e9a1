"""Results that failed their check, worlds of one, and messages of programs that give up."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.last_error import last_error
from tests.extensions.signatures.parsing import parse_all


def matches(parser: str, text: str) -> Sequence[FailureMatch]:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        if any(trigger.decode() in line for trigger in reader.triggers):
            reader.feed(parse_line(line, number))
    return reader.finish()


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("Error in setup: too many tasks for 12 cells!", "Error-in-setup-too-many-tasks-for-cells"),
        ("ERROR: this solver must be run on at least 4 nodes", "ERROR-this-solver-must-be-run-on-at-least-nodes"),
        ("Error: input file missing", "Error-input-file-missing"),
        ("solver: error: unknown keyword 'foo'", "solver-error-unknown-keyword-foo"),
        (
            "Assertion Failed: Number of ranks must match, expected 32",
            "Assertion-Failed-Number-of-ranks-must-match-expected",
        ),
        ("rank 2: checkpoint file is corrupt, giving up", "checkpoint-file-is-corrupt-giving-up"),
        ("[rank 1] read_mesh(path) failed: No such entry", "read_mesh-failed-No-such-entry"),
        ("[node1] rank 3: FATAL: lost the mesh", "FATAL-lost-the-mesh"),
        ("This test requires exactly two processes", "This-test-requires-exactly-two-processes"),
        ("*** ERROR: negative volume in cell 7", "ERROR-negative-volume-in-cell"),
        ("Negative density, aborting", "Negative-density-aborting"),
        ("Verification failed: (n > 0) is false:", "Verification-failed-is-false"),
        ("MFEM abort: no mesh", "MFEM-abort-no-mesh"),
        (
            "HPL ERROR from process # 0, on line 419 of function HPL_pdinfo:",
            "HPL-ERROR-from-process-on-line-of-function-HPL_pdinfo",
        ),
        ("ERROR on proc 0: Lost atoms", "ERROR-on-proc-Lost-atoms"),
        (" -----> I REFUSE TO CONTINUE WITH THIS SICK JOB ... BYE!!!", "I-REFUSE-TO-CONTINUE-WITH-THIS-SICK-JOB-BYE"),
        ("-------------- FATAL CALLED ---------------", "FATAL-CALLED"),
        ("HDF5-DIAG: Error detected in HDF5 (1.10.5) MPI-process 0:", "HDF5-DIAG-Error-detected-in-HDF5-MPI-process"),
        ("heat2d: cannot open restart.0007.h5: No such file or directory", "heat2d-cannot-open-No-such-file-or-directory"),
        ("open(/scratch/mesh.bin) failed: Permission denied", "open-failed-Permission-denied"),
        ("heat2d: main.c:32: fopen: Too many open files", "heat2d-main.c-fopen-Too-many-open-files"),
        ("fopen: No such file or directory", "fopen-No-such-file-or-directory"),
        ("rank 1: write(ckpt) failed: No space left on device", "write-failed-No-space-left-on-device"),
        ('Error: Os { code: 2, kind: NotFound, message: "No such file or directory" }', "Error-Os-code-kind-NotFound-message-No-such-file-or"),
        ("Could not read in.dat (Input/output error)", "Could-not-read-in.dat"),
        ("Could not read in.dat: Is a directory (os error 21)", "Could-not-read-in.dat-Is-a-directory"),
    ],
)  # fmt: skip
def test_what_programs_say_when_they_give_up(line: str, key: str) -> None:
    (match,) = matches("program", line)
    assert match.signature.key == f"{key}@program"
    assert (match.signature.kind.value, match.priority, match.fatal) == ("error", Priority.RELAYED, False)


@pytest.mark.parametrize(
    "line",
    [
        "[1795.24] [n1:5 :0]  tcp_ep.c:15 UCX  ERROR connect() failed: Connection refused",
        "n1:1:1 [0] x.cc:1 NCCL WARN FATAL",
        "libfabric:12:1795::core:core:f():1<info> error: x",
        "[W1120 12:28:14.5 socket.cpp:1] [c10d] Error: x",
        "[node1:04057] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
        "mpirun: Error: unknown option",
        "srun: error: node1: task 0: Exited with exit code 1",
        "Abort(1) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Send: Invalid rank, error stack:",
        "ValueError: bad input",
        "Max error: 1.0e-7",
        "L2 Error: 0.0012",
        "relative error: 1.0e-12",
        "Error: 1.2e-7",
        "error: 0",
        "Number of errors: 0",
        "Errors: 0, warnings: 3",
        "    Error:      Operation now in progress (115)",
        "Error:       No such file or directory (errno 2)",
        "  error_file: <N/A>",
        "WARNING: ERROR: file not found, ignored",
        "connection error: retrying",
        "   --fatal-errors       stop at the first error",
        "step 12 ERROR norm 3",
        "done, exiting",
        "[rank 1] finished",
        "STOP",
        "Note: The following floating-point exceptions are signalling: IEEE_DENORMAL",
        "forrtl: severe (174): SIGSEGV, segmentation fault occurred",
        "forrtl: severe (41): insufficient virtual memory",
        "bash: ./heat2d: No such file or directory",
        "run.sh: line 3: cd: /data: No such file or directory",
        "./run: 3: cannot open in.dat: No such file",
        "ls: cannot access 'x': No such file or directory",
        "/bin/cat: in.dat: Permission denied",
        "ssh: connect to host n1 port 22: Connection refused",
        "slurmstepd-n1: error: *** STEP 10.0 ON n1 CANCELLED AT 2026-11-20T21:03:41 ***",
        "slurmstepd-n1: error: execve(): /a/b: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "[n1:5] common_ucx.c:1 readlink(/sys/x) failed: No such file or directory",
        "[n1][[5,1],0][btl_tcp.c:1:recv_blocking] recv(3) failed: Connection reset by peer (104)",
        "MPIDI_OFI_init(123)......: OFI call failed: Connection refused",
        "[warn] Epoll MOD(4) on fd 21 failed. Old events were 6; read change was 2 (del): Bad file descriptor",
        "libibverbs: Warning: couldn't load driver 'x': x: cannot open shared object file: No such file or directory",
        "No such file or directory",
        ": Success",
        "MPI_Send returned 0",
        "MPI_Send failed 0 times, retrying",
        "[1.2] Out of memory: Killed process 4711 (python3)",
        "[n1:1] *** MPI_ERR_TRUNCATE: message truncated",
        "PMPI_Send(159): MPI_Send(buf=0x1, count=1, MPI_INT, dest=9, tag=0, MPI_COMM_WORLD) failed",
        "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated",
    ],
)
def test_what_is_no_last_word(line: str) -> None:
    assert matches("program", line) == ()


def test_ranks_that_say_the_same_are_one_reading() -> None:
    (match,) = matches("program", "rank 2: no input, giving up\nrank 0: no input, giving up")
    assert (match.signature.line, match.signature.ranks) == (1, (0, 2))


def test_words_long_before_the_end_were_not_the_last() -> None:
    log = "ERROR: optional module missing\n" + "step\n" * 3000 + "MPI_ABORT was invoked on rank 0"
    (match,) = matches("program", log)
    assert match.priority is Priority.SYMPTOM


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("heat2d: rank 1: malloc of 64 MiB failed after 1856 MiB: Cannot allocate memory", "out_of_memory RELAYED"),
        ("heat2d: ftruncate(/dev/shm/heat.0): No space left on device", "out_of_memory RELAYED"),
        ("heat2d: /scratch/ckpt: No space left on device", "error RELAYED"),
        ("rank 3: cannot allocate 12 GB for the halo", "out_of_memory RELAYED"),
        ("ERROR: out of memory in solver", "out_of_memory RELAYED"),
        ("cube: cannot reserve another 32 MiB after 576 MiB", "out_of_memory RELAYED"),
        ("assay: wall clock budget of 3 s is used up, stopping the run", "timeout RELAYED"),
        ("job exceeded its time limit", "timeout RELAYED"),
        ("client: connect: Connection refused", "network_failure RELAYED"),
        ("client: connect to n2:5000: Connection timed out", "network_failure RELAYED"),
        ("dial tcp 10.0.0.1:80: connect: no route to host", "network_failure RELAYED"),
        ("getaddrinfo(n2): Name or service not known", "network_failure RELAYED"),
        ("client: recv: Connection reset by peer", "network_failure SYMPTOM"),
    ],
)
def test_an_errno_tells_what_failed(line: str, kind: str) -> None:
    (match,) = matches("program", line)
    assert (f"{match.signature.kind.value} {match.priority.name}", match.fatal) == (kind, False)


@pytest.mark.parametrize(
    "line",
    [
        "panic: runtime error: index out of range [5] with length 3",
        "thread 'main' panicked at src/main.rs:3:5:",
        'Exception in thread "main" java.lang.IllegalStateException: no input',
        "amrex::Abort::0::no input !!!",
        '0::Assertion `n > 0\' failed, file "a.cpp", line 3 !!!',
        "STOP 3",
    ],
)
def test_some_words_are_certainly_the_last(line: str) -> None:
    (match,) = matches("program", line)
    assert (match.signature.kind.value, match.fatal) == ("error", True)


@pytest.mark.parametrize(
    ("line", "key", "entry"),
    [
        ("MPI_File_open(/data/mesh.bin): MPI_ERR_NO_SUCH_FILE: no such file or directory", "MPI_ERR_NO_SUCH_FILE@MPI_File_open", "MPI_File_open"),
        ("rank 1: MPI_Send failed: MPI_ERR_RANK: invalid rank", "MPI_ERR_RANK@MPI_Send", "MPI_Send"),
        ("MPI_Bcast returned 15", "failed@MPI_Bcast", "MPI_Bcast"),
        ("Error in MPI_Bcast: MPI_ERR_ROOT: invalid root", "MPI_ERR_ROOT@MPI_Bcast", "MPI_Bcast"),
        ("MPI_File_open(mesh.bin): File does not exist, error stack:", "MPI_ERR_NO_SUCH_FILE@MPI_File_open", "MPI_File_open"),
        ("ncclAllReduce failed: ncclSystemError", "ncclSystemError@ncclAllReduce", "ncclAllReduce"),
        ("ucc_collective_post() failed: no resource", "failed@ucc_collective_post", "ucc_collective_post"),
        ("MPI error: MPI_ERR_TRUNCATE: message truncated", "MPI_ERR_TRUNCATE@MPI", None),
    ],
)  # fmt: skip
def test_a_call_that_the_program_says_failed(line: str, key: str, entry: str | None) -> None:
    (match,) = matches("program", line)
    assert (match.signature.key, match.signature.entry_point, match.fatal) == (key, entry, False)


def test_equal_words_of_two_ranks_end_with_the_last() -> None:
    (match,) = matches("program", "fopen: No such file or directory\nfopen: No such file or directory")
    assert match.signature.line == 2


@pytest.mark.parametrize("parser", ["nccl", "cuda_hip", "benchmarks", "world_size", "program", "petsc"])
def test_hostile_lines_cost_little(parser: str) -> None:
    reader = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    pieces = [trigger.decode() for trigger in reader.triggers]
    pieces += [
        "a ",
        "[a] ",
        "rank 0 ",
        "1 ",
        "::a",
        "((",
        "error ",
        "a_b(",
        "0.1 ",
        "h:1:1 [0] NCCL WARN ",
        "async ",
        "x -> 1",
    ]
    started = time.process_time()
    for number, piece in enumerate(pieces):
        reader.feed(parse_line(piece * (8192 // len(piece)), number))
        reader.feed(parse_line(("a: " + piece) * (8192 // (len(piece) + 3)), number))
    reader.finish()
    assert time.process_time() - started < 0.05 * len(pieces)


P = "[{}]PETSC ERROR: {}"


def test_petsc() -> None:
    crash = (
        P.format(1, "-" * 72),
        P.format(1, "Caught signal number 11 SEGV: Segmentation Violation, probably memory access out of range"),
    )
    (match,) = matches("petsc", "\n".join(crash))
    assert (match.signature.key, match.signature.signal, match.signature.ranks) == ("SIGSEGV", "SIGSEGV", (1,))
    (match,) = matches(
        "petsc",
        P.format(
            0, "Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end"
        ),
    )
    assert match.priority is Priority.CONSEQUENCE
    error = (
        P.format(2, "--------------------- Error Message ---------------------"),
        P.format(2, "Arguments are incompatible"),
        P.format(2, "Incompatible vector local lengths parameter # 1 local size 4"),
        P.format(2, "See https://petsc.org/release/faq/ for trouble shooting."),
        P.format(2, "#1 VecCopy() at /src/vec/vec/interface/vector.c:1602"),
        P.format(2, "#2 main() at ex1.c:12"),
    )
    (match,) = matches("petsc", "\n".join(error))
    assert (match.signature.key, match.signature.line) == ("Arguments-are-incompatible@petsc!VecCopy", 2)
    (match,) = matches(
        "petsc", "\n".join(error[:2]).replace("Arguments are incompatible", "Out of memory. This could be due to")
    )
    assert match.signature.kind.value == "out_of_memory"


@pytest.mark.parametrize(
    ("before", "rank", "said"),
    [
        (("step 1 residual 4.5", "rank 2: mesh is corrupt", "-" * 74), 2, "rank 2: mesh is corrupt"),
        (("Need a power of two, not this!", "step 2 residual 5.25", ""), None, "Need a power of two, not this!"),
        (("rank 1: no input",), 2, None),
        (("step 1: no convergence after 12",), None, None),
        (("Grid is 12 by 12",), None, None),
        (("0.12 0.13", "----"), 0, None),
        ((), 0, None),
    ],
)
def test_the_line_before_an_abort(before: tuple[str, ...], rank: int | None, said: str | None) -> None:
    lines = [parse_line(line, number) for number, line in enumerate(before, 1)]
    found = last_error(lines, rank)
    assert (found.quote if found else None) == said


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('[1] ARMCI assert fail in gmr_create() [src/gmr.c:109]: "alloc_slices[alloc_me].base != NULL"', "gmr_create"),
        ("Assertion failed: (n > 0), function solve, file solve.c, line 12.", "solve"),
        ("rank 3: assertion failure in mesh::Grid::refine(int)", "mesh::Grid::refine"),
    ],
)
def test_a_failed_assertion_is_known_by_its_function(line: str, key: str) -> None:
    banner = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"
    first = parse_all(f"{line}\n{banner}\nwith errorcode -1.\n", "program", "openmpi_exits")[0]
    assert (first.kind.value, first.key, first.primary_line) == ("error", f"assert@{key}", line)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("ERROR on proc 0: Cannot open input script /tmp/real/w6/nothere: No such file", "Cannot-open-input-script-No"),
        ("ERROR: cannot read ~/runs/in.dat", "cannot-read"),
        ("ERROR: cannot read runs/a/in.dat of https://host/x/y", "cannot-read-of"),
        ("ERROR: read/write of I/O failed", "read-write-of-I-O-failed"),
    ],
)
def test_a_key_holds_no_path(text: str, key: str) -> None:
    assert key in slug(text)
    assert not {"tmp", "runs", "host", "real"} & set(slug(text).split("-"))
