"""A run read from a JUnit file: our own, or pytest's own for a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree as ET

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.files import open_input
from pytest_hetgpu.store.properties import CellProperties, from_properties
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

NOTE = "{name} is a JUnit file, which has neither ranks nor memory nor a tool of ours: they are taken to be the same"


def read(path: Path) -> RunSummary:
    """Read the run. Raise UsageError if the file is no JUnit file, or holds no cell."""
    try:
        with open_input(path) as file:
            root = ET.parse(file).getroot()  # noqa: S314 - expat limits what entities may grow to
        pairs = [found for case in root.iter("testcase") if (found := from_properties(_properties(case)))]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ET.ParseError, RecordError, ValueError) as error:
        raise UsageError(f"{path}: not the JUnit file of a run ({error})") from None
    if not pairs:
        raise UsageError(f"{path}: holds no cell of a matrix")
    suite = next(root.iter("testsuite"), root)
    several = len({one.matrix for one in pairs}) > 1
    cells = {(cell.matrix, cell.scenario): cell for cell in (_cell(one, several=several) for one in pairs)}
    return RunSummary(path.name, str(path), _epoch(suite), suite.get("hostname", ""), "", (), tuple(cells.values()))


def _properties(case: ET.Element) -> Iterator[tuple[str, str]]:
    return ((one.get("name", ""), one.get("value", "")) for one in case.iter("property"))


def _cell(pairs: CellProperties, *, several: bool) -> CellSummary:
    """Return a cell; in a run of several matrices its name includes the matrix."""
    return CellSummary(
        matrix=pairs.matrix,
        scenario=pairs.scenario.removeprefix(f"{pairs.matrix}.") if several else pairs.scenario,
        kind=pairs.kind,
        verdict=pairs.verdict,
        signature=pairs.signature,
        why=pairs.flaky or pairs.why,
        seconds=pairs.seconds,
        stack=pairs.stack,
        transports=pairs.transports,
        tool=pairs.tool,
        measurements=pairs.numbers,
    )


def _epoch(suite: ET.Element) -> float:
    """Return the start of the suite as seconds since 1970; a time without a zone is UTC."""
    try:
        told = datetime.fromisoformat(suite.get("timestamp", ""))
        seconds = told.timestamp() if told.tzinfo else told.replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
