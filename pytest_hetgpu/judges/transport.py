"""Whether the data went the way that was asked for."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from pytest_hetgpu.judges.base import Case, Force, Judge, Opinion, explanation
from pytest_hetgpu.model import Kind


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
