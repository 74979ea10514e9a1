"""Failures printed by Hydra, Cray's launchers, MVAPICH and Intel MPI, and harmless lines."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.cray import Cray
from pytest_hetgpu.extensions.signatures.engine.rules import row_parser
from pytest_hetgpu.extensions.signatures.mpich_assertions import MpichAssertions
from pytest_hetgpu.extensions.signatures.mvapich import Mvapich

Hydra, IntelMpi = row_parser("hydra"), row_parser("intel_mpi")


def matches(parser: LogParser, text: str) -> list[FailureMatch]:
    for number, line in enumerate(text.splitlines(), 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish())


def said(parser: LogParser, text: str) -> list[str]:
    return [f"{one.signature.kind.value} {one.signature.key}" for one in matches(parser, text)]


MPIEXEC = "[mpiexec@node1] "


SRC = "/mpich-5.0.2/src/pm/hydra/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"[proxy:0@vm] HYDU_create_process ({SRC}lib/utils/launch.c:73): execvp error on file ./nope "
            "(No such file or directory)",
            "launch_failure no-program@hydra",
        ),
    ],
)
def test_hydra(text: str, expected: str) -> None:
    assert said(Hydra(), text) == [expected]


def test_hydra_names_the_host_that_failed_not_its_own() -> None:
    (one,) = matches(Hydra(), f"{MPIEXEC}Error: Unable to run bstrap_proxy on node9 (pid 1, exit code 65280)")
    assert one.signature.hosts == ("node9",)
    (one,) = matches(Hydra(), f"{MPIEXEC}ui_cmd_cb ({SRC}mpiexec/pmiserv_pmci.c:51): Launch proxy failed.")
    assert one.signature.hosts == ()


def test_what_hydra_lost_is_no_cause() -> None:
    text = (
        f"[proxy:2@node3] HYD_pmcd_pmip_control_cmd_cb ({SRC}proxy/pmip_cb.c:490): assert (!closed) failed\n"
        f"{MPIEXEC}HYDT_bscu_wait_for_completion (x.c:109): one of the processes terminated badly; aborting\n"
        "[cli_1]: write_line error; fd=8 buf=:cmd=finalize\n"
    )
    assert {one.priority for one in matches(Hydra(), text)} == {Priority.CONSEQUENCE}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "MPICH ERROR [Rank 3] [job id 1.0] [Thu] [nid001234] - Abort(-1) (rank 3 in comm 0): MPIDI_CRAY_init: "
            "GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",
            "missing_library no-GTL@MPIDI_CRAY_init",
        ),
    ],
)
def test_cray(text: str, expected: str) -> None:
    assert said(Cray(), text) == [expected]


def test_pals_stops_the_other_ranks() -> None:
    text = "x1: rank 1 died from signal 15\nx2: rank 0 died from signal 6\n"
    found = {one.signature.key: (one.priority, one.signature.ranks) for one in matches(Cray(), text)}
    assert found == {"SIGTERM": (Priority.CONSEQUENCE, (1,)), "SIGABRT": (Priority.EXIT, (0,))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[n1:mpispawn_0][child_handler] MPI process (rank: 0, pid: 1) exited with status 139", "crash SIGSEGV"),
    ],
)
def test_mvapich(text: str, expected: str) -> None:
    assert said(Mvapich(), text) == [expected]


ASSERTION = """\
Assertion failed in file src/mpid/ch4/src/init_comm.c at line 72: in_use == 0
/opt/mpich/lib/libmpi.so.12(MPL_backtrace_show+0x34) [0x14763ac07514]
/opt/mpich/lib/libmpi.so.12(MPIR_Assert_fail+0x21) [0x14763aa938b1]
/opt/mpich/lib/libmpi.so.12(MPIDI_destroy_init_comm+0x5a) [0x14763aabd49a]
/opt/mpich/lib/libmpi.so.12(MPI_Finalize+0x9) [0x14763a73d6c6]
Abort(1) on node 6: Internal error
"""


def test_an_assertion_with_its_backtrace() -> None:
    (one,) = matches(MpichAssertions(), ASSERTION)
    found = one.signature
    assert (found.kind.value, found.key) == ("error", "assertion@init_comm.c!in_use")
    assert (found.library, found.function, found.entry_point) == (
        "libmpi.so.12",
        "MPIDI_destroy_init_comm",
        "MPI_Finalize",
    )
    assert (found.ranks, found.signal, found.line) == ((6,), None, 1)


def test_an_assertion_without_one() -> None:
    (one,) = matches(MpichAssertions(), ASSERTION.splitlines()[0])
    assert (one.signature.library, one.signature.function, one.signature.ranks) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Attempting to use an MPI routine (internal_Comm_size) before initializing or after finalizing MPICH",
            "error not-initialized@MPI_Comm_size",
        ),
        ("Attempting to use an MPI routine after finalizing MPICH", "error finalized@MPI"),
        ("Abort(-1) on node 0 (rank 0 in comm 0): Internal error", "error internal-error@MPID_Abort"),
    ],
)
def test_calls_outside_of_mpi(text: str, expected: str) -> None:
    assert said(MpichAssertions(), text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[0] MPI startup(): tmi fabric is not available and fallback fabric is not enabled",
            "transport_unavailable no-fabric@intel-mpi!tmi",
        ),
    ],
)
def test_intel_mpi(text: str, expected: str) -> None:
    assert said(IntelMpi(), text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "[0] MPI startup(): libfabric provider: tcp",
        "[0] MPI startup(): I_MPI_FABRICS=shm, but multi node launch is detected. Fallback to shm:ofi fabric.",
        "MPI startup(): bad fabric is unknown or has been removed from the product, please use ofi or shm:ofi instead.",
        "MPI startup(): PMI server not found. Please set I_MPI_PMI_LIBRARY variable if it is not a singleton case.",
    ],
)
def test_what_intel_mpi_says_and_goes_on(text: str) -> None:
    assert said(IntelMpi(), text) == []
