"""Message sizes as a matrix writes them, in bytes."""

from __future__ import annotations

import re

from pytest_hetgpu.model.messages import show

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"\s*([0-9]{1,15})\s*([KMG]?)(?:i?B)?\s*", re.IGNORECASE | re.ASCII)
_LARGEST = 1 << 40
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}")


def parse_size(text: object) -> int:
    """Parse `8`, `64K`, `1M`, `2G` to bytes; K, M and G are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise ValueError(f"{show(text)} is not a size (like 8, 64K or 1M)")
    size = int(match[1]) * _UNITS[match[2].upper()]
    if not 0 < size <= _LARGEST:
        raise ValueError(f"size {text!r} is not between 1 and 1024G")
    return size


def parse_sizes(value: object) -> tuple[int, ...]:
    """Parse a size, a list of sizes, or a range: `8..64M` doubles from 8 to 64 x 1024^2 bytes, both included.

    Raises ValueError.
    """
    if isinstance(value, str):
        return _doubling(value) if ".." in value else (parse_size(value),)
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{show(value)} is not a size (like 64K), a range (like 8..64M) or a list of sizes")
    sizes = tuple(parse_size(item) for item in value)
    seen: set[int] = set()
    for size in sizes:
        if size in seen:
            raise ValueError(f"size {show_size(size)} is listed twice")
        seen.add(size)
    return sizes


def _doubling(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("..")
    try:
        low, high = parse_size(first), parse_size(last)
    except ValueError as error:
        raise ValueError(f"range {show(text)}: {error}") from None
    if low > high:
        raise ValueError(f"range {text!r} runs backwards")
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 2
    return (*sizes, high)


def ordinal(value: str) -> tuple[int, ...]:
    """Return the place of a size, a number or a version among others; () for other values."""
    if _VERSION.fullmatch(value):
        return tuple(map(int, value.split(".")))
    try:
        return (parse_size(value),)
    except ValueError:
        return ()


def show_size(size: int) -> str:
    """Format a size exactly and as short as possible: 1048576 is `1M`, 1000 is `1000`."""
    for unit in ("G", "M", "K"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
