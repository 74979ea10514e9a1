"""The operation of a command before it runs."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.readers.base import OutputParser, ParseRequest
from pytest_hetgpu.extensions.registry import find
from tests.extensions.readers.feeding import sample


@pytest.mark.parametrize(
    ("reader", "words", "operation"),
    [
        ("osu", "/opt/osu/osu_allreduce", "allreduce"),
        ("osu", "osu_bcast", "broadcast"),
        ("osu", "osu_bw", "send_recv"),
        ("osu", "osu_latency_persistent", "send_recv_persistent"),
        ("osu", "osu_bibw", "bidirectional_send_recv"),
        ("osu", "osu_iallreduce", "iallreduce"),
        ("osu", "osu_ineighbor_alltoall", "neighbor_ialltoall"),
        ("osu", "osu_reduce_scatter_block", "reduce_scatter_block"),
        ("osu", "osu_put_latency", "put"),
        ("nccl_tests", "/opt/all_reduce_perf_mpi -b 8", "allreduce"),
        ("nccl_tests", "sendrecv_perf", "send_recv"),
        ("ucx_perftest", "ucx_perftest 10.0.0.1 -t tag_lat", "send_recv"),
        ("ucx_perftest", "ucx_perftest -t ucp_put_bw", "put"),
        ("ucc_perftest", "ucc_perftest -c bcast", "broadcast"),
        ("mpi4py_bench", "{python} -m mpi4py.bench pingpong", "send_recv"),
        ("mpi4py_bench", "{python} -m mpi4py.bench ringtest", "ringtest"),
        ("command", "./app", "command"),
    ],
)
def test_what_a_command_measures(reader: str, words: str, operation: str) -> None:
    kind = find("readers", reader, OutputParser)  # type: ignore[type-abstract]
    assert kind.measures(ParseRequest(tuple(words.split()))) == operation


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("osu-5.3-allreduce-full", "osu_allreduce"),
        ("osu-7.0-reduce-scatter", "osu_reduce_scatter"),
        ("osu-7.0-latency", "osu_latency"),
        ("osu-7.0-bw", "osu_bw"),
        ("osu-7.0-bibw", "osu_bibw"),
        ("osu-7.0-mbw-mr", "osu_mbw_mr"),
        ("osu-7.0-iallreduce", "osu_iallreduce"),
        ("osu-7.0-barrier", "osu_barrier"),
    ],
)
def test_that_is_what_real_tables_say(name: str, program: str) -> None:
    kind = find("readers", "osu", OutputParser)  # type: ignore[type-abstract]
    assert {row.operation for row in sample("osu", name).rows} == {kind.measures(ParseRequest((program,)))}
