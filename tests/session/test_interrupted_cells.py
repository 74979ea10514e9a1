"""Cells that were running at an interrupt are in pytest's own reports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.session.closed_terminal import OutputStreams
from pytest_hetgpu.session.interrupted_cells import InterruptedCells
from pytest_hetgpu.session.signals import Stopped
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import job


class Controller:
    """As much of pytest's config and of xdist's session as is used. Reports are put into `queue` as workers do."""

    def __init__(self) -> None:
        self.queue: Queue[tuple[str, dict[str, Any]]] = Queue()
        self.pluginmanager = SimpleNamespace(has_plugin=lambda name: name == "dsession", get_plugin=lambda _name: self)
        self.hook = SimpleNamespace(pytest_runtest_logreport=self.logged)
        self.reports: list[pytest.TestReport] = []
        self.cells: InterruptedCells | None = None

    def logged(self, report: pytest.TestReport) -> None:
        self.reports.append(report)
        assert self.cells is not None
        wrapper = self.cells.pytest_runtest_logreport(report)
        next(wrapper)
        wrapper.close()

    def worker_testreport(self, node: object, rep: pytest.TestReport) -> None:
        self.logged(rep)


def report(label: str, when: Literal["setup", "call"] = "setup") -> pytest.TestReport:
    """A report of a worker that passed."""
    nodeid = f"test_it.py::test_cell[{label}]"
    return pytest.TestReport(nodeid, ("test_it.py", 1, label), {"hetgpu": 1}, "passed", None, when)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    controller = Controller()
    with closing(Journal(tmp_path, "main")) as journal:
        controller.cells = InterruptedCells(controller, OutputStreams(), journal)
        yield controller


def cut(controller: Controller) -> list[str]:
    return [one.nodeid for one in controller.reports if one.skipped]


def test_reports_that_wait_to_be_read_count(controller: Controller) -> None:
    assert controller.cells is not None
    for one in (report("a"), report("a", "call"), report("b")):
        controller.queue.put(("testreport", {"node": None, "rep": one}))
    controller.queue.put(("logstart", {"node": None, "nodeid": "c", "location": ()}))
    controller.cells.pytest_sessionfinish()
    assert cut(controller) == ["test_it.py::test_cell[b]"]


def test_a_report_on_its_way_is_waited_for(controller: Controller, tmp_path: Path) -> None:
    assert controller.cells is not None
    with closing(Journal(tmp_path, "gw0")) as worker:
        worker.started(job("a"))
        controller.cells.pytest_keyboard_interrupt(SimpleNamespace(value=KeyboardInterrupt()))
        finish = threading.Thread(target=controller.cells.pytest_sessionfinish)
        finish.start()
        controller.queue.put(("testreport", {"node": None, "rep": report("a")}))
        finish.join()
    assert cut(controller) == ["test_it.py::test_cell[a]"]
    assert controller.reports[-1].longrepr == ("test_it.py", 1, "Skipped: the run was stopped")


def test_a_cell_that_was_not_ready_yet_is_cut_with_the_signal(tmp_path: Path) -> None:
    controller = Controller()
    with closing(Journal(tmp_path, "main")) as journal:
        cells = [Scenario("m", name, name, (), ()) for name in ("a", "b")]
        interrupted = controller.cells = InterruptedCells(controller, OutputStreams(), journal, cells)
        for name in ("a", "b", "other"):
            interrupted.pytest_runtest_logstart(f"test_it.py::test_cell[{name}]", ("test_it.py", 1, name))
        skipped = report("b")
        skipped.outcome = "skipped"
        controller.logged(skipped)
        interrupted.pytest_keyboard_interrupt(SimpleNamespace(value=Stopped("SIGTERM")))
        interrupted.pytest_sessionfinish()
    last = controller.reports[-1]
    assert cut(controller) == ["test_it.py::test_cell[b]", "test_it.py::test_cell[a]"]
    assert last.longrepr == ("test_it.py", 1, "Skipped: the run was stopped (SIGTERM)")
    assert dict(last.user_properties)["verdict"] == "not_run"
