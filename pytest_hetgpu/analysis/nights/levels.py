"""Series that alternate between two levels, by a label of the nights (their host) or for no known reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.nights.prefilter import LEAST_ALTERNATING, LEAST_SHARE, two_levelled
from pytest_hetgpu.analysis.significance import larger

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.nights.prefilter import Flags, Floats

LABEL_CHANCE = 1e-6
"""The levels of two labels differ if their t-test has no more than this probability."""
LABEL_RANK_CHANCE = 3e-4
"""They must also pass a rank test, one-sided, at this probability."""
LEAST_NIGHTS = 4
"""The fewest nights of each label."""
LEAST_APART = 4.1
"""Levels without a label are so many standard deviations of the noisier one apart."""
MOST_BETWEEN = 0.1
"""At most this share of the nights lies in the middle third between such levels."""
LEAST_TURNS = 6
"""Levels without a label alternate at least so often."""
LONGEST_STAY = 6.0
"""Levels without a label stay no longer than so many nights on average, else they are steps."""


@dataclass(frozen=True, slots=True)
class Split:
    """The nights at the higher level, and the label values of both levels; `fact` is "" without a label."""

    high: Flags
    residual: float
    fact: str = ""
    at_low: tuple[str, ...] = ()
    at_high: tuple[str, ...] = ()


def by_label(logs: Floats, labels: Mapping[str, Sequence[str | None]]) -> Split | None:
    """Return the split by the label that explains the values best; None if no label does.

    Args:
        logs: logarithms of the known values.
        labels: per fact its text in each of these nights.

    """
    found = [split for fact, texts in labels.items() if (split := _by(logs, fact, texts))]
    return min(found, key=lambda split: split.residual, default=None)


def _by(logs: Floats, fact: str, texts: Sequence[str | None]) -> Split | None:
    """Return the split by one fact: its texts in two groups, cut at the widest gap between their means."""
    import numpy as np

    names = sorted({text for text in texts if text is not None})
    known = np.array([text is not None for text in texts])
    if len(names) < 2 or turns(np.array([names.index(text) for text in texts if text is not None])) < 2:
        return None
    nights = {name: np.array([text == name for text in texts]) for name in names}
    ordered = sorted(names, key=lambda name: float(logs[nights[name]].mean()))
    means = np.array([float(logs[nights[name]].mean()) for name in ordered])
    cut = int(np.argmax(np.diff(means))) + 1
    high = np.any([nights[name] for name in ordered[cut:]], axis=0)
    low = known & ~high
    if min(high.sum(), low.sum()) < LEAST_NIGHTS or not _differ(logs[low], logs[high]):
        return None
    upper = high | (~known & (logs > (logs[low].mean() + logs[high].mean()) / 2))
    return Split(upper, residual(logs, upper), fact, tuple(sorted(ordered[:cut])), tuple(sorted(ordered[cut:])))


def _differ(low: Floats, high: Floats) -> bool:
    """Return whether the values at two labels differ by a t-test and by their ranks."""
    from scipy.special import stdtr

    freedom = len(low) + len(high) - 2
    variance = (float(low.var()) * len(low) + float(high.var()) * len(high)) / freedom
    error = (variance * (1 / len(low) + 1 / len(high))) ** 0.5
    apart = float(high.mean() - low.mean())
    if not apart or (error and 2 * float(stdtr(freedom, -apart / error)) > LABEL_CHANCE):
        return False
    return larger(high.tolist()[-100:], low.tolist()[-100:]) <= LABEL_RANK_CHANCE


def by_values(logs: Floats) -> Split | None:
    """Return the split at the best cut of the values, if two levels explain them and alternate often."""
    import numpy as np

    if len(logs) < LEAST_ALTERNATING:
        return None
    ordered = np.sort(logs)
    if not two_levelled(ordered[None, :], np.array([len(logs)]))[0]:
        return None
    high = logs >= ordered[_best_cut(ordered)]
    changes = turns(high)
    if changes < LEAST_TURNS or len(logs) / (changes + 1) > LONGEST_STAY or not _far_apart(logs, high):
        return None
    return Split(high, residual(logs, high))


def _best_cut(ordered: Floats) -> int:
    """Return the place at which two levels explain most of the sorted values."""
    number = len(ordered)
    lowest = math.ceil(LEAST_SHARE * number)

    def within(place: int) -> float:
        return float(ordered[:place].var()) * place + float(ordered[place:].var()) * (number - place)

    return min(range(lowest, number - lowest + 1), key=within)


def _far_apart(logs: Floats, high: Flags) -> bool:
    """Return whether the levels differ by far more than their noise, with few nights between them."""
    lower, upper = float(logs[~high].mean()), float(logs[high].mean())
    third = (upper - lower) / 3
    between = float(((logs > lower + third) & (logs < upper - third)).mean())
    return between <= MOST_BETWEEN and upper - lower >= LEAST_APART * float(max(logs[high].std(), logs[~high].std()))


def turns(states: Floats | Flags) -> int:
    """Return how often neighbouring nights differ."""
    import numpy as np

    return int(np.count_nonzero(states[1:] != states[:-1]))


def residual(logs: Floats, high: Flags) -> float:
    """Return the sum of squares about the two levels."""
    return sum(float(logs[part].var()) * int(part.sum()) for part in (high, ~high) if part.any())
