"""Judge of transports: whether the data took the requested path."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence

from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, Precedence, RatedFinding, cause_of
from pytest_hetgpu.model.transport_classes import (
    RDMA,
    SHARED_MEMORY,
    TCP,
    UNKNOWN,
    Connection,
    OneSided,
    RequiredClass,
    connection,
)
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.data_paths import paths, with_paths

_EVERY = "*"
SHARED_WINDOW = "osc/sm"
"""Component of MPI_Win_allocate_shared, which requires shared memory by its definition."""
_ABSENT = {
    RDMA: "no RDMA device took part",
    SHARED_MEMORY: "no shared memory took part",
    TCP: "tcp took no part",
}


class TransportJudge(Judge):
    """A transport must prove itself: libraries fall back in silence, and the numbers look fine."""

    name = "transport"

    def evaluate(self, run: FinishedRun) -> Iterator[RatedFinding]:
        demand, seen = run.job.demand, run.evidence.transports
        asked = ", ".join(demand.transports)
        if run.evidence.lacks:
            lacks = "; ".join(run.evidence.lacks)
            yield self.finding(
                Kind.TRANSPORT_UNAVAILABLE, f"this build has no {lacks}", Precedence.OVERRIDING, cause_of(run)
            )
            return
        foreign = demand.external
        # A process may have several GPUs, each of them a rank of NCCL's.
        several = max(demand.ranks, (foreign.ranks if foreign else None) or 1) > 1
        if several and (foreign is None or foreign.proof) and not seen and len(run.evidence.hellos) >= demand.ranks:
            why = f"nothing in the output proves which transport was used (asked for was {asked})"
            yield self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT)
        other = [name for name in seen if not any(fnmatch.fnmatchcase(name, glob) for glob in demand.transports)]
        if other:
            why = f"silent fallback: asked for {asked}, used {', '.join(other)}"
            yield self.finding(Kind.TRANSPORT_UNAVAILABLE, why)
            return
        yield from self._windows(run)
        connections = with_paths(run.evidence.connections, run.job.nodes)
        yield from self._carried(demand.duties, paths(run.job.nodes), connections)

    def _windows(self, run: FinishedRun) -> Iterator[RatedFinding]:
        """Judge one-sided communication, which no proof of the point-to-point layer covers."""
        windows, seen = run.job.demand.one_sided, run.evidence.windows
        if windows is None:
            return
        asked = ", ".join(run.job.demand.transports)
        others = [one for one in seen if not _allowed(windows, one) and not _own_memory(windows, one)]
        used = f"asked for {asked}, MPI windows used {_full_names(others)} (possible: {', '.join(windows.components)})"
        if any(not one.unsure for one in others):
            yield self.finding(Kind.TRANSPORT_UNAVAILABLE, f"silent fallback: {used}")
        elif others and windows.benchmark:
            yield self.finding(Kind.UNKNOWN, f"not proven for every kind of window: {used}", Precedence.INDIRECT)
        elif windows.benchmark and not (windows.pinned or seen) and len(run.evidence.hellos) >= run.job.demand.ranks:
            why = f"nothing in the output proves what carried MPI windows (asked for was {asked})"
            yield self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT)

    def _carried(
        self, duties: Mapping[str, RequiredClass], taken: Sequence[str], connections: Sequence[Connection]
    ) -> Iterator[RatedFinding]:
        """Judge each path; if all are as required, judge connections that may belong to any of the paths taken."""
        found = False
        for path, duty in duties.items():
            for rated in self._held({path: duty}, _of_path(path, connections)):
                found = True
                yield rated
        if not found and taken and {*taken} <= {*duties}:
            lost = [one for one in connections if one.path == UNKNOWN]
            yield from self._held({path: duties[path] for path in taken}, lost)

    def _held(self, due: Mapping[str, RequiredClass], seen: Sequence[Connection]) -> Iterator[RatedFinding]:
        """Yield the fault of connections each of which must meet one of these duties."""
        if why := _unmet(due, seen):
            yield self.finding(Kind.TRANSPORT_UNAVAILABLE, why)
        elif why := _unsure(due, seen):
            yield self.finding(Kind.UNKNOWN, why, Precedence.INDIRECT)


def window_notes(run: FinishedRun) -> Iterator[str]:
    """Yield notes on a program that may use windows: it shared memory by them, or nothing would show what they used."""
    windows = run.job.demand.one_sided
    if windows is None or windows.benchmark or _EVERY in windows.components:
        return
    if any(_own_memory(windows, one) and not _allowed(windows, one) for one in run.evidence.windows):
        yield f"ranks shared memory by MPI_Win_allocate_shared ({SHARED_WINDOW}), beside the transport"
    if not windows.pinned and not windows.logged:
        yield "the transport of MPI windows, if the program uses any, is not proven: `osc` is neither logged nor pinned"


def _allowed(asked: OneSided, one: Connection) -> bool:
    return all(any(fnmatch.fnmatchcase(name, glob) for glob in asked.components) for name in one.components)


def _own_memory(windows: OneSided, one: Connection) -> bool:
    """Return whether a program that does more than a benchmark asked for shared memory by the kind of its window."""
    return not windows.benchmark and one.components == (SHARED_WINDOW,)


def _full_names(connections: Sequence[Connection]) -> str:
    return ", ".join(sorted({name for one in connections for name in one.components}))


def _of_path(path: str, connections: Sequence[Connection]) -> list[Connection]:
    """Return the connections of a path; connections that the log shows without a path are merged into one."""
    seen = [one for one in connections if one.path == path]
    together = [one for one in connections if one.path == UNKNOWN]
    if seen or not together:
        return seen
    names = {name for one in together for name in one.components}
    return [connection(UNKNOWN, names, {name for one in together for name in one.unsure})]


def _unmet(due: Mapping[str, RequiredClass], seen: Sequence[Connection]) -> str:
    """Return the components that carried the data instead of a due class; "" if one did, or none was seen."""
    short = [one for one in seen if not _met(due, one.components)]
    if not short:
        return ""
    absent = ", ".join(dict.fromkeys(_ABSENT[duty.kind] for duty in due.values()))
    some = " for some ranks" if len(short) < len(seen) else ""
    where = f"{_where(due)}{some}" if len(due) == 1 else f"for some ranks, {_where(due)}"
    return f"{_asked(due)}, carried by {_names(short)} {where}: {absent}; add `carried_by: any` if that is meant"


def _unsure(due: Mapping[str, RequiredClass], seen: Sequence[Connection]) -> str:
    """Return why it is unknown whether a due class carried large messages; "" if it did."""
    vague = [one for one in seen if not _met(due, {*one.components} - {*one.unsure})]
    if not vague:
        return ""
    return (
        f"{_asked(due)}: {_names(vague)} connect ranks {_where(due)}, and UCX before 1.16 may send large messages by "
        "other lanes than short ones, which its log does not show; allow cma, or add `carried_by: any`"
    )


def _met(due: Mapping[str, RequiredClass], components: Collection[str]) -> bool:
    return any(duty.met_by(components) for duty in due.values())


def _where(due: Mapping[str, RequiredClass]) -> str:
    return next(iter(due)) if len(due) == 1 else "on a path that the log does not name"


def _asked(due: Mapping[str, RequiredClass]) -> str:
    best = "; ".join(f"best {path}: {', '.join(duty.best)}" for path, duty in due.items())
    return f"asked for {', '.join(next(iter(due.values())).asked)} ({best})"


def _names(connections: Sequence[Connection]) -> str:
    return ", ".join(sorted({name.rpartition("/")[2] for one in connections for name in one.components}))
