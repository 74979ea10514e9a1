"""The lines of all of a run's journals as events in the order they happened. Damage is counted, never raised."""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pytest_hetgpu.reporting.events import EVENTS, SCHEMA, Event
from pytest_hetgpu.reporting.serial import RecordError, from_json

LONGEST_LINE = 16 * 1024 * 1024


class Moment(NamedTuple):
    """An event, when it was written (seconds since 1970) and by which writer."""

    epoch: float
    writer: str
    event: Event


class _Unread(Exception):
    """A line that says nothing to us; its argument is the reason under which it is counted."""


def timeline(journals: Path) -> tuple[list[Moment], Counter[str]]:
    """The events in a folder of journals, and how many lines were left out: `damaged`, or `newer` than this version.

    A writer's own order holds even where its clock went back; between writers the clock decides.
    """
    unread: Counter[str] = Counter()
    writers = [list(_moments(path, unread)) for path in sorted(journals.glob("*.jsonl"))]
    return list(heapq.merge(*writers, key=attrgetter("epoch"))), unread


def _moments(path: Path, unread: Counter[str]) -> Iterator[Moment]:
    latest = -math.inf
    try:
        for line in _lines(path):
            try:
                epoch, event = _read(line)
            except _Unread as reason:
                unread[str(reason)] += 1
                continue
            latest = max(latest, epoch)
            yield Moment(latest, path.stem, event)
    except OSError:
        unread["damaged"] += 1


def _lines(path: Path) -> Iterator[bytes]:
    """Lines that are not blank; of one that is too long to be ours, the beginning only."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            rest = line
            while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE)
            if not line.isspace():
                yield line


def _read(line: bytes) -> tuple[float, Event]:
    try:
        data: Any = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _Unread("damaged") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is not int or schema < 1:
        raise _Unread("damaged")
    if schema > SCHEMA or data.get("event") not in EVENTS:
        raise _Unread("newer")
    epoch = data.get("epoch")
    if type(epoch) not in (int, float) or not math.isfinite(epoch):
        raise _Unread("damaged")
    try:
        return float(epoch), from_json(EVENTS[data["event"]], data)
    except RecordError:
        raise _Unread("damaged") from None
