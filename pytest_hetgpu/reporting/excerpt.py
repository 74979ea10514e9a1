"""The quoted line of a failure with the lines around it in the log."""

from __future__ import annotations

from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.logs.output import OutputLines
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import clean

BEFORE, AFTER = 8, 30
LAST_LINE = 200_000
"""The last line number with an excerpt; later lines are quoted without their neighbours."""
_LONGEST = 400


def excerpt(log: Path, line: int) -> list[list[Any]]:
    """Return `[number, text]` of the lines around one, redacted, as a terminal shows them; [] without a log."""
    if not 0 < line <= LAST_LINE:
        return []
    try:
        lines = ((one.text or "", one.number) for one in OutputLines(log).lines())
        until = takewhile(lambda one: one[1] <= line + AFTER, lines)
        # A line that is too long comes in pieces, each with the same number.
        window = list(islice((one for one in until if one[1] >= line - BEFORE), BEFORE + AFTER + 1))
    except OSError:
        return []
    if not window:
        return []
    shown = redact("\n".join(clean(text).replace("\n", " ")[:_LONGEST] for text, _ in window)).split("\n")
    if len(shown) != len(window):
        # A private key over several lines has become one, so the line numbers are lost.
        return [[window[0][1], text] for text in shown]
    return [[number, text] for text, (_, number) in zip(shown, window, strict=True)]
