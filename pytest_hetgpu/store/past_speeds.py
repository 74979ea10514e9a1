"""Reads how fast cells were in the newest runs of a history: one number of each metric of each cell.

A rate is that of the largest message, any other number that of the smallest, as in the last run of the cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_hetgpu.model.quantities import HIGHER, direction, split_unit
from pytest_hetgpu.store import database
from pytest_hetgpu.store.database import Database
from pytest_hetgpu.store.past_runs import LATEST, NEWEST, PastCell

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

_RECENT = 5
"""In so many of the newest runs the metrics of a cell are looked for."""


class SpeedQuantity(NamedTuple):
    """A metric at one size in bytes, as `model.records.MessagePoint` has it."""

    metric: str
    size: int
    dtype: str
    place: str
    unit: str


@dataclass(frozen=True, slots=True)
class PastSpeed:
    """A quantity of a cell in each run, None where it was not measured."""

    quantity: SpeedQuantity
    values: tuple[float | None, ...]


PastSpeeds = Mapping[PastCell, tuple[PastSpeed, ...]]


def past_speeds(place: HistoryPlace, last: int, until: float = LATEST, without: str = "") -> PastSpeeds:
    """Read the speeds in the runs that `past_runs` returns. Raises HistoryError as that does."""
    which: dict[str, object] = {"last": last, "until": until, "without": without}
    with database.connect(place) as db:
        rows = db.rows(f"SELECT number, site FROM run WHERE number IN {NEWEST} ORDER BY started, id", **which)  # noqa: S608
        runs = {row["number"]: (night, row["site"]) for night, row in enumerate(rows)}
        quantities = _quantities(db)
        chosen = _chosen(db, quantities, which)
        cells = {row["id"]: (row["matrix"], row["scenario"]) for row in db.rows("SELECT * FROM identity")}
        found: dict[tuple[str, int, int], list[float | None]] = {}
        for run, identity, point, value in _values(db, {one for points in chosen.values() for one in points}, which):
            if point in chosen.get(identity, ()):
                night, site = runs[run]
                found.setdefault((site, identity, point), [None] * len(runs))[night] = value
        speeds: dict[PastCell, list[PastSpeed]] = {}
        for (site, identity, point), values in sorted(found.items()):
            one = PastSpeed(quantities[point], tuple(values))
            speeds.setdefault(PastCell(site, *cells[identity]), []).append(one)
        return {cell: tuple(several) for cell, several in speeds.items()}


def _quantities(db: Database) -> dict[int, SpeedQuantity]:
    columns = "id, metric, size, dtype, place, unit"
    return {one: SpeedQuantity(*rest) for one, *rest in db.tuples(f"SELECT {columns} FROM point ORDER BY id")}  # noqa: S608


def _chosen(db: Database, quantities: Mapping[int, SpeedQuantity], which: Mapping[str, object]) -> dict[int, set[int]]:
    """Return the quantities that stand for each cell: those of the last run in which it was measured."""
    recent = {**which, "last": min(_RECENT, int(str(which["last"])))}
    found = _last_points(db, "", recent)
    identities = [row["id"] for row in db.rows("SELECT id FROM identity") if row["id"] not in found]
    # A cell that fails has no recent measurement. Few do, so all runs may be searched for them.
    listed = ", ".join(str(int(one)) for one in identities) or "NULL"
    found |= _last_points(db, f" AND outcome.identity IN ({listed})", which)
    return {identity: set(_telling(points, quantities)) for identity, points in found.items()}


def _last_points(db: Database, condition: str, which: Mapping[str, object]) -> dict[int, set[int]]:
    """Return all quantities of each cell in the last run in which it was measured."""
    query = (
        "SELECT outcome.identity, outcome.run, number.point FROM outcome JOIN number ON number.outcome = outcome.id"  # noqa: S608 - text of ours
        f" JOIN run ON run.number = outcome.run WHERE outcome.run IN {NEWEST}{condition}"
        " ORDER BY run.started, run.id"
    )
    last: dict[int, tuple[int, set[int]]] = {}
    for identity, run, point in db.tuples(query, **which):
        if last.get(identity, (None,))[0] != run:
            last[identity] = (run, set())
        last[identity][1].add(point)
    return {identity: points for identity, (_, points) in last.items()}


def _telling(points: Iterable[int], quantities: Mapping[int, SpeedQuantity]) -> Iterable[int]:
    """Yield the quantities of a cell that stand for its speed, one per metric."""
    ordered = sorted(points, key=lambda point: quantities[point])
    by_metric: dict[str, list[int]] = {}
    for point in ordered:
        by_metric.setdefault(quantities[point].metric, []).append(point)
    for metric, found in by_metric.items():
        if metric == "algbw" and "busbw" in by_metric:
            continue
        unit, stated = split_unit(quantities[found[0]].unit)
        choose = max if (stated or direction(unit)) == HIGHER else min
        yield choose(found, key=lambda point: quantities[point].size)


def _values(
    db: Database, points: Iterable[int], which: Mapping[str, object]
) -> Iterable[tuple[int, int, int, float | None]]:
    """Yield run, cell, quantity and value."""
    listed = ", ".join(str(int(one)) for one in sorted(points)) or "NULL"
    query = (
        "SELECT outcome.run, outcome.identity, number.point, number.value FROM outcome"  # noqa: S608 - text of ours
        f" JOIN number ON number.outcome = outcome.id WHERE outcome.run IN {NEWEST} AND number.point IN ({listed})"
    )
    return db.tuples(query, **which)
