"""Variables that a real mpirun passes to the ranks of each context."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.launchers.base import LaunchRequest
from pytest_hetgpu.extensions.launchers.mpirun import Mpirun
from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.job import Command, RankContext, Stack

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("print_variables.py")
NAMES = ("AA", "BB", "BOTH", "OMPI_MCA_coll_tuned_priority")
STACKS = ("openmpi-5", "openmpi-4", "mpich", "openmpi-system")


@pytest.fixture(params=STACKS)
def stack(
    request: pytest.FixtureRequest, stacks_here: Callable[[str], Path], lacking: Callable[[str, str], NoReturn]
) -> Stack:
    name = str(request.param)
    if not name.endswith("-system"):
        return family_of(name).locate(name, (stacks_here(name),))
    try:
        return family_of(name).locate(name, ())
    except NotHere as error:
        lacking("system-mpi", str(error))


def variables(command: Command, output: Path) -> dict[int, Any]:
    """Return the variables that each rank printed; every rank must print the number of ranks."""
    result = Local().run(command, output=output, timeout=30)
    text = output.read_text(errors="replace")
    assert result.returncode == 0, text
    said = [json.loads(line.partition("VARIABLES ")[2]) for line in text.splitlines() if "VARIABLES {" in line]
    assert {one["size"] for one in said} == {len(said)}
    return {one["rank"]: one["variables"] for one in said}


def test_contexts_do_not_leak_into_each_other(stack: Stack, tmp_path: Path) -> None:
    argv = (stack.interpreter, "-m", "mpi4py", str(PROGRAM), *NAMES)
    one = RankContext(1, "localhost", argv, {"AA": "x y", "BOTH": "1"})
    other = RankContext(2, "localhost", argv, {"BB": "a=b,c", "BOTH": "2", "OMPI_MCA_coll_tuned_priority": "31"})
    start = LaunchRequest(stack, (one, other), {}, root=os.geteuid() == 0, cores=1)
    last = {"BB": "a=b,c", "BOTH": "2", "OMPI_MCA_coll_tuned_priority": "31"}
    assert variables(Mpirun().command(start), tmp_path / "output") == {
        0: {"AA": "x y", "BOTH": "1"},
        1: last,
        2: last,
    }
