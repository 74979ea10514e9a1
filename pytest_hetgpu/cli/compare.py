"""`hetgpu compare`: prints the differences between two runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.analysis.compare.comparison import compare
from pytest_hetgpu.analysis.compare.find import RunLocations, sides
from pytest_hetgpu.analysis.compare.format import as_json, as_text
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.folder import HISTORY
from pytest_hetgpu.store.history_place import VARIABLE, parse_place

EXIT_WORSE = 1


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The options of the command; `tolerance` is the user's text, in percent."""

    tolerance: str = "10"
    common: bool = False
    json: bool = False


def run_places(reports: Path | None, history: str | None, environ: Mapping[str, str]) -> RunLocations:
    """Return the places of runs: as given, else by the variables of pytest's options, else below `reports`.

    Raises UsageError if a given history is no valid place.
    """
    found = reports or Path(environ.get("HETGPU_REPORTS") or "reports")
    if history:
        return RunLocations(found, parse_place(history, "--history", environ))
    value = environ.get(VARIABLE, "")
    return RunLocations(found, found / HISTORY if value in ("", "off") else parse_place(value, VARIABLE, environ))


def run(
    before: str, after: str, where: RunLocations, options: CompareOptions, print_line: Callable[[str], object]
) -> int:
    """Print the comparison; return 1 if something is worse, else 0.

    Raises UsageError if there is nothing to compare.
    """
    tolerance = _parse_percent(options.tolerance)
    comparison = compare(*sides(before, after, where), tolerance / 100, common=options.common)
    if options.json:
        print_line(as_json(comparison))
    else:
        for line in as_text(comparison):
            print_line(line)
    return EXIT_WORSE if comparison.worse else 0


def _parse_percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"--tolerance: {text!r} is not a number of percent")
    return value
