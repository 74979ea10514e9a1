"""What a run was asked to allow, handed on to those who keep to it."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_hetgpu.execution.retry.budget import Budget
from pytest_hetgpu.execution.retry.health import NodeHealth
from pytest_hetgpu.execution.retry.policy import Retries
from pytest_hetgpu.execution.retry.trying import Trying
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.session.settings import OFF, Settings


def asked(settings: Settings, trying: Trying, health: NodeHealth, deadline: float | None) -> float:
    """Sets retries, budget and quarantine; gives the bytes of output that a cell may have.

    A worker's budget ends at its controller's `deadline`, by the monotonic clock; None for the controller itself.
    """
    trying.retries = Retries(settings.retries, tuple(map(Kind, settings.retry_on)))
    trying.budget = Budget.of(None if settings.budget == OFF else float(settings.budget))
    if deadline is not None:
        trying.budget = replace(trying.budget, deadline=deadline)
    health.limit = None if settings.quarantine == OFF else int(settings.quarantine)
    return math.inf if settings.output == OFF else float(settings.output)
