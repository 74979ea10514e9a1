"""Latency and bandwidths of timed rows, by the definitions of nccl-tests.

Sources: doc/PERFORMANCE.md and the `*GetBw` functions of src/*.cu in nccl-tests 2.19.6; for alltoallv src/alltoallv.cu
in rccl-tests. GB/s is 1e9 bytes a second; n is the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pytest_hetgpu.evidence import Measurement, Row

_GIGA = 1e9
_MICRO = 1e6


def _one(_ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class _Definition:
    """`factor` turns algbw into busbw; `of_all`: every rank's block counts, so that bytes are size x n."""

    factor: Callable[[int], float]
    of_all: bool = False


_DEFINITIONS: Mapping[str, _Definition] = {
    "allreduce": _Definition(_twice_others),  # all_reduce.cu: AllReduceGetBw
    "allgather": _Definition(_others, of_all=True),  # all_gather.cu: AllGatherGetBw
    "reducescatter": _Definition(_others, of_all=True),  # reduce_scatter.cu: ReduceScatterGetBw
    "alltoall": _Definition(_others, of_all=True),  # alltoall.cu: AlltoAllGetBw
    "gather": _Definition(_others, of_all=True),  # gather.cu: GatherGetBw
    "scatter": _Definition(_others, of_all=True),  # scatter.cu: ScatterGetBw
    "broadcast": _Definition(_one),  # broadcast.cu: BroadcastGetBw
    "reduce": _Definition(_one),  # reduce.cu: ReduceGetBw
    "sendrecv": _Definition(_one),  # sendrecv.cu: SendRecvGetBw, one direction
    "alltoallv": _Definition(_others),  # alltoallv.cu of rccl-tests; the size is what a rank sends or gets, the larger
}
_ALIASES = {"bcast": "broadcast"}


def measurements(rows: Iterable[Row]) -> tuple[Measurement, ...]:
    """Latency (us), algbw and busbw (GB/s) of every point, in the order of the rows; of equal points the last counts.

    A row's size is `count x element size` of one rank's buffer. An operation without a definition, and a row whose
    time is no positive number, give no bandwidth. busbw is 0 where there is one rank only: nothing has moved.
    """
    found: dict[str, Measurement] = {}
    for row in rows:
        for item in _of_row(row):
            found[item.name] = item
    return tuple(found.values())


def _of_row(row: Row) -> Iterable[Measurement]:
    if not (math.isfinite(row.seconds) and row.seconds > 0):
        return
    yield Measurement("latency", row.seconds * _MICRO, "us", row.point, row.ranks)
    name = row.operation.lower().replace("_", "").replace("-", "")
    definition = _DEFINITIONS.get(_ALIASES.get(name, name))
    if definition and row.ranks > 0:
        moved = row.point.size * (row.ranks if definition.of_all else 1)
        algbw = moved / row.seconds / _GIGA
        busbw = algbw * definition.factor(row.ranks) if row.ranks > 1 else 0.0
        yield Measurement("algbw", algbw, "GB/s", row.point, row.ranks)
        yield Measurement("busbw", busbw, "GB/s", row.point, row.ranks)
