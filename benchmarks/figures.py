"""What `bench.py` prints and records: rows, the page they are written into, and what they were measured with."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.written import table, write

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
NAME = "benchmarks/bench.py"
HEAD = ("what", "figure", "beside", "ratio", "promised")
SLOWER = 1.5
"""A ratio that is this many times the recorded one is marked."""

# As users have it: with bytecode kept.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
_RATIO = re.compile(r"(\d+\.\d+) x")


class Took(NamedTuple):
    """Seconds by the clock, and seconds of processors, of a command with all its children."""

    wall: float
    cpu: float


class Figure(NamedTuple):
    """One row of the table. `ratio` is the figure's whole over what stands beside it; None if there is nothing."""

    what: str
    figure: str
    beside: str = ""
    ratio: float | None = None
    promised: str = ""

    @property
    def row(self) -> tuple[str, ...]:
        """As the table has it."""
        return self.what, self.figure, self.beside, f"{self.ratio:.2f} x" if self.ratio else "", self.promised


def took(command: Sequence[str], folder: Path, **env: str) -> Took:
    """Run a command and tell what it took; exit with its output if it fails."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env={**ENVIRON, **env}, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 5):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Took(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def medians(runs: int, *measures: Callable[[], Took]) -> list[Took]:
    """Medians of several measures taken in turn, so that a drifting machine drifts for all, but for the first turn."""
    turns = [[measure() for measure in measures] for _ in range(runs + 1)][1:]
    return [Took(*map(statistics.median, zip(*column, strict=True))) for column in zip(*turns, strict=True)]


def page() -> Path:
    """The page of figures."""
    places = (ROOT / "docs" / "reference" / "performance.md", ROOT / "docs" / "performance.md")
    return next(place for place in places if place.exists())


def digest() -> str:
    """What the benchmarks are, by the names and contents of their files."""
    found = hashlib.sha256()
    for path in sorted(BENCHMARKS.iterdir()):
        if path.is_file():
            found.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0".encode())
    return found.hexdigest()[:16]


def recorded(text: str) -> dict[str, float]:
    """The ratios on the page, by what was measured."""
    place = re.search(rf"<!-- {re.escape(NAME)} -->(.*?)<!-- end of {re.escape(NAME)} -->", text, re.DOTALL)
    rows = (line.strip().strip("|").split("|") for line in (place[1] if place else "").splitlines())
    cells = ([cell.strip() for cell in row] for row in rows if len(row) == len(HEAD))
    return {cell[0]: float(found[1]) for cell in cells if (found := _RATIO.fullmatch(cell[3]))}


def compared(figure: Figure, before: float | None) -> str:
    """A row with the recorded ratio, marked if it has become much slower."""
    if before is None or figure.ratio is None:
        told = ""
    else:
        told = (
            f"{before:.2f} x{f', SLOWER: {figure.ratio / before:.1f} times' if figure.ratio > SLOWER * before else ''}"
        )
    return f"| {' | '.join((*figure.row, told))} |"


def record(figures: Sequence[Figure], runs: int) -> None:
    """Write the table into the page, with what it was measured on."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = " with local changes" if _git("status", "--porcelain", "--", "pytest_hetgpu", "benchmarks") else ""
    told = (
        f"Commit {commit}{changed}, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, pytest {version('pytest')}; medians of {runs} alternating runs; "
        f"`benchmarks/` is `{digest()}`."
    )
    write(page(), NAME, f"{told}\n\n{table(HEAD, [figure.row for figure in figures])}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
