"""Envelopes of a log's lines: one JSON object per line, `key=value` pairs, and CSV exports.

The log shows which field holds the message: the one with the most words that differ from line to line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.logs.lines import FACTS
from pytest_hetgpu.analysis.logs.prefix_tokens import TIME
from pytest_hetgpu.model.lazy_regex import lazy

_NEARLY_ALL = 0.9
_FEWEST_WORDS = 1.5
_LONGEST_RECORD = 1 << 20
_MOST_LINES_OF_A_RECORD = 2000
_DEPTH = 4
_LONGEST_FACT = 100

# Names of fields with the message: they decide only between fields that are equally likely.
_MESSAGES = lazy(r"(?i)(?:.*[.@_])?(?:log|message|msg|line|text|textPayload|body)$")
_HOST = lazy(r"(?i)(?:.*[._])?(?:_?hostname|host|host\.name|node|node_?name|pod|pod_?name|instance|computer)$")
_RANK = lazy(r"(?i)(?:.*[._])?(?:global_?rank|rank|task_?id|procid)$")
_TIMESTAMP = lazy(r"(?i)@?(?:.*[._])?(?:time|timestamp|ts|date|_?realtime_timestamp|timegenerated)$")
_WHOLE_TIME = lazy(rf"\W*{TIME}\W*")
_PAIR = lazy(r'([\w.@/-]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|$)')
_DECODER = json.JSONDecoder()
_TEXT = frozenset((str,))
_HEADER = lazy(r"[@\w. /()-]{1,40}")

Record = Mapping[str, str]
Parse = Callable[[str], "Record | None"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """How the lines of a log are packed: `unpack` turns its lines, with their ends, into the messages.

    Each line that it yields has as many line feeds as were read for it, so that numbers of lines stay.
    """

    unpack: Callable[[Iterable[bytes]], Iterator[bytes]]


def find_envelope(sample: Sequence[bytes]) -> Envelope | None:
    """Return the envelope of a log by a sample of its lines, None without one."""
    lines = [raw.decode(errors="replace").strip() for raw in sample if raw.strip()]
    if len(lines) < 2:
        return None
    for parse in (_json, _pairs):
        found = [record for line in lines if (record := parse(line))]
        if len(found) >= len(lines) * _NEARLY_ALL and (message := _message(found)):
            return Envelope(_by_line(parse, message, _fact_names(found, message)))
    return _csv_export(lines)


def _json(line: str) -> Record | None:
    """Return the text fields of the JSON object that a line is, or ends with after a short prefix."""
    start = line.find("{")
    if start < 0 or start > 200 or not line.endswith("}"):
        return None
    try:
        found, end = _DECODER.raw_decode(line, start)
    except (ValueError, RecursionError):
        return None
    if end < len(line) or not isinstance(found, dict):
        return None
    # Most objects hold text alone, and are read at a third of the cost.
    return found if _TEXT.issuperset(map(type, found.values())) else dict(_fields(found))


def _fields(found: Mapping[str, object], name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, str]]:
    for key, value in found.items():
        if isinstance(value, str):
            yield name + key, value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name + key, str(value)
        elif isinstance(value, dict) and depth:
            yield from _fields(value, f"{name}{key}.", depth - 1)
        elif isinstance(value, list) and value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
            # journald writes a message with control characters as numbers of bytes.
            yield name + key, bytes(value).decode(errors="replace")


def _pairs(line: str) -> Record | None:
    """Return the fields of a line that is `key=value key="quoted value"` from start to end."""
    if "=" not in line[:60]:
        return None
    fields, at = {}, 0
    while found := _PAIR.match(line, at):
        value = found[2]
        if value.startswith('"'):
            try:
                value = json.loads(value)
            except ValueError:
                value = value[1:-1]
        fields[found[1]], at = value, found.end()
        if at == len(line):
            return fields if len(fields) > 1 else None
    return None


def _message(records: Sequence[Record]) -> str | None:
    """Return the name of the field with the most different words. Times, ids and constants have few."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        for name, value in record.items():
            values[name][value] += 1
    scores = {}
    for name, found in values.items():
        texts = [text for text in found if text.strip()]
        if not texts or sum(found.values()) < len(records) * _NEARLY_ALL or all(map(_WHOLE_TIME.fullmatch, texts)):
            continue
        words = sum(len(text.split()) for text in texts)
        if words >= len(texts) * _FEWEST_WORDS or _MESSAGES.match(name):
            scores[name] = words * (4 if _MESSAGES.match(name) else 1)
    return max(scores, key=lambda name: scores[name], default=None)


def _by_line(parse: Parse, message: str, names: Sequence[str]) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    def unpack(lines: Iterable[bytes]) -> Iterator[bytes]:
        for raw in lines:
            record = parse(raw.decode(errors="replace").strip()) if len(raw) < _LONGEST_RECORD else None
            text = record.get(message) if record else None
            if record is None or text is None:
                yield raw
                continue
            # Carriage returns end lines without counting them.
            facts = _facts(record, names)
            text = text.rstrip("\r\n")
            inner = re.split(r"\r?\n", text) if "\n" in text else (text,)
            yield "\r".join([facts + line for line in inner]).encode(errors="replace") + b"\n"

    return unpack


def _fact_names(records: Sequence[Record], message: str) -> tuple[str, str, str]:
    """Return the names of the fields with the host, the rank and the time; empty without one.

    A host or rank that is the same in all records distinguishes no writers.
    """
    names = dict.fromkeys(name for record in records for name in record if name != message)
    found = []
    for pattern in (_HOST, _RANK, _TIMESTAMP):
        fitting = (name for name in names if pattern.match(name))
        different = (name for name in fitting if len({record.get(name) for record in records}) > 1)
        found.append(next(different, ""))
    return found[0], found[1], found[2]


def _facts(record: Record, names: Sequence[str]) -> str:
    """Return the host, rank and time of a record, as `parse_line` reads them."""
    host, rank, time = [_fact(record.get(name, "")) if name else "" for name in names]
    if rank and not (rank.isascii() and rank.isdecimal() and len(rank) < 8):
        rank = ""
    return f"\x1e{host}\x1f{rank}\x1f{time}\x1e" if host or rank or time else ""


def _fact(value: str) -> str:
    return (value if value.isprintable() else FACTS.sub("", value))[:_LONGEST_FACT]


def _csv_export(lines: Sequence[str]) -> Envelope | None:
    """Return the envelope of an export with a header of column names and a column of quoted messages."""
    for delimiter in ",;\t":
        names = _row(lines[0].encode(), delimiter) or []
        if len(names) < 2 or not all(map(_HEADER.fullmatch, names)) or any(map(str.isdigit, names)):
            continue
        records = [row for row in _rows(lines[1:], delimiter, len(names)) if len(row) == len(names)]
        message = _message([dict(zip(names, row, strict=True)) for row in records]) if records else None
        quoted = any('"' in line for line in lines)
        if message and (quoted or _MESSAGES.match(message)) and len(records) >= len(lines) * _NEARLY_ALL / 2:
            return Envelope(_by_row(names, message, delimiter, records))
    return None


def _rows(lines: Iterable[str], delimiter: str, columns: int) -> Iterator[list[str]]:
    for record, _ in _whole_records(line.encode() + b"\n" for line in lines):
        row = _row(record, delimiter)
        if row and len(row) == columns:
            yield row


def _row(record: bytes, delimiter: str) -> list[str] | None:
    try:
        rows = list(csv.reader(record.decode(errors="replace").splitlines(keepends=True), delimiter=delimiter))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _whole_records(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """Join lines until their quotes are closed; yield each record and its number of lines."""
    held: list[bytes] = []
    odd = False
    for line in lines:
        if not held and line.count(b'"') % 2 == 0:
            yield line, 1
            continue
        held.append(line)
        odd ^= line.count(b'"') % 2 == 1
        if not odd or len(held) > _MOST_LINES_OF_A_RECORD or sum(map(len, held)) > _LONGEST_RECORD:
            yield b"".join(held), len(held)
            held, odd = [], False
    if held:
        yield b"".join(held), len(held)


def _by_row(
    names: Sequence[str], message: str, delimiter: str, sample: Sequence[Sequence[str]]
) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    place = list(names).index(message)
    facts_of = _fact_names([dict(zip(names, row, strict=True)) for row in sample], message)

    def unpack(lines: Iterable[bytes]) -> Iterator[bytes]:
        for number, (record, count) in enumerate(_whole_records(lines)):
            row = _row(record, delimiter)
            if row is None or len(row) != len(names):
                yield record
                continue
            if number == 0 and row == list(names):
                yield b"\n" * count
                continue
            facts = _facts(dict(zip(names, row, strict=True)), facts_of)
            text = row[place].rstrip("\r\n")
            if count == 1 and "\n" not in text:
                yield f"{facts}{text}\n".encode(errors="replace")
                continue
            before = sum(column.count("\n") for column in row[:place])
            body = "\n".join(facts + line for line in text.replace("\r\n", "\n").split("\n"))
            yield b"\n" * before + body.encode(errors="replace") + b"\n" * max(1, count - before - text.count("\n"))

    return unpack
