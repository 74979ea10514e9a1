"""Finds beginnings and ends of long secret values whose rest was cut before the text was redacted.

pytest shows `'abcdef...uvwxyz'` for a long text, in assertions and among local variables. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

LONG = 64
"""Characters; only longer values are searched for in pieces."""

_SHORTEST = 6  # characters of a piece with dots at its cut
_SHORTEST_WITHOUT_DOTS = 32  # characters of a piece without
_DOTS = "..."


class SecretPieces:
    """A search for the beginnings and ends of secrets (each in one of its forms)."""

    def __init__(self, forms: Iterable[str]) -> None:
        self._heads: dict[str, list[str]] = defaultdict(list)
        self._tails: dict[str, list[str]] = defaultdict(list)
        for form in forms:
            if len(form) > LONG:
                self._heads[form[:_SHORTEST]].append(form)
                self._tails[form[-_SHORTEST:]].append(form)
        # A lookahead: a piece may begin within the edge of another one.
        self._pattern = re.compile(f"(?=({'|'.join(map(re.escape, self.edges))}))") if self._heads else None

    @property
    def edges(self) -> list[str]:
        """Texts of which each piece holds one."""
        return sorted({*self._heads, *self._tails})

    def without(self, text: str, mark: str) -> str:
        """Replace each piece in the text by `mark`."""
        kept: list[str] = []
        at = 0
        for found in self._pattern.finditer(text) if self._pattern else ():
            if found.start() < at:
                continue
            start, end = self._piece(text, at, found.start(), found[1])
            if end > start:
                kept += text[at:start], mark
                at = end
        return "".join((*kept, text[at:]))

    def _piece(self, text: str, least: int, start: int, edge: str) -> tuple[int, int]:
        """Return the range of the piece at a found edge, at or after `least`; an empty range for none."""
        after = max(
            (_common_prefix_length(text[start : start + len(one)], one) for one in self._heads.get(edge, ())), default=0
        )
        if after >= _SHORTEST_WITHOUT_DOTS or (after and text.startswith(_DOTS, start + after)):
            return start, start + after
        end = start + _SHORTEST
        whole = self._tails.get(edge, ())
        before = max(
            (_common_prefix_length(text[max(least, end - len(one)) : end][::-1], one[::-1]) for one in whole), default=0
        )
        if before >= _SHORTEST_WITHOUT_DOTS or (before and text.endswith(_DOTS, least, end - before)):
            return end - before, end
        return start, start


def _common_prefix_length(one: str, other: str) -> int:
    """Count the characters that two texts share at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
