"""MPICH's error stacks, and who called abort."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.mpich_errors import MpichErrors
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind


def matches(parser: LogParser, text: str) -> list[FailureMatch]:
    for number, line in enumerate(text.splitlines(), 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish())


def read(parser: LogParser, text: str) -> list[Signature]:
    return [match.signature for match in matches(parser, text)]


INVALID_RANK = """\
sAbort(202033158) on node 1 (rank 1 in comm 0): Fatal error in internal_Send: Invalid rank, error stack:
internal_Send(126): MPI_Send(buf=0x7f8710880010, count=16, MPI_DOUBLE, 8, 5, MPI_COMM_WORLD) failed
internal_Send(78).: Invalid rank has value 8 but must be nonnegative and less than 3
tep 2 residual 5.250000e+00
"""


NO_PROVIDER = """\
Abort(606749839): Fatal error in internal_Init: Other MPI error, error stack:
internal_Init(70)..........: MPI_Init(argc=0x7fff692c97ec, argv=0x7fff692c97e0) failed
MPII_Init_thread(289)......:
MPID_Init(549).............:
MPIDI_OFI_init_local(665)..:
MPIDI_OFI_find_provider(84):
find_provider(132).........: OFI call getinfo failed (default nic=(n/a): No data available)
"""


def stack(*lines: str, entry: str = "internal_Recv", what: str = "Other MPI error") -> str:
    head = f"Abort(3) on node 4 (rank 0 in comm 16): Fatal error in {entry}: {what}, error stack:"
    return "\n".join((head, f"{entry}(126): MPI_Recv(buf=0x7f) failed", *lines))


@pytest.mark.parametrize(
    ("said", "starting", "running"),
    [
        ("OFI call ep_enable failed (default nic=tcp: Bad file descriptor)", Kind.TRANSPORT_UNAVAILABLE, None),
        ("OFI endpoint open failed (a.c:1:f:Invalid argument)", Kind.TRANSPORT_UNAVAILABLE, None),
        ("OFI call av_insert failed (default nic=tcp: No route to host)", Kind.NETWORK_FAILURE, Kind.NETWORK_FAILURE),
        ("OFI call tinject failed (default nic=tcp: Input/output error)", Kind.NETWORK_FAILURE, Kind.NETWORK_FAILURE),
        ("OFI call mr_reg failed (default nic=tcp: Cannot allocate memory)", Kind.OUT_OF_MEMORY, Kind.OUT_OF_MEMORY),
        (
            "ucx function returned with failed status(ucx_init.c 9 MPIDI_UCX_init Destination is unreachable)",
            Kind.TRANSPORT_UNAVAILABLE,
            Kind.NETWORK_FAILURE,
        ),
        (
            "ucx function returned with failed status(ucx_init.c 9 MPIDI_UCX_init Invalid parameter)",
            Kind.TRANSPORT_UNAVAILABLE,
            Kind.ERROR,
        ),
        (
            "ucx function returned with failed status(ucx_init.c 9 MPIDI_UCX_init Endpoint timeout)",
            Kind.NETWORK_FAILURE,
            Kind.NETWORK_FAILURE,
        ),
    ],
)
def test_what_fails_while_mpi_starts_is_a_transport_that_is_not_there(
    said: str, starting: Kind, running: Kind | None
) -> None:
    for entry, kind in (("internal_Init", starting), ("internal_Init_thread", starting), ("internal_Recv", running)):
        (found,) = read(MpichErrors(), stack(f"MPIDI_X_init(1): {said}", entry=entry))
        assert found.kind is kind or kind is None


def test_an_error_of_its_own_class_is_said_by_the_head() -> None:
    (one,) = matches(MpichErrors(), INVALID_RANK)
    found = one.signature
    assert (found.kind, found.key, found.entry_point) == (Kind.ERROR, "MPI_ERR_RANK@MPI_Send", "MPI_Send")
    assert (found.ranks, found.line, found.primary_line[:10]) == ((1,), 1, "sAbort(202")
    assert found.detail == "Invalid rank has value 8 but must be nonnegative and less than 3"
    assert one.priority is Priority.CAUSE


def test_of_other_errors_the_deepest_line_gives_the_reason() -> None:
    (found,) = read(MpichErrors(), NO_PROVIDER)
    assert (found.kind, found.key) == (Kind.TRANSPORT_UNAVAILABLE, "OFI-getinfo-No-data-available@find_provider")
    assert (found.entry_point, found.detail, found.line) == ("MPI_Init", "No data available", 7)
    assert (found.signal, found.library, found.function) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            stack(
                "find_provider(3064)..........: "
                "OFI fi_getinfo() failed (ofi_init.c:3064:find_provider:No data available)"
            ),
            "transport_unavailable OFI-getinfo-No-data-available@find_provider",
        ),
        (
            stack(
                "open_fabric(1390)...........: OFI fi_open domain failed (ofi_init.c:1390:open_fabric:No such device)"
            ),
            "transport_unavailable OFI-open-domain-No-such-device@open_fabric",
        ),
        (
            stack("MPIDI_OFI_handle_cq_error(788): OFI poll failed (default nic=eth0: Input/output error)"),
            "network_failure OFI-poll-Input-output-error@MPIDI_OFI_handle_cq_error",
        ),
        (
            stack(
                "MPIDI_OFI_handle_cq_error(1062): OFI poll failed "
                "(ofi_events.c:1062:MPIDI_OFI_handle_cq_error:Transport endpoint is not connected)"
            ),
            "network_failure OFI-poll-Transport-endpoint-is-not-connected@MPIDI_OFI_handle_cq_error",
        ),
        (
            stack(
                "MPIDI_OFI_send_normal(368).: OFI tagged senddata failed "
                "(ofi_send.h:368:MPIDI_OFI_send_normal:No route to host)"
            ),
            "network_failure OFI-tagged-senddata-No-route-to-host@MPIDI_OFI_send_normal",
        ),
        (
            stack("MPIDI_OFI_mr_reg(90): OFI call mr_reg failed (default nic=cxi0: Cannot allocate memory)"),
            "out_of_memory OFI-mr_reg-Cannot-allocate-memory@MPIDI_OFI_mr_reg",
        ),
        (
            stack(
                "MPIDI_UCX_send(124): returned failed request in UCX netmod"
                "(ucx_send.h 124 MPIDI_UCX_send Input/output error)"
            ),
            "error returned-failed-request-in-UCX-netmod@MPIDI_UCX_send",
        ),
        (
            stack(
                "MPIDI_UCX_init(233): ucx function returned with failed status"
                "(ucx_init.c 233 MPIDI_UCX_init No such device)"
            ),
            "transport_unavailable UCX-No-such-device@MPIDI_UCX_init",
        ),
        (
            stack(
                "MPIDI_UCX_send(124): returned failed request in UCX netmod"
                "(ucx_send.h 124 MPIDI_UCX_send Endpoint timeout)"
            ),
            "network_failure UCX-Endpoint-timeout@MPIDI_UCX_send",
        ),
        (
            stack(
                "MPIDU_Socki_handle_read(694)..: connection failure (set=0,sock=1,errno=104:Connection reset by peer)"
            ),
            "network_failure socket-Connection-reset@MPI_Recv",
        ),
        (
            stack("dequeue_and_set_error(612).: Communication error with rank 3"),
            "network_failure communication-error@MPI_Recv",
        ),
        (stack("win_shm_alloc_impl(569)...: Out of memory"), "out_of_memory out-of-memory@MPI_Recv"),
        (stack("MPIDU_Init_shm_init(147): unable to allocate shared memory"), "out_of_memory shared-memory@MPI_Recv"),
        (stack("MPID_nem_tcp_init(384): gethostbyname failed, nodeX (errno 1)"), "network_failure no-address@MPI_Recv"),
        (stack("MPID_Init(638).......:  PMI2 init failed: 1 "), "launch_failure PMI-init@MPI_Recv"),
        (stack("MPIR_Init_thread(153):  gpu_init failed"), "error gpu_init@MPIR_Init_thread"),
        (
            stack("internal_Recv(50): Cannot call MPI_INIT or MPI_INIT_THREAD more than once"),
            "error Cannot-call-MPI_INIT-or-MPI_INIT_THREAD-more-than-once@MPI_Recv",
        ),
        (
            "Fatal error in PMPI_Bcast: Message truncated, error stack:\nPMPI_Bcast(1600)...: MPI_Bcast(0x1) failed",
            "error MPI_ERR_TRUNCATE@MPI_Bcast",
        ),
        (
            "Abort(5) on node 2 (rank 2 in comm 0): Fatal error in PMPI_Wait: Invalid MPI_Request",
            "error MPI_ERR_REQUEST@MPI_Wait",
        ),
        (
            "[cli_18]: aborting job:\nFatal error in PMPI_Init_thread:\nOther MPI error, error stack:\n"
            "MPIR_Init_thread(436)...: \nMPIDI_CH3I_CM_Init(1): Out of memory",
            "out_of_memory out-of-memory@MPI_Init_thread",
        ),
        (
            "Abort(5) on node 1 (rank 1 in comm 0): Fatal error in internal_Send: Invalid rank, Invalid rank has value",
            "error MPI_ERR_RANK@MPI_Send",
        ),
        (
            "Abort(5): Fatal error in internal_Init: Other MPI error, Out of memory",
            "out_of_memory out-of-memory@MPI_Init",
        ),
        (
            "Abort(2) on node 1: Fatal error in internal_Alloc_mem: Unable to allocate memory for MPI_Alloc_mem, "
            "error stack:",
            "out_of_memory MPI_ERR_NO_MEM@MPI_Alloc_mem",
        ),
        ("Abort(3) on node 1: application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1", "error MPI_Abort@3"),
        ("Abort(-1) on node 1: application called MPI_Abort(MPI_COMM_WORLD, -1) - process 1", "error MPI_Abort@-1"),
    ],
)
def test_error_stacks(text: str, expected: str) -> None:
    (found,) = read(MpichErrors(), text)
    assert f"{found.kind.value} {found.key}" == expected


def test_the_rank_is_that_of_the_world() -> None:
    (found,) = read(MpichErrors(), stack("a_function(1): Out of memory"))
    assert found.ranks == (4,)


def test_the_programs_words_between_are_no_stack() -> None:
    (found,) = read(MpichErrors(), NO_PROVIDER + "solver(12): converged\nstep 3 residual: 0.1\n")
    assert found.line == 7


def test_a_stack_that_the_programs_own_handler_printed() -> None:
    text = (
        "market: own handler on rank 1: Invalid rank, error stack:\n"
        "internal_Send(126): MPI_Send(buf=0x7ffd, count=1, MPI_INT, -9, 0, MPI_COMM_WORLD) failed\n"
        "internal_Send(78).: Invalid rank has value -9 but must be nonnegative and less than 2\n"
    )
    (match,) = matches(MpichErrors(), text)
    found = match.signature
    assert (found.key, found.entry_point, found.line) == ("MPI_ERR_RANK@MPI_Send", "MPI_Send", 1)
    assert (match.priority, match.fatal) == (Priority.RELAYED, False)
    assert not matches(MpichErrors(), "the log holds no such thing, error stack:\n\n")


def test_cray_says_rank_and_host_itself() -> None:
    text = (
        "MPICH ERROR [Rank 5] [job id 31.0] [Thu Mar  9 15:40:59 2023] [nid001234] - "
        "Abort(1687183) (rank 0 in comm 7): Fatal error in PMPI_Init: Other MPI error, error stack:\n"
        "MPIR_Init_thread(171).......: \n"
        "open_fabric(1590)...........: OFI fi_domain failed (ofi_init.c:1590:open_fabric:Function not implemented)\n"
        "aborting job:\n"
        "Fatal error in PMPI_Init: Other MPI error, error stack:\n"
        "open_fabric(1590)...........: OFI fi_domain failed (ofi_init.c:1590:open_fabric:Function not implemented)\n"
    )
    first, again = read(MpichErrors(), text)
    assert (first.ranks, first.hosts, first.kind) == ((5,), ("nid001234",), Kind.TRANSPORT_UNAVAILABLE)
    assert first.key == again.key


def test_stacks_of_two_ranks_are_told_apart() -> None:
    head = "Abort(1) on node {0} (rank {0} in comm 0): Fatal error in internal_{1}: Other MPI error, error stack:\n"
    text = (
        head.format(0, "Send")
        + head.format(1, "Recv")
        + "internal_Send(1): MPI_Send() failed\nMPIR_Wait(2): Out of memory\nstep 3\n"
        + "internal_Recv(1): MPI_Recv() failed\nMPIR_Wait(2): Communication error with rank 0\n"
    )
    found = {one.ranks: one.key for one in read(MpichErrors(), text)}
    assert found == {(0,): "out-of-memory@MPI_Send", (1,): "communication-error@MPI_Recv"}


def test_who_called_abort() -> None:
    parser = MpichErrors()
    (one,) = matches(parser, "x: application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1")
    assert (one.priority, one.signature.ranks) == (Priority.EXIT, (1,))
    assert parser.exits() == (RankExit(1, code=3, aborted=True),)
