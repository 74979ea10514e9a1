"""Spaces of cells with a planted failure, and the runs that find its condition."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.analysis.boundary.certificate import gaps
from pytest_hetgpu.analysis.boundary.condition import REPEATS, Boundary, Ran, RunEnd
from pytest_hetgpu.analysis.boundary.controls import next_control
from pytest_hetgpu.analysis.boundary.next_cell import next_cell
from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.of_run import MatrixRuns
from pytest_hetgpu.analysis.boundary.runs import RanCell
from pytest_hetgpu.analysis.boundary.search import best_terms
from pytest_hetgpu.analysis.boundary.space import Space

Cell = Mapping[str, str]
SIZES = tuple(f"{8 << step}" for step in range(8))
STACKS = ("1.0", "1.1", "1.2", "2.0", "2.1")


def space(chance: random.Random) -> Space:
    """A space of 4 to 7 axes with facts and up to three exclusion rules."""
    axes = {
        "placement": [f"p{n}" for n in range(chance.randint(3, 8))],
        "transport": [f"t{n}" for n in range(chance.randint(3, 7))],
        "workload": [f"w{n}" for n in range(chance.randint(4, 8))],
        "size": list(SIZES[: chance.randint(4, 8)]),
    }
    more = {"stack": list(STACKS[: chance.randint(3, 5)]), "dtype": ["f32", "f64", "i32"], "tuning": ["a", "b"]}
    for name in chance.sample(list(more), chance.randint(0, 2)):
        axes[name] = more[name]
    rules = [
        tuple((name, chance.choice(axes[name])) for name in chance.sample(list(axes), 2))
        for _ in range(chance.randint(0, 3))
    ]
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    cells = [cell for cell in cells if not any(all(cell[name] == value for name, value in rule) for rule in rules)]
    for cell in cells:
        cell["platform"] = "gpu" if int(cell["placement"][1:]) % 2 else "cpu"
        cell["family"] = "ucx" if int(cell["transport"][1:]) % 3 else "ob1"
    ordered = {name: tuple(values) for name, values in axes.items() if name in ("size", "stack")}
    return Space(tuple(cells), tuple(axes), ordered)


def pairwise(cells: Space, chance: random.Random, strength: int = 2) -> list[int]:
    """A sample that has every pair of values of two axes; greedy."""
    wanted = {
        pair
        for cell in cells.cells
        for pair in itertools.combinations([(name, cell[name]) for name in cells.axes], strength)
    }
    tuples = [
        frozenset(itertools.combinations([(name, cell[name]) for name in cells.axes], strength)) for cell in cells.cells
    ]
    order = list(range(len(tuples)))
    chance.shuffle(order)
    gain = {place: len(tuples[place]) for place in order}
    chosen: list[int] = []
    import heapq

    heap = [(-gain[place], rank, place) for rank, place in enumerate(order)]
    heapq.heapify(heap)
    while wanted:
        _, rank, place = heapq.heappop(heap)
        now = len(tuples[place] & wanted)
        if heap and now < -heap[0][0]:
            heapq.heappush(heap, (-now, rank, place))
            continue
        chosen.append(place)
        wanted -= tuples[place]
    return chosen


@dataclass
class Run:
    """The runs of cells of one planted failure."""

    cells: Space
    fails: Callable[[int], bool]
    seen: dict[int, list[bool]] = field(default_factory=dict)

    def run(self, cell: int) -> None:
        self.seen.setdefault(cell, []).append(self.fails(cell))

    def observations(self) -> Observations:
        return Observations(
            {cell: sum(runs) for cell, runs in self.seen.items() if any(runs)},
            {cell: runs.count(False) for cell, runs in self.seen.items() if not all(runs)},
        )


def found(run: Run, most: int = 40) -> tuple[int, bool, int]:
    """Run further cells until the terms are established; the cells of the condition, whether they are, and how many."""
    first = next(cell for cell, ends in run.seen.items() if any(ends))
    for further in range(most + 1):
        seen = run.observations()
        if further < REPEATS - 1:
            run.run(first)
            continue
        terms = best_terms(run.cells, seen)
        mask = 0
        for term in terms:
            mask |= term.mask
        untried = run.cells.everything & ~sum(1 << cell for cell in run.seen)
        cell = next_cell(run.cells, seen, terms, untried)
        if cell is None or further == most:
            return mask, not any(gaps(run.cells, seen, term) for term in terms), further
        run.run(cell)
    raise AssertionError


def mask_of(cells: Space, holds: Callable[[Cell], bool]) -> int:
    return sum(1 << place for place, cell in enumerate(cells.cells) if holds(cell))


def literal(cells: Space, chance: random.Random, name: str, kind: str) -> Callable[[Cell], bool]:
    values = list(cells.masks[name])
    if kind == "=":
        value = chance.choice(values)
        return lambda cell: cell[name] == value
    if kind == "!=":
        value = chance.choice(values)
        return lambda cell: cell[name] != value
    if kind == "in":
        some = set(chance.sample(values, 2))
        return lambda cell: cell[name] in some
    at = chance.randint(1, len(values) - 2)
    if kind == ">=":
        return lambda cell: values.index(cell[name]) >= at
    low, high = at, chance.randint(at, len(values) - 2)
    return lambda cell: low <= values.index(cell[name]) <= high


def condition(cells: Space, chance: random.Random, kinds: Sequence[str]) -> Callable[[Cell], bool]:
    names = [name for name in cells.axes if name not in cells.ordered]
    chosen = chance.sample(names, len(kinds)) if len(kinds) <= len(names) else names
    parts = [
        literal(cells, chance, "size" if kind in (">=", "range") else name, kind)
        for kind, name in zip(kinds, chosen, strict=True)
    ]
    return lambda cell: all(part(cell) for part in parts)


def controlled(
    cells: Space, outcome: Callable[[int], str], sample: Sequence[int], most: int = 40
) -> tuple[tuple[Boundary, ...], int]:
    """Run a sample and then controls, as a run does; return the conditions and the number of controls.

    `outcome` is the key of a failure, or nothing.
    """
    ends: dict[int, list[RunEnd]] = {}

    def run(cell: int) -> None:
        key = outcome(cell)
        ends.setdefault(cell, []).append(RunEnd(Ran.FAILED, key) if key else RunEnd(Ran.PASSED))

    for cell in sample:
        run(cell)
    ids = tuple(str(cell) for cell in range(len(cells.cells)))
    done: dict[str, int] = {}
    while True:
        entries = [
            RanCell({name: values[name] for name in cells.axes}, {}, ends.get(cell, ()), result=cell in ends)
            for cell, values in enumerate(cells.cells)
        ]
        matrix = MatrixRuns("m", ids, entries)
        control = next_control((matrix,), done)
        if control is None or sum(done.values()) >= most:
            return matrix.conditions, sum(done.values())
        done[control.key] = done.get(control.key, 0) + 1
        run(int(control.scenario))
