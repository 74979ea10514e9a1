"""What cuts a session short: signals become an orderly stop."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from pytest_hetgpu.session.closed_terminal import Outlets
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.rescue import FolderLost
from pytest_hetgpu.store.writer_lock import writer_alive

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class OrderlyStop:
    """While installed, SIGTERM and SIGHUP raise KeyboardInterrupt with their name, as Ctrl-C does without one.

    All three wait for the end of what is `postponed`. `outlets` are where the process prints to: what sends a signal
    may take them along.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self.outlets = Outlets()

    def install(self) -> None:
        """Takes over the signals that are not ignored (nohup stays in force), and Ctrl-C where it does as usual.

        Only the main thread can.
        """
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in self._before.items():
                usual = handler is signal.default_int_handler
                if usual if number == signal.SIGINT else handler is not signal.SIG_IGN:
                    signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.outlets.suspect = True
        self.outlets.leave_dead()
        _interrupt(number, frame)

    def restore(self) -> None:
        """Puts back what was there."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class _Waiting:
    """How many `postponed` are entered, and the signals that arrived meanwhile."""

    depth = 0
    arrived: ClassVar[list[int]] = []


@contextmanager
def postponed() -> Iterator[None]:
    """Signals that arrive inside take effect at the end, where an OrderlyStop is installed."""
    # A mask would not do: it holds for one thread, and the kernel gives the signal to another.
    _Waiting.depth += 1
    try:
        yield
    finally:
        _Waiting.depth -= 1
        if _Waiting.arrived and not _Waiting.depth:
            _interrupt(_Waiting.arrived[0], None)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    if _Waiting.depth:
        _Waiting.arrived.append(number)
        return
    _Waiting.arrived.clear()
    raise KeyboardInterrupt(*(() if number == signal.SIGINT else (signal.Signals(number).name,)))


def pass_on(journal: Journal, number: int = signal.SIGTERM) -> None:
    """Signal the other processes of this part of a run that have a cell in flight: they stop it and record it."""
    with suppress(FolderLost):
        journal.check()  # afterwards `folder` is the new place of a renamed one
    for pid in running(journal.folder, journal.part) - {os.getpid()}:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def running(run: Path, part: int) -> set[int]:
    """Processes that by the run's journal started a cell in that part of it and have not finished it.

    Only of writers that live: the number of any other may be a stranger's by now.
    """
    pids: dict[tuple[str, str], int] = {}
    for path in sorted((run / "journal").glob("*.jsonl")):
        for line in path.read_bytes().splitlines() if writer_alive(path) is not False else ():
            try:
                event = json.loads(line)
                cell = (event["matrix"], event["scenario"])
                if event["event"] == "started" and event["part"] == part:
                    pids[cell] = int(event["pid"])
                elif event["event"] in ("finished", "judged"):
                    pids.pop(cell, None)
            except (ValueError, KeyError, TypeError):
                continue
    return set(pids.values())
