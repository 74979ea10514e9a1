"""Whether the data went the way that was asked for."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from pytest_hetgpu.carriage import RDMA, SHARED_MEMORY, TCP, UNKNOWN, Connection, Duty, connection
from pytest_hetgpu.judges.base import Case, Force, Judge, Opinion, explanation
from pytest_hetgpu.model import Kind
from pytest_hetgpu.paths import placed

_ABSENT = {
    RDMA: "no RDMA device took part",
    SHARED_MEMORY: "no shared memory took part",
    TCP: "tcp took no part",
}


class Transport(Judge):
    """A transport must prove itself: libraries fall back in silence, and the numbers look fine."""

    name = "transport"

    def opinions(self, case: Case) -> Iterator[Opinion]:
        demand, seen = case.job.demand, case.evidence.transports
        asked = ", ".join(demand.transports)
        if case.evidence.lacks:
            lacks = "; ".join(case.evidence.lacks)
            yield self.says(Kind.TRANSPORT_UNAVAILABLE, f"this build has no {lacks}", Force.FINAL, explanation(case))
            return
        foreign = demand.foreign
        # A process may have several GPUs, each of them a rank of NCCL's.
        several = max(demand.ranks, (foreign.ranks if foreign else None) or 1) > 1
        if several and (foreign is None or foreign.proof) and not seen and len(case.evidence.hellos) >= demand.ranks:
            why = f"nothing in the output proves which transport was used (asked for was {asked})"
            yield self.says(Kind.UNKNOWN, why, Force.VAGUE)
        other = [name for name in seen if not any(fnmatch.fnmatchcase(name, glob) for glob in demand.transports)]
        if other:
            why = f"silent fallback: asked for {asked}, used {', '.join(other)}"
            yield self.says(Kind.TRANSPORT_UNAVAILABLE, why)
            return
        connections = placed(case.evidence.connections, case.job.nodes)
        for path, duty in demand.duties.items():
            there = _of_path(path, connections)
            if why := _unmet(path, duty, there):
                yield self.says(Kind.TRANSPORT_UNAVAILABLE, why)
            elif why := _unsure(path, duty, there):
                yield self.says(Kind.UNKNOWN, why, Force.VAGUE)


def _of_path(path: str, connections: Sequence[Connection]) -> list[Connection]:
    """Return the connections of a path; what a log shows without paths is put together, as if all were one."""
    seen = [one for one in connections if one.path == path]
    together = [one for one in connections if one.path == UNKNOWN]
    if seen or not together:
        return seen
    names = {name for one in together for name in one.components}
    return [connection(UNKNOWN, names, {name for one in together for name in one.unsure})]


def _unmet(path: str, duty: Duty, seen: Sequence[Connection]) -> str:
    """Return what carried the data of a path instead of the class that had to; "" if that did, or nothing was seen."""
    short = [one for one in seen if not duty.met(one.components)]
    if not short:
        return ""
    where = f"{path}{' for some ranks' if len(short) < len(seen) else ''}"
    return (
        f"{_asked(path, duty)}, carried by {_names(short)} {where}: {_ABSENT[duty.kind]}; "
        "add `carried_by: any` if that is meant"
    )


def _unsure(path: str, duty: Duty, seen: Sequence[Connection]) -> str:
    """Return why nobody can tell whether the class that had to carry large messages did so; "" if it did."""
    vague = [one for one in seen if not duty.met({*one.components} - {*one.unsure})]
    if not vague:
        return ""
    return (
        f"{_asked(path, duty)}: {_names(vague)} connect ranks {path}, and UCX before 1.16 may send large messages by "
        "other lanes than short ones, which its log does not tell; allow cma, or add `carried_by: any`"
    )


def _asked(path: str, duty: Duty) -> str:
    return f"asked for {', '.join(duty.asked)} (best {path}: {', '.join(duty.best)})"


def _names(connections: Sequence[Connection]) -> str:
    return ", ".join(sorted({name.rpartition("/")[2] for one in connections for name in one.components}))
