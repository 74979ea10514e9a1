"""Plan of a cleanup: the found resources that may be removed, and those that stay; and their table. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_hetgpu.cluster.cleanup.owner import Life, Owner
from pytest_hetgpu.cluster.cleanup.sweep import Place, Thing


@dataclass(frozen=True)
class Found:
    """A resource and its place."""

    place: Place
    thing: Thing


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
class Sorted:
    """The resources that may be removed (`dead`), and sentences on those that stay (`kept`), with the reason."""

    dead: tuple[Found, ...]
    kept: tuple[str, ...]


def sort(found: Iterable[Found], scope: Scope, life: Callable[[Owner], Life]) -> Sorted:
    """Sort resources by the state of their owner, and by its user."""
    dead: list[Found] = []
    kept: dict[str, list[Found]] = {}
    lives: dict[Owner, Life] = {}
    for one in found:
        owner = one.thing.owner
        state = lives.setdefault(owner, life(owner))
        reason = _stays(one) or _reason(owner, state, scope)
        if reason:
            kept.setdefault(reason, []).append(one)
        else:
            dead.append(one)
    return Sorted(tuple(dead), tuple(f"{counted(ones)} left alone: {reason}" for reason, ones in kept.items()))


def _stays(one: Found) -> str:
    """Return the reason why a resource stays, independent of its owner; "" without one."""
    if one.thing.going:
        return f"on the way out of {one.place.words} already"
    return f"on {one.place.words} {one.thing.stays}" if one.thing.stays else ""


def _reason(owner: Owner, state: Life, scope: Scope) -> str:
    """Return why a resource of an owner stays; "" if it may be removed."""
    run = f"run {owner.run} ({owner.who})"
    if state is Life.LIVE:
        return f"{run} is still running"
    if state is Life.UNKNOWN and not scope.elsewhere:
        return (
            f"whether {run} still runs cannot be told from here; look there, or give --elsewhere if you know it is over"
        )
    afar = owner.machine != scope.machine
    ours = owner.uid == scope.uid and (not afar or (scope.elsewhere and owner.user == scope.user))
    if not scope.all_users and not ours:
        return f"{run} is another user's; --all-users removes it too"
    return ""


def counted(found: Sequence[Found]) -> str:
    """Count resources by kind: `2 containers, 1 network`."""
    kinds = Counter(one.thing.kind for one in found)
    plural = {"process": "processes"}
    return ", ".join(
        f"{count} {kind if count == 1 else plural.get(kind, kind + 's')}" for kind, count in sorted(kinds.items())
    )


def table(found: Sequence[Found], now: float) -> list[str]:
    """Return rows `WHAT  NAME  WHERE  WHOSE  AGE  RUN` below a head, oldest run first."""
    rows = [("WHAT", "NAME", "WHERE", "WHOSE", "AGE", "RUN")]
    for one in sorted(found, key=lambda one: (one.thing.owner.run, one.place.words, one.thing.kind, one.thing.name)):
        thing, owner = one.thing, one.thing.owner
        name = f"{thing.name} ({thing.ident})" if thing.kind in ("process", "segment") else thing.name
        age = _age(now - thing.since) if thing.since is not None else "?"
        rows.append((thing.kind, _plain(name), one.place.words, f"{owner.user}@{owner.host}", age, owner.run))
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
