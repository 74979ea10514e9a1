"""Conditions of expectations."""

from __future__ import annotations

import pytest

from pytest_hetgpu.model.conditions import check_condition, matches
from pytest_hetgpu.model.failure import Condition

FACTS = {"ucx": "1.18.0", "openmpi": "5.0.11", "stack": "openmpi-5", "rocm": "6.2-custom"}


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
