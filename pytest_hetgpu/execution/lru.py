"""Outcomes of the cells that a session came to last; all of them would be 9 kB a cell for hours."""

from __future__ import annotations

from pytest_hetgpu.model.outcome import Outcome

MOST = 64


class Remembered(dict[tuple[str, str], Outcome]):
    """By matrix and label, the last `MOST` that were put in."""

    def __setitem__(self, cell: tuple[str, str], outcome: Outcome) -> None:
        self.pop(cell, None)
        super().__setitem__(cell, outcome)
        if len(self) > MOST:
            del self[next(iter(self))]
