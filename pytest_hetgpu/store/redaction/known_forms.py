"""Finds known secret values in bytes, in any printed form. Pure.

A search first finds the head of a form: all forms of a private key exceed the memory of RE2. It compares the rest at
each head.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from pytest_hetgpu.store.redaction import secret_values

_HEAD = 32  # bytes
_BASE64_HEAD = 12  # characters, with a gap between any two
_PREFIX = 4  # bytes that tell most forms apart
_WIDEST_GAP = 4  # bytes per character of base64, on average
# Base64 is wrapped at some column. A text in JSON has line ends as two characters.
_GAP = rb"(?:[ \t\r\n]|\\+[rn])*"
_GAPS = re.compile(_GAP)


class SecretForms(NamedTuple):
    """The forms of all values: `texts`, and the same as `surrogatepass` encodes them."""

    #: every form
    texts: frozenset[str]
    #: forms by their first bytes, the longest first
    plain: Mapping[bytes, list[bytes]]
    #: as `plain`; line ends may stand between any two of their characters
    base64: Mapping[bytes, list[bytes]]
    #: an expression in RE2's syntax that matches the head of every form, in undecoded bytes, too
    heads: bytes
    #: bytes that a form takes at most
    longest: int

    def end(self, data: bytes, start: int) -> int:
        """Return the end of the longest form that begins at `start`; `start` if none does."""
        near = data[start : start + self.longest]
        plain = _longest_match(self.plain, near)
        base64 = _longest_match(self.base64, _GAPS.sub(b"", near)) if self.base64 else 0
        found = re.match(rb"(?:%b[\w+/=-]){%d}" % (_GAP, base64), near) if base64 > plain else None
        return start + (found.end() if found else plain)


def forms_of_values(values: Iterable[str]) -> SecretForms:
    """Collect the forms of values."""
    values = tuple(values)
    texts = {form for value in values for form in secret_values.printed_forms(value)}
    plain = {form.encode("utf-8", "surrogatepass") for form in texts}
    encoded = {form for value in values for form in secret_values.base64_forms(value)}
    base64 = {form.encode() for form in encoded} - plain
    heads = {re.escape(form[:_HEAD]) for form in plain.union(*map(_file_bytes, texts))}
    heads |= {_base64_head(form) for form in base64}
    longest = max([0, *map(len, plain), *(_WIDEST_GAP * len(form) for form in base64)])
    return SecretForms(
        frozenset(texts | encoded), _group_by_prefix(plain), _group_by_prefix(base64), b"|".join(sorted(heads)), longest
    )


def _longest_match(forms: Mapping[bytes, list[bytes]], data: bytes) -> int:
    """Return the length of the longest form with which the data begin."""
    return next((len(form) for form in forms.get(data[:_PREFIX], ()) if data.startswith(form)), 0)


def _group_by_prefix(forms: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    found: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for form in sorted(forms, key=len, reverse=True):
        found[form[:_PREFIX]].append(form)
    return dict(found)


def _base64_head(form: bytes) -> bytes:
    return _GAP.join(re.escape(form[place : place + 1]) for place in range(min(len(form), _BASE64_HEAD)))


def _file_bytes(form: str) -> Iterator[bytes]:
    """Yield a form as a file contains it, if its surrogates mean bytes that are not UTF-8."""
    with suppress(UnicodeEncodeError):
        yield form.encode("utf-8", "surrogateescape")
