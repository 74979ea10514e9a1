"""Signals that end a session early become a graceful shutdown."""

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

from pytest_hetgpu.session.closed_terminal import OutputStreams
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.rescue import FolderLost
from pytest_hetgpu.store.writer_lock import writer_alive

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """An interrupt by a signal, with its name as the argument: `Stopped("SIGTERM")`.

    pytest prints its type and text, with a place in the code if the type is KeyboardInterrupt. So it has the name of
    pytest's own interrupt of a session: `Interrupted: stopped by SIGTERM`.
    """

    __module__ = "builtins"

    def __str__(self) -> str:
        return f"stopped by {self.args[0]}"


Stopped.__name__ = Stopped.__qualname__ = "Interrupted"


class GracefulShutdown:
    """A handler by which SIGINT, SIGTERM and SIGHUP raise `Stopped`.

    All three wait for the end of a `deferred` block. `streams` are the outputs of the process: the sender of a signal
    may close them, too.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self.streams = OutputStreams()

    def install(self) -> None:
        """Handle the signals that are not ignored (nohup stays in force), and Ctrl-C if its handler is the default.

        Only the main thread can do so.
        """
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in self._before.items():
                usual = handler is signal.default_int_handler
                if usual if number == signal.SIGINT else handler is not signal.SIG_IGN:
                    signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.streams.expect_broken()
        self.streams.detach_broken()
        _interrupt(number, frame)

    def restore(self) -> None:
        """Restore the handlers from before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class _Waiting:
    """The number of entered `deferred` blocks, and the signals that arrived inside."""

    depth = 0
    arrived: ClassVar[list[int]] = []


@contextmanager
def deferred() -> Iterator[None]:
    """Defer signals that arrive inside to the end, if a GracefulShutdown is installed."""
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
    raise Stopped(signal.Signals(number).name)


def forward(journal: Journal, number: int = signal.SIGTERM) -> None:
    """Signal the other processes of this part of a run that have a cell in flight, or waiting: they record its end."""
    with suppress(FolderLost):
        journal.check()  # afterwards `folder` is the new place of a renamed one
    for pid in running(journal.folder, journal.part) - {os.getpid()}:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def running(run: Path, part: int) -> set[int]:
    """Return the processes with a cell of that part of the run that waits or was started, and has not ended.

    The journal names them.
    Only processes of live writers count: another one's number may belong to a stranger by now.
    """
    pids: dict[tuple[str, str], int] = {}
    for path in sorted((run / "journal").glob("*.jsonl")):
        for line in path.read_bytes().splitlines() if writer_alive(path) is not False else ():
            try:
                event = json.loads(line)
                cell = (event["matrix"], event["scenario"])
                waits = event["event"] == "waits" and event["why"]
                if (waits or event["event"] == "started") and event["part"] == part:
                    pids[cell] = int(event["pid"])
                elif event["event"] in ("waits", "finished", "judged"):
                    pids.pop(cell, None)
            except (ValueError, KeyError, TypeError, OverflowError):
                continue
    return set(pids.values())
