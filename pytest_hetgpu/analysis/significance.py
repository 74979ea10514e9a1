"""Exact tests of a slowdown, and intervals of a ratio, that assume no distribution of times. Pure.

Times of messages are skewed and have long tails. Tests by ranks and signs fit them, tests on means do not. The source
is Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 15, rules 5 to 7. Each test returns
the probability (p) that chance alone shows as much if nothing is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

_MOST_PAIRS = 10_000
"""Beyond so many pairs of values the exact distribution takes seconds, and the normal one differs by less than 1 %."""


def larger(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return p that `ones` are no larger than `others`: one-sided Mann-Whitney U, exact.

    Both must be drawn alike. Source: H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947). Equal
    pairs count as not larger, so that rounded times never look more significant than they are. Return 1.0 if either is
    empty.
    """
    wins = sum(one > other for one in ones for other in others)
    if len(ones) * len(others) > _MOST_PAIRS:
        middle, spread = _normal(len(ones), len(others))
        return math.erfc((wins - 0.5 - middle) / spread / math.sqrt(2)) / 2
    ways = _ways(len(ones), len(others))
    return sum(ways[wins:]) / sum(ways)


def ratio_interval(ones: Sequence[float], others: Sequence[float], chance: float = 0.05) -> tuple[float, float] | None:
    """Return the ratios of the medians behind `ones` and `others` that the exact rank test does not reject.

    These are the pairwise ratios without the `k` lowest and highest, where k such ratios have less than half of
    `chance`. Source: J. L. Hodges and E. L. Lehmann, Annals of Mathematical Statistics 34 (1963). Return None if the
    values are too few for this chance: four and four are enough for 0.05. All values must be positive.
    """
    dropped = _dropped(len(ones), len(others), chance / 2)
    if not dropped:
        return None
    ratios = sorted(one / other for one in ones for other in others)
    return ratios[dropped - 1], ratios[-dropped]


def _dropped(ones: int, others: int, chance: float) -> int:
    """Return how many of the lowest numbers of won pairs have no more than this probability together."""
    if ones * others > _MOST_PAIRS:
        middle, spread = _normal(ones, others)
        return max(0, math.floor(middle - NormalDist().inv_cdf(1 - chance) * spread))
    ways, below, dropped = _ways(ones, others), 0, 0
    for count in ways:
        below += count
        if below > chance * sum(ways):
            break
        dropped += 1
    return dropped


def _normal(ones: int, others: int) -> tuple[float, float]:
    """Return mean and standard deviation of the number of won pairs, which is normal for many values."""
    return ones * others / 2, math.sqrt(ones * others * (ones + others + 1) / 12)


def rate_interval(failed: int, runs: int) -> tuple[float, float]:
    """Return the interval of 95 % of the rate behind `failed` of `runs`, which are at least one.

    Source: E. B. Wilson, Journal of the American Statistical Association 22 (1927).
    """
    share, square = failed / runs, 1.96**2
    middle = (share + square / (2 * runs)) / (1 + square / runs)
    reach = 1.96 / (1 + square / runs) * math.sqrt(share * (1 - share) / runs + square / (4 * runs * runs))
    return max(0.0, middle - reach), min(1.0, middle + reach)


@lru_cache(maxsize=64)
def _ways(ones: int, others: int) -> tuple[int, ...]:
    """In how many orders of so many values the ones win 0, 1, ... pairs: the Gaussian binomial's coefficients."""
    ways = [1] + [0] * (ones * others)
    for place in range(1, ones + 1):
        for wins in range(len(ways) - 1, others + place - 1, -1):
            ways[wins] -= ways[wins - others - place]
        for wins in range(place, len(ways)):
            ways[wins] += ways[wins - place]
    return tuple(ways)


def above(values: Sequence[float], bound: float) -> float:
    """Return p that the median behind `values` is no larger than `bound`: one-sided sign test, exact.

    Source: W. J. Dixon and A. M. Mood, Journal of the American Statistical Association 41 (1946). Return 1.0 for no
    values.
    """
    number = len(values)
    over = sum(value > bound for value in values)
    return sum(math.comb(number, hits) for hits in range(over, number + 1)) / (1 << number)


def any_of(chances: Sequence[float]) -> float:
    """Return p that none of several findings is real, by Simes' rule: many weak findings count as one strong one.

    Source: R. J. Simes, Biometrika 73 (1986); Y. Benjamini and Y. Hochberg, Journal of the Royal Statistical Society B
    57 (1995). The rule holds for independent findings, and for findings that rise and fall together, as times of
    neighbouring sizes do. Return 1.0 for no findings.
    """
    number = len(chances)
    return min((number * chance / place for place, chance in enumerate(sorted(chances), 1)), default=1.0)
