"""Parts of messages about values in users' files."""

from __future__ import annotations

from collections.abc import Iterable


def show(value: object) -> str:
    """Format a value from a user's file for an error message: short, and in YAML syntax."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a map" if value else "an empty map"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text):,} characters)"


def known(found: str, choices: Iterable[str], limit: int = 12) -> str:
    """Format `(known: a, b; did you mean 'a'?)` for the end of an error message about an unknown name."""
    import difflib

    everything = sorted(choices)
    shown = ", ".join(everything[:limit]) + (f", ... {len(everything) - limit} more" if len(everything) > limit else "")
    near = difflib.get_close_matches(found, everything, n=1)
    return f"(known: {shown or 'none'}{f'; did you mean {near[0]!r}?' if near else ''})"
