"""Log parsers that are tables: each row maps a text to a failure."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

from pytest_hetgpu.extensions.signatures.base import (
    FailureMatch,
    LogLine,
    LogParser,
    Process,
    process_of,
    slug,
    token,
)
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule as MatchRule  # noqa: PLC0414 - from here
from pytest_hetgpu.extensions.signatures.engine.rows import RuleFile, RuleRow, shipped_rows
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.old_spellings import Renamed, take_over

_LONGEST_MATCHED = 4096
_MOST_READINGS = 1000
_LONGEST_RANK = 7
_MOST_NAMED = 100_000
KEY_PART = lazy(r"\{(\w+)(?::(\w+))?\}")


class SearchPattern(Protocol):
    """The required part of a compiled pattern, of `re` or of RE2."""

    def search(self, text: str, /) -> re.Match[str] | None:
        """Return the first match; None if there is none."""


class _Entry:
    """A rule of the table: parsed and compiled at the first line with its trigger."""

    def __init__(self, trigger: str, given: MatchRule | RuleRow, compiled: Callable[[str], SearchPattern]) -> None:
        self.trigger = trigger
        self._given = given
        self._compiled = compiled

    @cached_property
    def rule(self) -> MatchRule:
        return self._given if isinstance(self._given, MatchRule) else self._given.rule(self.trigger)

    @cached_property
    def pattern(self) -> SearchPattern:
        return self._compiled(self.rule.pattern or re.escape(self.trigger))

    @cached_property
    def then(self) -> SearchPattern:
        return self._compiled(self.rule.then or "")


@dataclass(slots=True)
class _OpenRule:
    """A rule whose first line was seen, waiting for its second."""

    entry: _Entry
    groups: dict[str, str]
    line: LogLine
    left: int
    process: Process | None = field(default=None)


@dataclass(slots=True)
class _MergedMatch:
    """A match, with the ranks and hosts of all lines that repeat it."""

    match: FailureMatch
    ranks: set[int] = field(default_factory=set)
    hosts: dict[str, None] = field(default_factory=dict)

    def add(self, signature: Signature) -> None:
        if len(self.ranks) < _MOST_NAMED:
            self.ranks.update(signature.ranks)
        if len(self.hosts) < _MOST_NAMED:
            self.hosts.update(dict.fromkeys(signature.hosts))

    def whole(self) -> FailureMatch:
        signature = replace(self.match.signature, ranks=tuple(sorted(self.ranks)), hosts=tuple(self.hosts))
        return replace(self.match, signature=signature)


class RuleParser(LogParser):
    """Parser by a table: the first matching rule takes the line.

    `rows` names a shipped file of rules; those of the class follow them. `without` holds ids of rules that are off.
    """

    rules: ClassVar[Sequence[MatchRule]] = ()
    without: ClassVar[frozenset[str]] = frozenset()
    _file: ClassVar[RuleFile | None] = None
    _table: ClassVar[Sequence[tuple[str, _Entry]]] = ()

    reading = Renamed("build_match")

    def __init_subclass__(cls, rows: str = "") -> None:
        super().__init_subclass__()
        take_over(cls)
        cls._table = ()
        if rows:
            cls._file = shipped_rows(rows)
        if rows or "rules" in cls.__dict__:
            shipped = cls._file.triggers if cls._file else ()
            cls.triggers = tuple(
                dict.fromkeys(trigger.encode() for trigger in (*shipped, *(rule.trigger for rule in cls.rules)))
            )
            own = max((rule.within for rule in cls.rules if rule.then), default=0)
            cls.context = max(own, cls._file.context if cls._file else 0)

    def __init__(self) -> None:
        self._matches: dict[str, _MergedMatch] = {}
        self._open: dict[_Entry, _OpenRule] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST_MATCHED]
        if self._open:
            for waiting in list(self._open.values()):
                self._continue(waiting, line, text)
        for trigger, entry in self._table or self._tabled():
            if trigger in text and (found := entry.pattern.search(text)):
                self._begin(entry, _groups(found), line)
                return

    @classmethod
    def ids(cls) -> frozenset[str]:
        """Return the ids of its rules."""
        return frozenset(row.id for row in cls._file.rows) if cls._file else frozenset(rule.id for rule in cls.rules)

    @classmethod
    def compiled(cls, pattern: str) -> SearchPattern:
        """Compile a pattern. Those of this package take linear time in `re`, too; a test tries them."""
        return lazy(pattern)

    @classmethod
    def _tabled(cls) -> Sequence[tuple[str, _Entry]]:
        """Return the table, made at the first line: most logs need no rule of most parsers."""
        rows = cls._file.rows if cls._file else ()
        given: list[tuple[str, MatchRule | RuleRow]] = [(trigger, row) for row in rows for trigger in row.triggers]
        given += [(rule.trigger, rule) for rule in cls.rules]
        cls._table = tuple(
            (trigger, _Entry(trigger, one, cls.compiled)) for trigger, one in given if one.id not in cls.without
        )
        return cls._table

    def finish(self) -> Sequence[FailureMatch]:
        for waiting in self._open.values():
            self._add(waiting)
        self._open.clear()
        return tuple(told.whole() for told in self._matches.values())

    def _begin(self, entry: _Entry, groups: dict[str, str], line: LogLine) -> None:
        opened = _OpenRule(entry, groups, line, entry.rule.within, process_of(line.text))
        if not entry.rule.then:
            self._add(opened)
        elif entry not in self._open:
            self._open[entry] = opened

    def _continue(self, waiting: _OpenRule, line: LogLine, text: str) -> None:
        if waiting.line.rank is not None and line.rank not in (None, waiting.line.rank):
            return
        found = waiting.entry.then.search(text)
        if found:
            waiting.groups |= _groups(found)
            if waiting.entry.rule.quote_then:
                waiting.line = replace(line, rank=waiting.line.rank, host=waiting.line.host)
        waiting.left -= 1
        if found or not waiting.left:
            del self._open[waiting.entry]
            self._add(waiting)

    def _add(self, done: _OpenRule) -> None:
        rule = done.entry.rule
        if not rule.key:
            return
        match = self.build_match(rule, done.groups, done.line)
        host = done.process[0] if done.process else done.line.host
        if host and not match.signature.hosts:
            match = replace(match, signature=replace(match.signature, hosts=(host,)))
        match = replace(match, process=match.process or done.process)
        key = match.signature.key
        if key not in self._matches and len(self._matches) < _MOST_READINGS:
            self._matches[key] = _MergedMatch(match)
        if key in self._matches:
            self._matches[key].add(match.signature)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        """Return the match of a rule; parsers override this if a table is not enough."""
        signal = groups.get("signal")
        if signal and signal.isdecimal():
            groups = {**groups, "signal": signal_name(int(signal))}
        groups = {**groups, "trigger": slug(rule.trigger)} if "{trigger}" in rule.key else groups
        key = KEY_PART.sub(lambda name: token(_FORMS[name[2] or ""](groups.get(name[1], ""))), rule.key)
        rank = _rank(groups.get("rank"), line)
        signature = Signature(
            kind=rule.kind,
            key=re.sub(r"[@!]+(?=!|$)", "", key),
            primary_line=line.quote,
            line=line.number,
            signal=groups.get("signal"),
            detail=groups.get("detail") or rule.detail,
            library=groups.get("library"),
            function=groups.get("function"),
            entry_point=groups.get("entry"),
            ranks=() if rank is None else (rank,),
            hosts=(groups["host"],) if "host" in groups else (),
        )
        return FailureMatch(signature, rule.priority, fatal=rule.fatal, phase=rule.phase)


def without(parser: type[LogParser], ids: frozenset[str]) -> type[LogParser]:
    """Return a parser without the rules of these ids."""
    if not (issubclass(parser, RuleParser) and ids & parser.ids()):
        return parser
    return types.new_class(parser.__name__, (parser,), exec_body=lambda names: names.update(without=ids))


def row_parser(name: str) -> type[RuleParser]:
    """Return the parser of a shipped file of rules that needs no code."""
    return types.new_class(name.title().replace("_", ""), (RuleParser,), {"rows": name})


def _as_given(text: str) -> str:
    return text


def _title(text: str) -> str:
    short = slug(text)
    return short[:1].upper() + short[1:]


_FORMS: Mapping[str, Callable[[str], str]] = {"": _as_given, "slug": slug, "Slug": _title}


def _rank(named: str | None, line: LogLine) -> int | None:
    """Return the rank that a rule found, else the line's; a number that is too long is ignored."""
    return int(named) if named and len(named) <= _LONGEST_RANK else line.rank


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in found.groupdict().items() if text}
