"""ob1: its settings on a node, and its allowed components."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.extensions.transports.ob1 import Ob1, Ob1Settings
from pytest_hetgpu.model.job import Fabric, Hardware, Node, Stack

FIVE = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
FOUR = Stack("openmpi-4", "Open MPI", "4.1.8", "/s", "/s/bin/mpirun", "/s/bin/python")
HYDRA = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")
NODE = Node(0, Hardware("cpu"), "localhost", 1)
WIRED = Node(0, Hardware("cpu", fabric=Fabric(netdev="ens5")), "localhost", 1)
COLL = {"coll": "^acoll,fca,hcoll,sm,smdirect,xhc"}
SHOWN_4 = {"pml_base_verbose": "10", "btl_base_verbose": "1", "opal_common_ofi_verbose": "1"}


def ob1(**settings: Any) -> Ob1:
    return Ob1(Ob1Settings.model_validate(settings))


def test_tcp_is_the_default_and_pinned_to_one_interface() -> None:
    tcp = {"pml": "ob1", "btl": "tcp,self", **COLL}
    shown = {"ompi_display_comm": "mpi_init"}
    assert ob1().render(NODE, FIVE) == Rendering({**tcp, "btl_tcp_if_include": "lo", **shown})
    assert ob1().render(WIRED, FIVE) == Rendering({**tcp, "btl_tcp_if_include": "ens5", **shown})
    assert ob1(netdev="eth1").render(WIRED, FIVE) == Rendering({**tcp, "btl_tcp_if_include": "eth1", **shown})


def test_release_4_shows_its_layers_instead_of_a_table() -> None:
    tcp = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "lo", **COLL}
    assert ob1().render(NODE, FOUR) == Rendering({**tcp, **SHOWN_4}, {"UCX_LOG_LEVEL": "info"})


@pytest.mark.parametrize("name", ["sm", "vader"])
def test_shared_memory_has_the_name_that_the_release_knows(name: str) -> None:
    shared = ob1(btl=[name, "self"])
    assert shared.render(NODE, FIVE).mca["btl"] == "sm,self"
    assert shared.render(NODE, FOUR).mca["btl"] == "vader,self"
    assert shared.components() == ("ob1/sm",)


def test_a_release_that_is_not_known_counts_as_new() -> None:
    unknown = Stack("openmpi-system", "Open MPI", "", "", "mpirun", "python3")
    assert ob1().render(NODE, unknown) == ob1().render(NODE, FIVE)


def test_without_tcp_no_interface_is_pinned() -> None:
    assert "btl_tcp_if_include" not in ob1(btl=["sm", "self"]).render(WIRED, FIVE).mca


def test_components_are_the_layers_without_self() -> None:
    assert ob1(btl=["tcp", "sm", "self"]).components() == ("ob1/tcp", "ob1/sm")
    assert ob1(btl="tcp").components() == ("ob1/tcp",)


def test_mpich_has_none() -> None:
    assert ob1().unsuitable(HYDRA) == "MPICH has no ob1 (known: auto, ofi, shm, ucc, ucx)"
    assert ob1().unsuitable(FIVE) is None
    assert ob1().unsuitable(FOUR) is None


@pytest.mark.parametrize(
    "btl", ["tcp,self", "^tcp", "", [], ["tcp", "tcp"], [""], ["t cp"], {"tcp": None}, None, [["tcp"]]]
)
def test_what_are_no_layers(btl: object) -> None:
    with pytest.raises(ValidationError):
        ob1(btl=btl)


def test_its_proof_is_a_fresh_reader() -> None:
    assert isinstance(ob1().parser(), MpiTransportParser)
    assert ob1().parser() is not ob1().parser()
