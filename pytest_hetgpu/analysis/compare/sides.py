"""The two sides of a comparison, and the ways in which one thing can differ between them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

Identity = tuple[str, str]
"""A cell: its matrix and its id."""


class Way(str, enum.Enum):
    """How something differs; only `worse` makes a comparison fail."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"
    APPEARED = "appeared"
    VANISHED = "vanished"
    UNLIKE = "unlike"
    SAME = "same"


@dataclass(frozen=True)
class Side:
    """Runs under the name that the user gave, the newest first. `note` is what is to be said of the choice."""

    name: str
    runs: tuple[RunSummary, ...]
    note: str = ""

    @cached_property
    def cells(self) -> Mapping[Identity, tuple[CellSummary, ...]]:
        """Each cell as it was in every run that has it, the newest first."""
        found: dict[Identity, list[CellSummary]] = {}
        for run in self.runs:
            for cell in run.cells:
                found.setdefault((cell.matrix, cell.scenario), []).append(cell)
        return {identity: tuple(cells) for identity, cells in found.items()}

    @cached_property
    def matrices(self) -> Mapping[str, str]:
        """The matrices of the newest run that has each, with the SHA-256 of its file, "" where that is not known."""
        found: dict[str, str] = {}
        for run in self.runs:
            for matrix in run.matrices:
                found.setdefault(matrix.name, matrix.sha256)
        return {**dict.fromkeys((matrix for matrix, _ in self.cells), ""), **found}

    def often(self, times: int) -> bool:
        """Whether what so many runs have is what one can expect of the next: half of them do."""
        return times * 2 >= len(self.runs)
