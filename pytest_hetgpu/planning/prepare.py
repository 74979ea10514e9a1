"""Preparation of a planned job: facts of its nodes and thresholds are added in this module alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_hetgpu.model.facts import Environment
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.planning.references import Thresholds, merged

#: Versions that an expectation may name. The versions that the run itself prints take precedence.
_VERSIONS = ("openmpi", "mpich", "ucx", "ucc", "libfabric", "cuda.driver", "rocm.version", "nccl", "rccl", "torch")
#: Capabilities, each with the fact and the value that prove it.
_CAPABILITIES: Mapping[str, tuple[str, str]] = {
    "no-large-bar": ("large_bar.rocm", "no"),
    "rocm-large-bar": ("large_bar.rocm", "yes"),
}


def with_facts(job: Job, seen: Mapping[int, Environment]) -> Job:
    """Return the job with the versions and capabilities of its nodes, whose environments are given by index.

    A version is added if all nodes with ranks have the same, a capability if one of them has it.
    """
    ranked = [seen[node.index] for node in job.nodes]
    facts = {}
    for name in _VERSIONS:
        values = {environment.text(name) for environment in ranked}
        value = values.pop()
        if value and not values:
            facts[name] = value
    found = {
        name
        for name, (fact, value) in _CAPABILITIES.items()
        if any(environment.text(fact) == value for environment in ranked)
    }
    return _prepare(job, facts={**facts, **job.demand.facts}, capabilities=job.demand.capabilities | frozenset(found))


def with_thresholds(job: Job, *found: Thresholds, before: Mapping[str, str]) -> Job:
    """Return the job with further thresholds, if there are any; `before` are facts of the run that they are from."""
    if not any(found):
        return job
    return _prepare(job, limits=merged(job.demand.limits, *found), before=before)


def without_thresholds(job: Job) -> Job:
    """Return the job without any threshold."""
    return _prepare(job, limits={})


def _prepare(job: Job, **changes: Any) -> Job:
    return replace(job, demand=replace(job.demand, **changes))
