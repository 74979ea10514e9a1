"""Reader of ranks' records (`remote/records.py`) in a run's raw output. Pure: bytes in, nouns out.

A log may hold anything. Text that is no record is skipped. A record that is damaged, or has values that none
may have, is counted and dropped.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pytest_hetgpu.analysis.logs.frames import FrameReader
from pytest_hetgpu.model.records import Device, Hello, Measurement, MessagePoint, RankExit, Row

LARGEST_NUMBER = 2**63 - 1
HIGHEST_SIGNAL, HIGHEST_CODE = 64, 255
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LATEST = 1e11  # seconds since 1970: no clock of a node is further on
MOST_FACTS = 200_000  # a run of 1000 ranks and 100 points reports about 100,000; what comes after is counted as corrupt


@dataclass(frozen=True, slots=True)
class Records:
    """Reports of all ranks; the fields are those of `Evidence`. `corrupt` counts records that could not be read.

    `exits` are the bad ends of programs as their ranks report them, without those that others stopped.
    `carried` are components of connections that ranks reported, `versions` those of libraries that ranks queried.
    `trace` is how many parts of a profiler's trace arrived, and of how many.
    `ended` is the time at which a rank was done, and `last_row` that of the last reported time, in seconds since 1970
    by their own clocks.
    """

    hellos: Mapping[int, Hello] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    checks: Mapping[int, Mapping[MessagePoint, int]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    done: frozenset[int] = frozenset()
    exits: tuple[RankExit, ...] = ()
    corrupt: int = 0
    carried: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Measurement, ...] = ()
    devices: tuple[Device, ...] = ()
    lacks: tuple[str, ...] = ()
    trace: tuple[int, int] = (0, 0)
    ended: Mapping[int, float] = field(default_factory=dict)
    last_row: float | None = None


class _RecordError(ValueError):
    """A record with values that none may have."""


class RecordReader:
    """Takes the lines of a run's output one by one, in order; never raises, whatever they hold."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._hellos: dict[int, Hello] = {}
        self._rows: dict[Row, None] = {}
        self._checks: dict[int, dict[MessagePoint, int]] = {}
        self._wrong: dict[str, None] = {}
        self._done: set[int] = set()
        self._ended: dict[int, float] = {}
        self._exits: dict[int, RankExit] = {}
        self._last_row: float | None = None
        self._carried: set[str] = set()
        self._versions: dict[str, dict[str, None]] = {}
        self._figures: dict[Measurement, dict[int, Measurement]] = {}
        self._devices: dict[int, Device] = {}
        self._lacks: dict[str, None] = {}
        self._refused = 0
        self._trace: dict[int, int] = {}
        self._room = MOST_FACTS
        self._takers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "hello": self._take_hello,
            "row": self._take_row,
            "check": self._take_check,
            "wrong": self._take_wrong,
            "done": self._take_done,
            "exit": self._take_exit,
            "carried": self._take_carried,
            "figure": self._take_figure,
            "device": self._take_device,
            "lacks": self._take_lacks,
            "trace": self._take_trace,
        }

    def feed(self, line: bytes) -> None:
        """Take one line without its newline, or the next piece of a line that is too long."""
        for payload in self._frames.feed(line):
            self._receive(payload)

    def finish(self) -> Records:
        """Return all reports, after the last line."""
        return Records(
            hellos=dict(self._hellos),
            rows=tuple(self._rows),
            checks={rank: dict(points) for rank, points in self._checks.items()},
            wrong=tuple(self._wrong),
            done=frozenset(self._done),
            exits=tuple(ended for _, ended in sorted(self._exits.items())),
            corrupt=self._frames.finish() + self._refused,
            carried=frozenset(self._carried),
            versions={name: ", ".join(sorted(said)) for name, said in self._versions.items()},
            figures=tuple(_figures(self._figures.values())),
            lacks=tuple(self._lacks),
            trace=(len(self._trace), max(self._trace.values(), default=0)),
            devices=tuple(device for _, device in sorted(self._devices.items())),
            ended=dict(self._ended),
            last_row=self._last_row,
        )

    def _receive(self, payload: bytes) -> None:
        try:
            self._take(json.loads(payload, parse_constant=_refuse))
        except (ValueError, KeyError, RecursionError):
            self._refused += 1

    def _take(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise _RecordError("not an object")
        taker = self._takers.get(_text(record["t"]))
        if taker is not None:
            self._make_room(1)
            taker(record)

    def _make_room(self, facts: int) -> None:
        self._room -= facts
        if self._room < 0:
            raise _RecordError(f"more than {MOST_FACTS}")

    def _take_hello(self, record: Mapping[str, Any]) -> None:
        rank, size = _whole(record["rank"]), _whole(record["size"], least=1)
        if rank >= size:
            raise _RecordError(f"rank {rank} of {size}")
        hello = Hello(
            rank=rank,
            size=size,
            host=_text(record["host"]),
            pid=_whole(record["pid"]),
            library=_text(record["library"]),
            libmpi=_text(record["libmpi"]),
            node=_whole(record["node"]) if record.get("node", -1) != -1 else None,
            at=_at(record),
        )
        versions = {_text(name): _text(version) for name, version in _map(record.get("versions", {})).items()}
        self._make_room(len(versions))
        if self._hellos.setdefault(rank, hello) is hello:
            for name, version in versions.items():
                self._versions.setdefault(name, {})[version] = None

    def _take_row(self, record: Mapping[str, Any]) -> None:
        row = Row(
            operation=_text(record["op"]),
            point=_point(record["size"], record["dtype"], record.get("place", "")),
            ranks=_whole(record["ranks"], least=1),
            iterations=_whole(record["iterations"], least=1),
            seconds=_seconds(record["seconds"]),
            repeat=_whole(record.get("repeat", 0)),
        )
        at = _at(record)
        self._rows.setdefault(row)
        self._last_row = max(filter(None, (at, self._last_row)), default=None)

    def _take_check(self, record: Mapping[str, Any]) -> None:
        rank = _whole(record["rank"])
        found = {}
        for entry in _list(record["points"]):
            size, dtype, count, *place = _list(entry)
            found[_point(size, dtype, *place)] = _whole(count)
        self._make_room(len(found))
        points = self._checks.setdefault(rank, {})
        for point, count in found.items():
            points[point] = max(count, points.get(point, 0))

    def _take_wrong(self, record: Mapping[str, Any]) -> None:
        rank, count, index = _whole(record["rank"]), _whole(record["count"], least=1), _whole(record["index"])
        point = _point(record["size"], record["dtype"], record.get("place", ""))
        in_place = " in place" if point.place else ""
        buffer = _text(record.get("buffer", ""))
        of_sent = f" of {'what it sent' if buffer == 'sent' else buffer}" if buffer else ""
        elements = f" of {_whole(record['elements'], least=1)} elements" if "elements" in record else ""
        when = ", ".join(f"{name} {_whole(record[name])}" for name in ("repeat", "iteration") if name in record)
        sentence = (
            f"rank {rank}: {count} wrong element{'' if count == 1 else 's'} at {point.size} B {point.dtype}{in_place}, "
            f"first at [{index}]{elements}{of_sent}: expected {_text(record['expected'])}, got {_text(record['got'])}"
        )
        self._wrong.setdefault(f"{sentence} ({when})" if when else sentence)

    def _take_carried(self, record: Mapping[str, Any]) -> None:
        _whole(record["rank"])
        self._carried.add(_text(record["by"]))

    def _take_figure(self, record: Mapping[str, Any]) -> None:
        point, ranks = (
            _point(record["size"], record["dtype"], record.get("place", "")),
            _whole(record["ranks"], least=1),
        )
        value, repeat = _number(record["value"]), _whole(record.get("repeat", 0))
        figure = Measurement(_text(record["metric"]), 0.0, _text(record["unit"]), point, ranks)
        self._figures.setdefault(figure, {}).setdefault(repeat, replace(figure, value=value))

    def _take_lacks(self, record: Mapping[str, Any]) -> None:
        _whole(record["rank"])
        self._lacks[f"{_text(record['what'])}: {_text(record['how'])}"] = None

    def _take_trace(self, record: Mapping[str, Any]) -> None:
        part, parts = _whole(record["part"]), _whole(record["parts"], least=1)
        if part >= parts:
            raise _RecordError(f"part {part} of {parts}")
        self._trace[part] = parts

    def _take_device(self, record: Mapping[str, Any]) -> None:
        rank, index = _whole(record["rank"]), _whole(record["index"])
        name, arch = _text(record["name"]), _text(record["arch"])
        self._devices[rank] = Device(rank, index, name, arch, _whole(record["memory"]), _whole(record["peak"]))

    def _take_done(self, record: Mapping[str, Any]) -> None:
        rank, at = _whole(record["rank"]), _at(record)
        self._done.add(rank)
        if at is not None:
            self._ended.setdefault(rank, at)

    def _take_exit(self, record: Mapping[str, Any]) -> None:
        """Take the end of a rank's program; a rank whose program was stopped is only not done."""
        rank = _whole(record["rank"])
        if "signal" in record:
            number = _whole(record["signal"], least=1, most=HIGHEST_SIGNAL)
            if number not in _STOPPING:
                self._exits.setdefault(rank, RankExit(rank, signal=number))
        elif code := _whole(record["code"], most=HIGHEST_CODE):
            self._exits.setdefault(rank, RankExit(rank, code=code))
        else:
            self._take_done(record)


def _figures(found: Iterable[Mapping[int, Measurement]]) -> Iterator[Measurement]:
    """Yield each figure with the samples of its repeats; most logs have none."""
    for repeats in found:
        from pytest_hetgpu.model.metrics import middle_of

        yield middle_of(tuple(repeats.values()))


def _point(size: Any, dtype: Any, place: Any = "", *more: Any) -> MessagePoint:
    if more or place not in ("", "in"):
        raise _RecordError(place)
    return MessagePoint(_whole(size), _text(dtype), place)


def _whole(value: Any, least: int = 0, most: int = LARGEST_NUMBER) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _RecordError(value)
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= LARGEST_NUMBER:
        raise _RecordError(value)
    return float(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise _RecordError(value)
    return float(value)


def _at(record: Mapping[str, Any]) -> float | None:
    """Return when a record was written; None if it has no time, as those of earlier versions."""
    at = record.get("at")
    if at is None:
        return None
    if type(at) not in (int, float) or not 0 <= at <= LATEST:
        raise _RecordError(at)
    return float(at)


def _map(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _RecordError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _RecordError(value)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _RecordError(value)
    return value


def _refuse(constant: str) -> NoReturn:
    raise _RecordError(constant)
