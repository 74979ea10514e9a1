"""The remedies for a failed cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.config.matrix.models import BAD_KINDS, RemedyShape
from pytest_hetgpu.config.remedies.load import Remedy, Surroundings, _shipped, remedies
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.stacks.base import family_of, stack_names
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.job import Expectation, Job
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.planning.plan_cases import Plans, plans

__all__ = ["plans"]

HANG = Outcome(Kind.HANG, Verdict.NEW)
AROUND = Surroundings(("eth0", "lo"), ("docker0", "br0"))


@pytest.fixture
def job(plans: Plans) -> Job:
    return plans("two-ob1-pairs")


def test_the_shipped_ones_are_valid_and_have_a_source() -> None:
    vendors = {family_of(name).vendor for name in stack_names()}
    for one in _shipped():
        assert set(one["transport"]) <= set(names("transports"))
        assert one.get("stack", "Open MPI") in vendors
        assert set(one.get("outcome", ())) <= set(BAD_KINDS)
        assert one["source"].startswith("https://")
        assert one.get("mca") or one.get("env")
        RemedyShape.model_validate({"mca": one.get("mca", {}), "env": one.get("env", {})})


def test_those_of_a_transport_with_what_is_around(job: Job) -> None:
    typed = [one.typed for one in remedies(job, HANG, AROUND)]
    assert typed[:4] == [
        "btl_tcp_if_include=eth0",
        "btl_tcp_if_include=lo",
        "btl_tcp_if_exclude=127.0.0.1/8,docker0,br0",
        "btl_tcp_disable_family=6",
    ]
    assert not any(one.startswith("UCX_") for one in typed)


def test_none_of_interfaces_where_none_is_known(job: Job) -> None:
    typed = [one.typed for one in remedies(job, HANG, Surroundings())]
    assert not any("if_" in one for one in typed)


def test_known_failures_and_expectations_come_first(job: Job) -> None:
    known = KnownFailure("ours", "t", "c", settings={"mca": {"pml": "ucx"}})
    expected = Expectation(kinds=(Kind.HANG,), reason="r", remedy={"env": {"UCX_TLS": "tcp"}})
    demand = replace(job.demand, expectations=(expected,))
    found = remedies(replace(job, demand=demand), replace(HANG, known=(known,)), AROUND)
    assert found[:2] == (Remedy({"pml": "ucx"}, {}, "ours"), Remedy({}, {"UCX_TLS": "tcp"}, "r"))


def test_each_is_tried_once(job: Job) -> None:
    known = KnownFailure("ours", "t", "c", settings={"mca": {"btl_tcp_disable_family": "6"}})
    found = remedies(job, replace(HANG, known=(known,)), AROUND)
    assert [one.source for one in found if one.typed == "btl_tcp_disable_family=6"] == ["ours"]
