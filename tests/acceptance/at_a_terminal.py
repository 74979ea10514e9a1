"""A program at a terminal of its own, and what a person would see there."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

WIDTH, HEIGHT = 110, 30
PATIENCE = 60.0


class Terminal:
    """Runs a program until it ends; `raw` is all that it wrote."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self.screen = pyte.HistoryScreen(WIDTH, HEIGHT, history=10_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.status: int | None = None
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(folder)
            # Whoever runs the tests in the background has it ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.environ.update(TERM="xterm-256color", COLUMNS=str(WIDTH), LINES=str(HEIGHT))
            os.execv(argv[0], tuple(argv))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))

    def until(self, seen: Callable[[str], object]) -> str:
        """Waits until the screen shows what is waited for, and gives it."""
        return self._read(seen)

    def end(self) -> str:
        """Waits for the program's end; gives all lines that are on the screen or went off it at the top."""
        self._read(lambda _: False)
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        os.close(self.fd)
        gone = ["".join(line[at].data for at in range(WIDTH)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in (*gone, *self.screen.display)).rstrip()

    def type(self, text: str) -> None:
        """As from the keyboard."""
        os.write(self.fd, text.encode())

    def _read(self, seen: Callable[[str], object]) -> str:
        limit = time.monotonic() + PATIENCE
        while not seen(shown := "\n".join(line.rstrip() for line in self.screen.display)):
            ready, _, _ = select.select([self.fd], [], [], max(0.0, limit - time.monotonic()))
            if not ready:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"not seen within {PATIENCE:g} s on\n{shown}")
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data = b""
            if not data:
                return shown
            self.raw += data
            self.stream.feed(data)
        return shown


def without_times(text: str) -> str:
    """What two runs have in common."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}( \([^)]*\))?", "RUN", text)
    return re.sub(r" +\d+\.\d+ ?(s|us|GB/s)\b", " N", text)
