"""Figures that a script writes into a page: what stands between two comments of its name is replaced."""

from __future__ import annotations

import re
from pathlib import Path


def write(page: Path, name: str, text: str) -> None:
    """Puts `text` between `<!-- NAME -->` and `<!-- end of NAME -->`; exits where the page has no such place."""
    place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
    before = page.read_text(encoding="utf-8")
    after, count = place.subn(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", before)
    if count != 1:
        raise SystemExit(f"{page}: there is no place `<!-- {name} -->` in it, or more than one")
    page.write_text(after, encoding="utf-8")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table of Markdown, in the form that the pages have: without outer pipes."""
    return "\n".join((" | ".join(head), "|".join(("---",) * len(head)), *(" | ".join(row) for row in rows)))
