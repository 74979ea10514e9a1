"""The opening of a session: matrices are read, the run is opened, and the plugins that show it are registered."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.execution.resume.rules import RULES, ResumeRule
from pytest_hetgpu.extensions.package_data import packaged
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.session import hooks
from pytest_hetgpu.session.cell_tests import CellTests
from pytest_hetgpu.session.folder_watch import FolderWatch
from pytest_hetgpu.session.marks import registered
from pytest_hetgpu.session.redacted_reports import RedactedReports
from pytest_hetgpu.session.session import Session
from pytest_hetgpu.session.settings import FULL, OFF, OPTIONS, STACK, Settings
from pytest_hetgpu.store.redaction.redact import clear_secrets, redact, register_secrets
from pytest_hetgpu.store.text import without_commands

if TYPE_CHECKING:
    from pytest_hetgpu.execution.context import Invocation
    from pytest_hetgpu.model.job import Scenario
    from pytest_hetgpu.session.start import OpenedRun
    from pytest_hetgpu.store.events import Sampled


def open_session(config: pytest.Config, settings: Settings) -> Session:
    """Read the matrices and open the run. Raise pytest.UsageError (exit 4) if it cannot be run."""
    register_secrets(os.environ, settings.database.secrets if settings.database else {})
    config.pluginmanager.register(RedactedReports(), "hetgpu-redacted-reports")
    config.add_cleanup(clear_secrets)
    try:
        return _open_session(config, settings)
    except HetgpuError as error:
        raise pytest.UsageError(without_commands(redact(str(error)))) from None


def _open_session(config: pytest.Config, settings: Settings) -> Session:
    inputs = RunInputs(settings.inventory, settings.knowledge, settings.signatures, _most_cells(settings))
    suite = MatrixSet.load(
        settings.matrix, config.rootpath, timeout=settings.timeout, environ=os.environ, inputs=inputs
    )
    register_secrets({}, *suite.settings())
    cells, samples = _select(config, settings, suite)
    marks = registered(config, suite, pytest.mark)
    if config.args_source is not config.ArgsSource.ARGS:
        config.args[:] = [str(packaged("scenarios"))]
    opened = None
    if not (settings.plan or config.option.collectonly):
        opened = _open_run(config, settings, suite, (cells, samples))
    return Session(config, settings, suite, CellTests(config, cells, marks, suite.matrices, opened))


def _most_cells(settings: Settings) -> float:
    """Return how many cells the matrices may have: a sample may come from more than are run."""
    most = settings.max_cells if isinstance(settings.max_cells, int) else math.inf
    if settings.strategy.partition("@")[0] == FULL:
        return most
    from pytest_hetgpu.planning.sampling import MOST_CELLS

    return max(most, MOST_CELLS)


_Selection = tuple["tuple[Scenario, ...]", "tuple[Sampled, ...]"]


def _select(config: pytest.Config, settings: Settings, suite: MatrixSet) -> _Selection:
    """Return the cells to run, with the samples that they come from. Those of a worker are those of its controller."""
    cells = hooks.select(config, suite.select(settings.cell))
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    if chosen := worker.get("hetgpu_sample"):
        wanted = frozenset(chosen)
        return tuple(cell for cell in cells if cell.label in wanted), ()
    if settings.bisect not in ("", STACK):
        from pytest_hetgpu.planning.along_axis import ends

        cells = ends(cells, settings.bisect)
    if settings.strategy.partition("@")[0] == FULL:
        return cells, ()
    from pytest_hetgpu.session.sample import choose

    here = config.invocation_params.dir
    return choose(settings, suite, cells, here / settings.reports, here)


def _open_run(config: pytest.Config, settings: Settings, suite: MatrixSet, selection: _Selection) -> OpenedRun:
    """Open the run, and register the plugins that watch and show it. Modules for runs are imported here."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    cells, samples = selection
    from pytest_hetgpu.session import start

    typed = _typed(config, settings) if worker is None else tuple(worker["hetgpu_options"])
    change_job = partial(hooks.change_job, config)
    request = start.RunRequest(suite, settings, config.invocation_params.dir, typed, cells, change_job, samples)
    if worker is not None:
        opened = start.join(request, worker)
    else:
        from pytest_hetgpu.cluster.leases.hold import check_settings

        check_settings(os.environ)
        if settings.database:
            settings.database.require_packages()
        opens = start.start if settings.resume is None else start.resume
        opened = opens(request, _invocation(config, settings, suite))
    context = opened.runner.context
    watch = FolderWatch(config, context.journal, context.guard.keep, speaks=worker is None)
    config.pluginmanager.register(watch, FolderWatch.NAME)
    if worker is None:
        _show(config, settings, selection, opened)
    return opened


def _invocation(config: pytest.Config, settings: Settings, suite: MatrixSet) -> Invocation:
    """Return the command line, and the fingerprint of all that verdicts depend on, for the journal."""
    from pytest_hetgpu.execution.context import Invocation
    from pytest_hetgpu.execution.resume import fingerprint

    arguments = [str(argument) for argument in config.invocation_params.args]
    given = {one.flag: settings.told(one) for one in OPTIONS if RULES[one.name] is ResumeRule.SAME}
    return Invocation(arguments, fingerprint.compute(suite, _test_paths(config), given, os.environ))


def _test_paths(config: pytest.Config) -> tuple[str, ...]:
    """Return the files and folders of tests on the command line."""
    given = config.args if config.args_source is config.ArgsSource.ARGS else ()
    return tuple(dict.fromkeys(argument.partition("::")[0] for argument in given))


def _typed(config: pytest.Config, settings: Settings) -> tuple[str, ...]:
    """Return the arguments, besides the matrix, that run a cell the same way again."""
    paths = _test_paths(config)
    return (*paths, *(("-m", "hetgpu") if paths else ()), *settings.typed)


def _show(config: pytest.Config, settings: Settings, selection: _Selection, opened: OpenedRun) -> None:
    """Register the plugins that show the run in the terminal."""
    from pytest_hetgpu.session.terminal.results import TerminalReporter

    run = opened.runner.context
    before = run.options.baseline.side if run.options.baseline else run.options.history
    lines = [opened.resumed] if opened.resumed else []
    cells, samples = selection
    lines += (f"sample of {one.matrix}, {one.strategy}: {one.text}" for one in samples)
    live = TerminalReporter(config, cells, run.folder.path, before, lines)
    live.warn(*opened.remarks)
    config.pluginmanager.register(live, "hetgpu-live")
    if settings.controls or settings.remedies or settings.minimise or settings.bisect:
        from pytest_hetgpu.session.further_runs import FurtherRuns

        config.pluginmanager.register(FurtherRuns(opened.runner, live, settings), "hetgpu-further-runs")
    if settings.live != OFF:
        from pytest_hetgpu.session.terminal.live_view import watch

        watch(config, settings.live, live, run.folder.path)
