"""The summary's table of what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.reporting import numbers_table
from pytest_hetgpu.store.cells import RunRecord
from tests.reporting.report_samples import PASSED, cell

LOOP = Measurement("loop", 3.81, "s", MessagePoint(0, "none"), 0)
OWN = replace(PASSED, measurements=(LOOP, replace(LOOP, metric="rate|x", unit="1/s", value=26.0)))


def test_each_cell_with_its_metrics_and_units() -> None:
    record = RunRecord((cell("two-lammps", OWN), cell("two-none", replace(PASSED, measurements=()))))
    heading, table, _ = numbers_table.paragraphs(record)
    assert heading == "## What was measured"
    assert table.splitlines()[2:] == [r"| two-lammps | loop 3.81 s, rate\|x 26.0 1/s |"]


def test_nothing_measured_is_no_section() -> None:
    assert list(numbers_table.paragraphs(RunRecord((cell("x", replace(PASSED, measurements=())),)))) == []


def test_many_cells_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_table, "BUDGET", 100)
    _, table, more, _ = numbers_table.paragraphs(RunRecord(tuple(cell(f"c{place}", OWN) for place in range(9))))
    shown = len(table.splitlines()) - 2
    assert 0 < shown < 9
    assert more.startswith(f"{9 - shown} more cells are left out")
