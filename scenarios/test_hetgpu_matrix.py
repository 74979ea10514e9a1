"""The module that every matrix is run through: one test a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_hetgpu.session.fixtures import Run


def test_cell(run: Run) -> None:
    run()
