"""mpirun of each MPI, token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest
from pytest_hetgpu.extensions.launchers.mpirun import Mpirun
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.job import Command, RankContext, Stack

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
PROGRAM = ("/s/bin/python", "-m", "mpi4py", "/p/allreduce.py")


def argv(
    *contexts: RankContext, mca: dict[str, str] | None = None, root: bool = False, cores: int = 8
) -> tuple[str, ...]:
    command = Mpirun().command(LaunchRequest(STACK, contexts, mca or {}, root, cores))
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
        *("-np", "1", "-H", "a:1", "env", "AA=1", *PROGRAM, ":"),
        *("-np", "3", "-H", "b:3", "env", "BB=2", "/other", "prog", ":"),
        *("-np", "1", "-H", "c:1", *PROGRAM),
    )
    assert "-x" not in found


def test_root_and_too_few_cores_are_said() -> None:
    contexts = (RankContext(2, "localhost", PROGRAM), RankContext(1, "localhost", PROGRAM))
    assert argv(*contexts, root=True, cores=2)[:4] == (
        "/s/bin/mpirun",
        "--allow-run-as-root",
        "--map-by",
        ":OVERSUBSCRIBE",
    )
    assert argv(*contexts, root=True, cores=3)[:3] == ("/s/bin/mpirun", "--allow-run-as-root", "-np")


FOUR = replace(STACK, name="openmpi-4", version="4.1.8")
HYDRA = Stack("mpich", "MPICH", "5.0.2", "/m", "/m/bin/mpirun", "/m/bin/python")


def tokens(stack: Stack, *contexts: RankContext, cores: int = 1) -> tuple[str, ...]:
    return Mpirun().command(LaunchRequest(stack, contexts, {}, root=True, cores=cores)).argv


def test_each_mpi_says_it_in_its_own_words() -> None:
    crowd = RankContext(2, "localhost", PROGRAM, {"A": "1"})
    rest = ("-np", "2", "env", "A=1", *PROGRAM)
    assert tokens(STACK, crowd) == ("/s/bin/mpirun", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", *rest)
    assert tokens(FOUR, crowd) == ("/s/bin/mpirun", "--allow-run-as-root", "--oversubscribe", *rest)
    assert tokens(HYDRA, crowd) == ("/m/bin/mpirun", *rest)
    unknown = replace(STACK, version="")
    assert tokens(unknown, crowd) == tokens(STACK, crowd)


def test_open_mpi_4_needs_no_ssh_for_ranks_of_this_machine() -> None:
    """Without an ssh it ends (`plm_rsh_agent: ssh : rsh`), though it starts nothing with it."""
    here, there = RankContext(2, "localhost", PROGRAM), RankContext(2, "a", PROGRAM)
    asked = {
        (stack.name, one.host): Mpirun().command(LaunchRequest(stack, (one,), {})).env
        for stack in (STACK, FOUR, HYDRA)
        for one in (here, there)
    }
    assert asked.pop(("openmpi-4", "localhost")) == {"OMPI_MCA_plm": "isolated"}
    assert set(map(str, asked.values())) == {"{}"}
    assert Mpirun().command(LaunchRequest(FOUR, (here,), {}, ssh_config="/c")).env == {}


def test_ranks_that_differ_in_hosts_alone_are_one_context() -> None:
    hosts = [RankContext(2, "a", PROGRAM), RankContext(1, "b", PROGRAM), RankContext(1, "a", PROGRAM)]
    assert tokens(FOUR, *hosts) == (
        *("/s/bin/mpirun", "--allow-run-as-root", "-np", "4", "-H", "a:2,b:1,a:1"),
        *PROGRAM,
    )
    assert tokens(HYDRA, *hosts) == ("/m/bin/mpirun", "-hosts", "a:2,b:1,a:1", "-np", "4", *PROGRAM)


def test_hydra_has_one_list_of_hosts_for_all_contexts() -> None:
    one, other = RankContext(1, "a", PROGRAM, {"AA": "1"}), RankContext(2, "b", PROGRAM, {"BB": "2"})
    assert tokens(HYDRA, one, other) == (
        *("/m/bin/mpirun", "-hosts", "a:1,b:2", "-np", "1", "env", "AA=1", *PROGRAM, ":"),
        *("-np", "2", "env", "BB=2", *PROGRAM),
    )


def test_this_machine_among_others_is_named_too() -> None:
    contexts = (RankContext(1, "localhost", PROGRAM), RankContext(1, "b", PROGRAM))
    assert tokens(STACK, *contexts)[2:6] == ("-np", "2", "-H", "localhost:1,b:1")


@pytest.mark.parametrize("stack", [STACK, FOUR, HYDRA])
def test_no_mpi_is_given_x_or_env_options_of_its_own(stack: Stack) -> None:
    found = tokens(stack, RankContext(1, "a", PROGRAM, {"AA": "1"}), RankContext(1, "b", PROGRAM, {"BB": "2"}))
    assert not {"-x", "-env", "-genv", "--env"} & set(found)


def test_what_mpirun_cannot_start() -> None:
    assert Mpirun().unsuitable(STACK, ["pml", "btl"]) is None
    assert Mpirun().unsuitable(HYDRA, []) is None
    assert Mpirun().unsuitable(HYDRA, ["pml", "btl"]) == "of MPICH takes no MCA parameters; this cell sets btl, pml"
    other = replace(STACK, vendor="Other MPI")
    assert Mpirun().unsuitable(other, []) == "cannot start Other MPI (known: MPICH, Open MPI)"


def test_the_same_start_gives_the_same_command() -> None:
    start = LaunchRequest(STACK, [RankContext(2, "a", PROGRAM, {"B": "1", "A": "2"})], {"y": "1", "x": "2"})
    again = LaunchRequest(STACK, [RankContext(2, "a", PROGRAM, {"A": "2", "B": "1"})], {"x": "2", "y": "1"})
    assert Mpirun().command(start) == Mpirun().command(again)
    assert isinstance(Mpirun().command(start), Command)
