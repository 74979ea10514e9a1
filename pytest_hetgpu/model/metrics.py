"""Latency and bandwidths of timed rows, by the definitions of nccl-tests.

Sources: doc/PERFORMANCE.md and the `*GetBw` functions of src/*.cu in nccl-tests 2.19.6; for alltoallv src/alltoallv.cu
in rccl-tests. GB/s is 1e9 bytes per second; n is the number of ranks.

A point's size is the number of bytes that its definition counts, as nccl-tests prints them.

- allreduce, broadcast, reduce and a send in one direction: `count x element size`.
- allgather, reduce_scatter, alltoall, gather and scatter: `n x count x element size`. This is the total that is divided
  among the ranks. Each rank gives or gets `count` elements at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.model.outcome import Evidence, LinkBandwidth
from pytest_hetgpu.model.records import Measurement, Row
from pytest_hetgpu.model.sample import sample

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
    "alltoallv": _others,  # alltoallv.cu of rccl-tests; the size is the larger of a rank's input and output
}
_ALIASES = {"bcast": "broadcast", "bidirectionalsendrecv": "sendrecv"}


def measurements(rows: Iterable[Row]) -> tuple[Measurement, ...]:
    """Compute busbw and algbw (GB/s) and latency (us) of every point, in the order of the rows.

    `algbw = size / seconds`, `busbw = algbw x factor`. An operation without a definition has a latency only. A row
    whose time is not a positive number gives nothing. busbw is 0 for a single rank, as no data moves. The median of
    repeats counts, without outliers. The last of equal repeats counts.
    """
    found: dict[str, dict[int, Measurement]] = {}
    operations: dict[str, tuple[str, int]] = {}
    for row in rows:
        for item in _of_row(row):
            name, what = item.name, (row.operation, row.ranks)
            if operations.setdefault(name, what) != what:
                operations[name], found[name] = what, {}
            found.setdefault(name, {})[row.repeat] = item
    return tuple(middle_of(tuple(repeats.values())) for repeats in found.values())


def numbers(evidence: Evidence) -> tuple[Measurement, ...]:
    """Return all measurements of a run: those of an external program, else those of times, then the figures."""
    program = evidence.program
    return program.measurements if program else (*measurements(evidence.rows), *evidence.figures)


def middle_of(repeats: Sequence[Measurement]) -> Measurement:
    """Return repeats of one measurement as one: their median without outliers, with all values as `samples`."""
    last = repeats[-1]
    if len(repeats) == 1:
        return last
    samples = tuple(item.value for item in repeats)
    found = sample(samples)
    return replace(last, value=found.middle if found else last.value, samples=samples)


def link_fraction(measured: Measurement, link: LinkBandwidth | None) -> float | None:
    """Return a bus bandwidth as a fraction of the bandwidth between the nodes (`RunResult.wire`).

    Return None for another metric, if no data moved, or if the link bandwidth is not known. In a ring, busbw is the
    load of each link in one direction, and so is the link bandwidth (doc/PERFORMANCE.md of nccl-tests).
    """
    if measured.metric != "busbw" or link is None or not link.gbs or not measured.value > 0:
        return None
    return measured.value / link.gbs


def _of_row(row: Row) -> Iterable[Measurement]:
    if not (math.isfinite(row.seconds) and row.seconds > 0):
        return
    factor = _factor(row.operation)
    if factor and row.ranks > 0:
        algbw = row.point.size / row.seconds / _GIGA
        busbw = algbw * factor(row.ranks) if row.ranks > 1 else 0.0
        yield Measurement("busbw", busbw, "GB/s", row.point, row.ranks)
        yield Measurement("algbw", algbw, "GB/s", row.point, row.ranks)
    yield Measurement("latency", row.seconds * _MICRO, "us", row.point, row.ranks)


def _factor(operation: str) -> Callable[[int], float] | None:
    name = operation.lower().replace("_", "").replace("-", "")
    return _FACTORS.get(_ALIASES.get(name, name))


def has_bandwidth(operation: str, ranks: int = 2) -> bool:
    """Return whether an operation has a busbw by these definitions. A barrier has a latency only."""
    return ranks > 1 and _factor(operation) is not None


def of_operation(operation: str, ranks: int = 2) -> dict[str, str]:
    """Return the metrics that the time of an operation gives, with their units."""
    bandwidths = {"busbw": "GB/s", "algbw": "GB/s"} if has_bandwidth(operation, ranks) else {}
    return {**bandwidths, "latency": "us"}
