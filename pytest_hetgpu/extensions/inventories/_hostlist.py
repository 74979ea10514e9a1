"""Host lists in the syntax of Slurm: `n[1-3,07],login` (https://slurm.schedmd.com/slurm.conf.html, NodeName)."""

from __future__ import annotations

import itertools
import re

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")


def expand(text: str, most: int) -> list[str]:
    """Expand a list to its names, in order. Raises ValueError if it is invalid, or has more than `most` names."""
    names: list[str] = []
    for part in _split(text):
        pieces = [_values(piece, most) if piece.startswith("[") else [piece] for piece in _pieces(part)]
        count = 1
        for piece in pieces:
            count *= len(piece)
        if count + len(names) > most:
            raise ValueError(f"names more than {most:,} hosts")
        names += ("".join(parts) for parts in itertools.product(*pieces))
    return names


def _split(text: str) -> list[str]:
    parts = _PART.findall(text)
    if ",".join(parts) != text or not text:
        raise ValueError(f"{text[:60]!r} is no list of hosts like n[1-4,7]")
    return parts


def _pieces(part: str) -> list[str]:
    return re.findall(r"\[[^\[\]]*\]|[^\[\]]+", part)


def _values(piece: str, most: int) -> list[str]:
    values: list[str] = []
    for one in piece[1:-1].split(","):
        found = _RANGE.fullmatch(one)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise ValueError(f"{piece[:60]!r} is no range of numbers like [1-4,7]")
        first, last = int(found[1]), int(found[2] or found[1])
        if last - first + len(values) >= most:
            raise ValueError(f"names more than {most:,} hosts")
        values += (f"{number:0{len(found[1])}}" for number in range(first, last + 1))
    return values
