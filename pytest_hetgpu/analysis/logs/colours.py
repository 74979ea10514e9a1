"""Blocks of a log without the colours inside their lines, for text searches; quoted lines keep them.

`grep --color` writes `ESC[01;31mESC[KErrorESC[mESC[K`, ccze and others write the like.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property

from pytest_hetgpu.model.lazy_regex import lazy

# SGR and EL (ECMA-48), and the change of character set that `tput sgr0` writes.
_COLOURS = lazy(rb"\x1b(?:\[[0-9;:]*[mK]|\([0-9A-B])")


def without_colours(block: bytes) -> bytes:
    """Return the block without colour sequences.

    They hold no line ends. A sequence cut by the end of the block stays.
    """
    return _COLOURS.sub(b"", block) if b"\x1b" in block else block


class ColouredBlock:
    """A block of a log: `plain` is without colours, `whole` maps a part of it to the log."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.plain = without_colours(block)

    def whole(self, start: int, end: int) -> bytes:
        """From `start` to `end` of `plain` with its colours, also those at its ends."""
        if len(self.plain) == len(self._block):
            return self._block[start:end]
        places, lengths = self._removed
        before, after = lengths[bisect_left(places, start)], lengths[bisect_right(places, end)]
        return self._block[start + before : end + after]

    @cached_property
    def _removed(self) -> tuple[list[int], list[int]]:
        """Positions in `plain` at which colours were removed, and the bytes removed before each and in total."""
        places, lengths = [], [0]
        for found in _COLOURS.finditer(self._block):
            places.append(found.start() - lengths[-1])
            lengths.append(lengths[-1] + found.end() - found.start())
        return places, lengths
