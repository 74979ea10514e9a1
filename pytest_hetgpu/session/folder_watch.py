"""A check every second of the run's folder and journal. If either is lost, the running cell is stopped at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.rescue import detect_loss

EVERY = 1.0  # seconds


class FolderWatch:
    """Hooks of the watch, in each process that writes a journal. The one with the terminal (`speaks`) prints a line.

    A cell is stopped as by SIGTERM, if GracefulShutdown handles that signal. `keep` starts a killed watchdog again.
    """

    NAME = "hetgpu-folder-watch"

    def __init__(self, config: Any, journal: Journal, keep: Callable[[], None], *, speaks: bool) -> None:
        self._config = config
        self._journal = journal
        self._keep = keep
        self._output = _uncaptured() if speaks else None
        self._in_cell = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hetgpu-folder", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(5 * EVERY)
        with self._lock:
            if self._output is not None:
                os.close(self._output)
                self._output = None

    @contextmanager
    def detect_loss(self) -> Iterator[None]:
        """Check as `rescue.present`. A folder that is lost while something inside waits interrupts the wait."""
        with detect_loss(self._journal.check):
            self._in_cell = threading.current_thread() is threading.main_thread()
            try:
                yield
            finally:
                # The lock keeps a signal from coming later, where it would cost the reports.
                with self._lock:
                    self._in_cell = False

    def _work(self) -> None:
        while not self._over.wait(EVERY):
            self._keep()
            with self._lock:
                if not self._journal.is_lost():
                    continue
                self._say()
                if self._in_cell and callable(signal.getsignal(signal.SIGTERM)):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            return

    def _say(self) -> None:
        if self._output is None:
            return
        view = self._config.pluginmanager.get_plugin("hetgpu-watching")
        if view is not None:
            view.screen.pause()
        begun = "\n" if self._config.get_terminal_writer().width_of_current_line else ""
        with suppress(OSError):  # nobody reads it any more
            folder = self._journal.folder
            gone = f"the journal of {folder} was changed" if folder.is_dir() else f"{folder} is no longer there"
            told = f"{gone}, so the run stops; its last lines name the results"
            os.write(self._output, f"{begun}{told}\n".encode())


def _uncaptured() -> int | None:
    """Return a descriptor of standard output that pytest does not capture."""
    try:
        return os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
