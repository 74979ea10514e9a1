"""The options of a run, from the settings of the session."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_hetgpu.execution.budget import Budget
from pytest_hetgpu.execution.options import RunOptions
from pytest_hetgpu.execution.retry.policy import Retries
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.session.settings import OFF, Settings

if TYPE_CHECKING:
    from pytest_hetgpu.analysis.baseline import Baseline
    from pytest_hetgpu.store.history_place import HistoryPlace


def run_options(
    settings: Settings,
    typed: tuple[str, ...],
    history: HistoryPlace | None,
    baseline: Baseline | None,
    deadline: float | None = None,
) -> RunOptions:
    """Return the options of a run.

    `typed` are command-line options that run a cell again. The budget of a worker ends at the `deadline` of its
    controller, by the monotonic clock; None: this process is the controller.
    """
    budget = Budget.of(None if settings.budget == OFF else float(settings.budget))
    return RunOptions(
        preflight=settings.preflight,
        link_seconds=settings.wire if isinstance(settings.wire, float) else None,
        retries=Retries(settings.retries, tuple(map(Kind, settings.retry_on))),
        budget=budget if deadline is None else replace(budget, deadline=deadline),
        quarantine=None if settings.quarantine == OFF else int(settings.quarantine),
        output_limit=math.inf if settings.output == OFF else float(settings.output),
        debug_rerun=settings.debug_rerun,
        anonymise=settings.anonymise,
        baseline=baseline,
        history=history,
        typed=typed,
    )
