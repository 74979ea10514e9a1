"""Reads all journals of a run as events, in the order in which they happened. Damage is counted, never raised."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pytest_hetgpu.store.encode import RecordError, from_json
from pytest_hetgpu.store.events import EVENTS, SCHEMA, Event

LONGEST_LINE = 16 * 1024 * 1024
_LARGEST_NUMBER = 1e300
_MOST_LINES = 1 << 40


class LoggedEvent(NamedTuple):
    """An event with its time (seconds since 1970), its writer and its part of the run; `order` sorts all events."""

    epoch: float
    writer: str
    event: Event
    part: int = 0
    order: tuple[float, ...] = ()


class _UnreadableLineError(Exception):
    """A line that cannot be read; the argument is the reason under which it is counted."""


def read_events(journals: Path) -> tuple[list[LoggedEvent], Counter[str]]:
    """Read the events in a folder of journals, and count the lines left out.

    A line is `damaged`, `newer` than this version, or `missing`: later lines of its writer have higher numbers.

    The order within one journal always holds. Between journals the part decides first, then the monotonic clock of the
    machine. Lines without that clock are sorted by the wall clock.
    """
    unread: Counter[str] = Counter()
    writers = [list(_read_journal(path, unread)) for path in sorted(journals.glob("*.jsonl"))]
    return list(heapq.merge(*writers, key=attrgetter("order"))), unread


def _read_journal(path: Path, unread: Counter[str]) -> Iterator[LoggedEvent]:
    latest: tuple[float, ...] = ()
    due = 0  # the number of the next line
    try:
        for line in lines(path):
            try:
                entry, number = _parse(line, path.stem)
            except _UnreadableLineError as reason:
                unread[str(reason)] += 1
                due += 1
                continue
            if number > due:
                unread["missing"] += number - due
            due = max(due, number) + 1
            latest = max(latest, entry.order)
            yield entry._replace(order=latest)
    except OSError:
        unread["damaged"] += 1


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal that are not blank; cut those that are too long. Raises OSError."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            rest = line
            while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE)
            if not line.isspace():
                yield line


def _parse(line: bytes, writer: str) -> tuple[LoggedEvent, int]:
    """Return the event of a line, and its number among the lines of its writer; -1 if that is unknown."""
    try:
        data: Any = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _UnreadableLineError("damaged") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is not int or schema < 1:
        raise _UnreadableLineError("damaged")
    event = data.get("event")
    if type(event) is not str:
        raise _UnreadableLineError("damaged")
    if schema > SCHEMA or event not in EVENTS:
        raise _UnreadableLineError("newer")
    epoch, part, number = data.get("epoch"), data.get("part", 0), data.get("order")
    clock = data.get("clock", epoch)
    if not (_is_number(epoch) and _is_number(clock) and type(part) is int):
        raise _UnreadableLineError("damaged")
    try:
        logged = LoggedEvent(float(epoch), writer, from_json(EVENTS[event], data), part, (part, clock))
    except RecordError:
        raise _UnreadableLineError("damaged") from None
    return logged, number if type(number) is int and number < _MOST_LINES else -1


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER
