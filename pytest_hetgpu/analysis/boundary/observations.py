"""Observations of cells for one question: how often each failed in the way in question, and how often it did not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

# A pass inside a condition, if no cell was seen both ways, costs more than any condition that leaves it out.
_CONTRADICTED = 40.0
# Beta prior of the rate at which cells of a flaky condition fail.
_ALPHA, _BETA = 2.0, 1.0
_MISTAKEN = 0.02


@dataclass(frozen=True)
class Observations:
    """Number of runs per cell that failed in the way in question, and that did otherwise. Other cells do not count."""

    fails: Mapping[int, int] = field(default_factory=dict)
    passes: Mapping[int, int] = field(default_factory=dict)
    #: whether cells count as if one had been seen both ways
    assumed_flaky: bool = False

    @cached_property
    def failing(self) -> int:
        """The cells that failed at least once."""
        return sum(1 << cell for cell, count in self.fails.items() if count)

    @cached_property
    def passing(self) -> int:
        """The cells that passed at least once, and never failed."""
        return sum(1 << cell for cell, count in self.passes.items() if count) & ~self.failing

    @cached_property
    def flaky(self) -> bool:
        """Whether a cell was seen both ways."""
        return self.assumed_flaky or any(self.fails.get(cell, 0) and count for cell, count in self.passes.items())

    @cached_property
    def rate(self) -> float:
        """The share of failed runs of the cells that failed at least once."""
        fails = sum(self.fails.values())
        passes = sum(self.passes.get(cell, 0) for cell, count in self.fails.items() if count)
        return fails / (fails + passes) if fails else 1.0

    @cached_property
    def sure(self) -> int:
        """The cells that passed so often that they would have failed: once, unless a cell was seen both ways."""
        if not self.flaky:
            return self.passing
        enough = math.ceil(math.log(_MISTAKEN) / math.log(1 - min(self.rate, 0.98)))
        return sum(1 << cell for cell, count in self.passes.items() if count >= enough) & ~self.failing

    @cached_property
    def _groups(self) -> tuple[tuple[int, int, int], ...]:
        """The cells with equal numbers of fails and passes: `(mask, fails, passes)`."""
        groups: Counter[tuple[int, int]] = Counter()
        for cell in {*self.fails, *self.passes}:
            groups[self.fails.get(cell, 0), self.passes.get(cell, 0)] += 1 << cell
        return tuple((mask, *counts) for counts, mask in groups.items())

    def runs(self, mask: int) -> tuple[int, int]:
        """Return the numbers of failed and of passed runs of a set of cells."""
        fails = passes = 0
        for cells, failed, passed in self._groups:
            if count := (cells & mask).bit_count():
                fails += count * failed
                passes += count * passed
        return fails, passes

    def evidence(self, mask: int) -> float:
        """Return the logarithm of the likelihood of the runs of cells for which a condition holds."""
        if not self.flaky:
            return -_CONTRADICTED * (self.passing & mask).bit_count()
        fails, passes = self.runs(mask)
        return _log_beta(fails + _ALPHA, passes + _BETA) - _log_beta(_ALPHA, _BETA)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
