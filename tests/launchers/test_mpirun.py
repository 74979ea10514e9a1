"""Open MPI's mpirun, token by token."""

from __future__ import annotations

from pytest_hetgpu.launchers.base import Launcher, Start
from pytest_hetgpu.launchers.mpirun import Mpirun
from pytest_hetgpu.model import Command, RankContext, Stack
from pytest_hetgpu.registry import find

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
PROGRAM = ("/s/bin/python", "-m", "mpi4py", "/p/allreduce.py")


def argv(
    *contexts: RankContext, mca: dict[str, str] | None = None, root: bool = False, cores: int = 8
) -> tuple[str, ...]:
    command = Mpirun().command(Start(STACK, contexts, mca or {}, root, cores))
    assert command.env == {}
    return command.argv


def test_it_is_found_by_its_name() -> None:
    assert find("launchers", "mpirun", Launcher) is Mpirun  # type: ignore[type-abstract]


def test_the_smallest_job() -> None:
    assert argv(RankContext(2, "localhost", PROGRAM)) == ("/s/bin/mpirun", "-np", "2", *PROGRAM)


def test_parameters_and_environment_are_sorted() -> None:
    context = RankContext(2, "localhost", PROGRAM, {"UCX_TLS": "tcp,self", "A": "x y"})
    assert argv(context, mca={"pml": "ucx", "btl": "^openib"}) == (
        *("/s/bin/mpirun", "--mca", "btl", "^openib", "--mca", "pml", "ucx"),
        *("-np", "2", "env", "A=x y", "UCX_TLS=tcp,self", *PROGRAM),
    )


def test_contexts_have_environments_of_their_own_and_never_x() -> None:
    one = RankContext(1, "a", PROGRAM, {"AA": "1"})
    other = RankContext(3, "b", ("/other", "prog"), {"BB": "2"})
    found = argv(one, other, RankContext(1, "c", PROGRAM), mca={"pml": "ucx"})
    assert found == (
        *("/s/bin/mpirun", "--mca", "pml", "ucx"),
        *("-np", "1", "env", "AA=1", *PROGRAM, ":"),
        *("-np", "3", "env", "BB=2", "/other", "prog", ":"),
        *("-np", "1", *PROGRAM),
    )
    assert "-x" not in found


def test_root_and_too_few_cores_are_said() -> None:
    contexts = (RankContext(2, "a", PROGRAM), RankContext(1, "a", PROGRAM))
    assert argv(*contexts, root=True, cores=2)[:4] == (
        "/s/bin/mpirun",
        "--allow-run-as-root",
        "--map-by",
        ":OVERSUBSCRIBE",
    )
    assert argv(*contexts, root=True, cores=3)[:3] == ("/s/bin/mpirun", "--allow-run-as-root", "-np")


def test_the_same_start_gives_the_same_command() -> None:
    start = Start(STACK, [RankContext(2, "a", PROGRAM, {"B": "1", "A": "2"})], {"y": "1", "x": "2"})
    again = Start(STACK, [RankContext(2, "a", PROGRAM, {"A": "2", "B": "1"})], {"x": "2", "y": "1"})
    assert Mpirun().command(start) == Mpirun().command(again)
    assert isinstance(Mpirun().command(start), Command)
