"""How running cells are shown."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from pytest_hetgpu.session.terminal.running import Running
from pytest_hetgpu.session.terminal.screen import elapsed, view


def drawn(*cells: Running, width: int = 60, most: int = 3) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=20).print(view("1 of 9 cells ended", cells, 100.0, most))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.9, "0 s"), (59.9, "59 s"), (125, "2:05"), (3725, "1:02:05"), (-3, "0 s")]
)
def test_elapsed(seconds: float, shown: str) -> None:
    assert elapsed(seconds) == shown


def test_a_line_a_cell_cut_to_the_width() -> None:
    lines = drawn(Running("mixed-ucx-send", 10, "", "[bold]x[/] " * 20), Running("cpu-ob1-send", 96))
    assert lines[0] == "1 of 9 cells ended"
    assert lines[1].startswith("1:30 mixed-ucx-send [bold]x[/] [bold]x[/]")
    assert lines[1].endswith("…")
    assert lines[2] == " 4 s cpu-ob1-send   its nodes are made ready"


def test_many_cells_are_counted() -> None:
    lines = drawn(*(Running(f"c{i}", 10) for i in range(9)), most=3)
    assert len(lines) == 5
    assert lines[-1].strip() == "and 6 more"


def test_drawing_costs_little() -> None:
    cells = [Running(f"placement-transport-workload-{i}", 10, "", "a line of output " * 5) for i in range(12)]
    console = Console(file=io.StringIO(), width=120, height=30, force_terminal=True)
    took = []
    for _ in range(10):
        before = time.thread_time()
        console.print(view("1 of 9 cells ended", cells, 100.0, 12))
        took.append(time.thread_time() - before)
    print(f"a view of 12 cells: {min(took) * 1e3:.1f} ms of processor time")
    assert min(took) < 0.1
