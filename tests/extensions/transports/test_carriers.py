"""Classes of a transport's members, and the class that each path requires."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.extensions.transports.auto import Auto
from pytest_hetgpu.extensions.transports.base import Transport, TransportSettings
from pytest_hetgpu.extensions.transports.nccl import Nccl, NcclSettings
from pytest_hetgpu.extensions.transports.ob1 import Ob1, Ob1Settings
from pytest_hetgpu.extensions.transports.ofi import Ofi, OfiSettings
from pytest_hetgpu.extensions.transports.shm import Shm
from pytest_hetgpu.extensions.transports.ucc import Ucc, UccSettings
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.transport_classes import (
    OFF_HOST,
    ON_HOST,
    PATHS,
    RequiredClass,
    by_path,
    connection,
    describe_carriers,
)


def ucx(*tls: str, **more: Any) -> Ucx:
    return Ucx(UcxSettings.model_validate({"tls": list(tls), **more}))


def best(transport: Transport) -> dict[str, str]:
    return {path: " ".join(duty.best) for path, duty in transport.required_classes(PATHS).items()}


@pytest.mark.parametrize(
    ("tls", "on_host", "off_host"),
    [
        ("rc tcp self", "rc", "rc"),
        ("tcp rc self", "rc", "rc"),
        ("rc sm self", "sm", "rc"),
        ("ud sm self", "sm", "ud"),
        ("tcp sm self", "sm", "tcp"),
        ("tcp self", "tcp", "tcp"),
        ("tcp self cuda_copy rocm_copy", "tcp", "tcp"),
        ("tcp cuda_copy gdr_copy", "tcp", "tcp"),
        ("tcp cuda_ipc cuda_copy", "cuda_ipc", "tcp"),
        ("tcp rocm_ipc rocm_copy", "rocm_ipc", "tcp"),
        ("tcp cuda rocm", "tcp", "tcp"),
        ("posix cma self", "posix cma", ""),
        ("rc_x dc_mlx5 ud_verbs tcp", "rc_x dc_mlx5 ud_verbs", "rc_x dc_mlx5 ud_verbs"),
        ("ib ud:aux tcp sysv", "sysv", "ib"),
        ("srd tcp", "srd", "srd"),
        ("self cuda_copy", "", ""),
        # A group of several classes asks for none.
        ("all", "", ""),
        ("any tcp", "", ""),
    ],
)
def test_the_best_class_of_a_list_that_fits_a_path(tls: str, on_host: str, off_host: str) -> None:
    wanted = {ON_HOST: on_host, OFF_HOST: off_host}
    assert best(ucx(*tls.split())) == {path: names for path, names in wanted.items() if names}


def test_a_duty_names_what_was_asked_for_and_its_components() -> None:
    assert ucx("rc", "tcp", "self", "cuda_copy").required_classes([OFF_HOST]) == {
        OFF_HOST: RequiredClass("RDMA", ("rc", "tcp"), ("rc",), ("ucx/rc_*", "ucx/ud_*"))
    }


@pytest.mark.parametrize("carried", [("ucx/rc_mlx5",), ("ucx/cuda_copy", "ucx/rc_verbs", "ucx/tcp")])
def test_one_member_of_the_class_is_enough(carried: tuple[str, ...]) -> None:
    assert ucx("rc", "tcp").required_classes([OFF_HOST])[OFF_HOST].met_by(carried)
    assert not ucx("rc", "tcp").required_classes([OFF_HOST])[OFF_HOST].met_by(("ucx/tcp", "ucx/cuda_copy"))


def test_carried_by_any_lets_every_member_carry() -> None:
    assert best(ucx("rc", "tcp", carried_by="any")) == {}
    below = ucx("rc", "tcp", carried_by="any")
    assert best(Ucc(UccSettings(over="x"), below)) == {}
    assert best(Ucc(UccSettings(over="x", carried_by="any"), ucx("rc", "tcp"))) == {}
    with pytest.raises(ValidationError, match="Input should be 'any'"):
        ucx("tcp", carried_by="all")


def test_what_ucx_calls_one_transport_is_that_component() -> None:
    assert ucx("rc_x", "ud_v", "self").components() == ("ucx/rc_mlx5", "ucx/ud_verbs")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (lambda: ucx("new_rail", "tcp", "self"), "'new_rail'.*new_rail, tcp"),
        (lambda: Ob1Settings.model_validate({"btl": ["ofi", "tcp"]}), "'ofi'.*ofi, tcp"),
    ],
)
def test_a_list_with_a_member_of_no_known_class_must_say_that_any_may_carry(settings: Any, names: str) -> None:
    with pytest.raises(ValidationError, match=f"the class of {names} cannot be determined: add `carried_by: any`"):
        settings()


def test_a_member_of_no_known_class_may_stand_alone() -> None:
    assert best(ucx("new_rail", "self")) == {}
    assert best(ucx("new_rail", "tcp", carried_by="any")) == {}


@pytest.mark.parametrize(
    ("transport", "on_host", "off_host"),
    [
        (Ob1(Ob1Settings.model_validate({"btl": ["sm", "tcp", "self"]})), "sm", "tcp"),
        (Ob1(Ob1Settings.model_validate({"btl": ["vader", "tcp"]})), "vader", "tcp"),
        (Ob1(Ob1Settings()), "tcp", "tcp"),
        (Ob1(Ob1Settings.model_validate({"btl": ["uct", "tcp", "self"]})), "uct", "uct"),
        (Ofi(OfiSettings(provider="cxi")), "cxi", "cxi"),
        (Ofi(OfiSettings(provider="lnx")), "", ""),
        (Shm(TransportSettings()), "shm", ""),
        (Auto(TransportSettings()), "", ""),
        (Nccl(NcclSettings()), "", ""),
        # On one host NCCL passes its network by.
        (Nccl(NcclSettings(net="IB")), "", "IB"),
        (Ucc(UccSettings.model_validate({"over": "x", "tls": ["ucp"]}), ucx("rc", "tcp", "sm")), "sm", "rc"),
    ],
)
def test_other_families(transport: Transport, on_host: str, off_host: str) -> None:
    wanted = {ON_HOST: on_host, OFF_HOST: off_host}
    assert best(transport) == {path: names for path, names in wanted.items() if names}


def test_a_layered_family_is_carried_by_what_is_below() -> None:
    duty = Ucc(UccSettings(over="x"), ucx("rc", "tcp")).required_classes([OFF_HOST])[OFF_HOST]
    assert duty.met_by(["ucc/ucp:ucx/rc_mlx5"])
    assert not duty.met_by(["ucc/ucp:ucx/tcp"])


def test_what_carried_the_data_in_words() -> None:
    seen = [
        connection("unknown", ["ofi/tcp"]),
        connection(OFF_HOST, ["ucx/tcp"]),
        connection(ON_HOST, ["ucx/posix", "ucx/cma"]),
        connection(ON_HOST, ["ucx/tcp"]),
    ]
    assert describe_carriers(by_path(seen)) == (
        "ucx/cma + ucx/posix + ucx/tcp (on-host), ucx/tcp (off-host), ofi/tcp (path not known)"
    )
