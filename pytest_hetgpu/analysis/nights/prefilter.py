"""A cheap scan of many series at once, which passes on those that are worth a search for change points.

Each night, the last nights of several windows are compared with the nights before them by a t-test on logarithms.
A look at night 60 repeats the looks of all nights before it. So one rate of false alarms holds for both readings.

The bound of p falls with the sixth power of the number of nights before the window, if these are fewer than 35.
A short past needs a clearer step, and there are many early looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Counts = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

WINDOWS = ((5, 2.9e-5), (25, 8e-5), (60, 1e-5))
"""Nights of each window, and the two-sided p that raises suspicion.

Together they raise about 1 false alarm in 1,000 series of 60 nights, with a look each night.
"""
PAST = 8
"""The fewest nights before a window."""
LEAST = PAST + WINDOWS[0][0]
"""The fewest values of a series that can be tested."""
ENOUGH_PAST = 35
"""With so many nights before the window, the bound of p holds in full."""
LONGEST_PAST = 90
"""Nights that lie longer before the window do not count."""
CLIP, REACH = 5.0, 6.0
"""Values further from the running median, or from the median, than so many robust deviations count as being there."""
AROUND = 9
"""Nights of the running median."""
RESOLUTION = 2e-4
"""Relative noise that is added to each series, so that rounded values do not look exact."""
LEAST_SHARE = 0.15
"""The lesser of two levels has at least this share of the nights."""
LEAST_ALTERNATING = 30
"""The fewest values of a series that may have two levels."""


def suspects(nights: Floats) -> Flags:
    """Return per series (row) whether it may have a step, a drift or two levels; see `scan`."""
    return scan(nights)[0]


def scan(nights: Floats) -> tuple[Flags, Floats]:
    """Return per series whether it may have a step, a drift or two levels, and its standard deviation.

    Args:
        nights: logarithms of the values, series x nights, NaN for a missing night.

    """
    import numpy as np

    packed, counts = pack(nights)
    calm = without_outliers(packed, counts)
    levelled = two_levelled(_ordered(within_reach(packed, counts)), counts)
    number = np.maximum(counts, 2)
    middles = np.nansum(calm, axis=1) / number
    deviations = np.sqrt(np.nansum((calm - middles[:, None]) ** 2, axis=1) / (number - 1))
    return _moved(calm, counts) | levelled, deviations


def pack(nights: Floats) -> tuple[Floats, Counts]:
    """Move the known values of each row to its left, in their order; return them and their numbers."""
    import numpy as np

    missing = np.isnan(nights)
    if not missing.any():
        return nights, np.full(len(nights), nights.shape[1])
    order = np.argsort(missing, axis=1, kind="stable")
    return np.take_along_axis(nights, order, axis=1), (~missing).sum(axis=1)


def _ordered(packed: Floats) -> Floats:
    """Sort each row; NaN comes last."""
    import numpy as np

    found: Floats = np.sort(packed, axis=1)
    return found


def _middle(ordered: Floats, counts: Counts) -> Floats:
    """Return the median of each sorted row as a column."""
    import numpy as np

    rows = np.arange(len(ordered))
    high, low = np.maximum(counts // 2, 0), np.maximum((counts - 1) // 2, 0)
    found: Floats = (ordered[rows, low] + ordered[rows, high]) / 2
    return found[:, None]


def without_outliers(packed: Floats, counts: Counts) -> Floats:
    """Limit each value to `CLIP` robust standard deviations about the running median, which keeps steps."""
    import numpy as np

    columns = packed.shape[1]
    width = min(AROUND, columns)
    starts = np.clip(np.arange(columns) - width // 2, 0, np.maximum(counts - width, 0)[:, None])
    views = np.lib.stride_tricks.sliding_window_view(packed, width, axis=1)
    middles = np.partition(views, width // 2, axis=2)[:, :, width // 2]
    running = np.take_along_axis(middles, starts, axis=1)
    return _clip(packed, running, counts, CLIP)


def within_reach(packed: Floats, counts: Counts) -> Floats:
    """Limit each value to `REACH` robust standard deviations about the median of its row, which keeps two levels."""
    return _clip(packed, _middle(_ordered(packed), counts), counts, REACH)


def _clip(packed: Floats, middle: Floats, counts: Counts, reach: float) -> Floats:
    """Limit each row to so many robust standard deviations about the middle; an exact row stays."""
    import numpy as np

    spread = reach * 1.4826 * _middle(_ordered(np.abs(packed - middle)), counts)
    spread[spread == 0] = np.inf
    found: Floats = np.clip(packed, middle - spread, middle + spread)
    return found


def _moved(packed: Floats, counts: Counts) -> Flags:
    """Return per row whether any window differs from the nights before it."""
    import numpy as np

    # Sums of squares of small numbers lose no digits.
    centred = packed - np.nanmean(np.where(counts[:, None] > 0, packed, 0), axis=1, keepdims=True)
    zeros = np.zeros((len(packed), 1))
    sums = np.hstack([zeros, np.cumsum(centred, axis=1)])
    squares = np.hstack([zeros, np.cumsum(centred**2, axis=1)])
    found = np.zeros(len(packed), dtype=bool)
    for width, bound in WINDOWS:
        found |= _window(sums, squares, width, bound)
    return found


def _window(sums: Floats, squares: Floats, width: int, bound: float) -> Flags:
    """Compare the last `width` nights with those before them, as of each night; NaN compares as no difference."""
    import numpy as np
    from scipy.special import stdtrit

    ends = np.arange(width + PAST, sums.shape[1])
    if not len(ends):
        return np.zeros(len(sums), dtype=bool)
    starts = ends - width
    firsts = np.maximum(starts - LONGEST_PAST, 0)
    past = starts - firsts
    new, old = sums[:, ends] - sums[:, starts], sums[:, starts] - sums[:, firsts]
    # The variance within the window and within the past, pooled.
    within = squares[:, ends] - squares[:, firsts] - new**2 / width - old**2 / past
    variance = np.maximum(within, 0) / (width + past - 2) + RESOLUTION**2
    apart = (new / width - old / past) ** 2 / (1 / width + 1 / past)
    limit = stdtrit(width + past - 2, bound * np.minimum(1, (past / ENOUGH_PAST) ** 6) / 2)
    found: Flags = (apart >= variance * limit**2).any(axis=1)
    return found


def two_levelled(ordered: Floats, counts: Counts) -> Flags:
    """Return per sorted row whether two levels explain nearly all of its variance.

    The best cut of normal noise explains 64 %, two levels that lie d standard deviations apart d^2 / (4 + d^2).
    """
    import numpy as np

    columns = ordered.shape[1]
    if columns < LEAST_ALTERNATING:
        return np.zeros(len(ordered), dtype=bool)
    values = np.nan_to_num(ordered - np.nan_to_num(_middle(ordered, counts)))
    below = np.cumsum(values, axis=1)[:, :-1]
    total = values.sum(axis=1, keepdims=True)
    number = np.maximum(counts, 1)[:, None]
    lower = np.arange(1, columns)
    upper = np.maximum(number - lower, 1)
    between = below**2 / lower + (total - below) ** 2 / upper - total**2 / number
    allowed = (lower >= LEAST_SHARE * number) & (number - lower >= LEAST_SHARE * number)
    best = np.where(allowed, between, 0).max(axis=1)
    whole = (values**2).sum(axis=1) - total[:, 0] ** 2 / number[:, 0] + number[:, 0] * RESOLUTION**2
    found: Flags = (counts >= LEAST_ALTERNATING) & (best >= explained(number[:, 0]) * whole)
    return found


def explained(number: Counts) -> Floats:
    """Return the share of the variance of so many values that two levels must explain."""
    found: Floats = 0.78 + 2.4 / number
    return found
