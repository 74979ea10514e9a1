"""Failures printed by Hydra, Cray's launchers, MVAPICH, libfabric, its NCCL plugin and verbs, and harmless lines."""

from __future__ import annotations

import time

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.signatures.aws_ofi import AwsOfi
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.cray import Cray
from pytest_hetgpu.extensions.signatures.engine.rules import row_parser
from pytest_hetgpu.extensions.signatures.libfabric import Libfabric
from pytest_hetgpu.extensions.signatures.mpich_assertions import MpichAssertions
from pytest_hetgpu.extensions.signatures.mpich_errors import MpichErrors
from pytest_hetgpu.extensions.signatures.mpich_exits import MpichExits
from pytest_hetgpu.extensions.signatures.mvapich import Mvapich
from pytest_hetgpu.extensions.signatures.verbs import Verbs

Hydra, IntelMpi = row_parser("hydra"), row_parser("intel_mpi")


def matches(parser: LogParser, text: str) -> list[FailureMatch]:
    for number, line in enumerate(text.splitlines(), 1):
        parser.feed(parse_line(line, number))
    return list(parser.finish())


def said(parser: LogParser, text: str) -> list[str]:
    return [f"{one.signature.kind.value} {one.signature.key}" for one in matches(parser, text)]


CXI = "libfabric:4411:1712000000::cxi:core:cxip_call():310<warn> nid001234: "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cassini Event Queue overflow detected.", "error event-queue-overflow@cxi"),
        (
            "Libfabric EFA provider has encountered an internal error:\n\n"
            "Libfabric error: (-12) Cannot allocate memory\nEFA internal error: (4105) Out of memory\n\n"
            "Your application will now abort().",
            "out_of_memory Out-of-memory@efa",
        ),
        (
            "As a result, the Libfabric EFA provider is operating in\na condition that could result in memory",
            "error fork@efa",
        ),
    ],
)
def test_libfabric(text: str, expected: str) -> None:
    assert said(Libfabric(), text) == [expected]


@pytest.mark.parametrize(
    ("reason", "priority"),
    [
        ("connection failure (sockerr -113)", Priority.RELAYED),
        ("connect failure 113(No route to host)", Priority.RELAYED),
        ("connection failure (sockerr -111)", Priority.SYMPTOM),
    ],
)
def test_a_host_out_of_reach_explains_more_than_a_peer_that_refuses(reason: str, priority: Priority) -> None:
    parser = Libfabric()
    parser.feed(parse_line(f"libfabric:11:22::tcp:ep_ctrl:xnet_req_done():335<warn> {reason}", 1))
    assert [match.priority for match in parser.finish()] == [priority]


@pytest.mark.parametrize(
    "text",
    [
        "libfabric:2951:1795177561::core:core:fi_param_get_():372<info> variable perf_cntr=<not set>",
        "libfabric:2951:1795177561::core:core:ofi_hmem_init():665<warn> Hmem iface FI_HMEM_CUDA not supported",
        "libfabric:11:22::efa:core:x():1<warn> Failed to register CUDA buffer with the EFA device, FI_HMEM transfers "
        "that require peer to peer support will fail.",
        f"{CXI}Target connection failed, retry",
        "libfabric:11:22::core:core:fi_getinfo_():1352<info> fi_getinfo: psm3 returned -61 (No data available)",
    ],
)
def test_what_libfabric_says_and_goes_on(text: str) -> None:
    assert said(Libfabric(), text) == []


NCCL = "node-3:512:601 [2] nccl_net_ofi_init:42 NCCL WARN NET/OFI "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{NCCL}Unable to insert remote address into address vector for device 0. RC: Invalid argument",
            "network_failure address-vector@aws-ofi-nccl",
        ),
        (
            f"{NCCL}CM: Unable to insert remote address into address vector for device 0. RC: -22",
            "network_failure address-vector@aws-ofi-nccl",
        ),
        (
            f"{NCCL}Couldn't open a fabric access domain. RC: -38, ERROR: Function not implemented",
            "transport_unavailable no-domain@aws-ofi-nccl",
        ),
    ],
)
def test_aws_ofi_nccl(text: str, expected: str) -> None:
    (one,) = matches(AwsOfi(), text)
    assert f"{one.signature.kind.value} {one.signature.key}" == expected
    assert (one.fatal, one.signature.hosts) == (False, ("node-3",))


@pytest.mark.parametrize(
    "text",
    [
        "node-3:512:601 [2] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
        "node-3:512:601 [2] NCCL INFO NET/OFI Couldn't open a fabric access domain, trying the next",
        f"{NCCL}Failed to find CUDA Runtime library: libcudart.so",
    ],
)
def test_what_the_plugin_says_and_goes_on(text: str) -> None:
    assert said(AwsOfi(), text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "out_of_memory ibv_create_cq@verbs"),
        (" Failed status 12: wr_id 0 syndrom 0x81", "network_failure IBV_WC_RETRY_EXC_ERR@perftest"),
        ("wc status IBV_WC_RETRY_EXC_ERR on qp 7", "network_failure IBV_WC_RETRY_EXC_ERR@verbs"),
    ],
)
def test_verbs(text: str, expected: str) -> None:
    assert said(Verbs(), text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "libibverbs: Warning: couldn't load driver 'libhfi1verbs-rdmav34.so': cannot open shared object file",
        "completed opcode IBV_WC_RDMA_WRITE, status IBV_WC_SUCCESS",
        "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
        "[1712:a:5 :0] ib_md.c:1 UCX  ERROR ibv_reg_mr(address=0x1) failed: Cannot allocate memory",
        "n:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
    ],
)
def test_what_verbs_does_not_mean_or_others_read(text: str) -> None:
    assert said(Verbs(), text) == []


def test_a_flushed_request_follows_upon_another_error() -> None:
    (one,) = matches(Verbs(), "wc status IBV_WC_WR_FLUSH_ERR")
    assert one.priority is Priority.CONSEQUENCE


HOSTILE = (
    "\0" * 50,
    "Abort(" * 700,
    "Fatal error in " * 280,
    "Fatal error in x: " + "a, " * 1300,
    "[Rank 1]" + " [" * 2000 + "Fatal error in x: y",
    "[mpiexec@" + "a" * 4000,
    "[mpiexec@a] " + "(" * 3000 + "unable to find interface",
    "libfabric:1:" + ":" * 4000 + "UNDELIVERABLE",
    "libfabric:1:1::cxi:a:" + "x()" * 1000 + ":1<warn> " + "UNDELIVERABLE " * 100,
    "NCCL WARN NET/OFI " * 200,
    "a:1:1 " + "x" * 3000 + "NET/OFI completed with error",
    "ibv_create_" * 300 + "Cannot allocate memory",
    "Failed status-" + "a " * 2000 + "wr_id",
    "Assertion failed in file " + "/" * 3000 + " at line 9: x",
    "PE RANK 1 exit signal " + "A " * 2000,
    "x" * 3000 + ": rank 1 died from signal 11",
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_takes_long_or_raises(text: str) -> None:
    started = time.monotonic()
    for kind in (Hydra, Cray, Mvapich, Libfabric, AwsOfi, Verbs, MpichAssertions, MpichErrors, MpichExits, IntelMpi):
        parser = kind()
        parser.feed(parse_line(text, 1))
        parser.finish()
    assert time.monotonic() - started < 1
