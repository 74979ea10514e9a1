"""Values that are secret wherever they appear: chosen from environments and settings, in each printed form.

The name of a variable marks its value as secret. Some such values cannot be searched for in other text: `true`,
`1048576`, a path, a common word. Removing them everywhere would blank out a report. Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_hetgpu.model.credentials import LOCATION_NAME, URL_PASSWORD
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.redaction.words import WORDS

SHORTEST = 6
"""Characters of a value that is searched for; a shorter one is redacted only beside its name."""

_LONGEST = 1 << 16
_SHORTEST_LINE = 16  # characters of one line of a value of several lines
_LEAST_DIFFERENT = 3  # characters
_LONGEST_WORD = 24  # characters of a path's segment that a person would type
_COMMON = frozenset(WORDS["common"]) | {word.value for word in (*Kind, *Verdict)}
_PATH = re.compile(r"(?:[A-Za-z]:|~|\.{0,2})?(?:[/\\][^/\\\s]*)+")
_NUMBER = re.compile(r"[\d\s.,:;+*/%x-]+|0[xX][0-9A-Fa-f]+")
_LINE_ENDS = re.compile(r"[\r\n]+")


def is_distinctive(value: str) -> bool:
    """Return whether a secret value can be searched for in any text."""
    bare = value.strip().strip("\"'")
    if not SHORTEST <= len(bare) <= _LONGEST or len(set(bare)) < _LEAST_DIFFERENT:
        return False
    if bare.lower() in _COMMON or bare.lower() in "[redacted]" or _NUMBER.fullmatch(bare):
        return False
    return not _is_path(bare)


def secrets_in_environment(env: Mapping[str, str], is_secret_name: Any) -> Iterator[str]:
    """Yield the values that are secret by the names of their variables, and the passwords in URLs."""
    for name, value in env.items():
        if is_secret_name(name) and not LOCATION_NAME.search(name):
            yield value
        if "://" in value:
            yield from URL_PASSWORD.findall(value)


def secrets_in_settings(tree: Any, is_secret_name: Any, is_secret_option: Any) -> Iterator[str]:
    """Yield the values in settings (JSON data) under a secret name, or after a secret option on a command line."""
    if isinstance(tree, Mapping):
        texts = {str(name): item for name, item in tree.items() if isinstance(item, str)}
        yield from secrets_in_environment(texts, is_secret_name)
        for item in tree.values():
            yield from secrets_in_settings(item, is_secret_name, is_secret_option)
    elif isinstance(tree, list | tuple):
        before = ""
        for item in tree:
            if isinstance(item, str):
                name, _, value = item.partition("=")
                if is_secret_option(before):
                    yield item
                elif value:
                    secret = is_secret_option(name)
                    yield from (value,) if secret else secrets_in_environment({name: value}, is_secret_name)
                before = item
            else:
                yield from secrets_in_settings(item, is_secret_name, is_secret_option)


def printed_forms(value: str) -> set[str]:
    """Return each text that shows a value: unchanged, and as URLs, JSON, HTML, Python and shells write it."""
    import html
    from urllib.parse import quote, quote_plus

    found: set[str] = set()
    for part in {value, value.strip(), *_searchable_lines(value)}:
        if not is_distinctive(part):
            continue
        data = to_bytes(part)
        spelled = {quote(data, safe=""), quote(data), quote(data, safe="!~*'()"), quote_plus(data)}
        found |= {part, *spelled, *(re.sub(r"%[0-9A-F]{2}", _lower, one) for one in spelled)}
        found |= {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1]}
        found |= {json.dumps(part)[1:-1].replace("/", "\\/"), repr(part)[1:-1]}
        found |= {html.escape(part), html.escape(part, quote=False), part.replace("'", "'\"'\"'")}
        found |= {part.replace("'", "'\\''"), re.sub(r"([^\w@%+=:,./-])", r"\\\1", part)}
    return {one for one in found if len(one) >= SHORTEST}


def base64_forms(value: str) -> set[str]:
    """Return each text that shows a value in base64, without the line ends that may be between any two characters."""
    parts = {part for part in (value, value.strip(), *_searchable_lines(value)) if is_distinctive(part)}
    return {form for part in parts for form in _aligned_base64(to_bytes(part))}


def to_bytes(text: str) -> bytes:
    """Encode any text; bytes that are not UTF-8 (in an environment, a log) are restored."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a surrogate pair, as JSON can have it
        return text.encode("utf-8", "surrogatepass")


def _searchable_lines(value: str) -> list[str]:
    """Return the lines of a value of several lines, as far as each can be searched for alone."""
    lines = [line.strip() for line in _LINE_ENDS.split(value.strip())]
    return [one for one in lines if len(one) >= _SHORTEST_LINE and not one.startswith("--")] if len(lines) > 1 else []


def _aligned_base64(data: bytes) -> set[str]:
    """Return the part of a value's base64 that is independent of its surroundings, at each of the three alignments."""
    found: set[str] = set()
    for before in range(3):
        first, last = -(-before * 4 // 3), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"\0" * before + data).decode()[first:last])
    return found


def _is_path(text: str) -> bool:
    """Return whether a text is the path of a file. The contents of the file are secret, the path is not."""
    found = _PATH.fullmatch(text.removeprefix("file://"))
    return bool(found) and not any(map(_is_random, re.split(r"[/\\]", text)))


def _is_random(text: str) -> bool:
    kinds = (str.islower, str.isupper, str.isdigit)
    return len(text) > _LONGEST_WORD or (len(text) >= 8 and all(any(map(kind, text)) for kind in kinds))


def _lower(found: re.Match[str]) -> str:
    return found[0].lower()
