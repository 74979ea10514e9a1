"""The working cell that is most like a failing one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.upstream.script import portable_token
from pytest_hetgpu.store.cells import CellRecord

_TWO_VALUE_OPTIONS = ("--mca", "--prtemca", "-genv", "-env")
# Among cells that differ in one axis, prefer the most telling: the same nodes and workload over another transport.
_AXIS_ORDER = ("transport", "placement", "workload")


@dataclass(frozen=True, slots=True)
class Difference:
    """A working `cell` and its differences from a failing one; the words are those of their commands."""

    cell: CellRecord
    #: the values that differ: `(axis, failing, working)`
    axes: tuple[tuple[str, str, str], ...]
    only_failing: tuple[str, ...]
    only_working: tuple[str, ...]


def find_nearest(failing: CellRecord, cells: Iterable[CellRecord]) -> Difference | None:
    """Return the working cell of the same matrix that differs in the fewest axes; None if no cell works.

    Cells of another program of the user do not count.
    """
    works = [
        one
        for one in cells
        if one.matrix == failing.matrix and one.outcome.verdict is Verdict.OK and _related(failing, one)
    ]
    if not works:
        return None
    best = min(works, key=lambda one: _distance(failing.axes, one.axes))
    mine, theirs = _setting_words(failing), _setting_words(best)
    axes = tuple(
        (axis, failing.axes.get(axis, "-"), best.axes.get(axis, "-"))
        for axis in _differing_axes(failing.axes, best.axes)
    )
    return Difference(
        best,
        axes,
        tuple(word for word in mine if word not in theirs),
        tuple(word for word in theirs if word not in mine),
    )


def _related(failing: CellRecord, other: CellRecord) -> bool:
    mine, theirs = (_program(one) for one in (failing, other))
    return mine == theirs or failing.axes.get("workload") == other.axes.get("workload")


def _program(cell: CellRecord) -> str:
    """Return the program of another project that a cell's ranks run; "" for our own."""
    argv = list(cell.result.argv if cell.result else cell.argv)
    starter = next((place for place, token in enumerate(argv) if token.endswith("/run_external.py")), None)
    program = argv[argv.index("--", starter) + 1 :][:1] if starter is not None and "--" in argv[starter:] else []
    return program[0].rpartition("/")[2] if program else ""


def _differing_axes(mine: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [axis for axis in dict.fromkeys((*mine, *theirs)) if mine.get(axis) != theirs.get(axis)]


def _distance(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[int, int]:
    differing = _differing_axes(mine, theirs)
    # A user-defined axis (tuning) is the smallest difference.
    return len(differing), sum(_AXIS_ORDER.index(axis) + 1 for axis in differing if axis in _AXIS_ORDER)


def _setting_words(cell: CellRecord) -> Sequence[str]:
    """Return the settings of the command: each option with its values as one word."""
    argv = [portable_token(token) for token in (cell.result.argv if cell.result else cell.argv)]
    words: list[str] = []
    index = 0
    while index < len(argv):
        if argv[index] in _TWO_VALUE_OPTIONS:
            taken = 3
        else:
            taken = 1 + (argv[index].startswith("-") and index + 1 < len(argv) and _is_value(argv[index + 1]))
        words.append(" ".join(argv[index : index + taken]))
        index += taken
    return words


def _is_value(token: str) -> bool:
    return not token.startswith("-") and "/programs/" not in token and token not in ("env", "python3")
