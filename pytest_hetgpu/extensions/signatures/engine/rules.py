"""Log parsers that are tables: each row maps a text to a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from pytest_hetgpu.extensions.signatures.base import (
    FailureMatch,
    LogLine,
    LogParser,
    Priority,
    Process,
    process_of,
    slug,
    token,
)
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.old_spellings import Renamed, take_over
from pytest_hetgpu.model.verdict import Kind

_LONGEST_MATCHED = 4096
_MOST_READINGS = 1000
_LONGEST_RANK = 7
_MOST_NAMED = 100_000


class _RuleFields(NamedTuple):
    """The fields of a `MatchRule`."""

    trigger: str
    kind: Kind
    key: str
    priority: Priority
    pattern: str | None
    then: str | None
    within: int
    quote_then: bool
    detail: str | None
    fatal: bool


class MatchRule(_RuleFields):
    """One row: a line with `trigger`, in which `pattern` (if given) is found, is a failure of `kind`.

    `then` is searched in the next `within` lines, for details that the first line lacks; the first line is quoted
    unless `quote_then` is set. `fatal` is copied to the match. `key` is a template over the named groups of both and
    over `trigger`, as a slug of its text; a missing group leaves no trace. Groups named signal, detail, library,
    function, entry, host or rank become fields of the signature.

    A rule without a key marks harmless text. `weight` and `certain` are old names of `priority` and `fatal`.
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0913, PLR0917, PYI034 - a field each; Self needs Python 3.11
        cls,
        trigger: str,
        kind: Kind = Kind.ERROR,
        key: str = "",
        priority: Priority = Priority.CAUSE,
        pattern: str | None = None,
        then: str | None = None,
        within: int = 10,
        quote_then: bool = False,
        detail: str | None = None,
        fatal: bool = True,
        *,
        weight: Priority | None = None,
        certain: bool | None = None,
    ) -> MatchRule:
        priority = priority if weight is None else weight
        fatal = fatal if certain is None else certain
        row = (trigger, kind, key, priority, pattern, then, within, quote_then, detail, fatal)
        return tuple.__new__(cls, row)  # as the class of the fields does, without another call

    @property
    def weight(self) -> Priority:
        """Return the priority, under its old name."""
        return self.priority

    @property
    def certain(self) -> bool:
        """Return whether it is fatal, under the old name."""
        return self.fatal


@dataclass(slots=True)
class _OpenRule:
    """A rule whose first line was seen, waiting for its second."""

    rule: MatchRule
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
    """Parser by a table: the first matching rule takes the line."""

    rules: ClassVar[Sequence[MatchRule]]
    _table: ClassVar[Sequence[tuple[str, re.Pattern[str], MatchRule]]] = ()

    reading = Renamed("build_match")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        take_over(cls)
        if "rules" in cls.__dict__:
            cls.triggers = tuple(dict.fromkeys(rule.trigger.encode() for rule in cls.rules))
            cls._table = ()
            cls.context = max((rule.within for rule in cls.rules if rule.then), default=0)

    def __init__(self) -> None:
        self._matches: dict[str, _MergedMatch] = {}
        self._open: dict[MatchRule, _OpenRule] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST_MATCHED]
        if self._open:
            for waiting in list(self._open.values()):
                self._continue(waiting, line, text)
        for trigger, pattern, rule in self._table or self._tabled():
            if trigger in text and (found := pattern.search(text)):
                self._begin(rule, _groups(found), line)
                return

    @classmethod
    def _tabled(cls) -> Sequence[tuple[str, re.Pattern[str], MatchRule]]:
        """Return the table, compiled at the first line: most logs need no rule of most parsers."""
        cls._table = tuple((rule.trigger, lazy(rule.pattern or re.escape(rule.trigger)), rule) for rule in cls.rules)
        return cls._table

    def finish(self) -> Sequence[FailureMatch]:
        for waiting in self._open.values():
            self._add(waiting)
        self._open.clear()
        return tuple(told.whole() for told in self._matches.values())

    def _begin(self, rule: MatchRule, groups: dict[str, str], line: LogLine) -> None:
        opened = _OpenRule(rule, groups, line, rule.within, process_of(line.text))
        if not rule.then:
            self._add(opened)
        elif rule not in self._open:
            self._open[rule] = opened

    def _continue(self, waiting: _OpenRule, line: LogLine, text: str) -> None:
        if waiting.line.rank is not None and line.rank not in (None, waiting.line.rank):
            return
        found = re.search(waiting.rule.then or "", text)
        if found:
            waiting.groups |= _groups(found)
            if waiting.rule.quote_then:
                waiting.line = replace(line, rank=waiting.line.rank, host=waiting.line.host)
        waiting.left -= 1
        if found or not waiting.left:
            del self._open[waiting.rule]
            self._add(waiting)

    def _add(self, done: _OpenRule) -> None:
        if not done.rule.key:
            return
        match = self.build_match(done.rule, done.groups, done.line)
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
        groups = {**groups, "trigger": slug(rule.trigger)} if "{trigger}" in rule.key else groups
        key = re.sub(r"\{(\w+)\}", lambda name: token(groups.get(name[1], "")), rule.key)
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
        return FailureMatch(signature, rule.priority, fatal=rule.fatal)


def _rank(named: str | None, line: LogLine) -> int | None:
    """Return the rank that a rule found, else the line's; a number that is too long is ignored."""
    return int(named) if named and len(named) <= _LONGEST_RANK else line.rank


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in found.groupdict().items() if text}
