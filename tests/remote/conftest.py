"""Fixtures of the tests of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.mpi_runs import Mpirun, runner


@pytest.fixture
def mpirun(stack_prefix: Path, tmp_path: Path) -> Mpirun:
    """Run `program` (a path, or the source of one that lies beside the harness) on so many ranks."""
    return runner(stack_prefix, tmp_path)
