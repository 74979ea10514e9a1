"""A bounded sample of a log's lines: from its head, middle and tail."""

from __future__ import annotations

from pathlib import Path

_BYTES = 1 << 15
_MOST_LINES = 80


def sample_lines(path: Path) -> list[bytes]:
    """Return whole lines of the log without their ends, up to 80 from each of three places; none of a missing log."""
    try:
        with path.open("rb") as log:
            size = path.stat().st_size
            places = sorted({0, max(0, size // 2 - _BYTES // 2), max(0, size - _BYTES)})
            if size <= _BYTES * 3:
                return _spread(log.read(_BYTES * 3).split(b"\n"), _MOST_LINES * 3)
            lines: list[bytes] = []
            for place in places:
                log.seek(place)
                found = log.read(_BYTES).split(b"\n")
                lines += _spread(found[:-1] if not place else found[1:] if place == places[-1] else found[1:-1])
            return lines
    except FileNotFoundError:
        return []


def _spread(lines: list[bytes], most: int = _MOST_LINES) -> list[bytes]:
    """Return runs of consecutive lines: the first and the last."""
    return lines if len(lines) <= most else lines[: most // 2] + lines[-(most - most // 2) :]


def may_be_envelope(sample: list[bytes]) -> bool:
    """Return whether most lines hold what JSON, `key=value` pairs or CSV consist of. Other logs need no closer look."""
    lines = [line for line in sample if line.strip()]
    first = lines[0] if lines else b""
    like = sum(line.rstrip().endswith(b"}") or b'="' in line for line in lines)
    return like > len(lines) // 2 or any(first.count(sign) and b" " not in first for sign in (b",", b";", b"\t"))
