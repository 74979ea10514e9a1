"""Preflight warnings about accelerators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.cluster.preflight.accelerators import THRESHOLDS, gfx
from pytest_hetgpu.model.facts import Fact, FactState, found
from pytest_hetgpu.model.job import Accelerator
from pytest_hetgpu.model.verdict import Kind
from tests.cluster.preflight.preflight_cases import CPU, G4AD, G4DN, LUMI, NOT_TOLD, concerns, environment, job, looked

GOOD_ROCM = environment({"rocm.devices": ("gfx1011, navi12",), "rocm.arch": ("gfx1011",), "rocm.access": "rw"})
GOOD_CUDA = environment({"cuda.devices": ("0: Tesla T4",), "cuda.arch": ("sm_75",)})
CURED = dict.fromkeys(THRESHOLDS, "0")
SMALL_BAR = Fact(FactState.FOUND, "no", "0000:00:1e.0 shows 256 MiB of 8176 MiB")


def test_good_nodes_give_no_concern() -> None:
    assert looked(job(G4AD, G4DN), GOOD_ROCM, GOOD_CUDA) == ()


def test_what_is_unknown_gives_no_concern() -> None:
    names = ("rocm.devices", "rocm.arch", "rocm.access", "large_bar.rocm", "ucx", "openmpi", "memlock", "shm", "cma")
    assert looked(job(G4AD, G4AD, ranks=2), *[environment(dict.fromkeys(names, NOT_TOLD))] * 2) == ()
    assert looked(job(G4AD, G4AD)) == ()


def test_a_missing_device() -> None:
    told = looked(job(G4AD, G4DN), environment({"rocm.devices": None}), GOOD_CUDA)
    assert [(one.kind, one.node) for one in told] == [(Kind.LAUNCH_FAILURE, "node 0 (g4ad)")]
    assert "/dev/kfd" in told[0].remedy
    assert concerns(job(CPU), environment({"rocm.devices": None, "cuda.devices": None})) == []


def test_fewer_devices_than_the_matrix_says() -> None:
    told = looked(job(LUMI), environment({"rocm.devices": ("gfx90a",) * 2, "rocm.arch": ("gfx90a",)}))
    assert "requires 8 rocm devices, there are 2" in told[0].why


@pytest.mark.parametrize(
    ("real", "override", "wrong"),
    [
        (("gfx1011",), None, False),
        (("gfx1010",), None, True),
        (("gfx1010",), "10.1.1", False),
        (("gfx1010",), "10.3.0", True),
        (("gfx1030", "gfx1011"), None, False),
    ],
)
def test_the_real_isa_against_the_label(real: tuple[str, ...], override: str | None, wrong: bool) -> None:
    facts = environment({"rocm.devices": real, "rocm.arch": real})
    told = looked(job(G4AD, env={"HSA_OVERRIDE_GFX_VERSION": override} if override else {}), facts)
    assert [one.kind for one in told] == [Kind.GPU_ARCH_MISMATCH] * wrong


def test_a_wrong_isa_says_both() -> None:
    told = looked(job(G4AD), environment({"rocm.devices": ("gfx1010",), "rocm.arch": ("gfx1010",)}))
    assert told[0].why == "the matrix requires gfx1011, the device is gfx1010"
    assert "arch: gfx1010" in told[0].remedy


def test_a_label_without_arch_is_never_wrong() -> None:
    any_rocm = replace(G4AD, accelerator=Accelerator("rocm"))
    assert concerns(job(any_rocm), GOOD_ROCM) == []


@pytest.mark.parametrize(("version", "name"), [("10.1.1", "gfx1011"), ("9.0.10", "gfx90a"), ("11.0.0", "gfx1100")])
def test_an_override_names_an_isa(version: str, name: str) -> None:
    assert gfx(version) == name


def test_no_right_to_the_device() -> None:
    closed = environment({**GOOD_ROCM.facts, "rocm.access": "none"})
    assert [one.kind for one in looked(job(G4AD), closed)] == [Kind.LAUNCH_FAILURE]


@pytest.mark.parametrize(
    ("rocr", "hip", "wrong"),
    [("2,3", "2,3", True), ("2,3", "0,1", False), ("2,3", None, False), (None, "2,3", False), ("2", "1", True)],
)
def test_hip_counts_only_what_rocr_leaves(rocr: str | None, hip: str | None, wrong: bool) -> None:
    variables = {"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip}
    given = {name: value for name, value in variables.items() if value is not None}
    inherited = environment({**GOOD_ROCM.facts, **{f"env.{name}": found(value) for name, value in given.items()}})
    assert bool(looked(job(G4AD, env=given), GOOD_ROCM)) == wrong
    assert bool(looked(job(G4AD), inherited)) == wrong


@pytest.mark.parametrize("value", ["", "-1"])
def test_variables_that_hide_every_device(value: str) -> None:
    assert [one.kind for one in looked(job(G4DN, env={"CUDA_VISIBLE_DEVICES": value}), GOOD_CUDA)] == [
        Kind.LAUNCH_FAILURE
    ]
    assert looked(job(CPU, env={"CUDA_VISIBLE_DEVICES": value}), GOOD_CUDA) == ()


def test_no_large_bar_without_its_workaround_is_the_known_crash() -> None:
    facts = environment({**GOOD_ROCM.facts, "large_bar.rocm": SMALL_BAR})
    tls = {"UCX_TLS": "tcp,rocm_copy"}
    told = looked(job(G4AD, G4DN, env=tls), facts, GOOD_CUDA)
    assert [(one.kind, one.node, one.certain) for one in told] == [(Kind.CRASH, "node 0 (g4ad)", True)]
    assert told[0].remedy.startswith("set UCX_ROCM_COPY_D2H_THRESH=0 UCX_ROCM_COPY_H2D_THRESH=0")
    assert looked(job(G4AD, G4DN, env=({**tls, **CURED}, tls)), facts, GOOD_CUDA) == ()
    # The workaround on the other node does not help this one.
    assert concerns(job(G4AD, G4DN, env=(tls, {**tls, **CURED})), facts, GOOD_CUDA) != []


def test_half_the_workaround_is_none() -> None:
    facts = environment({**GOOD_ROCM.facts, "large_bar.rocm": SMALL_BAR})
    told = looked(job(G4AD, env={"UCX_TLS": "rocm", THRESHOLDS[0]: "0"}), facts)
    assert told[0].remedy.startswith(f"set {THRESHOLDS[1]}=0 (")


def test_large_bar_matters_to_ucx_alone_and_surely_only_with_its_rocm_transports() -> None:
    facts = environment({**GOOD_ROCM.facts, "large_bar.rocm": SMALL_BAR})
    assert looked(job(G4AD, family="ob1", transports=("ob1/tcp",)), facts) == ()
    assert concerns(job(G4AD, env={"UCX_TLS": "tcp"}), facts) == [(Kind.CRASH, "node 0 (g4ad)", False)]
    over = job(G4AD, family="ucc", transports=("ucc/*:ucx/tcp",), env={"UCX_TLS": "tcp,rocm_copy"})
    assert concerns(over, facts) == [(Kind.CRASH, "node 0 (g4ad)", True)]
