"""A view of the running cells below pytest's own output, drawn by rich, removed before any other output."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pytest_hetgpu.session.terminal.running import Running, RunningCells

EVERY = 1.0  # seconds
PATIENCE = 0.7  # seconds that a cell runs before it is shown: what ends at once is told by its line alone
MOST = 12
_SPARE = 4  # columns at the right: what a terminal shows of a Ctrl-C must not begin a line of its own
_LEAST_WIDTH, _LEAST_HEIGHT = 40, 6


class _Console(Console):
    """Leaves the cursor as it is: a process that is killed could not bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class Screen:
    """Draws on the terminal behind the descriptor `terminal`, which pytest does not capture; it is closed at the end.

    `writer` is pytest's: before it writes, the view is taken away, and the cursor is where pytest left it.
    `told` gives the line above the cells.
    """

    def __init__(self, writer: Any, terminal: int, cells: RunningCells, told: Callable[[], str]) -> None:
        self._writer = writer
        self._terminal = terminal
        self._cells = cells
        self._told = told
        self._file: IO[str] = os.fdopen(terminal, "w", encoding="utf-8", errors="replace")
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._paused = False
        self._live: Live | None = None
        self._column = 0
        self._thread = threading.Thread(target=self._work, name="hetgpu-screen", daemon=True)
        self._write = writer.write

    def start(self) -> None:
        """Start to draw, and to watch the output of pytest."""
        self._writer.write = self._after_us
        self._thread.start()

    def stop(self) -> None:
        """Remove the view for good."""
        self._over.set()
        with self._lock:
            self._hide()
            if self._writer.write == self._after_us:
                self._writer.write = self._write
        self._thread.join(timeout=5 * EVERY)
        self._file.close()

    def pause(self, *, paused: bool = True) -> None:
        """Draw nothing while another program, as a debugger, has the terminal."""
        with self._lock:
            self._paused = paused
            self._hide()

    def begin(self, label: str) -> None:
        """Show the cell of a test that begins."""
        with self._lock:
            self._paused = False
            self._cells.begin(label, time.time())

    def end(self, label: str) -> None:
        """Remove the cell of a test that has ended."""
        with self._lock:
            self._cells.end(label)

    def _after_us(self, *args: Any, **markup: Any) -> None:
        with self._lock:
            self._hide()
            self._write(*args, **markup)

    def _work(self) -> None:
        while not self._over.wait(EVERY):
            with self._lock:
                if self._over.is_set() or self._paused:
                    continue
                try:
                    self._draw()
                except (OSError, ValueError):
                    return  # the terminal is gone: the run goes on without the view

    def _draw(self) -> None:
        now = time.time()
        running = [one for one in self._cells.now() if now - one.since >= PATIENCE]
        width, height = os.get_terminal_size(self._terminal)
        if not running or width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
            self._hide()
            return
        width -= _SPARE
        if self._live is None:
            self._live = self._below(width, height)
        self._live.console.size = (width, height)
        self._live.update(view(self._told(), running, now, min(MOST, height - 4)), refresh=True)

    def _below(self, width: int, height: int) -> Live:
        """Return a view that starts below the output of pytest, even if that does not end with a whole line."""
        # What pytest wrote is out already: a flush from here would go where it captures to.
        self._column = self._writer.width_of_current_line
        if self._column:
            self._file.write("\n")
            self._file.flush()
        plain = not getattr(self._writer, "hasmarkup", True)
        console = _Console(file=self._file, force_terminal=True, width=width, height=height, no_color=plain)
        made = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        made.start()
        return made

    def _hide(self) -> None:
        """Remove the view, and restore the cursor."""
        if self._live is None:
            return
        beyond = self._column % (self._live.console.width + _SPARE)
        try:
            self._live.stop()
            if beyond:  # a line that is exactly full would go on below, where the cursor is
                self._file.write(f"\x1b[1A\x1b[{beyond + 1}G")
            self._file.flush()
        finally:
            self._live = None


def view(told: str, running: Sequence[Running], now: float, most: int) -> Table:
    """Return a line on the run, then one line per cell with time, label and last output. At most `most` cells."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=60)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for one in running[:most]:
        table.add_row(
            Text(f"{elapsed(now - one.since)}", style="bold"), Text(one.label), Text(one.told, style="bright_black")
        )
    if len(running) > most:
        table.add_row("", Text(f"and {len(running) - most} more"), "")
    whole = Table.grid(expand=True)
    whole.add_column(no_wrap=True, overflow="ellipsis")
    whole.add_row(Text(told, style="cyan"))
    whole.add_row(table)
    return whole


def elapsed(seconds: float) -> str:
    """Return `4 s`, `2:05`, `1:02:05`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
