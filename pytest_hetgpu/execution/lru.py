"""The last outcomes of a process; all of them would take 9 kB per cell for hours."""

from __future__ import annotations

from pytest_hetgpu.model.outcome import Outcome

MOST = 64


class LruCache(dict[tuple[str, str], Outcome]):
    """The last `MOST` outcomes that were put in, by matrix and label."""

    def __setitem__(self, cell: tuple[str, str], outcome: Outcome) -> None:
        self.pop(cell, None)
        super().__setitem__(cell, outcome)
        if len(self) > MOST:
            del self[next(iter(self))]
