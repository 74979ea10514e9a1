"""The launcher that a node has, by its answer to `--version`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from pytest_hetgpu.cluster import network
from pytest_hetgpu.cluster.launchers import PROGRAM, VENDOR, VERSION, launcher_facts
from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import CommandResult, RemoteNode
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Hardware, Node, Stack
from tests.cluster.test_network import Told

DEBIAN_4 = "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
PLAIN_4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
FIVE = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
HYDRA = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu Apr  7\n"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101\n"


class Launchers(Told):
    """A node with these programs, by their answers."""

    def __init__(self, programs: Mapping[str, str]) -> None:
        super().__init__()
        self.programs = programs

    def exec(self, argv: Sequence[str]) -> CommandResult:
        if argv[1] != "--version":
            return super().exec(argv)
        if argv[0] not in self.programs:
            raise ProvisionError("node0", f"cannot start {argv[0]}: no such program")
        return CommandResult(0, self.programs[argv[0]].encode(), b"")


def node(stack: str, prefix: str = "") -> Node:
    return Node(0, Hardware("kind", stack=stack), "10.0.0.5", 1, stack=family_of(stack).on_other_node(stack, prefix))


BOTH = {"mpirun": PLAIN_4, "mpirun.openmpi": DEBIAN_4, "mpirun.mpich": HYDRA}


@pytest.mark.parametrize(
    ("stack", "programs", "program", "vendor", "version"),
    [
        ("openmpi-system", BOTH, "mpirun.openmpi", "Open MPI", "4.1.4"),
        ("mpich-system", BOTH, "mpirun.mpich", "MPICH", "4.0.2"),
        ("openmpi-system", {"mpirun": FIVE}, "mpirun", "Open MPI", "5.0.11"),
        # Beside Debian's release, one of the site's own comes first in PATH.
        ("openmpi-5", {"mpirun": FIVE, "mpirun.openmpi": DEBIAN_4}, "mpirun", "Open MPI", "5.0.11"),
        ("openmpi-5", {"mpirun": PLAIN_4, "mpirun.openmpi": DEBIAN_4}, "mpirun.openmpi", "Open MPI", "4.1.4"),
        ("mpich-system", {"mpirun": PLAIN_4, "mpirun.openmpi": DEBIAN_4}, "mpirun", "Open MPI", "4.1.4"),
        ("openmpi-system", {"mpirun": HYDRA}, "mpirun", "MPICH", "4.0.2"),
    ],
)
def test_the_launcher_that_fits_the_stack(
    stack: str, programs: Mapping[str, str], program: str, vendor: str, version: str
) -> None:
    facts = launcher_facts(node(stack), cast(RemoteNode, Launchers(programs)))
    assert [facts[name].text for name in (PROGRAM, VENDOR, VERSION)] == [program, vendor, version]
    found = network.discover(node(stack), cast(RemoteNode, Launchers(programs)), Environment(facts))
    ours = vendor == family_of(stack).vendor
    assert (found.launcher, found.version) == ((program, version) if ours else ("", ""))


def test_a_prefix_has_launchers_of_its_own() -> None:
    member = Launchers({"/opt/mpi/bin/mpirun": FIVE, **BOTH})
    facts = launcher_facts(node("openmpi-system", "/opt/mpi"), cast(RemoteNode, member))
    assert (facts[PROGRAM].text, facts[VERSION].text) == ("/opt/mpi/bin/mpirun", "5.0.11")


@pytest.mark.parametrize("programs", [{}, {"mpirun": INTEL}, {"mpirun": ""}, {"mpirun": "\xff"}])
def test_a_launcher_that_says_nothing_known_is_no_fact(programs: Mapping[str, str]) -> None:
    assert launcher_facts(node("openmpi-system"), cast(RemoteNode, Launchers(programs))) == {}


def test_a_stack_that_is_known_by_its_files_is_not_asked() -> None:
    exact = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt", "/opt/bin/mpirun", "/opt/bin/python")
    known = Node(0, Hardware("kind"), "localhost", 1, stack=exact)
    assert launcher_facts(known, cast(RemoteNode, Launchers(BOTH))) == {}
    assert launcher_facts(node("torch"), cast(RemoteNode, Launchers(BOTH))) == {}
