"""Logs of transports for maintainers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.model.job import Stack

OPENMPI = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
MPICH = Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python")


def made(name: str, **settings: Any) -> Transport:
    family: type[Transport] = find("transports", name, Transport)  # type: ignore[type-abstract]
    lower = made("ucx") if family.layered else None
    over = {"over": "ucx-tcp"} if family.layered else {}
    return family(family.Settings.model_validate({**over, **settings}), lower)


@pytest.mark.parametrize("name", names("transports"))
def test_every_family_has_more_to_say(name: str) -> None:
    more = made(name).verbose(OPENMPI)
    if made(name).backend:
        assert more.env
        assert not more.mca
        return
    assert more.mca
    assert any(value == "100" for value in more.mca.values())


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("ucx", {"UCX_LOG_LEVEL": "debug"}),
        ("ucc", {"UCX_LOG_LEVEL": "debug", "UCC_LOG_LEVEL": "debug"}),
        ("ofi", {"FI_LOG_LEVEL": "debug"}),
        ("auto", {"UCX_LOG_LEVEL": "debug", "FI_LOG_LEVEL": "warn"}),
    ],
)
def test_libraries_below_are_asked_too(name: str, variables: dict[str, str]) -> None:
    for stack in (OPENMPI, MPICH):
        assert made(name).verbose(stack).env.items() >= variables.items()


def test_mpich_takes_no_parameters_of_open_mpi() -> None:
    for name in ("ucx", "ofi", "shm", "auto"):
        assert made(name).verbose(MPICH).mca == {}
