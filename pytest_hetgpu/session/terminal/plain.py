"""Lines about waiting cells, for output without a live view: the log shows why it does not grow.

A wait for a host is reported after some time, a wait for an engine or for the build of an image at once.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from pytest_hetgpu.session.terminal.running import RunningCells
from pytest_hetgpu.store.text import one_line, printable

EVERY = 1.0  # seconds
TOLD_AFTER = 5.0  # seconds that a cell has waited
_LONGEST = 300
_HOST = "waits for host "
_AT_ONCE = (
    "waits for the container engine at ",
    "waits for another process, ",
    "makes the base image ",
    "builds the image ",
)


class Plain:
    """Hooks of the lines, in the process that has the terminal. `output` is a descriptor that pytest does not capture.

    A wait is reported once, unless another cell gets the host meanwhile.
    """

    def __init__(self, writer: Any, output: int, cells: RunningCells) -> None:
        self._writer = writer
        self._output = output
        self._cells = cells
        self._waits: dict[str, tuple[str, float]] = {}
        self._told: set[tuple[str, str]] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="hetgpu-waits", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(5 * EVERY)
        os.close(self._output)

    def lines(self, now: float) -> list[str]:
        """Return the lines that are due at `now`, in seconds of a monotonic clock."""
        waiting = {one.label: one.phase for one in self._cells.now() if one.phase.startswith((_HOST, *_AT_ONCE))}
        self._waits = {
            label: self._waits[label] if self._waits.get(label, ("",))[0] == why else (why, now)
            for label, why in waiting.items()
        }
        found = []
        for label, (why, since) in self._waits.items():
            if (label, why) in self._told or (why.startswith(_HOST) and now - since < TOLD_AFTER):
                continue
            self._told.add((label, why))
            far = f"; for {now - since:.0f} s so far" if why.startswith(_HOST) else ""
            found.append(f"waiting  {label}  {one_line(why, _LONGEST)}{far}")
        return found

    def _work(self) -> None:
        while not self._over.wait(EVERY):
            lines = self.lines(time.monotonic())
            if lines:
                begun = "\n" if self._writer.width_of_current_line else ""
                try:
                    os.write(self._output, (begun + "".join(f"{printable(line)}\n" for line in lines)).encode())
                except OSError:
                    return  # nobody reads it any more
