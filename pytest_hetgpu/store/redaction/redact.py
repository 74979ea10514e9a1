"""Removes secrets from everything that enters a report.

A secret is recognised in four ways. The first is its own form (a private key, a cloud or forge token). The second is
the text before it (`password=`, `Authorization:`, the user part of a URL). The third is the name of its variable. The
fourth is its value, once this process has registered it. `[redacted]` takes its place.

Patterns are bounded, and start at the edge of a word or at a fixed mark. A line of 1 MB takes linear time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, ClassVar

from pytest_hetgpu.model.credentials import is_secret_name
from pytest_hetgpu.model.multi_pattern import BytesPattern, any_of, automaton
from pytest_hetgpu.store.redaction import known_forms, secret_values
from pytest_hetgpu.store.redaction.rules import (
    BEGINNING,
    ENDING,
    KEY_TRIGGER,
    REDACTED,
    RULES,
    RedactionRule,
    is_secret_option,
)
from pytest_hetgpu.store.redaction.secret_pieces import SecretPieces

__all__ = [
    "LONGEST_KEY",
    "REDACTED",
    "basis",
    "clear_secrets",
    "end_of_known",
    "is_secret_name",
    "redact",
    "redact_argv",
    "redact_bytes",
    "redact_env",
    "redact_json",
    "redact_unfinished",
    "register_secrets",
    "replacing_names",
    "trigger_pattern",
]

LONGEST_KEY = 1 << 14
"""Characters of a private key; if the end is farther from the beginning, the end is missing."""

_CONTINUATION = "0" * 64  # completes most tokens
_SHORTEST_PREFIX, _LONGEST_PREFIX = 3, 256  # characters of a secret's beginning
_CONTEXT_WORDS = 6
_SHORT = 80  # characters
_VALUE_FOLLOWS = ("-env", "-genv")
_names: ContextVar[Callable[[str], str] | None] = ContextVar("_names", default=None)
_CELL_NAMES = ("matrix", "scenario", "label", "axes")
_TRIGGERS = (*(f"(?:{rule.trigger})".encode() for rule in RULES), KEY_TRIGGER.encode())
_SIGNATURE_KEY = "key"
_BODY = re.compile(r"(?:\\n|[\s\\]|[A-Za-z0-9+/=]{16,}|[A-Za-z-]{4,20}: [^\n]{1,80}\n)*")
_BODY_LINE = re.compile(r"(?:\S{0,40}[\s:>])?[A-Za-z0-9+/=]+\s*")


class _KnownSecrets:
    """The registered secret values: every thread of this process redacts them."""

    values: ClassVar[frozenset[str]] = frozenset()
    forms: ClassVar[known_forms.SecretForms] = known_forms.forms_of_values(())
    heads: ClassVar[BytesPattern] = any_of(())
    pieces: ClassVar[SecretPieces] = SecretPieces(())
    trigger: ClassVar[BytesPattern | None] = None


def register_secrets(env: Mapping[str, str], *settings: Any) -> None:
    """Redact the secret values of an environment and of settings (JSON data) from now on, wherever they appear."""
    found = {*secret_values.secrets_in_environment(env, is_secret_name)}
    for tree in settings:
        found |= {*secret_values.secrets_in_settings(tree, is_secret_name, is_secret_option)}
    _replace_secrets(_KnownSecrets.values | found)


def clear_secrets() -> None:
    """Clear the registered values."""
    _replace_secrets(frozenset())


def _replace_secrets(values: Iterable[str]) -> None:
    known = frozenset(values)
    if known != _KnownSecrets.values:
        forms = known_forms.forms_of_values(known)
        _KnownSecrets.values, _KnownSecrets.forms = known, forms
        _KnownSecrets.heads = _pattern(forms.heads) if forms.heads else any_of(())
        _KnownSecrets.pieces = SecretPieces(forms.texts)
        _KnownSecrets.trigger = None


def basis() -> object:
    """Return a value that stays equal as long as the redacted form of a text stays the same."""
    return _KnownSecrets.values, _names.get()


def trigger_pattern() -> BytesPattern:
    """Return a pattern that matches every text with a secret. It matches some others, too."""
    if _KnownSecrets.trigger is None:
        edges = (
            re.escape(data)
            for edge in _KnownSecrets.pieces.edges
            for data in {secret_values.to_bytes(edge), edge.encode("utf-8", "surrogatepass")}
        )
        _KnownSecrets.trigger = _pattern(b"|".join([*_TRIGGERS, *filter(None, [_KnownSecrets.forms.heads]), *edges]))
    return _KnownSecrets.trigger


def end_of_known(data: bytes) -> int:
    """Return the last position that the first known value may reach, maybe beyond the data; 0 if none begins."""
    found = _KnownSecrets.heads.search(data)
    return found.start() + _KnownSecrets.forms.longest if found else 0


@contextmanager
def replacing_names(names: Callable[[str], str]) -> Iterator[None]:
    """Apply `names` to all text that is redacted inside the context."""
    before = _names.set(names)
    try:
        yield
    finally:
        _names.reset(before)


def redact(text: str) -> str:
    """Remove the secrets from a text. Redacting twice changes nothing."""
    text = _short(text, _KnownSecrets.values) if len(text) <= _SHORT else _redacted(text)
    names = _names.get()
    return names(text) if names else text


def _redacted(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return _without_secrets(text, data) if trigger_pattern().search(data) else text


@lru_cache(maxsize=2048)
def _short(text: str, _: frozenset[str]) -> str:
    """Redact a short text by these known values. Reports repeat the same names, numbers and options."""
    return _redacted(text)


def redact_bytes(data: bytes) -> bytes:
    """Remove the secrets from output; keep bytes that are not UTF-8."""
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def redact_unfinished(text: str) -> str:
    """Redact a text that will continue: remove a possible beginning of a secret at its end, too."""
    text = redact(text + _CONTINUATION).removesuffix(_CONTINUATION)
    end = text[-_LONGEST_PREFIX:]
    begun = {form[:_SHORTEST_PREFIX] for form in _KnownSecrets.forms.texts}
    for place in range(len(end) - _SHORTEST_PREFIX + 1):
        rest = end[place:]
        if rest[:_SHORTEST_PREFIX] in begun and any(form.startswith(rest) for form in _KnownSecrets.forms.texts):
            return f"{text[: len(text) - len(end) + place]}{REDACTED}"
    return text


def _without_secrets(text: str, data: bytes) -> str:
    if _KnownSecrets.heads.search(data):
        text = _without_known(data).decode("utf-8", "surrogatepass")
    text = _KnownSecrets.pieces.without(text, REDACTED)
    if "PRIVATE KEY" in text:
        text = _without_keys(text)
    for trigger, rule in _rules():
        if trigger.search(data):
            text = rule.pattern.sub(rule.replacement, text)
    return text


def _without_known(data: bytes) -> bytes:
    """Remove known values from the data, the longest if several begin at one place."""
    forms, find = _KnownSecrets.forms, _KnownSecrets.heads.search
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
def _rules() -> tuple[tuple[BytesPattern, RedactionRule], ...]:
    """Return each rule with its trigger as a pattern."""
    return tuple((_pattern(rule.trigger.encode()), rule) for rule in RULES)


def _pattern(expression: bytes) -> BytesPattern:
    return automaton(expression) or re.compile(expression)


def _without_keys(text: str) -> str:
    """Remove private keys, and the remains of keys whose beginning or end is missing."""
    ends = [found.end() for found in ENDING.finditer(text)]
    kept: list[str] = []
    at = 0
    for found in BEGINNING.finditer(text):
        if found.start() < at:
            continue
        place = bisect_left(ends, found.end())
        kept += _without_key_ends(text[at : found.start()]), REDACTED
        if place < len(ends) and ends[place] - found.end() <= LONGEST_KEY:
            at = ends[place]
        elif len(text) - found.end() <= LONGEST_KEY:
            return "".join(kept)
        else:
            body = _BODY.match(text, found.end())
            at = body.end() if body else found.end()
    return "".join((*kept, _without_key_ends(text[at:])))


def _without_key_ends(text: str) -> str:
    """Remove the ends of keys whose beginnings are missing."""
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
    """Remove the values of an environment that are secret by their name or by their own form."""
    return {name: REDACTED if value and is_secret_name(name) else redact(value) for name, value in env.items()}


def redact_argv(argv: Sequence[str]) -> list[str]:
    """Remove secrets from a command line, token by token: `TOKEN=...`, `--password ...`, `-genv NAME VALUE`."""
    if _names.get() is None and _is_clean(list(argv)):
        return list(argv)
    out: list[str] = []
    whole = " ".join(argv)
    marked = redact(whole) != whole  # else no token marks another; most command lines hold no secret
    for place, token in enumerate(argv):
        before = argv[place - 1] if place else ""
        named = place > 1 and argv[place - 2] in _VALUE_FOLLOWS and is_secret_name(before)
        name, equals, value = token.partition("=")
        if named or is_secret_option(before):
            out.append(REDACTED)
        elif value and name.replace("_", "a").isalnum() and is_secret_name(name):
            out.append(f"{name}{equals}{REDACTED}")
        else:
            out.append(_redact_token(argv, place) if marked else redact(token))
    return out


def _redact_token(argv: Sequence[str], place: int) -> str:
    """Redact a token, also if only the tokens before it mark it as secret: `curl -u me:...`, `sshpass -p ...`."""
    token = argv[place]
    alone = redact(token)
    if alone != token or " " in token or not place:
        return alone
    before = " ".join(argv[max(0, place - _CONTEXT_WORDS) : place])
    return redact(f"{before} {token}").rpartition(" ")[2]


def redact_json(value: Any) -> Any:
    """Remove secrets from JSON data. Objects named `env` are environments, and lists of text are command lines.

    A text with the name of a secret is secret, except for the `key` of a signature. Names of cells (`matrix`,
    `scenario`, `label`, `axes`) stay, because later events must match them.
    """
    if _names.get() is None and _is_clean(value):
        return value
    return _redact_value(value)


def _is_clean(value: Any) -> bool:
    """Return whether JSON data has no secret, by one search in all of its texts. A cell has hundreds of texts."""
    texts: list[str] = []
    return _gather(value, texts) and not trigger_pattern().search("\n".join(texts).encode("utf-8", "surrogatepass"))


def _gather(value: Any, texts: list[str]) -> bool:
    """Collect the texts to search; return False if a name or an option already marks a secret."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _CELL_NAMES and not _gather_member(name, item, texts):
                return False
    elif isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            return all(_gather(item, texts) for item in value)
        if any(map(_may_mark, value)):
            return False
        texts.append(" ".join(value))
    return True


def _gather_member(name: str, value: Any, texts: list[str]) -> bool:
    if name == "env" and isinstance(value, dict):
        texts += map(str, value.values())
        return all(isinstance(item, str) for item in value.values()) and not any(map(is_secret_name, value))
    if isinstance(value, str):
        texts.append(value)
        return name == _SIGNATURE_KEY or not is_secret_name(name)
    return not isinstance(value, dict | list) or _gather(value, texts)


def _may_mark(token: str) -> bool:
    """Return whether a token of a command line may be secret by its name, or mark the next one."""
    if token[:1] == "-":
        return token in _VALUE_FOLLOWS or is_secret_option(token)
    return "=" in token and is_secret_name(token.partition("=")[0])


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        texts = all(isinstance(item, str) for item in value)
        return redact_argv(value) if texts else [_redact_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _redact_member(name, item) for name, item in value.items()}
    return value


def _redact_member(name: str, value: Any) -> Any:
    if name in _CELL_NAMES:
        return value
    if name == "env" and isinstance(value, dict):
        return redact_env({key: str(item) for key, item in value.items()})
    if value and isinstance(value, str) and name != _SIGNATURE_KEY and is_secret_name(name):
        return REDACTED
    return _redact_value(value)
