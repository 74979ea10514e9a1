"""Sets of cells of a matrix as one number: bit i is cell i of the product of all values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_BITS = 4_000_000
"""The largest product of values; sets of larger ones are not stored."""

Axes = Mapping[str, Sequence[str]]


def axes_of(names: Sequence[str], cells: Iterable[Sequence[str]]) -> Axes:
    """Return the values of each axis, in the order of the cells."""
    found: list[dict[str, None]] = [{} for _ in names]
    for cell in cells:
        for values, value in zip(found, cell, strict=True):
            values[value] = None
    return {name: tuple(values) for name, values in zip(names, found, strict=True)}


def pack(axes: Axes, cells: Iterable[Sequence[str]]) -> str:
    """Return a set of cells as a hexadecimal number; "" if there are too many products of values."""
    size = math.prod(map(len, axes.values()))
    if size > MOST_BITS:
        return ""
    places = [{value: place for place, value in enumerate(values)} for values in axes.values()]
    bits = bytearray(size // 8 + 1)
    for cell in cells:
        number = 0
        for known, value in zip(places, cell, strict=True):
            number = number * len(known) + known[value]
        bits[number >> 3] |= 1 << (number & 7)
    return f"{int.from_bytes(bits, 'little'):x}"


def unpack(axes: Axes, text: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a set in the order of the product."""
    sizes = [len(values) for values in axes.values()]
    if not text or math.prod(sizes) > MOST_BITS:
        return
    bits = int(text, 16).to_bytes(len(text) // 2 + 1, "little")
    for place, byte in enumerate(bits):
        while byte:
            low = byte & -byte
            yield _cell(axes, sizes, place * 8 + low.bit_length() - 1)
            byte ^= low  # noqa: PLW2901


def _cell(axes: Axes, sizes: Sequence[int], number: int) -> tuple[str, ...]:
    values = []
    for known, size in zip(reversed(list(axes.values())), reversed(sizes), strict=True):
        number, place = divmod(number, size)
        values.append(known[place])
    return tuple(reversed(values))
