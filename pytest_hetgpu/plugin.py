"""The pytest plugin: declares options, opens a session where a matrix is given. Imports nothing heavy until then."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from pytest_hetgpu import newhooks
from pytest_hetgpu.session import options
from pytest_hetgpu.session.fixtures import CELLS_PLUGIN, cell_tests_of, cluster, run, scenario

__all__ = ["cluster", "run", "scenario"]


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(newhooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.register(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    # A plan starts nothing, so there is nothing to distribute either.
    if config.getoption("hetgpu_plan") and hasattr(config.option, "numprocesses"):
        config.option.numprocesses = 0
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Last, for then every other plugin has registered its marks.
    config.addinivalue_line("markers", "hetgpu: a cell of a matrix")
    settings = options.resolve(config)
    if not settings.matrix:
        for name in ("plan", "cell", "inventory", "baseline", "resume"):
            if settings.sources.get(name, "").startswith("--"):
                raise pytest.UsageError(f"{settings.sources[name]} needs a matrix: give --hetgpu-matrix FILE")
        return
    if config.option.help or config.option.version:
        return
    if settings.plan and settings.resume is not None:
        raise pytest.UsageError(
            "--hetgpu-resume runs what is left of a run, --hetgpu-plan starts nothing: leave one out"
        )
    with _to_stay():
        from pytest_hetgpu.session.opening import open_session

        session = open_session(config, settings)
    config.pluginmanager.register(session, "hetgpu-session")
    config.pluginmanager.register(session.tests, CELLS_PLUGIN)


@contextmanager
def _to_stay() -> Iterator[None]:
    """Spare the collector what is loaded inside, now and at pytest's end.

    Only the first session of a process is spared: objects that are frozen are never freed if they form a circle.
    """
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
        if not gc.get_freeze_count():
            gc.freeze()
    finally:
        if looks:
            gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        tests = cell_tests_of(metafunc.config)
        if tests is not None:
            cells = tests.cells
            metafunc.parametrize("scenario", cells, ids=[cell.label for cell in cells], scope="function")
