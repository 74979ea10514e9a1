"""Retries: outcomes that are retried, the outcome of several attempts, and tainted nodes. Pure."""

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
    """The maximum number of further attempts at a cell, and the kinds of outcomes that are retried."""

    most: int = 0
    kinds: tuple[Kind, ...] = ENVIRONMENT


NO_RETRIES = Retries()


def may_be_retried(outcome: Outcome, kinds: Collection[Kind] = MAY_BE_RETRIED) -> bool:
    """Return whether a failure is of these kinds, is not expected, and shows no sign of a bug."""
    bug = any(finding.kind in _TESTED for finding in outcome.findings)
    return outcome.verdict.fails and outcome.kind in kinds and not bug


def is_service_loss(key: str) -> bool:
    """Return whether a signature's key means that a container engine, or another maker of nodes, was lost."""
    loss = loss_of(key)
    return loss is not None and loss.service


def lost_its_engine(outcome: Outcome) -> bool:
    """Return whether the only failure of a cell is the loss of its container engine.

    That is the cause only if no other is shown: the engine kills ranks, and their signals are no crash.
    """
    lost = outcome.signature is not None and is_service_loss(outcome.signature.key)
    return lost and outcome.verdict.fails and outcome.kind is Kind.NETWORK_FAILURE


def settled(outcomes: Sequence[tuple[str, Outcome]]) -> Outcome:
    """Return the outcome of a cell from those of its attempts, in their order, each with the path of its log.

    It is the last one, unless an earlier outcome must not be retried by the rules of today: then that one decides.
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
    """Return the record of an attempt that was not the last."""
    key = outcome.signature.key if outcome.signature else ""
    return Attempt(outcome.kind, key, outcome.why, log, outcome.seconds)


def taints(outcome: Outcome, result: RunResult) -> bool:
    """Return whether a job may have left something on its nodes, or the nodes may not reach each other."""
    return bool(outcome.kind in _TAINTING or result.lost or result.survivors or result.unplugged)
