"""The live view of running cells, as a plugin: its events, and the conditions under which it is shown."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from pytest_hetgpu.model.verdict import Verdict

if TYPE_CHECKING:
    from pytest_hetgpu.session.terminal.results import TerminalReporter

AUTO, ON = "auto", "on"
NO_TERMINAL = "live view: standard output is no terminal, there is nothing to draw on"

_hook = pluggy.HookimplMarker("pytest")


class LiveView:
    """Hooks of the view, in the process that has the terminal."""

    def __init__(self, config: Any, terminal: int, live: TerminalReporter, run: Path) -> None:
        from pytest_hetgpu.session.terminal.running import RunningCells
        from pytest_hetgpu.session.terminal.screen import Screen

        self.screen = Screen(config.get_terminal_writer(), terminal, RunningCells(run, time.time()), self.told)
        self.live = live
        self.total = 0
        self.labels = {label for _, label in live.cells}

    def told(self) -> str:
        """Return `14 of 58 cells ended: 12 ok, 1 known, 1 new`."""
        ended = Counter(pairs.verdict for pairs in list(self.live.seen.values()))
        many = f"{sum(ended.values())} of {self.total}" if self.total else str(sum(ended.values()))
        each = ", ".join(f"{ended[one]} {one.value.replace('_', ' ')}" for one in Verdict if ended[one])
        return f"{many} cells ended{': ' if each else ''}{each}"

    def pytest_sessionstart(self) -> None:
        self.screen.start()

    def pytest_sessionfinish(self) -> None:
        self.screen.stop()

    def pytest_collection_finish(self, session: Any) -> None:
        self.count(item.nodeid for item in session.items)

    @_hook(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self.count(ids)

    def count(self, nodeids: Iterable[str]) -> None:
        """Set the number of cells that will run."""
        self.total = sum(self.label(nodeid) is not None for nodeid in nodeids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        label = self.label(nodeid)
        if label is not None:
            self.screen.begin(label)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.over(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        # Of a worker that crashed there is this, and no more.
        if report.when not in ("setup", "call", "teardown"):
            self.over(report.nodeid)

    def pytest_enter_pdb(self) -> None:
        self.screen.pause()

    def over(self, nodeid: str) -> None:
        """End the display of a test."""
        label = self.label(nodeid)
        if label is not None:
            self.screen.end(label)

    def label(self, nodeid: str) -> str | None:
        """Return the cell of a test."""
        label = nodeid.rpartition("[")[2].rstrip("]")
        return label if label in self.labels else None


def watch(config: Any, mode: str, live: TerminalReporter, run: Path) -> None:
    """Show the running cells: for `auto` on a terminal with no other writer, for `on` on any terminal.

    Without a view, lines report cells that wait for a host.
    """
    if config.pluginmanager.get_plugin("terminalreporter") is None:
        return
    try:
        output, terminal = os.dup(sys.stdout.fileno()), sys.stdout.isatty()
    except (OSError, ValueError):
        output, terminal = None, False
    if not terminal and mode == ON:
        live.warn(NO_TERMINAL)
    if output is None:
        return
    if terminal and (mode == ON or _free(config)):
        config.pluginmanager.register(LiveView(config, output, live, run), "hetgpu-watching")
        return
    from pytest_hetgpu.session.terminal.plain import Plain
    from pytest_hetgpu.session.terminal.running import RunningCells

    plain = Plain(config.get_terminal_writer(), output, RunningCells(run, time.time()))
    config.pluginmanager.register(plain, "hetgpu-plain")


def _free(config: Any) -> bool:
    """Return whether only pytest's reporter writes to the terminal: no test (-s), no debugger, not quiet."""
    option = vars(config.option)
    others = option.get("capture", "no") in ("no", "tee-sys")
    others = others or any(option.get(name) for name in ("usepdb", "trace", "setupshow", "setuponly"))
    return not others and config.get_verbosity() >= 0 and os.environ.get("TERM", "") not in ("dumb", "unknown", "")
