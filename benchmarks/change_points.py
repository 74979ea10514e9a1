"""How soon steps in nightly series are found, and how often noise is taken for one: `benchmarks/change_points.py`.

Every series has a relative noise of 3 % and a fixed seed. A step is found within n nights if a look at one of these
nights reports a step. A false alarm is counted twice: by one look at night 60, and by a look at each night up to it.
`--otava PYTHON` gives the same series to Apache Otava, installed in the environment of that interpreter.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pytest_hetgpu.analysis.nights.change_points import find_changes
from pytest_hetgpu.analysis.nights.prefilter import LEAST, suspects
from pytest_hetgpu.analysis.nights.records import CourseShape, NightSeries, SeriesChange

NOISE = 0.03
QUIET = 35
NEAR = 5
OTAVA = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    values, window = json.loads(line)
    points, _ = compute_change_points(values, window_len=window, max_pvalue=0.001, min_magnitude=0.0)
    print(json.dumps([int(point.index) for point in points]), flush=True)
"""
#: Per series the places of its steps.
Finder = Callable[[np.ndarray], list[list[int]]]
Make = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
NOISES: dict[str, Make] = {
    "normal": lambda rng, size: 1 + NOISE * rng.standard_normal(size),
    "log-normal, 30 %": lambda rng, size: rng.lognormal(0, 0.3, size),
    "Student t3": lambda rng, size: np.exp(NOISE / 3**0.5 * rng.standard_t(3, size)),
    "1 + exponential": lambda rng, size: 1 + NOISE * rng.exponential(1, size),
}


def courses(values: np.ndarray) -> list[SeriesChange]:
    """Return the courses of series x nights; those that the scan does not suspect are steady."""
    rows = np.flatnonzero(suspects(np.log(values)))
    steady = SeriesChange(CourseShape.STEADY, values.shape[1])
    found = [steady] * len(values)
    for row, course in zip(rows, find_changes([NightSeries(values[row].tolist()) for row in rows]), strict=True):
        found[row] = course
    return found


def ours(values: np.ndarray) -> list[list[int]]:
    return [[step.night for step in course.steps] for course in courses(values)]


def otava(python: str) -> Finder:
    """Return a finder that asks one process of Otava, series by series."""
    process = subprocess.Popen([python, "-c", OTAVA], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def find(values: np.ndarray) -> list[list[int]]:
        assert process.stdin
        assert process.stdout
        found = []
        for row in values:
            process.stdin.write(json.dumps([row.tolist(), 50]) + "\n")
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline()))
        return found

    return find


def stepped(seed: int, series: int, nights: int, size: float, noise: str = "normal") -> np.ndarray:
    """Return series with a step of `size` standard deviations after the quiet nights, half of them downwards."""
    values = NOISES[noise](np.random.default_rng(seed), (series, nights))
    deviation = float(np.log(values).std())
    signs = np.where(np.arange(series) % 2, -1, 1)[:, None]
    moved: np.ndarray = values * np.exp(deviation * size * signs * (np.arange(nights) >= QUIET))
    return moved


def found_within(find: Finder, values: np.ndarray, nights: int) -> float:
    """Return the share of series in which a look at one of the first nights after the step finds it."""
    open_ = np.arange(len(values))
    for last in range(QUIET + 1, QUIET + nights + 1):
        steps = find(values[open_, :last])
        open_ = open_[[not row for row in steps]]
        if not len(open_):
            break
    return 1 - len(open_) / len(values)


def dated(find: Finder, values: np.ndarray) -> tuple[float, float]:
    """Return the share of series with a step near the true one, and the share of these dated within one night."""
    best = [min((abs(night - QUIET) for night in row), default=99) for row in find(values)]
    near = [apart for apart in best if apart <= NEAR]
    return len(near) / len(values), sum(apart <= 1 for apart in near) / max(1, len(near))


def alarms(find: Finder, values: np.ndarray, first: int) -> tuple[int, int]:
    """Return how many stable series have a step in a look at the last night, and in a look at any night."""
    last = sum(bool(row) for row in find(values))
    open_ = np.arange(len(values))
    for night in range(first, values.shape[1] + 1):
        open_ = open_[[not row for row in find(values[open_, :night])]]
    return last, len(values) - len(open_)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(f'{cell:.1%}' if isinstance(cell, float) else str(cell) for cell in row)} |", flush=True)


def compare(finders: dict[str, tuple[Finder, int]], seed: int, stable: int) -> None:
    """Print detection, dating and false alarms of each finder on its first so many series."""
    rows: list[list[object]] = []
    for name, (find, series) in finders.items():
        for noise in NOISES:
            three, small = (stepped(seed, series, nights, size, noise) for nights, size in ((60, 3.0), (60, 1.5)))
            found = found_within(find, three, 5), found_within(find, small, 25)
            rows.append([name, noise, series, *found, *dated(find, three)])
    head = ("finder", "noise", "series", "3 x noise within 5", "1.5 x noise within 25")
    table((*head, "3 x, 25 nights after", "of these dated within 1"), rows)
    rows = []
    for name, (find, series) in finders.items():
        for noise, make in NOISES.items():
            number = stable if find is ours else series
            values = make(np.random.default_rng(seed + 1), (number, 60))
            last, any_night = alarms(find, values, LEAST if find is ours else 10)
            rows.append([name, noise, number, *(f"{count} ({count / number:.2%})" for count in (last, any_night))])
    table(("finder", "stable noise", "series", "alarms at night 60", "alarms at any night"), rows)


def shapes(seed: int, series: int) -> None:
    """Print how courses of known shapes are named, by one look at the last night."""
    rng = np.random.default_rng(seed + 2)
    rows: list[list[object]] = []

    def add(name: str, means: np.ndarray) -> None:
        values = np.exp(NOISE * (means + rng.standard_normal(means.shape)))
        named = Counter(course.shape for course in courses(values))
        kinds = (CourseShape.STEADY, CourseShape.STEPS, CourseShape.DRIFT, CourseShape.TWO_LEVELS)
        rows.append([name, values.shape[1], *(named[kind] / series for kind in kinds)])

    for size in (1.5, 2.0, 3.0, 6.0):
        add(f"step, {size:g} x noise at night {QUIET}", size * np.tile(np.arange(60) >= QUIET, (series, 1)))
    up_down = np.tile((np.arange(90) >= 30) & (np.arange(90) < 60), (series, 1))
    add("up 3 x at night 30, down at 60", 3.0 * up_down)
    for size in (3, 4, 6, 10):
        add(f"drift, {size} x noise in all", size * np.tile(np.linspace(0, 1, 60), (series, 1)))
    for size in (4, 5, 6, 8):
        for share in (0.25, 0.5):
            add(f"two levels {size} x noise apart, {share:.0%} high", size * (rng.random((series, 60)) < share))
    table(("course", "nights", "steady", "steps", "drift", "two levels"), rows)


def times(seed: int) -> None:
    rows = []
    for nights in (60, 365):
        values = np.exp(NOISE * np.random.default_rng(seed + 3).standard_normal((3000, nights)))
        series = [NightSeries(row) for row in values.tolist()]
        find_changes(series[:50])
        started = time.perf_counter()
        flagged = int(suspects(np.log(values)).sum())
        scanned = time.perf_counter()
        find_changes(series)
        rows.append([nights, flagged, f"{scanned - started:.2f} s", f"{time.perf_counter() - scanned:.2f} s"])
    table(("nights of 3,000 stable series", "suspicious", "scan alone", "find_changes"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="series of each kind with a step, drift or two levels")
    parser.add_argument("--stable", type=int, default=1000, help="stable series")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--otava", metavar="PYTHON", help="interpreter of an environment with apache-otava")
    parser.add_argument("--otava-series", type=int, default=100, help="series of each kind that Otava is given")
    options = parser.parse_args()
    finders: dict[str, tuple[Finder, int]] = {"pytest-hetgpu": (ours, options.series)}
    if options.otava:
        finders["Otava"] = otava(options.otava), options.otava_series
    times(options.seed)
    compare(finders, options.seed, options.stable)
    shapes(options.seed, options.series)


if __name__ == "__main__":
    main()
