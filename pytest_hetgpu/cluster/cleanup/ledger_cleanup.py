"""Process a ledger: clear every location in it of the resources of its dead owner."""

from __future__ import annotations

import enum
import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.cluster.cleanup import ledger
from pytest_hetgpu.cluster.cleanup.owner import OwnerState, state_of
from pytest_hetgpu.cluster.cleanup.targets import target_of
from pytest_hetgpu.errors import HetgpuError


class CleanupStatus(enum.Enum):
    """The result for one ledger."""

    DONE = "done"
    LEFT = "left"
    NOT_OURS = "not ours"


@dataclass(frozen=True)
class CleanupResult:
    """The result, with the problems that prevent a cleanup: `PLACE: reason`."""

    status: CleanupStatus
    problems: tuple[str, ...] = ()


def process_ledger(path: Path, *, memory: bool = False) -> CleanupResult:
    """Clear all locations of a ledger whose owner is dead, then remove it. Write problems beside it, as `.log`.

    With `memory`, also remove unused shared memory that is new on this machine since the owner's first process. If a
    launcher is killed with its run, its ranks may end before any process sees their shared memory.
    """
    with _locked(path) as only:
        found = ledger.read(path) if only else None
        if found is None or state_of(found.owner) is not OwnerState.DEAD:
            return CleanupResult(CleanupStatus.NOT_OURS)
        problems: list[str] = []
        for location in found.locations:
            words = location.host or location.reach.engine or "this machine"
            try:
                target = target_of(location)
                words = target.words
                problems += [f"{words}: {one.kind} {one.name} is still there" for one in target.clear([found.owner])]
            except HetgpuError as error:
                problems.append(str(error) if str(error).startswith(words) else f"{words}: {error}")
            except Exception as error:  # noqa: BLE001 - the other locations are cleared anyway
                problems.append(f"{words}: {type(error).__name__}: {error}")
            segments = ledger.segments_before(location) if memory else None
            if segments:
                segments.clear()
        log = path.with_suffix(".log")
        if problems:
            _write_log(log, problems)
            return CleanupResult(CleanupStatus.LEFT, tuple(problems))
        log.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return CleanupResult(CleanupStatus.DONE)


def logged_problems(path: Path) -> list[str]:
    """Return the problems that the watchdog had with a ledger."""
    try:
        return path.with_suffix(".log").read_text(errors="replace").splitlines()
    except OSError:
        return []


def _write_log(log: Path, lines: list[str]) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(file, "w", encoding="utf-8") as opened:  # noqa: PTH123 - it is a descriptor
        opened.writelines(f"{line}\n" for line in lines)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Yield whether no other process works on the ledger right now, and lock it."""
    try:
        file = path.open("rb")
    except OSError:
        yield False
        return
    with closing(file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
