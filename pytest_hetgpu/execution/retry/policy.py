"""What may be tried again, what is made of several attempts, and which nodes are not for the next cell. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.extensions.runtimes.lookup import loss_of
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind

ENVIRONMENT = (Kind.NETWORK_FAILURE, Kind.LAUNCH_FAILURE)
"""Failures that may well be the environment's: what is tried again unless the user says otherwise."""

MAY_BE_RETRIED = (*ENVIRONMENT, Kind.TRANSPORT_UNAVAILABLE, Kind.TIMEOUT)
"""Failures that can be the environment's. All others are about what is tested: a retry would make a pass of a bug."""

_TESTED = frozenset((Kind.CRASH, Kind.WRONG_RESULT, Kind.OUT_OF_MEMORY, Kind.GPU_ARCH_MISMATCH, Kind.MISSING_LIBRARY))

_TAINTING = frozenset(
    (
        *(Kind.CRASH, Kind.HANG, Kind.TIMEOUT, Kind.OUT_OF_MEMORY, Kind.UNKNOWN),
        # Nodes that lost each other (a cable, an sshd that died) would fail every further cell in the same way.
        *(Kind.NETWORK_FAILURE, Kind.LAUNCH_FAILURE),
    )
)


@dataclass(frozen=True, slots=True)
class Retries:
    """At most so many further attempts at a cell, after outcomes of these kinds."""

    most: int = 0
    kinds: tuple[Kind, ...] = ENVIRONMENT


NO_RETRIES = Retries()


def may_be_retried(outcome: Outcome, kinds: Collection[Kind] = MAY_BE_RETRIED) -> bool:
    """Whether a failure is of these kinds and nobody expects it; nothing that speaks of a bug may stand beside it."""
    bug = any(finding.kind in _TESTED for finding in outcome.findings)
    return outcome.verdict.fails and outcome.kind in kinds and not bug


def is_service_loss(key: str) -> bool:
    """Whether a signature's key says that a container engine went away, or whatever else made the nodes."""
    loss = loss_of(key)
    return loss is not None and loss.service


def lost_its_engine(outcome: Outcome) -> bool:
    """Whether a cell failed for nothing but its container engine, which went away under it.

    That is the cause only of a run that shows no other: the engine kills ranks, whose signals are no crash of theirs.
    """
    lost = outcome.signature is not None and is_service_loss(outcome.signature.key)
    return lost and outcome.verdict.fails and outcome.kind is Kind.NETWORK_FAILURE


def settled(outcomes: Sequence[tuple[str, Outcome]]) -> Outcome:
    """The outcome of a cell from that of each attempt at it, in their order, with the path of its log.

    It is the last one's, unless an earlier one, as it is read now, was none that may be tried again: then nothing that
    came later counts.
    """
    failed: list[Attempt] = []
    for number, (log, outcome) in enumerate(outcomes, 1):
        if number == len(outcomes):
            return replace(outcome, attempts=tuple(failed))
        if not (may_be_retried(outcome) or lost_its_engine(outcome)):
            note = f"attempt {number} of {len(outcomes)} decides, see {log}: such an outcome is not tried again"
            return replace(outcome, attempts=tuple(failed), notes=(*outcome.notes, note))
        failed.append(attempt_of(outcome, log))
    raise ValueError("no attempt")


def attempt_of(outcome: Outcome, log: str) -> Attempt:
    """What is kept of an attempt that was not the last."""
    key = outcome.signature.key if outcome.signature else ""
    return Attempt(outcome.kind, key, outcome.why, log, outcome.seconds)


def taints(outcome: Outcome, result: RunResult) -> bool:
    """Return whether a job may have left something on its nodes, or the nodes may not reach each other."""
    return bool(outcome.kind in _TAINTING or result.lost or result.survivors or result.unplugged)
