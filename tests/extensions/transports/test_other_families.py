"""auto, shm, ofi and ucc: their settings on a node of each MPI, and their allowed components."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.extensions.transports.auto import Auto
from pytest_hetgpu.extensions.transports.base import Rendering, TransportSettings
from pytest_hetgpu.extensions.transports.ob1 import Ob1, Ob1Settings
from pytest_hetgpu.extensions.transports.ofi import Ofi, OfiSettings
from pytest_hetgpu.extensions.transports.shm import Shm
from pytest_hetgpu.extensions.transports.ucc import Ucc, UccSettings
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.job import Fabric, Hardware, Node, Stack

FIVE = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
FOUR = Stack("openmpi-4", "Open MPI", "4.1.8", "/s", "/s/bin/mpirun", "/s/bin/python")
HYDRA = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")
NODE = Node(0, Hardware("cpu"), "localhost", 1)
WIRED = Node(0, Hardware("cpu", fabric=Fabric(netdev="ens5")), "localhost", 1)

COLL = {"coll": "^acoll,fca,hcoll,sm,smdirect,xhc"}
SHOWN_4 = {"pml_base_verbose": "10", "btl_base_verbose": "1", "opal_common_ofi_verbose": "1"}
SHOWN_5 = {"ompi_display_comm": "mpi_init"}
LOGGED = {"UCX_LOG_LEVEL": "info"}
SUMMARY = {"MPIR_CVAR_DEBUG_SUMMARY": "2", **LOGGED}


def ofi(**settings: Any) -> Ofi:
    return Ofi(OfiSettings.model_validate(settings))


def ucc(lower: Ucx | Ob1 | None = None, **settings: Any) -> Ucc:
    return Ucc(UccSettings.model_validate({"over": "below", **settings}), lower or Ucx(UcxSettings()))


def test_shared_memory_of_each_mpi() -> None:
    shm = Shm(TransportSettings())
    assert shm.render(WIRED, FIVE) == Rendering({"pml": "ob1", "btl": "sm,self", **COLL, **SHOWN_5})
    assert shm.render(WIRED, FOUR) == Rendering({"pml": "ob1", "btl": "vader,self", **COLL, **SHOWN_4}, LOGGED)
    assert shm.render(WIRED, HYDRA) == Rendering({}, {"MPIR_CVAR_NOLOCAL": "0", **SUMMARY})
    assert shm.components() == ("ob1/sm", "ch4/posix")
    assert [shm.unsuitable(stack) for stack in (FIVE, FOUR, HYDRA)] == [None] * 3


def test_the_mpi_s_own_choice_is_only_made_to_show_itself() -> None:
    auto = Auto(TransportSettings())
    assert auto.render(WIRED, FIVE) == Rendering(SHOWN_5)
    assert auto.render(WIRED, FOUR) == Rendering(SHOWN_4, LOGGED)
    assert auto.render(WIRED, HYDRA) == Rendering({}, {"MPIR_CVAR_NOLOCAL": "0", **SUMMARY})
    assert auto.components() == ("*",)


def test_ofi_needs_its_provider_included() -> None:
    mca = {"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": "tcp", "opal_common_ofi_verbose": "1"}
    assert ofi().render(NODE, FIVE) == Rendering({**mca, **COLL, **SHOWN_5})
    assert ofi().render(NODE, FOUR) == Rendering({**mca, **COLL, **SHOWN_4}, LOGGED)
    netmod = {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp", **SUMMARY}
    assert ofi().render(NODE, HYDRA) == Rendering({}, netmod)
    assert ofi().components() == ("ofi/tcp",)


def test_ofi_s_interface_is_the_transports_or_the_fabrics() -> None:
    assert "FI_TCP_IFACE" not in ofi().render(NODE, FIVE).env
    assert ofi().render(WIRED, FIVE).env["FI_TCP_IFACE"] == "ens5"
    assert ofi(netdev="eth1").render(WIRED, HYDRA).env["FI_TCP_IFACE"] == "eth1"
    assert "FI_TCP_IFACE" not in ofi(provider="cxi").render(WIRED, HYDRA).env


@pytest.mark.parametrize("provider", ["tcp", "sockets", "udp"])
def test_every_provider_over_ip_is_pinned_by_its_own_variable(provider: str) -> None:
    transport = ofi(provider=provider)
    variables = {name: value for name, value in transport.render(WIRED, FIVE).env.items() if "IFACE" in name}
    assert variables == {f"FI_{provider.upper()}_IFACE": "ens5"}
    shown = transport.interface(WIRED)
    assert shown
    assert shown.name == "ens5"


@pytest.mark.parametrize("provider", ["", "tcp,verbs", ["tcp"], None, "^tcp"])
def test_what_is_no_provider(provider: object) -> None:
    with pytest.raises(ValidationError):
        ofi(provider=provider)


def test_ucc_is_laid_over_another_transport() -> None:
    lower = Ucx(UcxSettings())
    below = lower.render(NODE, FIVE)
    rendered = ucc(lower).render(NODE, FIVE)
    assert rendered.mca == {**below.mca, "coll_ucc_enable": "1", "coll_ucc_priority": "100"}
    assert rendered.env == {**below.env, "UCC_LOG_LEVEL": "info"}
    assert ucc(tls=["ucp", "nccl"]).render(NODE, FIVE).env["UCC_CL_BASIC_TLS"] == "ucp,nccl"
    assert ucc().render(NODE, HYDRA).env["MPIR_CVAR_CH4_UCC_ENABLE"] == "1"
    assert ucc().render(NODE, HYDRA).mca == {}


@pytest.mark.parametrize(
    ("name", "fits"),
    [("ucc/ucp:ucx/tcp", True), ("ucc/nccl:ucx/tcp", True), ("ucc/ucp:ucx/posix", False), ("ucx/tcp", False)],
)
def test_ucc_is_proven_by_itself_and_by_what_is_below(name: str, fits: bool) -> None:
    assert any(fnmatch.fnmatchcase(name, glob) for glob in ucc().components()) is fits
    assert ucc(tls=["sharp"]).components() == ("ucc/sharp:ucx/tcp",)


def test_what_is_below_ucc_must_suit_the_stack() -> None:
    over_ob1 = ucc(Ob1(Ob1Settings()))
    assert over_ob1.unsuitable(HYDRA) == "MPICH has no ob1 (known: auto, ofi, shm, ucc, ucx)"
    assert over_ob1.unsuitable(FIVE) is None


def test_an_mpi_that_is_not_known_suits_no_transport() -> None:
    other = Stack("x", "MVAPICH", "4.0", "/s", "mpirun", "python")
    assert Shm(TransportSettings()).unsuitable(other) == "MVAPICH has no shm (known: none)"
