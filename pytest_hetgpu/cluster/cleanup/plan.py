"""Plan of a cleanup: the found resources that may be removed, and those that stay; and their table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_hetgpu.cluster.cleanup.owner import Owner, OwnerState
from pytest_hetgpu.cluster.cleanup.targets import CleanupTarget, Resource


@dataclass(frozen=True)
class FoundResource:
    """A resource and its place."""

    target: CleanupTarget
    resource: Resource


@dataclass(frozen=True)
class Scope:
    """The owners whose resources may be removed: those of `uid` on the machine `machine`, unless options add others.

    On another machine the same number may be another user: there the name `user` must match, too.
    """

    uid: str
    machine: str
    user: str
    all_users: bool = False
    elsewhere: bool = False


@dataclass(frozen=True)
class CleanupPlan:
    """The resources that may be removed (`dead`), and sentences on those that stay (`kept`), with the reason."""

    dead: tuple[FoundResource, ...]
    kept: tuple[str, ...]


def make_plan(found: Iterable[FoundResource], scope: Scope, state_of: Callable[[Owner], OwnerState]) -> CleanupPlan:
    """Sort resources by the state of their owner, and by its user."""
    dead: list[FoundResource] = []
    kept: dict[str, list[FoundResource]] = {}
    states: dict[Owner, OwnerState] = {}
    for one in found:
        owner = one.resource.owner
        state = states.setdefault(owner, state_of(owner))
        reason = _reason_of_resource(one) or _reason_of_owner(owner, state, scope)
        if reason:
            kept.setdefault(reason, []).append(one)
        else:
            dead.append(one)
    return CleanupPlan(tuple(dead), tuple(f"{counted(ones)} left alone: {reason}" for reason, ones in kept.items()))


def _reason_of_resource(one: FoundResource) -> str:
    """Return the reason why a resource stays, independent of its owner; "" without one."""
    if one.resource.being_removed:
        return f"on the way out of {one.target.words} already"
    return f"on {one.target.words} {one.resource.stays}" if one.resource.stays else ""


def _reason_of_owner(owner: Owner, state: OwnerState, scope: Scope) -> str:
    """Return why a resource of an owner stays; "" if it may be removed."""
    run = f"run {owner.run} ({owner.who})"
    if state is OwnerState.LIVE:
        return f"{run} is still running"
    if state is OwnerState.UNKNOWN and not scope.elsewhere:
        return f"it is not known here whether {run} still runs; look there, or give --elsewhere if you know it is over"
    remote = owner.machine != scope.machine
    own = owner.uid == scope.uid and (not remote or (scope.elsewhere and owner.user == scope.user))
    if not scope.all_users and not own:
        return f"{run} is another user's; --all-users removes it too"
    return ""


def counted(found: Sequence[FoundResource]) -> str:
    """Count resources by kind: `2 containers, 1 network`."""
    kinds = Counter(one.resource.kind for one in found)
    plural = {"process": "processes"}
    return ", ".join(
        f"{count} {kind if count == 1 else plural.get(kind, kind + 's')}" for kind, count in sorted(kinds.items())
    )


def table(found: Sequence[FoundResource], now: float) -> list[str]:
    """Return rows `WHAT  NAME  WHERE  WHOSE  AGE  RUN` below a head, oldest run first."""
    rows = [("WHAT", "NAME", "WHERE", "WHOSE", "AGE", "RUN")]
    for one in sorted(
        found, key=lambda one: (one.resource.owner.run, one.target.words, one.resource.kind, one.resource.name)
    ):
        resource, owner = one.resource, one.resource.owner
        name = f"{resource.name} ({resource.ident})" if resource.kind in ("process", "segment") else resource.name
        age = _age(now - resource.since) if resource.since is not None else "?"
        rows.append((resource.kind, _plain(name), one.target.words, f"{owner.user}@{owner.host}", age, owner.run))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _plain(name: str) -> str:
    """Return a name without characters that control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in name)[:100]
