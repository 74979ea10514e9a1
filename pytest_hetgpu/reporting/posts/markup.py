"""Markdown that is safe to post: no mention, no reference to an issue, no command, within the limit. Pure.

GitHub and GitLab act on text: `@name` notifies people, `#12` leaves a note in another issue, and a line `/close` is a
command of GitLab. Names of cells and lines of logs may hold all of these. Code is left as it is.
"""

from __future__ import annotations

import hashlib
import re

from pytest_hetgpu.store.text import GAP, neutral_line

REST = "\n\n(The rest is left out here.)\n"
_FENCE = re.compile(r"(`{3,})([\w-]*)")
_TICKS = re.compile(r"`{3,}")


def marker(kind: str, *words: str) -> str:
    """Return the hidden first line of a post by which a later run finds it; equal words give equal markers."""
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"<!-- hetgpu {kind} {digest} -->"


def has_marker(body: str, wanted: str, line: int = 0) -> bool:
    """Return whether a post has a marker on that line. One further down may be quoted text."""
    lines = body.split("\n", line + 1)
    return len(lines) > line and lines[line].strip() == wanted


def neutral(text: str) -> str:
    """Disable mentions, references, commands and markers in Markdown with fences at the beginning of lines."""
    lines, ticks = [], ""
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line.rstrip())
        if ticks and fence and not fence[2] and len(fence[1]) >= len(ticks):
            lines.append("```")
            ticks = ""
        elif ticks:
            lines.append(_TICKS.sub(lambda found: GAP.join(found[0]), line))
        elif fence:
            # A parser that expects three backticks would end a longer fence at three backticks in the log.
            ticks = fence[1]
            lines.append(f"```{fence[2]}")
        else:
            lines.append(neutral_line(line))
    return "\n".join(lines).replace("<!-- hetgpu", f"<!{GAP}-- hetgpu")


def fit(text: str, limit: int) -> str:
    """Cut a text after the last line that fits, and close an open fence."""
    if len(text) <= limit:
        return text
    end = f"\n```{REST}"
    kept = text[: limit - len(end)]
    kept = kept.rpartition("\n")[0] or kept
    is_open = sum(line.startswith("```") for line in kept.split("\n")) % 2
    return f"{kept}{end if is_open else REST}"
