"""Records that only ranks of torch.distributed write."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.model.records import Device, Measurement, MessagePoint

HELLO: dict[str, Any] = {
    "t": "hello",
    "rank": 0,
    "size": 2,
    "host": "a",
    "pid": 1,
    "library": "torch 2.13.0+cu124",
    "libmpi": "",
    "node": 1,
    "versions": {"nccl": "2.21.5", "cuda": "12.4"},
}
FIGURE = {"t": "figure", "metric": "samples", "value": 12.5, "unit": "1/s", "size": 8, "dtype": "float32", "ranks": 2}
DEVICE = {"t": "device", "rank": 1, "index": 0, "name": "NVIDIA H100", "arch": "sm_90", "memory": 80, "peak": 3}
LACKS = {"t": "lacks", "rank": 0, "what": "backend mpi", "how": "is_mpi_available() is False"}


def read(*records: dict[str, Any], prefix: bytes = b"[default0]:") -> Records:
    reader = RecordReader()
    for record in records:
        payload = json.dumps(record).encode()
        reader.feed(prefix + b"@hetgpu:%04d:%08x:%b" % (len(payload), zlib.crc32(payload), payload))
    return reader.finish()


def test_a_greeting_tells_the_node_and_what_the_build_holds() -> None:
    found = read(HELLO, {**HELLO, "rank": 1, "node": 0, "versions": {"rccl": "2.20.5"}})
    assert [found.hellos[rank].node for rank in (0, 1)] == [1, 0]
    assert found.versions == {"nccl": "2.21.5", "cuda": "12.4", "rccl": "2.20.5"}


def test_ranks_that_differ_give_both_versions() -> None:
    found = read(HELLO, {**HELLO, "rank": 1, "versions": {"nccl": "2.19.3"}})
    assert found.versions["nccl"] == "2.19.3, 2.21.5"


def test_a_rank_that_knows_no_node_says_none() -> None:
    assert read({**HELLO, "node": -1}).hellos[0].node is None


def test_figures_devices_and_what_lacks() -> None:
    found = read(FIGURE, DEVICE, LACKS, {"t": "carried", "rank": 0, "by": "gloo/tcp"})
    assert found.figures == (Measurement("samples", 12.5, "1/s", MessagePoint(8, "float32"), 2),)
    assert found.devices == (Device(1, 0, "NVIDIA H100", "sm_90", 80, 3),)
    assert found.lacks == ("backend mpi: is_mpi_available() is False",)
    assert found.carried == {"gloo/tcp"}
    assert found.corrupt == 0


@pytest.mark.parametrize(
    "record",
    [
        {**FIGURE, "value": "many"},
        {**FIGURE, "ranks": 0},
        {**DEVICE, "peak": -1},
        {**LACKS, "how": 3},
        {**HELLO, "versions": ["nccl"]},
        {**HELLO, "node": -2},
        {"t": "carried", "rank": "0", "by": "gloo/tcp"},
    ],
)
def test_what_none_may_say_is_counted_and_not_believed(record: dict[str, Any]) -> None:
    assert read(record) == Records(corrupt=1)


def test_what_a_check_names_is_in_the_sentence() -> None:
    wrong = {"t": "wrong", "rank": 0, "size": 8, "dtype": "float32", "index": 2, "count": 1}
    found = read({**wrong, "buffer": "the loss", "expected": "at most 0.5", "got": "nan"})
    assert found.wrong == (
        "rank 0: 1 wrong element at 8 B float32, first at [2] of the loss: expected at most 0.5, got nan",
    )
