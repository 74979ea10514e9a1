"""Dialects that are tables: each row says which words mean what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures.base import Dialect, Process, Reading, Weight, process_of, quoted, token

_LONGEST_MATCHED = 4096
_MOST_READINGS = 1000
_MOST_HOSTS = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: a line that holds `trigger` (and in which `pattern`, where given, is found) means `kind`.

    `then` is looked for in the `within` lines that follow, for what the first line does not say; the quoted line is
    the first unless `quote_then`. `key` is a template over the named groups of both (a group that is missing leaves no
    trace in it), groups called detail, library, function, entry or rank go to the signature's fields of those names.
    A rule without a key marks words that mean nothing.
    """

    trigger: str
    kind: Kind = Kind.ERROR
    key: str = ""
    weight: Weight = Weight.CAUSE
    pattern: str | None = None
    then: str | None = None
    within: int = 10
    quote_then: bool = False
    detail: str | None = None


@dataclass(slots=True)
class _Open:
    """A rule whose first line was seen, waiting for its second."""

    rule: Rule
    groups: dict[str, str]
    line: str
    number: int
    left: int
    process: Process | None = field(default=None)


class RuleDialect(Dialect):
    """Reads by a table: the first rule that fits a line takes it."""

    rules: ClassVar[Sequence[Rule]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "rules" in cls.__dict__:
            cls.triggers = tuple(dict.fromkeys(rule.trigger.encode() for rule in cls.rules))
            cls.context = max((rule.within for rule in cls.rules if rule.then), default=0)

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}
        self._open: dict[Rule, _Open] = {}

    def feed(self, line: str, number: int) -> None:
        line = line[:_LONGEST_MATCHED]
        for waiting in list(self._open.values()):
            self._continue(waiting, line, number)
        for rule in self.rules:
            if rule.trigger in line and (found := re.search(rule.pattern or re.escape(rule.trigger), line)):
                self._begin(rule, _groups(found), line, number)
                return

    def finish(self) -> Sequence[Reading]:
        for waiting in self._open.values():
            self._add(waiting)
        self._open.clear()
        return tuple(self._readings.values())

    def _begin(self, rule: Rule, groups: dict[str, str], line: str, number: int) -> None:
        opened = _Open(rule, groups, line, number, rule.within, process_of(line))
        if not rule.then:
            self._add(opened)
        elif rule not in self._open:
            self._open[rule] = opened

    def _continue(self, waiting: _Open, line: str, number: int) -> None:
        found = re.search(waiting.rule.then or "", line)
        if found:
            waiting.groups |= _groups(found)
            if waiting.rule.quote_then:
                waiting.line, waiting.number = line, number
        waiting.left -= 1
        if found or not waiting.left:
            del self._open[waiting.rule]
            self._add(waiting)

    def _add(self, done: _Open) -> None:
        if not done.rule.key:
            return
        reading = self.reading(done.rule, done.groups, quoted(done.line), done.number)
        if done.process:
            reading = replace(
                reading, signature=replace(reading.signature, hosts=(done.process[0],)), process=done.process
            )
        key = reading.signature.key
        if key in self._readings:
            self._readings[key] = _joined(self._readings[key], reading)
        elif len(self._readings) < _MOST_READINGS:
            self._readings[key] = reading

    def reading(self, rule: Rule, groups: Mapping[str, str], line: str, number: int) -> Reading:
        """What a rule that matched says; dialects override it where a table is not enough."""
        key = re.sub(r"\{(\w+)\}", lambda name: token(groups.get(name[1], "")), rule.key)
        signature = Signature(
            kind=rule.kind,
            key=re.sub(r"[@!]+(?=!|$)", "", key),
            primary_line=line,
            line=number,
            detail=groups.get("detail") or rule.detail,
            library=groups.get("library"),
            function=groups.get("function"),
            entry_point=groups.get("entry"),
            ranks=(int(groups["rank"]),) if "rank" in groups else (),
        )
        return Reading(signature, rule.weight)


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in found.groupdict().items() if text}


def _joined(first: Reading, again: Reading) -> Reading:
    """The first reading with the ranks and hosts of another of the same key."""
    signature, other = first.signature, again.signature
    hosts = tuple(dict.fromkeys((*signature.hosts, *other.hosts)))[:_MOST_HOSTS]
    ranks = tuple(sorted({*signature.ranks, *other.ranks})[:_MOST_HOSTS])
    return replace(first, signature=replace(signature, hosts=hosts, ranks=ranks))
