"""Two sides of a comparison, and the kinds of change between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

Identity = tuple[str, str]
"""A cell: its matrix and its id."""


class ChangeKind(str, enum.Enum):
    """Kind of a change; only `worse` makes a comparison fail."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"
    APPEARED = "appeared"
    VANISHED = "vanished"
    UNLIKE = "unlike"
    SAME = "same"


@dataclass(frozen=True)
class Side:
    """Runs under the user's name for them, the newest first; `note` is a remark on the choice."""

    name: str
    runs: tuple[RunSummary, ...]
    note: str = ""

    @cached_property
    def cells(self) -> Mapping[Identity, tuple[CellSummary, ...]]:
        """Each cell in every run that has it, the newest first."""
        found: dict[Identity, list[CellSummary]] = {}
        for run in self.runs:
            for cell in run.cells:
                found.setdefault((cell.matrix, cell.scenario), []).append(cell)
        return {identity: tuple(cells) for identity, cells in found.items()}

    @cached_property
    def matrices(self) -> Mapping[str, str]:
        """The matrices of the newest run that has each, with the SHA-256 of its file, "" if unknown."""
        found: dict[str, str] = {}
        for run in self.runs:
            for matrix in run.matrices:
                found.setdefault(matrix.name, matrix.sha256)
        return {**dict.fromkeys((matrix for matrix, _ in self.cells), ""), **found}

    def often(self, times: int) -> bool:
        """Return whether something seen so many times is to be expected of the next run: half of the runs have it."""
        return times * 2 >= len(self.runs)
