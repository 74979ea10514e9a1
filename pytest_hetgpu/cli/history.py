"""`hetgpu history`: prints since when cells fail, over the newest runs of a history, or writes a page of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.reporting.history_lines import history_lines
from pytest_hetgpu.store.past_runs import PastRuns, past_runs

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.nights.speeds import SpeedHistory
    from pytest_hetgpu.store.history_place import HistoryPlace

MOST_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """The options of the command: how many runs, and the file of the page, if one is wanted."""

    last: int = 60
    html: Path | None = None


def run(place: HistoryPlace, options: HistoryOptions, print_line: Callable[[str], object]) -> int:
    """Print the cells that were not always the same, and those whose speed changed, or write the page; return 0.

    Raises UsageError for a number of runs below 1 and for a page that cannot be written, and HistoryError for a history
    that cannot be read.
    """
    if not 1 <= options.last <= MOST_RUNS:
        raise UsageError(f"--last: {options.last} is not a number of runs from 1 to {MOST_RUNS:,}")
    past = past_runs(place, options.last)
    if options.html:
        _write_page(options.html, past, *_speeds(place, options.last, past))
        print_line(f"{options.html}: {len(past.cells)} cells in {len(past.runs)} runs")
        return 0
    for line in history_lines(past):
        print_line(line)
    # The search for steps takes longer than all else.
    speeds, lacks = _speeds(place, options.last, past)
    if speeds:
        from pytest_hetgpu.reporting.speed_lines import speed_changes

        for line in speed_changes(past, speeds):
            print_line(line)
    for line in ("", lacks) if lacks else ():
        print_line(line)
    return 0


def _speeds(place: HistoryPlace, last: int, past: PastRuns) -> tuple[Sequence[SpeedHistory], str]:
    """Return the courses of speeds, and why they are missing if they are."""
    from pytest_hetgpu.analysis.nights.change_points import MissingExtra
    from pytest_hetgpu.analysis.nights.prefilter import LEAST
    from pytest_hetgpu.analysis.nights.speeds import speed_histories
    from pytest_hetgpu.store.past_speeds import past_speeds

    if len(past.runs) < LEAST:
        return (), ""
    try:
        return speed_histories(past, past_speeds(place, last)), ""
    except MissingExtra as error:
        return (), str(error)


def _write_page(path: Path, past: PastRuns, speeds: Sequence[SpeedHistory], lacks: str) -> None:
    from pytest_hetgpu.reporting.html.nights_data import nights_data
    from pytest_hetgpu.reporting.html.page import render_nights
    from pytest_hetgpu.store.files import write_atomically

    page = render_nights(nights_data(past, speeds, lacks, path.parent)).encode("utf-8")
    try:
        write_atomically(path, page)
    except OSError as error:
        raise UsageError(f"--html {path}: {error.strerror or error}") from None
