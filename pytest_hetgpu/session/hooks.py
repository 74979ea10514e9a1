"""Calls of the hooks in `newhooks.py`, and checks of their results."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.model.job import Job, Scenario
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import one_line, printable

#: What a job is known by, and what is ready for it before the hook is called.
_FIXED = ("matrix", "scenario", "label", "axes", "nodes", "launcher")
_LONGEST = 1000
_TROUBLE = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def select(config: pytest.Config, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """Return the cells of a run as `pytest_hetgpu_scenarios` leaves them; UsageError for others, copies or none."""
    chosen = list(scenarios)
    config.hook.pytest_hetgpu_scenarios(config=config, scenarios=chosen)
    given = {(cell.matrix, cell.id): cell for cell in scenarios}
    for cell in chosen:
        if not isinstance(cell, Scenario) or given.get((cell.matrix, cell.id)) is not cell:
            raise UsageError(f"{_of(config, 'pytest_hetgpu_scenarios')}: {_shown(cell)} is no cell of this run")
    labels = Counter(cell.label for cell in chosen)
    twice = next((label for label, often in labels.items() if often > 1), None)
    if twice is not None:
        raise UsageError(f"{_of(config, 'pytest_hetgpu_scenarios')}: {twice} is listed {labels[twice]} times")
    if scenarios and not chosen:
        raise UsageError(f"{_of(config, 'pytest_hetgpu_scenarios')}: no cell is left to run")
    return tuple(chosen)


def change_job(config: pytest.Config, scenario: Scenario, job: Job) -> Job:
    """Return the job to start, which `pytest_hetgpu_job` may have replaced; UsageError for one of another cell.

    A hook that skips raises NotHere, so the cell is recorded as not run.
    """
    try:
        changed = config.hook.pytest_hetgpu_job(config=config, scenario=scenario, job=job)
    except pytest.skip.Exception as skipped:
        raise NotHere(skipped.msg or f"{_of(config, 'pytest_hetgpu_job')} skipped it") from None
    if changed is None:
        return job
    if not isinstance(changed, Job):
        raise UsageError(f"{_of(config, 'pytest_hetgpu_job')} returned {_shown(changed)} for {job.label}, not a Job")
    moved = [name for name in _FIXED if getattr(changed, name) != getattr(job, name)]
    if moved:
        raise UsageError(
            f"{_of(config, 'pytest_hetgpu_job')} changed {', '.join(moved)} of {job.label}; "
            "only command, timeout and demand of a job can be changed"
        )
    return changed


def change_planned(config: pytest.Config, scenario: Scenario, job: Job) -> Job:
    """Return as `change_job`, for a plan, which a job of another cell ends with exit code 4."""
    try:
        return change_job(config, scenario, job)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def report_outcome(config: pytest.Config, scenario: Scenario, outcome: Outcome) -> None:
    """Call `pytest_hetgpu_outcome`. Its exceptions become warnings, also if warnings are errors."""
    try:
        config.hook.pytest_hetgpu_outcome(config=config, scenario=scenario, outcome=outcome)
    except _TROUBLE as error:
        _warn(config, scenario, error)


def report_skip(config: pytest.Config, scenario: Scenario, reason: str) -> None:
    """Call `pytest_hetgpu_outcome` for a cell that is not run."""
    report_outcome(config, scenario, Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=reason))


def report_lines(config: pytest.Config, run: Path) -> tuple[list[str], list[str]]:
    """Call `pytest_hetgpu_report`; return its lines for the summary, and one about an exception in it."""
    try:
        results = config.hook.pytest_hetgpu_report(config=config, run=run)
        return [printable(redact(line)) for result in results for line in _lines(result)], []
    except _TROUBLE as error:
        return [], [f"{_of(config, 'pytest_hetgpu_report')}: {_words(error)}"]


def _lines(result: str | Iterable[str] | None) -> Iterator[str]:
    for text in (result,) if isinstance(result, str) else result or ():
        yield from str(text).splitlines()


def _warn(config: pytest.Config, scenario: Scenario, error: BaseException) -> None:
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = pytest.PytestWarning(f"{_of(config, 'pytest_hetgpu_outcome')}: {scenario.label}: {_words(error)}")
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        warnings.warn_explicit(said, None, place.filename, place.lineno or 1)
    for one in recorded:
        told: dict[str, Any] = {"warning_message": one, "when": "runtest", "nodeid": "", "location": None}
        config.hook.pytest_warning_recorded.call_historic(kwargs=told)


def _of(config: pytest.Config, hook: str) -> str:
    """Return a hook's name with the plugins that implement it: `pytest_hetgpu_job of conftest.py`."""
    names = [_plugin(config, found.plugin_name) for found in getattr(config.hook, hook).get_hookimpls()]
    return f"{hook} of {', '.join(names)}"


def _plugin(config: pytest.Config, name: str) -> str:
    path = Path(name)
    return str(path.relative_to(config.rootpath)) if path.is_relative_to(config.rootpath) else name


def _shown(value: object) -> str:
    return one_line(redact(value.label if isinstance(value, Scenario) else repr(value)), _LONGEST)


def _words(error: BaseException) -> str:
    return one_line(redact(f"{type(error).__name__}: {error}"), _LONGEST)
