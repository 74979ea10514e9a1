"""Latency and bandwidths of timed rows, by the definitions of nccl-tests.

Sources: doc/PERFORMANCE.md and the `*GetBw` functions of src/*.cu in nccl-tests 2.19.6; for alltoallv src/alltoallv.cu
in rccl-tests. GB/s is 1e9 bytes a second; n is the number of ranks.

A point's size is the bytes that its definition counts, as nccl-tests prints them: `count x element size` of allreduce,
broadcast, reduce and of a send in one direction; for allgather, reduce_scatter, alltoall, gather and scatter the whole
that is divided among the ranks, `n x count x element size`, where each rank gives or gets `count` elements at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from pytest_hetgpu.evidence import Measurement, Row, Wire

_GIGA = 1e9
_MICRO = 1e6


def _one(_ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


_FACTORS: Mapping[str, Callable[[int], float]] = {
    "allreduce": _twice_others,  # all_reduce.cu: AllReduceGetBw
    "allgather": _others,  # all_gather.cu: AllGatherGetBw
    "reducescatter": _others,  # reduce_scatter.cu: ReduceScatterGetBw
    "alltoall": _others,  # alltoall.cu: AlltoAllGetBw
    "gather": _others,  # gather.cu: GatherGetBw
    "scatter": _others,  # scatter.cu: ScatterGetBw
    "broadcast": _one,  # broadcast.cu: BroadcastGetBw
    "reduce": _one,  # reduce.cu: ReduceGetBw
    "sendrecv": _one,  # sendrecv.cu: SendRecvGetBw, one direction
    "alltoallv": _others,  # alltoallv.cu of rccl-tests; the size is what a rank sends or gets, the larger
}
_ALIASES = {"bcast": "broadcast", "bidirectionalsendrecv": "sendrecv"}


def measurements(rows: Iterable[Row]) -> tuple[Measurement, ...]:
    """Latency (us), algbw and busbw (GB/s) of every point, in the order of the rows; of equal points the last counts.

    `algbw = size / seconds`, `busbw = algbw x factor`. An operation without a definition has a latency only, a row
    whose time is no positive number nothing. busbw is 0 where there is one rank only: nothing has moved.
    """
    found: dict[str, Measurement] = {}
    for row in rows:
        for item in _of_row(row):
            found[item.name] = item
    return tuple(found.values())


def has_bandwidth(operation: str) -> bool:
    """Whether an operation has a definition of its bandwidth."""
    return _name(operation) in _FACTORS


def of_wire(measured: Measurement, wire: Wire | None) -> float | None:
    """A bus bandwidth as a fraction of what the way between the nodes can carry (`RunResult.wire`).

    None for another metric, where nothing has moved, and where the limit is not known. busbw is what each way between
    two nodes of a ring has to carry in one direction, and so is the limit (doc/PERFORMANCE.md of nccl-tests).
    """
    if measured.metric != "busbw" or wire is None or not wire.gbs or not measured.value > 0:
        return None
    return measured.value / wire.gbs


def _name(operation: str) -> str:
    name = operation.lower().replace("_", "").replace("-", "")
    return _ALIASES.get(name, name)


def _of_row(row: Row) -> Iterable[Measurement]:
    if not (math.isfinite(row.seconds) and row.seconds > 0):
        return
    yield Measurement("latency", row.seconds * _MICRO, "us", row.point, row.ranks)
    factor = _FACTORS.get(_name(row.operation))
    if factor and row.ranks > 0:
        algbw = row.point.size / row.seconds / _GIGA
        busbw = algbw * factor(row.ranks) if row.ranks > 1 else 0.0
        yield Measurement("algbw", algbw, "GB/s", row.point, row.ranks)
        yield Measurement("busbw", busbw, "GB/s", row.point, row.ranks)
