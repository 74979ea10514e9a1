"""Outcome of each rank of a failed run: finished, crashed, stopped, never started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_hetgpu.analysis.judges.base import EXTERNAL_SIGNALS, FinishedRun, has_failed, node_of, signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import Finding, RankOutcome
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind

_STUCK = (Kind.HANG, Kind.TIMEOUT)
_STOPPING = frozenset(signal_name(number) for number in EXTERNAL_SIGNALS)
_BY_OTHERS = frozenset(f"was killed ({name})" for name in _STOPPING - {"SIGKILL"})


def rank_outcomes(run: FinishedRun, findings: Sequence[Finding]) -> tuple[RankOutcome, ...]:
    """Return one outcome per rank, in the order of ranks; empty for a run that did not fail.

    The rank's own report decides, then its exit as the launcher reports it, then signatures that name it. A rank
    without any of these was stopped by the end of the others.
    """
    if not has_failed(run):
        return ()
    blamed = _blamed(findings)
    stopped = _stopped(run, findings)
    exits = {ended.rank: ended for ended in run.evidence.exits}
    return tuple(
        RankOutcome(rank, name, platform, *_status(rank, run, exits.get(rank), blamed.get(rank), stopped=stopped))
        for rank, (name, platform) in enumerate(rank_nodes(run))
    )


def rank_nodes(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """Yield node name and platform of each rank.

    Nodes have consecutive ranks, unless ranks report their own nodes.
    """
    nodes = [node for node in run.job.nodes for _ in range(node.ranks)]
    for rank, node in enumerate(nodes):
        hello = run.evidence.hellos.get(rank)
        found = (node_of(hello, run.job, nodes) if hello else None) or node
        yield found.name or found.host, found.hardware.accelerator.platform


def _blamed(findings: Sequence[Finding]) -> Mapping[int, Signature]:
    """Map each rank named by a signature to the first signature, which is the most telling."""
    named: dict[int, Signature] = {}
    for finding in findings:
        for rank in finding.signature.ranks if finding.signature else ():
            if finding.signature:
                named.setdefault(rank, finding.signature)
    return named


def _stopped(run: FinishedRun, findings: Sequence[Finding]) -> str:
    """Return the status of ranks that were alive when we stopped the run; "" for a run that ended by itself."""
    if run.result.timed_out:
        stuck = next((one.kind for one in findings if one.kind in _STUCK), None) is Kind.HANG
        return "was stuck and stopped" if stuck else "was stopped at the time limit"
    return "was stopped" if run.result.interrupted is not None else ""


def _status(
    rank: int, run: FinishedRun, ended: RankExit | None, blamed: Signature | None, *, stopped: str
) -> tuple[str, bool]:
    """Return a rank's status, and whether the rank ended on its own.

    `stopped` is the status of ranks that we stopped.
    """
    own = _died(ended, blamed, stopped=bool(stopped))
    if not own and rank in run.evidence.done:
        return "finished", False
    own = own or _gave_up(ended, blamed)
    if own:
        return own, own not in _BY_OTHERS
    if rank not in run.evidence.hellos:
        return "never started", False
    return stopped or "was stopped", False


def _died(ended: RankExit | None, blamed: Signature | None, *, stopped: bool) -> str:
    """Describe a rank's death by a signal; "" if it had none, or only because we stopped the run."""
    name = signal_name(ended.signal) if ended and ended.signal is not None else None
    if blamed and blamed.kind is Kind.CRASH:
        name = blamed.signal or name or ""
    if name is None or (stopped and name in _STOPPING):
        return ""
    return f"was killed ({name})" if name in _STOPPING else f"crashed ({name})" if name else "crashed"


def _gave_up(ended: RankExit | None, blamed: Signature | None) -> str:
    """Describe how a rank ended by itself, "" if it did not."""
    if ended and ended.aborted:
        return "called MPI_Abort" + (f" ({ended.code})" if ended.code else "")
    if ended and ended.code:
        return f"exited with {ended.code}"
    return "failed" if blamed and blamed.kind not in (*_STUCK, Kind.CRASH) else ""
