"""The course of one suspicious series: candidates for steps by `ruptures`, each tested, beside the other courses.

The courses compete by the Bayesian information criterion. Source: G. Schwarz, Annals of Statistics 6 (1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.nights.prefilter import RESOLUTION, without_outliers
from pytest_hetgpu.analysis.significance import larger

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.nights.prefilter import Floats

SHORTEST = 3
"""The fewest nights of a level."""
PENALTY = 10.0
"""The cost of a candidate in units of the variance between nights: low, as each candidate is tested."""
CHANCE = 1.2e-4
"""A step is one if its t-test, two-sided, has no more than this probability."""
RANK_CHANCE = 4e-4
"""A step must also pass a rank test, one-sided, at this probability: a few outliers are no step."""
NEAR = 30
"""The rank test takes no more nights than these on either side of a step, as the exact one is slow for many."""
FIRST_STEP_COST, FURTHER_STEP_COST = 1.5, 7.0
"""A course of steps must beat a line by so much, as twice the logarithm of the likelihood.

The cost of one step is low: a step that is taken for a drift is worse than the reverse.
"""


@dataclass(frozen=True, slots=True)
class Cuts:
    """The steps of a series as places of the first nights of new levels, and the p of each."""

    places: tuple[int, ...]
    chances: tuple[float, ...]
    residual: float


def calmed(logs: Floats) -> Floats:
    """Clip the values of one series that lie far from the running median."""
    import numpy as np

    found: Floats = without_outliers(logs[None, :], np.array([len(logs)]))[0]
    return found


def cuts(logs: Floats) -> Cuts:
    """Return the steps that pass both tests: of all candidates, or of the single best one.

    Args:
        logs: logarithms of the known values, oldest first.

    """
    calm = calmed(logs)
    several, single = _candidates(calm)
    tested = [_tested(logs, calm, candidates) for candidates in (several, single)]
    # A test may drop a clear step beside an unclear one: the single best step is then the better course.
    return min(
        tested, key=lambda found: (not found.places, criterion(found.residual, len(calm), 2 * len(found.places) + 1))
    )


def _candidates(calm: Floats) -> tuple[list[int], list[int]]:
    """Return the places of the best fit with a penalty for each place, and the place of the best fit with one."""
    import numpy as np
    import ruptures

    # Neighbouring nights differ by the noise alone, but for those at a step.
    apart = np.abs(np.diff(calm))
    spread = math.hypot(1.4826 * float(np.median(apart)) / math.sqrt(2), RESOLUTION)
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST).fit(((calm - calm.mean()) / spread)[:, None])
    several, single = search.predict(pen=PENALTY), search.predict(n_bkps=1)
    return [int(place) for place in several[:-1]], [int(place) for place in single[:-1]]


def _tested(logs: Floats, calm: Floats, candidates: Sequence[int]) -> Cuts:
    """Drop the weakest of the candidates that fail a test, one by one, until all of them pass."""
    places = list(candidates)
    while True:
        around = _neighbours(places, len(calm))
        residual, freedom = _residual(calm, places), len(calm) - len(places) - 1
        scores = [_score(calm, math.sqrt(residual / freedom), *one) for one in around]
        chances = [_chance(score, freedom) for score in scores]
        weak = [score for score, p in zip(scores, chances, strict=True) if p > CHANCE]
        if not weak:
            ranks = [_rank_chance(logs, *one) for one in around]
            weak = [score for score, p in zip(scores, ranks, strict=True) if p > RANK_CHANCE]
        if not weak:
            return Cuts(tuple(places), tuple(chances), residual)
        places.pop(scores.index(min(weak)))


def _neighbours(places: Sequence[int], nights: int) -> list[tuple[int, int, int]]:
    """Return each place with the one before and the one after it."""
    edges = [0, *places, nights]
    return list(zip(edges, edges[1:], edges[2:], strict=False))


def without_steps(logs: Floats, places: Sequence[int]) -> Floats:
    """Subtract from each night the level that it belongs to."""
    import numpy as np

    return np.concatenate([part - part.mean() for part in np.split(logs, list(places))])


def _residual(calm: Floats, places: Sequence[int]) -> float:
    """Return the sum of squares about the levels between these places."""
    edges = [0, *places, len(calm)]
    within = sum(float(calm[start:end].var()) * (end - start) for start, end in pairwise(edges))
    return within + len(calm) * RESOLUTION**2


def _score(calm: Floats, deviation: float, start: int, place: int, end: int) -> float:
    """Return the distance of the levels before and after a place in units of its standard error."""
    apart = abs(float(calm[place:end].mean() - calm[start:place].mean()))
    return apart / (deviation * math.sqrt(1 / (place - start) + 1 / (end - place)))


def _chance(score: float, freedom: int) -> float:
    """Return the two-sided p of a t-score."""
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -score))


def _rank_chance(logs: Floats, start: int, place: int, end: int) -> float:
    """Return the one-sided p of the nights next to a place by their ranks."""
    before, after = logs[max(start, place - NEAR) : place].tolist(), logs[place : min(end, place + NEAR)].tolist()
    return min(larger(before, after), larger(after, before))


def line(logs: Floats) -> tuple[float, float]:
    """Return the rise of the fitted line over all nights, and the sum of squares about it."""
    import numpy as np

    calm = calmed(logs)
    nights = np.arange(len(calm)) - (len(calm) - 1) / 2
    slope = float(nights @ calm / (nights @ nights))
    rest = calm - calm.mean() - slope * nights
    return slope * (len(calm) - 1), float(rest @ rest) + len(calm) * RESOLUTION**2


def is_line(about: float, found: Cuts, nights: int) -> bool:
    """Return whether a line with this sum of squares describes the nights better than the steps found."""
    gain = nights * math.log(about / found.residual)
    return gain < FIRST_STEP_COST + FURTHER_STEP_COST * (len(found.places) - 1)


def criterion(residual: float, nights: int, parameters: int) -> float:
    """Return the Bayesian information criterion of a course: the lower the better."""
    return nights * math.log(residual / nights) + parameters * math.log(nights)
