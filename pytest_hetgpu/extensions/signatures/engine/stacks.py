"""Positions of waiting processes by their stacks, and one sentence on those that differ from the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import token
from pytest_hetgpu.extensions.signatures.engine.places import (
    StackFrame as StackFrame,  # noqa: PLC0414 - its old place
)
from pytest_hetgpu.extensions.signatures.engine.places import (
    is_installed,
    is_internal,
    is_machinery,
    is_shallow,
    place_of,
    user_frame,
)
from pytest_hetgpu.model.lazy_regex import lazy

BARE = "stuck"
"""Key of a hang of which no place is known."""
_MOST_GROUPS = 4
_MOST_IN_KEY = 6
_LONGEST = 1000
_LONGEST_NAME = 120
_FLAGS = ("within", "moved", "shallow", "internal")

# The calls in which a rank waits for others. All of them are looked for from the outermost frame inwards.
_CALL = lazy(
    r"P?MPIX?_[A-Z]\w* | p?(?:oshmem|shmem)_[a-z]\w* | p?nccl[A-Z]\w* | ucc_collective_\w+"
    r"| ompi_mpi_(?:init|finalize)"  # the compiler may make the call a jump
    r"| (?:cuda|cu|hip)[A-Z]\w*Synchronize(?:_ptsz)? | (?:::)?gloo::(?:\w+::)*\w+ | c10d::\w+(?:::\w+)+",
    re.VERBOSE,
)
# torch/distributed/distributed_c10d.py: its public functions, which the logging decorator of c10d_logger.py wraps.
_C10D = lazy(r"torch/distributed/distributed_c10d\.py$")
# Names for blocked functions of the C library.
_DOING = (
    (lazy(r"time_sleep|pysleep"), "time.sleep"),
    (lazy(r"(?:__|GI_)*(?:clock_)?nanosleep(?:_\w+)?|u?sleep"), "sleep"),
    (lazy(r"_*(?:GI_|libc_)*pause"), "pause"),
    (lazy(r"_*(?:GI_|libc_)*(?:read|readv|recv\w*)(?:_nocancel)?"), "read"),
    (lazy(r"_*(?:GI_|libc_)*(?:write|writev|send\w*)(?:_nocancel)?"), "write"),
    (lazy(r"_*(?:GI_|libc_)*(?:ppoll|poll|p?select|epoll_p?wait)\w*"), "poll"),
    (lazy(r"_*(?:GI_|libc_)*(?:waitpid|wait4|waitid)"), "waitpid"),
    (lazy(r"_*(?:pthread_(?:cond|mutex)_\w*(?:wait|lock)\w*|lll_lock_wait\w*|futex_\w+|sem_\w*wait\w*)"), "lock"),
)


class Position(NamedTuple):
    """Position of one process.

    `call` is the function that it waits in (`MPI_Recv`); `entry` and `library` are the same as printed (`PMPI_Recv`,
    `libmpi.so.40`). `within` is set if that call has called the user's code, at `place` (`fault.py:80`) in `function`.
    `doing` is the system's part (`time.sleep`). `state` replaces waiting: `stopped`, `ended`, `absent`, `unseen`.
    `internal` is set if `function` is of the import system or of this package, so that it is no place of a hang.
    `shallow` is set if a library's call may be missing: only Python frames, or facts of the kernel, were visible.
    `text` and `number` are the source line.
    """

    rank: int | None = None
    host: str = ""
    pid: int = 0
    call: str = ""
    entry: str = ""
    library: str = ""
    within: bool = False
    place: str = ""
    function: str = ""
    doing: str = ""
    state: str = ""
    moved: bool = False
    shallow: bool = False
    internal: bool = False
    text: str = ""
    number: int = 0

    @property
    def waits(self) -> bool:
        """Return whether it is in a call that others must take part in, and in nothing of the user's."""
        return bool(self.call) and not self.within and not self.state

    @property
    def known(self) -> bool:
        """Return whether anything but its existence is known."""
        return bool(self.call or self.function or self.doing or self.state not in ("", "unseen"))

    @property
    def word(self) -> str:
        """Return its word in a key: equal for the same position in every kind of stack, "" if unknown."""
        if self.state:
            return "" if self.state == "unseen" else self.state
        if self.waits:
            return re.sub(r"^P?MPIX?_", "", self.call)
        if self.function:
            return "" if self.internal or is_machinery(self.function, self.place) else token(self.function)
        return "" if self.shallow else token(self.doing)

    def in_words(self, several: bool = False) -> str:
        """Describe the position: `waits in MPI_Allreduce (reduce.py:31)`, `is in time.sleep (fault.py:80)`."""
        place = f" ({self.place})" if self.place else ""
        be, have = ("are", "have") if several else ("is", "has")
        if self.state == "ended":
            return f"{have} ended"
        if self.state == "absent":
            return "was not found"
        where = f" in {self.doing or self.function}{place}" if self.doing or self.function else ""
        if self.state == "stopped":
            return f"{be} stopped (SIGSTOP){f' in {self.call}{place}' if self.call else where}"
        if self.state == "unseen":
            return "could not be looked at"
        if self.waits:
            return f"{'wait' if several else 'waits'} in {self.call}{place}"
        inside = f", which {self.call} called" if self.call else ""
        return f"{be}{where or ' running'}{inside}"


class StackSummary(NamedTuple):
    """Summary of all processes; `odd` are those that are not with the majority, or never arrived."""

    sentence: str
    key: str
    odd: tuple[Position, ...] = ()
    others: tuple[Position, ...] = ()

    @property
    def apart(self) -> bool:
        """Return whether they wait in different places, so that no time will bring them together."""
        return bool(self.odd) and bool(self.others)


def facts(position: Position) -> str:
    """Return the facts that this package's line has for a position: `call=PMPI_Recv lib=libmpi.so.40 at=app.c:49`."""
    named = {
        "call": position.call if position.call.startswith("torch.") else position.entry,
        "lib": position.library,
        "in": position.function,
        "at": position.place,
        "doing": position.doing,
        "state": position.state,
    }
    words = [f"{name}={clean(value)}" for name, value in named.items() if clean(value)]
    return " ".join([*words, *(word for word in _FLAGS if getattr(position, word))])


def parse_facts(position: Position, said: str) -> Position:
    """Parse the position from the facts in such a line."""
    words = [word.partition("=") for word in said.split()[:20]]
    named = {name: value for name, sign, value in words if sign}
    entry = named.get("call", "")
    return position._replace(
        call=_as_written(entry),
        entry=entry.removeprefix("torch.distributed."),
        library=named.get("lib", ""),
        function=named.get("in", ""),
        place=named.get("at", ""),
        doing=named.get("doing", ""),
        state=named.get("state", ""),
        within=any(name == "within" for name, sign, _ in words if not sign),
        moved=any(name == "moved" for name, sign, _ in words if not sign),
        shallow=any(name == "shallow" for name, sign, _ in words if not sign),
        internal=any(name == "internal" for name, sign, _ in words if not sign),
    )


def clean(name: str) -> str:
    """Return a process's name, which may be any text, as a safe word."""
    return re.sub(r"[^\w.:~<>+@,/-]+", "_", name)[:_LONGEST_NAME].strip("_") if name else ""


def position_of(frames: Sequence[StackFrame]) -> Position:
    """Return the position of a process by the frames of its main (or waiting) thread, innermost first."""
    at = _call_at(frames)
    if at is None:
        return _elsewhere(frames, Position(shallow=is_shallow(frames)))
    called = frames[at]
    inner = [frame for frame in frames[:at] if frame.python and not is_installed(frame)]
    entry = called.function.partition("(")[0]
    position = Position(
        call=f"torch.distributed.{entry}" if called.python else _as_written(entry),
        entry=entry,
        library=called.library.rpartition("/")[2],
        text=called.text,
        number=called.number,
    )
    if inner and not called.python:
        return _elsewhere(frames[:at], position)._replace(within=True)
    return position._replace(place=place_of(user_frame(frames[at + 1 :])))


def has_moved(before: Sequence[StackFrame], after: Sequence[StackFrame]) -> bool:
    """Return whether a process moved on between two samples of its stack.

    Steps of a call that waits for others do not count. With Python, its frames decide, and the call if both samples
    have one: unwinding native frames may fail in one sample.
    """
    calls = [frames[at].function if (at := _call_at(frames)) is not None else "" for frames in (before, after)]
    if all(calls) and _as_written(calls[0]) != _as_written(calls[1]):
        return True
    python = [[(frame.function, frame.line) for frame in frames if frame.python] for frames in (before, after)]
    if all(python):
        return python[0] != python[1]
    outer = [[(frame.function, frame.line) for frame in frames[_call_at(frames) or 0 :]] for frames in (before, after)]
    return outer[0] != outer[1]


def _call_at(frames: Sequence[StackFrame]) -> int | None:
    return next((i for i in reversed(range(len(frames))) if _is_call(frames[i])), None)


def _as_written(entry: str) -> str:
    """Return a call as programs write it: `MPI_Recv` for PMPI_Recv and PMPI_Recv_c."""
    if entry.startswith("ompi_mpi_"):
        return f"MPI_{entry.removeprefix('ompi_mpi_').capitalize()}"
    return re.sub(r"^P(?=MPI)|(?<=[a-z])_c$", "", entry)


def _is_call(frame: StackFrame) -> bool:
    if frame.python:
        return bool(_C10D.search(frame.file)) and not frame.function.startswith("_")
    return bool(_CALL.fullmatch(frame.function.partition("(")[0]))


def _elsewhere(frames: Sequence[StackFrame], position: Position) -> Position:
    user = user_frame(frames)
    blocked = frames[: next((i for i, frame in enumerate(frames) if frame == user), len(frames))]
    names = [frame.function.partition("(")[0] for frame in blocked[:8]]
    doing = next((word for form, word in _DOING if any(form.fullmatch(name) for name in names)), "")
    if user is None:
        return position._replace(doing=doing)
    function = user.function.rpartition("<locals>.")[2]
    if function.startswith("<"):  # <module>, <lambda>
        function = user.file.rpartition("/")[2]
    if doing == "sleep" and user.python:
        doing = "time.sleep"
    return position._replace(
        place=place_of(user),
        function=function.partition("(")[0],
        doing=doing,
        internal=is_internal(user),
        library=position.library or user.library.rpartition("/")[2],
        text=position.text or user.text,
        number=position.number or user.number,
    )


def summarize(positions: Iterable[Position]) -> StackSummary:
    """Summarize positions.

    Processes are odd if they are in no call that others wait in, else the smaller group, else receivers.
    """
    ordered = sorted(positions, key=lambda one: (one.rank is None, one.rank or 0, one.pid))
    groups: dict[str, list[Position]] = {}
    for one in ordered:
        groups.setdefault(one.in_words(), []).append(one)
    parts = [_group(group) for group in list(groups.values())[:_MOST_GROUPS]]
    if len(groups) > _MOST_GROUPS:
        parts.append(f"and {len(groups) - _MOST_GROUPS} more are elsewhere")
    words = _key_words(ordered)
    key = f"{BARE}@" + "+".join(words[:_MOST_IN_KEY]) if words else BARE
    odd = _odd([one for one in ordered if one.known])
    rest = tuple(one for one in ordered if one.known and one not in odd)
    return StackSummary(", ".join(parts)[:_LONGEST], key, odd, rest)


def _key_words(positions: Sequence[Position]) -> list[str]:
    """Return the words of a key: of processes that were seen inside; of the others if there are none.

    So a process whose stack could not be unwound in one of several runs does not change the key.
    """
    words = {one.word for one in positions if one.state or not one.shallow}
    inside = any(one.word and not one.state for one in positions if not one.shallow)
    return sorted((words if inside else {one.word for one in positions}) - {""})


def _odd(known: Sequence[Position]) -> tuple[Position, ...]:
    waiting = [one for one in known if one.waits]
    if waiting and len(waiting) < len(known):
        return tuple(one for one in known if not one.waits)
    groups: dict[str, list[Position]] = {}
    for one in known:
        groups.setdefault(one.word, []).append(one)
    if len(groups) < 2:
        return ()
    smallest = min(len(group) for group in groups.values())
    fewest = [group for group in groups.values() if len(group) == smallest]
    if smallest * len(groups) == len(known):  # no side has the most: who waits for one other, not for all
        fewest = [group for group in fewest if _POINT_TO_POINT.match(group[0].word)] or fewest
    return tuple(fewest[-1])


_POINT_TO_POINT = lazy(r"(?:[IM]?m?(?:recv|send|probe)|Wait|Test|ssend|bsend|rsend)", re.IGNORECASE)


def _group(group: Sequence[Position]) -> str:
    ranks = [one.rank for one in group if one.rank is not None]
    if len(ranks) < len(group):
        one = f"process {group[0].pid}" if group[0].pid else "the process"
        who = one if len(group) == 1 else f"{len(group)} processes"
    else:
        who = f"rank{'s' * (len(ranks) > 1)} {rank_ranges(ranks)}"
    return f"{who} {group[0].in_words(several=len(group) > 1)}"


def rank_ranges(ranks: Sequence[int]) -> str:
    """Format many ranks: `0-6, 9`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(shown[:8]) + (" and more" if len(shown) > 8 else "")
