"""Takes secrets out of everything that goes into a report.

A secret is known by its own form (a private key, a cloud or forge token), by what stands before it (`password=`,
`Authorization:`, the user part of a URL), by the name of the variable that holds it, or by its value, once this
process has learned that. `[redacted]` takes its place. Patterns start at a word's edge or a fixed mark and are bounded,
so that a line of 1 MB takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, ClassVar

from pytest_hetgpu.model.multi_pattern import BytesPattern, any_of, automaton
from pytest_hetgpu.store.redaction import known_forms, secret_values
from pytest_hetgpu.store.redaction.rules import (
    BEGINNING,
    ENDING,
    KEY_SIGN,
    REDACTED,
    RULES,
    Rule,
    is_secret_name,
    is_secret_option,
)
from pytest_hetgpu.store.redaction.secret_pieces import Pieces

__all__ = [
    "LONGEST_KEY",
    "REDACTED",
    "end_of_known",
    "forget",
    "is_secret_name",
    "learn",
    "redact",
    "redact_argv",
    "redact_bytes",
    "redact_env",
    "redact_json",
    "redact_unfinished",
    "signs",
    "standing_in",
]

LONGEST_KEY = 1 << 14
"""Characters of a private key: one whose end is farther from its beginning has lost it."""

_GOES_ON = "0" * 64  # what makes most tokens whole
_SHORTEST_BEGUN, _LONGEST_BEGUN = 3, 256  # characters of a secret's beginning
_TELLING_WORDS = 6
_VALUE_FOLLOWS = ("-env", "-genv")
_names: ContextVar[Callable[[str], str] | None] = ContextVar("_names", default=None)
_IDENTITY = ("matrix", "scenario", "label", "axes")
_SIGNS = (*(f"(?:{rule.sign})".encode() for rule in RULES), KEY_SIGN.encode())
_OF_SIGNATURE = "key"
_BODY = re.compile(r"(?:\\n|[\s\\]|[A-Za-z0-9+/=]{16,}|[A-Za-z-]{4,20}: [^\n]{1,80}\n)*")
_BODY_LINE = re.compile(r"(?:\S{0,40}[\s:>])?[A-Za-z0-9+/=]+\s*")


class _Known:
    """The values that this process knows to be secret: every thread of it redacts them."""

    values: ClassVar[frozenset[str]] = frozenset()
    forms: ClassVar[known_forms.Forms] = known_forms.of_values(())
    heads: ClassVar[BytesPattern] = any_of(())
    pieces: ClassVar[Pieces] = Pieces(())
    signs: ClassVar[BytesPattern | None] = None


def learn(env: Mapping[str, str], *settings: Any) -> None:
    """Has the secret values of an environment and of settings (JSON data) redacted from now on, wherever they stand."""
    found = {*secret_values.of_environment(env, is_secret_name)}
    for tree in settings:
        found |= {*secret_values.of_settings(tree, is_secret_name, is_secret_option)}
    _keep(_Known.values | found)


def forget() -> None:
    """Forgets the values that were learned."""
    _keep(frozenset())


def _keep(values: Iterable[str]) -> None:
    known = frozenset(values)
    if known != _Known.values:
        forms = known_forms.of_values(known)
        _Known.values, _Known.forms = known, forms
        _Known.heads = _pattern(forms.heads) if forms.heads else any_of(())
        _Known.pieces = Pieces(forms.texts)
        _Known.signs = None


def signs() -> BytesPattern:
    """A pattern that is found in every text with a secret. It is found in some others, too."""
    if _Known.signs is None:
        edges = (
            re.escape(data)
            for edge in _Known.pieces.edges
            for data in {secret_values.in_bytes(edge), edge.encode("utf-8", "surrogatepass")}
        )
        _Known.signs = _pattern(b"|".join([*_SIGNS, *filter(None, [_Known.forms.heads]), *edges]))
    return _Known.signs


def end_of_known(data: bytes) -> int:
    """Return the last place to which the first known value may reach, maybe beyond the data; 0 if none begins."""
    found = _Known.heads.search(data)
    return found.start() + _Known.forms.longest if found else 0


@contextmanager
def standing_in(names: Callable[[str], str]) -> Iterator[None]:
    """Whatever is redacted meanwhile goes through `names`, too."""
    before = _names.set(names)
    try:
        yield
    finally:
        _names.reset(before)


def redact(text: str) -> str:
    """The text without its secrets. Redacting twice changes nothing."""
    data = text.encode("utf-8", "surrogatepass")
    if signs().search(data):
        text = _without_secrets(text, data)
    names = _names.get()
    return names(text) if names else text


def redact_bytes(data: bytes) -> bytes:
    """Return output without its secrets; bytes that are no UTF-8 stay as they are."""
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def redact_unfinished(text: str) -> str:
    """As `redact` of a text that goes on: what may be the beginning of a secret at its end is left out, too."""
    text = redact(text + _GOES_ON).removesuffix(_GOES_ON)
    end = text[-_LONGEST_BEGUN:]
    begun = {form[:_SHORTEST_BEGUN] for form in _Known.forms.texts}
    for place in range(len(end) - _SHORTEST_BEGUN + 1):
        rest = end[place:]
        if rest[:_SHORTEST_BEGUN] in begun and any(form.startswith(rest) for form in _Known.forms.texts):
            return f"{text[: len(text) - len(end) + place]}{REDACTED}"
    return text


def _without_secrets(text: str, data: bytes) -> str:
    if _Known.heads.search(data):
        text = _without_known(data).decode("utf-8", "surrogatepass")
    text = _Known.pieces.without(text, REDACTED)
    if "PRIVATE KEY" in text:
        text = _without_keys(text)
    for sign, rule in _rules():
        if sign.search(data):
            text = rule.pattern.sub(rule.replacement, text)
    return text


def _without_known(data: bytes) -> bytes:
    """The data without known values, the longest where several begin."""
    forms, find = _Known.forms, _Known.heads.search
    kept: list[bytes] = []
    at = 0
    head = find(data)
    while head:
        start = head.start()
        end = forms.end(data, start)
        if end > start:
            kept += data[at:start], REDACTED.encode()
            at = end
        head = find(data, max(end, start + 1))
    return b"".join((*kept, data[at:]))


@cache
def _rules() -> tuple[tuple[BytesPattern, Rule], ...]:
    """Each rule with its sign as a pattern."""
    return tuple((_pattern(rule.sign.encode()), rule) for rule in RULES)


def _pattern(expression: bytes) -> BytesPattern:
    return automaton(expression) or re.compile(expression)


def _without_keys(text: str) -> str:
    """The text without private keys, and without what is left of one whose beginning or end is missing."""
    ends = [found.end() for found in ENDING.finditer(text)]
    kept: list[str] = []
    at = 0
    for found in BEGINNING.finditer(text):
        if found.start() < at:
            continue
        place = bisect_left(ends, found.end())
        kept += _headless(text[at : found.start()]), REDACTED
        if place < len(ends) and ends[place] - found.end() <= LONGEST_KEY:
            at = ends[place]
        elif len(text) - found.end() <= LONGEST_KEY:
            return "".join(kept)
        else:
            body = _BODY.match(text, found.end())
            at = body.end() if body else found.end()
    return "".join((*kept, _headless(text[at:])))


def _headless(text: str) -> str:
    """The text without the ends of keys whose beginnings are missing."""
    kept: list[str] = []
    at = 0
    for found in ENDING.finditer(text):
        lines = text[max(at, found.start() - LONGEST_KEY) : found.start()].splitlines(keepends=True)
        start = found.start()
        while lines and _BODY_LINE.fullmatch(lines[-1]):
            start -= len(lines.pop())
        kept += text[at:start], REDACTED
        at = found.end()
    return "".join((*kept, text[at:]))


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the values whose name or own form says that they are secret."""
    return {name: REDACTED if value and is_secret_name(name) else redact(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> list[str]:
    """A command line without secrets, token by token: `TOKEN=...`, `--password ...`, MPICH's `-genv NAME VALUE`."""
    out: list[str] = []
    whole = " ".join(argv)
    telling = redact(whole) != whole  # else no token is told by others, and most command lines have no secret
    for place, token in enumerate(argv):
        before = argv[place - 1] if place else ""
        named = place > 1 and argv[place - 2] in _VALUE_FOLLOWS and is_secret_name(before)
        name, equals, value = token.partition("=")
        if named or is_secret_option(before):
            out.append(REDACTED)
        elif value and name.replace("_", "a").isalnum() and is_secret_name(name):
            out.append(f"{name}{equals}{REDACTED}")
        else:
            out.append(_redact_word(argv, place) if telling else redact(token))
    return out


def _redact_word(argv: Sequence[str], place: int) -> str:
    """A token without secrets, also one that the tokens before it tell: `curl -u me:...`, `sshpass -p ...`."""
    token = argv[place]
    alone = redact(token)
    if alone != token or " " in token or not place:
        return alone
    before = " ".join(argv[max(0, place - _TELLING_WORDS) : place])
    return redact(f"{before} {token}").rpartition(" ")[2]


def redact_json(value: Any) -> Any:
    """JSON data without secrets; objects under the name `env` are environments, lists of text are command lines.

    A text whose own name is that of a secret is one, but for the `key` of a signature. Names of cells (`matrix`,
    `scenario`, `label`, `axes`) stay: what was written of a cell must find it again.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        texts = all(isinstance(item, str) for item in value)
        return redact_argv(value) if texts else [redact_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _redact_member(name, item) for name, item in value.items()}
    return value


def _redact_member(name: str, value: Any) -> Any:
    if name in _IDENTITY:
        return value
    if name == "env" and isinstance(value, dict):
        return redact_env({key: str(item) for key, item in value.items()})
    if value and isinstance(value, str) and name != _OF_SIGNATURE and is_secret_name(name):
        return REDACTED
    return redact_json(value)
