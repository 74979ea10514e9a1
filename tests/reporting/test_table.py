"""The grid at the end of a terminal session."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.reporting.grid import grids
from pytest_hetgpu.reporting.table import LETTERS, table
from pytest_hetgpu.store.cells import CellRecord
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KNOWN, NOT_RUN, PASSED, cell

MARKUP = {"bold", "red", "green", "yellow", "cyan"}


def text(cells: list[CellRecord], width: int = 80) -> list[str]:
    return ["".join(words for words, _ in row) for row in table(cells, width)]


def matrix(placements: list[str], transports: list[str], workloads: list[str], name: str = "aws") -> list[CellRecord]:
    """Return every combination; outcomes are drawn, but always the same."""
    draw = random.Random(1)
    return [
        cell(
            f"{p}-{t}-{w}",
            Outcome(Kind.CRASH, draw.choice(list(Verdict))),
            matrix=name,
            axes={"placement": p, "transport": t, "workload": w},
        )
        for p in placements
        for t in transports
        for w in workloads
    ]


def test_one_letter_a_workload_in_file_order() -> None:
    cells = [
        *(cell("mixed-ucx-send", PASSED), cell("mixed-ucx-allreduce", CRASHED), cell("mixed-ucx-ddp", KNOWN)),
        *(cell("mixed-ob1-send", CHANGED), cell("mixed-ob1-allreduce", FIXED), cell("mixed-ob1-ddp", NOT_RUN)),
        *(cell("cpu-ucx-send", PASSED), cell("cpu-ucx-ddp", PASSED)),
    ]
    assert text(cells) == [
        "         ucx  ob1",
        "  mixed  .Nk  CF-",
        "  cpu    . .",
        "  workloads, left to right: 1 send, 2 allreduce, 3 ddp",
        "  . ok   k known   N new   C changed   F fixed   - not run",
    ]


def test_only_letters_that_occur_are_explained() -> None:
    assert text([cell("mixed-ucx-send", PASSED)])[-1] == "  . ok"


def test_colours_are_names_that_pytest_knows() -> None:
    rows = table([cell("mixed-ucx-send", PASSED), cell("mixed-ucx-ddp", CRASHED)])
    letters = {words: set(markup) for row in rows for words, markup in row if words in (".", "N")}
    assert letters == {".": {"green"}, "N": {"red", "bold"}}
    assert all(set(markup) <= MARKUP for row in rows for _, markup in row)


def test_further_axes_are_rows() -> None:
    axes = {"placement": "mixed", "transport": "ucx", "workload": "send"}
    cells = [cell(f"c{name}", PASSED, axes={**axes, "tuning": name}) for name in ("default", "zcopy")]
    assert [line.split("  ")[1] for line in text(cells)[1:3]] == ["mixed / default", "mixed / zcopy"]


def test_each_matrix_has_its_grid() -> None:
    cells = matrix(["mixed"], ["ucx"], ["send"]) + matrix(["cpu"], ["ob1"], ["ddp"], "lumi")
    lines = text(cells)
    assert [line for line in lines if line.startswith("matrix")] == ["matrix aws", "matrix lumi"]
    assert sum("not run" in line or "ok" in line or "known" in line or "new" in line for line in lines) == 1


def test_no_cells_no_lines() -> None:
    assert table([]) == []


@pytest.mark.parametrize("transports", range(1, 7))
@pytest.mark.parametrize("name", ["ucx", "ucx-tcp-cuda-copy-and-more", "t" * 90])
def test_up_to_six_transports_stand_side_by_side(transports: int, name: str) -> None:
    names = [f"{name}{number}" for number in range(transports)]
    cells = matrix(["a-placement-with-a-long-name", "b"], names, ["send", "allreduce", "ddp"])
    lines = text(cells)
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("  b ") for line in lines) == 1
    for short in lines[0].split():
        assert short in names or any(line.startswith(f"  {short} = ") for line in lines)


def test_more_transports_wrap_into_blocks() -> None:
    transports = [f"transport{number}" for number in range(20)]
    lines = text(matrix(["mixed"], transports, ["send", "ddp"]))
    assert max(map(len, lines)) <= 80
    headings = [line.split() for line in lines if "transport" in line and "left to right" not in line]
    assert [name for heading in headings for name in heading] == transports
    assert len(headings) > 1


def test_many_workloads_wrap_too() -> None:
    cells = matrix(["mixed"], ["ucx"], [f"w{number}" for number in range(150)])
    lines = text(cells)
    assert max(map(len, lines)) <= 80
    letters = "".join(line.split("  ", 2)[2] for line in lines if line.startswith("  mixed"))
    assert letters == "".join(LETTERS[made.outcome.verdict][0] for made in cells)
    assert "150 w149" in " ".join(lines)


def test_names_that_look_alike_when_cut_are_numbered() -> None:
    names = [f"{'a' * 30}{number}{'b' * 30}" for number in range(6)]
    lines = text(matrix(["mixed"], names, ["send"]))
    assert lines[0].split() == ["#1", "#2", "#3", "#4", "#5", "#6"]
    assert f"  #6 = {names[5]}" in lines


@pytest.mark.parametrize("width", [20, 40, 200])
def test_any_width(width: int) -> None:
    lines = text(matrix(["mixed", "cpu"], ["ucx-tcp", "ob1-tcp", "ofi"], ["send", "allreduce"]), width)
    assert max(map(len, lines)) <= width


def test_a_hostile_name_stays_in_its_line() -> None:
    lines = text(matrix(["mi\nxed\x1b[31m"], ["ucx"], ["se\rnd"]))
    assert lines[1].startswith("  mi xed  ")
    assert lines[2] == "  workloads, left to right: 1 se nd"


def test_a_cell_without_the_usual_axes_has_a_place() -> None:
    [grid] = grids([cell("lonely", PASSED, axes={})])
    assert (grid.rows, grid.columns, grid.workloads) == (("lonely",), ("-",), ("-",))


CARRIED = {"on-host": ("ucx/cma", "ucx/posix"), "off-host": ("ucx/tcp",)}


def carried(transport: str, by: dict[str, tuple[str, ...]]) -> CellRecord:
    axes = {"placement": "two", "transport": transport, "workload": "allreduce"}
    return cell(transport, replace(PASSED, carried=by), axes=axes)


def test_below_the_grid_stands_what_carried_the_data() -> None:
    rows = text([carried("ucx", CARRIED), carried("ob1", {"unknown": ("ob1/tcp",)}), carried("none", {})], 200)
    assert (
        "  data carried by: ucx: ucx/cma + ucx/posix (on-host), ucx/tcp (off-host); ob1: ob1/tcp (path not known)"
        in rows
    )


def test_stacks_of_one_column_are_told_together_and_many_columns_are_cut() -> None:
    several = [carried(f"t{number}", CARRIED) for number in range(25)]
    assert "5 more are in junit.xml" in " ".join(" ".join(text(several, 100)).split())
    one, other = carried("shm", {"on-host": ("ob1/sm",)}), carried("shm", {"on-host": ("ch4/posix",)})
    other = replace(other, axes={**other.axes, "placement": "four"})
    assert "  data carried by: shm: ch4/posix + ob1/sm (on-host)" in text([one, other], 100)
