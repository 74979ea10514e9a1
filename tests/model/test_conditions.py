"""Conditions of expectations."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.conditions import check_condition, describe_proof, matches, needs_proof
from pytest_hetgpu.model.failure import Condition

FACTS = {
    "ucx": "1.18.0",
    "openmpi": "5.0.11",
    "stack": "openmpi-5",
    "rocm": "6.2-custom",
    "memory": ("device", "cuda"),
    "ucc": ("1.3.0", "1.4.4"),
    "UCX_TLS": ("tcp", "tcp,cuda"),
    "program": (),
}


@pytest.mark.parametrize(
    ("fact", "wanted", "expected"),
    [
        ("ucx", "<1.19", True),
        ("ucx", "<1.18", False),
        ("ucx", "==1.18.*", True),
        ("ucx", ">=1.10,<2", True),
        ("openmpi", ">=5.0.9", True),  # 11 is more than 9
        ("openmpi", "~=5.0", True),
        ("openmpi", "!=5.0.11", False),
        ("ucx", "1.18.0", True),
        ("ucx", "1.18", False),
        ("ucx", "1.18*", True),
        ("stack", "openmpi-*", True),
        ("stack", "mpich-*", False),
        ("capability", "no-large-bar", True),
        ("capability", "large-bar", False),
        ("nccl", "<3", None),
        ("nccl", "2.20", None),
        ("rocm", "<7", None),
        # Any value of several is enough.
        ("memory", "device", True),
        ("memory", "rocm|cuda", True),
        ("memory", "host|guarded", False),
        ("ucc", ">=1.4", True),
        ("ucc", ">=2", False),
        # It is known that there is none.
        ("program", "torch", False),
        ("program", "not torch", True),
        ("stack", "not openmpi-*", False),
        ("stack", "not mpich|intel*", True),
        ("UCX_TLS", "not *cuda*", True),
        ("UCX_TLS", "not tcp*", False),
        ("nccl", "not 2.20", None),
    ],
)
def test_what_holds_does_not_or_cannot_be_said(fact: str, wanted: str, expected: bool | None) -> None:
    assert matches(Condition(fact, wanted), FACTS, {"no-large-bar"}) is expected


def test_a_release_candidate_is_before_its_release() -> None:
    assert matches(Condition("ucx", "<1.19"), {"ucx": "1.19.0rc1"}, ()) is False
    assert matches(Condition("ucx", "<1.19.0"), {"ucx": "1.18.1rc1"}, ()) is True


@pytest.mark.parametrize("wanted", ["<1.18", ">=5,<6", "~=5.0", "==1.*", "!=2", "plain", "1.18", "no-large-bar", ""])
def test_good_conditions(wanted: str) -> None:
    assert check_condition(wanted) is None


@pytest.mark.parametrize("wanted", ["<", "<x", ">=5,<", "=1.18", "<1.x", "~5"])
def test_a_range_that_is_none(wanted: str) -> None:
    assert check_condition(wanted) == f"{wanted!r} is not a version range (like '<1.18' or '>=5,<6')"


def test_capabilities_of_nodes_that_nobody_knows_are_open() -> None:
    assert matches(Condition("capability", "no-large-bar"), FACTS, None) is None


def test_what_excludes_needs_no_proof() -> None:
    assert needs_proof(Condition("memory", "device"))
    assert not needs_proof(Condition("large_bar", "not yes"))


def test_what_would_prove_a_condition() -> None:
    assert describe_proof(Condition("memory", "rocm")) == "its buffers are in memory of an AMD GPU (memory: rocm)"
    assert describe_proof(Condition("ucx", ">=1.18")) == "ucx: >=1.18"
