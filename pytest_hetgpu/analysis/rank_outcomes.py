"""What became of each rank of a run that failed, and the same by vendor: who finished, who crashed, who was stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_hetgpu.analysis.judges.base import FROM_OUTSIDE, Case, failed, node_of, signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Finding, RankOutcome
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_STUCK = (Kind.HANG, Kind.TIMEOUT)
_STOPPING = frozenset(signal_name(number) for number in FROM_OUTSIDE)
_BY_OTHERS = frozenset(f"was killed ({name})" for name in _STOPPING - {"SIGKILL"})


def fates(case: Case, findings: Sequence[Finding]) -> tuple[RankOutcome, ...]:
    """A fate a rank, in the order of ranks; empty for a run that did not fail.

    A rank's own words decide, then the launcher's on how it ended, then the texts that name it; of a rank that nobody
    speaks of it is only known that the others' end took it along.
    """
    if not failed(case):
        return ()
    blamed = _blamed(findings)
    stopped = _stopped(case, findings)
    exits = {ended.rank: ended for ended in case.evidence.exits}
    return tuple(
        RankOutcome(rank, name, platform, *_fate(rank, case, exits.get(rank), blamed.get(rank), stopped=stopped))
        for rank, (name, platform) in enumerate(places(case))
    )


def places(case: Case) -> Iterator[tuple[str, str]]:
    """Node name and platform of every rank, in the order of ranks: nodes have consecutive ones, or ranks say theirs."""
    nodes = [node for node in case.job.nodes for _ in range(node.ranks)]
    for rank, node in enumerate(nodes):
        hello = case.evidence.hellos.get(rank)
        found = (node_of(hello, case.job, nodes) if hello else None) or node
        yield found.name or found.host, found.hardware.accelerator.platform


def _blamed(findings: Sequence[Finding]) -> Mapping[int, Signature]:
    """For each rank that a text names, the first and so most telling signature that does."""
    named: dict[int, Signature] = {}
    for finding in findings:
        for rank in finding.signature.ranks if finding.signature else ():
            if finding.signature:
                named.setdefault(rank, finding.signature)
    return named


def _stopped(case: Case, findings: Sequence[Finding]) -> str:
    """What became of ranks that were there to the end of a run that was stopped; "" for one that ended by itself."""
    if case.result.timed_out:
        stuck = next((one.kind for one in findings if one.kind in _STUCK), None) is Kind.HANG
        return "was stuck and stopped" if stuck else "was stopped at the time limit"
    return "was stopped" if case.result.interrupted is not None else ""


def _fate(rank: int, case: Case, ended: RankExit | None, blamed: Signature | None, *, stopped: str) -> tuple[str, bool]:
    """The fate in words, and whether it was the rank's own; `stopped` is that of ranks that we have stopped."""
    own = _died(ended, blamed, stopped=bool(stopped))
    if not own and rank in case.evidence.done:
        return "finished", False
    own = own or _gave_up(ended, blamed)
    if own:
        return own, own not in _BY_OTHERS
    if rank not in case.evidence.hellos:
        return "never started", False
    return stopped or "was stopped", False


def _died(ended: RankExit | None, blamed: Signature | None, *, stopped: bool) -> str:
    """How a rank died of a signal, "" where it did not, or only as the run was stopped."""
    name = signal_name(ended.signal) if ended and ended.signal is not None else None
    if blamed and blamed.kind is Kind.CRASH:
        name = blamed.signal or name or ""
    if name is None or (stopped and name in _STOPPING):
        return ""
    return f"was killed ({name})" if name in _STOPPING else f"crashed ({name})" if name else "crashed"


def _gave_up(ended: RankExit | None, blamed: Signature | None) -> str:
    """How a rank ended by itself, "" where it did not."""
    if ended and ended.aborted:
        return "called MPI_Abort" + (f" ({ended.code})" if ended.code else "")
    if ended and ended.code:
        return f"exited with {ended.code}"
    return "failed" if blamed and blamed.kind not in (*_STUCK, Kind.CRASH) else ""
