"""Prefix of a log's lines, learned from the log: times, hosts, ranks and signs that most lines begin with.

A prefix is a row of tokens. A token is taken if nearly all lines have one of its kind there, with few different values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from operator import add
from pathlib import Path

from pytest_hetgpu.analysis.logs.lines import known_prefix, parse_line, strip_controls, without_facts
from pytest_hetgpu.analysis.logs.prefix_tokens import (
    BRACKET,
    CONTENT,
    LEVEL,
    NAME,
    NEAR_A_DIGIT,
    NO_HOST,
    RANK_IN_BRACKET,
    RANKED,
    TAG,
    TIME,
    TIME_FORMS,
    WORD,
    is_content,
    literal,
)
from pytest_hetgpu.analysis.logs.sample import sample_lines

_MOST_TOKENS = 24
_NEARLY_ALL = 0.97
_HALF = 0.5
_MOST_CONTENT = 0.05
_MOST_VALUES = 0.1
_ENOUGH = 8
_MOST_KNOWN = 0.9
_LONGEST_NUMBER = 12
_LONGEST = 400
# A line that is nothing but the end of a program, or of one of its ranks.
_LAST_WORD = re.compile(r"(?i:(?:\[?rank \d+\]?:? )?(?:done|finished|completed|success|succeeded|passed)[.!]?\s*$)")
# A time in brackets behind a prefix is that of the line itself.
_SECOND_TIME = re.compile(rf"\[{TIME}\]")
_NEAR = 60
_SIGNS = frozenset(":|>-│┃#*")


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place in a line of the sample."""

    line: str
    at: int

    @property
    def rest(self) -> str:
        return self.line[self.at :]


@dataclass(frozen=True)
class _Token:
    """A kind of text that nearly all lines have at one place; `gap` matches the blanks after it."""

    kind: str
    pattern: str
    values: Sequence[str]
    gap: str = ""

    @cached_property
    def constant(self) -> bool:
        """Whether values differ in numbers only."""
        return len({_normal(value.strip()) for value in self.values}) == 1

    @cached_property
    def counts(self) -> bool:
        """Whether values are growing numbers, as of lines."""
        return _grow(value.strip("[]()<> ") for value in self.values)

    @cached_property
    def is_rank(self) -> bool:
        """Whether values are small numbers from 0 on."""
        numbers = {int(value) for value in self.values if len(value) < _LONGEST_NUMBER and value.strip().isdecimal()}
        return 0 in numbers and not self.counts and max(numbers) < 4 * len(numbers)


def prefix_of(path: Path) -> re.Pattern[str] | None:
    """Return the prefix of a log's lines, learned from a bounded sample of them; None without one.

    Raise OSError if the log cannot be read.
    """
    # A prefix is before the first version of a line that is overwritten.
    firsts = (raw.lstrip(b"\r").partition(b"\r")[0][:_LONGEST] for raw in sample_lines(path))
    lines = [without_facts(first.decode(errors="replace")) for first in firsts]
    lines = [line if line.isprintable() else strip_controls(line) for line in lines]
    learned = learn_prefix(lines)
    if learned or not lines or sum(known_prefix(line) is not None for line in lines) < len(lines) * _HALF:
        return learned
    return learn_prefix([parse_line(line, 0).text for line in lines])


def learn_prefix(lines: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of the prefix that most of these lines have; None without one.

    `lines` are a sample of the log, without control characters. Its groups `time`, `host` and `rank` are facts about a
    line. One blank after the prefix is part of it; more of them are indentation.
    """
    spots = [_Spot(line[:_LONGEST], 0) for line in lines if line.strip()]
    if not spots:
        return None
    tokens: list[_Token] = []
    shorter: list[_Token] = []
    taken: list[_Token] = []
    while len(tokens) < _MOST_TOKENS and not _is_at_content(spots, started=bool(tokens)):
        found = next(_candidates(tokens, spots), None)
        if found is None:
            break
        token, spots = found
        tokens.append(token)
        if _may_end(tokens, spots):
            shorter, taken = (taken if taken and taken[-1].kind == "time" else shorter), _ended(tokens, spots)
    return _compiled(shorter, taken) if taken else None


def _is_at_content(spots: Sequence[_Spot], *, started: bool) -> bool:
    """Return whether the lines are at their content: a known prefix, or nothing on most of them."""
    left = [spot for spot in spots if spot.at < len(spot.line)]
    inside = sum(is_content(spot.line, spot.at) for spot in left)
    if len(left) < len(spots) * _HALF or inside > len(left) * _MOST_CONTENT:
        return True
    matches = (known_prefix(spot.rest) for spot in left)
    found = [
        match
        for match in matches
        if match and not ({"time"} & match.groupdict().keys() or (started and "host" in match.groupdict()))
    ]
    # A name and a colon are known before some texts only.
    most = 1 if any("host" in match.groupdict() for match in found) else _MOST_KNOWN
    # Growing numbers are those of lines, as by `nl`.
    return len(found) >= len(left) * most and not _grow(match.groupdict().get("rank") or "" for match in found)


def _grow(values: Iterable[str]) -> bool:
    """Return whether nearly all values are numbers that grow from line to line."""
    numbers = [int(value) for value in values if value.isdecimal() and len(value) < _LONGEST_NUMBER]
    up = sum(before < after for before, after in pairwise(numbers))
    return len(numbers) > 1 and up >= (len(numbers) - 1) * _MOST_KNOWN


def _candidates(tokens: Sequence[_Token], spots: Sequence[_Spot]) -> Iterator[tuple[_Token, list[_Spot]]]:
    timed = any(token.kind == "time" for token in tokens)
    take = partial(_take, spots=spots)
    share = _NEARLY_ALL if tokens else _HALF
    if sum(NEAR_A_DIGIT.match(spot.line, spot.at) is not None for spot in spots) >= len(spots) * share:
        for form in TIME_FORMS:
            yield from take("time", form, share=share)
    if not tokens:
        yield from take("number", r"[ \t]*\d+(?![\w.])")
        yield from take("indent", r"[ \t]+")
    yield from take("stream", r"std(?:out|err)(?: [FP])?(?!\w)")
    if timed:
        yield from take("tag", TAG)
    yield from take("field", r"[^\t]{1,80}(?=\t)")
    yield from take("bracket", BRACKET)
    yield from take("number", r"\d+(?![\w.])")
    yield from take("word", WORD)
    yield from take("sign", r"[^\w\s]")


def _take(
    kind: str, pattern: str, spots: Sequence[_Spot], share: float = _NEARLY_ALL
) -> Iterator[tuple[_Token, list[_Spot]]]:
    """Yield the token of a kind at these places, and the places after it, if nearly all lines have it."""
    compiled = re.compile(pattern)
    found = [(spot.line, match) for spot in spots if (match := compiled.match(spot.line, spot.at))]
    if len(found) < len(spots) * share or not found:
        return
    values = [match[0] for _, match in found]
    different = {_normal(value.strip()) for value in values}
    varied = kind not in ("time", "indent") and len(different) > 1
    if varied and len(different) > len(found) * _MOST_VALUES:
        return
    if varied and any(LEVEL.match(value.strip("[(<>)] ")) for value in different):
        return
    if kind in ("indent", "sign") or (len(different) == 1 and kind in ("word", "bracket", "field")):
        pattern = "|".join(sorted(map(literal, different)))
    after = [_Spot(line, match.end()) for line, match in found]
    gap, spots = _common_indent(after) if kind == "indent" else _gap(after)
    yield _Token(kind, pattern if kind != "indent" else "", values, gap), spots


def _gap(spots: Sequence[_Spot]) -> tuple[str, list[_Spot]]:
    """Return the pattern of the blanks here, and the places after them."""
    blanks = [len(spot.rest) - len(spot.rest.lstrip(" \t")) for spot in spots]
    if not any(blanks):
        return "", list(spots)
    left = [spot for spot in spots if spot.rest]
    if any(spot.rest[0] == "+" for spot in left) and all(spot.rest[0] in "+ " for spot in left):
        return "[ +]", [_Spot(spot.line, spot.at + 1) for spot in spots]
    return r"[ \t]*", [_Spot(spot.line, spot.at + blank) for spot, blank in zip(spots, blanks, strict=True)]


def _common_indent(spots: Sequence[_Spot]) -> tuple[str, list[_Spot]]:
    """Return a pattern of the blanks that nearly all lines begin with."""
    first = [spot.line[0] for spot in spots]
    if len(set(first)) > 1:
        return "", [_Spot(spot.line, 0) for spot in spots]
    counts = sorted(len(spot.line) - len(spot.line.lstrip(first[0])) for spot in spots)
    least = counts[int(len(counts) * (1 - _NEARLY_ALL))]
    return f"{re.escape(first[0])}{{{least}}}", [_Spot(spot.line, least) for spot in spots]


def _may_end(tokens: Sequence[_Token], spots: Sequence[_Spot]) -> bool:
    """Return whether the prefix may end after these tokens: by its structure, or as lines of their own follow."""
    last = tokens[-1]
    if _ends_by_structure(tokens, spots):
        return True
    if last.kind == "number" or all(token.kind == "sign" for token in tokens):
        return False
    named = any(map(_is_named, tokens))
    wrapped = any(_is_wrapped(spot, last.gap) for spot in spots)
    if last.kind == "word":
        level = LEVEL.fullmatch(last.values[0]) is not None
        return bool(last.gap) and wrapped and (level or (named and all(token.constant for token in tokens)))
    sign = last.kind == "sign" and not set(last.values) <= _SIGNS
    return not sign and (wrapped or (named and len(spots) >= _ENOUGH))


def _ends_by_structure(tokens: Sequence[_Token], spots: Sequence[_Spot]) -> bool:
    """Return whether the last token alone shows that it is no part of a sentence."""
    last, before = tokens[-1], tokens[-2] if len(tokens) > 1 else None
    if last.kind == "sign" and not (before and before.kind == "number" and before.counts):
        signs = all(token.kind == "sign" and set(token.values) <= _SIGNS for token in tokens)
        return signs and bool(last.gap) and len(spots) > 1
    if last.kind == "number":
        return last.counts and all("\t" in spot.line[: spot.at] for spot in spots)
    if last.kind == "word":
        return bool(last.gap) and _is_named(last) and any(token.kind == "time" for token in tokens)
    if last.kind == "tag":
        return before is not None and (before.kind == "word" or "[" in last.values[0])
    return last.kind in ("time", "indent", "stream", "sign")


def _is_named(token: _Token) -> bool:
    """Return whether values look like names of hosts, pods or ranks, not like words."""
    if token.kind == "bracket":
        return True
    return token.kind in ("word", "tag", "field") and all(NAME.fullmatch(value) for value in set(token.values))


def _is_wrapped(spot: _Spot, gap: str) -> bool:
    """Return whether the text here is surely a line of its own."""
    before = spot.line[: spot.at]
    indented = gap == r"[ \t]*" and before.endswith(("  ", "\t\t", " \t"))
    return spot.at >= len(spot.line) or indented or _is_start(spot)


def _is_start(spot: _Spot) -> bool:
    line, at = spot.line, spot.at
    if line.startswith("Traceback (", at) or is_content(line, at):
        return True
    return _LAST_WORD.match(line, at) is not None or _SECOND_TIME.search(line, at, at + _NEAR) is not None


def _ended(tokens: Sequence[_Token], spots: Sequence[_Spot]) -> list[_Token]:
    """Return the tokens with as many blanks at the end as nearly all lines have; the rest is indentation."""
    last = tokens[-1]
    blanks = [spot.line[: spot.at] for spot in spots if spot.at < len(spot.line)]
    if last.gap != r"[ \t]*" or not blanks:
        return list(tokens)
    counts = sorted(len(before) - len(before.rstrip(" \t")) for before in blanks)
    least = counts[int(len(counts) * (1 - _NEARLY_ALL))]
    return [*tokens[:-1], _Token(last.kind, last.pattern, last.values, rf"[ \t]{{0,{least}}}")]


def _compiled(shorter: Sequence[_Token], taken: Sequence[_Token]) -> re.Pattern[str]:
    """Return the pattern of a prefix. A line with the time alone has a `shorter` one."""
    # A fact that is the same on all lines distinguishes no writers, and a collector's name for a host is often its own.
    host, rank = (token if token and len(set(token.values)) > 1 else None for token in (_host(taken), _rank(taken)))
    time = next((token for token in taken if token.kind == "time"), None)
    texts = [_with_group(token, host, rank, time) for token in taken]
    gaps = [token.gap for token in taken]
    cut = len(shorter)
    rest = "".join(map(add, texts[cut:], gaps[cut:]))
    if not cut:
        whole = rest
    else:
        before = "".join(map(add, texts[: cut - 1], gaps[: cut - 1])) + texts[cut - 1]
        whole = f"{before}(?:{gaps[cut - 1]}{rest}|{shorter[-1].gap})"
    return re.compile(f"^(?!{CONTENT})(?:{whole})")


def _with_group(token: _Token, host: _Token | None, rank: _Token | None, time: _Token | None) -> str:
    if token is rank and token.kind == "bracket":
        return token.pattern.replace(r"\d+", r"(?P<rank>\d+)", 1)
    name = "time" if token is time else "host" if token is host else "rank" if token is rank else None
    return f"(?P<{name}>{token.pattern})" if name else f"(?:{token.pattern})"


def _host(tokens: Sequence[_Token]) -> _Token | None:
    named = (token for token in tokens if token.kind in ("word", "field") and _is_named(token))
    return next((token for token in named if not any(map(NO_HOST.match, set(token.values)))), None)


def _rank(tokens: Sequence[_Token]) -> _Token | None:
    """Return the token that holds a rank: a number after a word for ranks, or small numbers at the start of lines."""
    for token in tokens:
        if (
            token.kind == "bracket"
            and token.constant
            and not token.counts
            and RANK_IN_BRACKET.fullmatch(token.values[0])
        ):
            return token
    numbers = [place for place, token in enumerate(tokens) if token.kind == "number" and not token.counts]
    for place in numbers:
        before = tokens[place - 1].values[0] if place else ""
        if RANKED.search(before) or (place == 0 and tokens[0].is_rank):
            return tokens[place]
    return None


def _normal(value: str) -> str:
    return re.sub(r"\d+", "0", value)
