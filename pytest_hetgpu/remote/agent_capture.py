"""Bounded reads of the node agent: the output of short commands, and files. Python 3.6 or later."""

import contextlib
import os
import select
import stat
import subprocess
import time
from typing import Any, Dict, Iterator, Optional

from agent_tree import POLL_INTERVAL, pidfd, still_running

CAPTURE, FILE_CAPTURE, CHUNK = 4 << 20, 64 << 10, 256 << 10  # bytes


class CapturedOutput:
    """The output of a process, up to 4 MiB of each stream; the process reads `stdin`."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes) -> None:
        self.process = process
        self.left = memoryview(stdin)
        self.poll = select.poll()
        self.files: Dict[int, Any] = {}
        self.output: Dict[int, bytearray] = {}
        for file in (process.stdout, process.stderr, process.stdin):
            if file is not None:
                os.set_blocking(file.fileno(), False)
                self.files[file.fileno()] = file
                self.poll.register(file, select.POLLOUT if file is process.stdin else select.POLLIN)
                if file is not process.stdin:
                    self.output[file.fileno()] = bytearray()

    def until_ended(self, deadline: float) -> bool:
        """Read until the process has ended and all its output is read; return False if it still runs at `deadline`."""
        try:
            ending = pidfd(self.process.pid)
            self.poll.register(ending, select.POLLIN)
        except OSError:
            ending = -1
        over = False
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                wait = 0.0 if over else min(left, 3600.0 if ending >= 0 else POLL_INTERVAL)
                events = self.poll.poll(wait * 1000)
                news = [self.transfer(file) for file, _ in events if file != ending]
                # Only a poll that began after the end of the process has seen all its output.
                if (over and not any(news)) or left <= 0:
                    return over
                over = (ending, select.POLLIN) in events or (ending < 0 and not still_running([self.process.pid], 0))
        finally:
            if ending >= 0:
                os.close(ending)

    def transfer(self, file: int) -> bool:
        """Move data without blocking; return whether more may come from the process."""
        try:
            if file not in self.output:
                self.left = self.left[os.write(file, self.left[:CHUNK]) :]
                moved = len(self.left)
            else:
                chunk = os.read(file, CHUNK)
                moved = len(chunk)
                self.output[file] += chunk[: CAPTURE - len(self.output[file])]
        except OSError:  # it has closed its stdin
            moved = 0
        if not moved:
            self.poll.unregister(file)
            self.files.pop(file).close()
        return bool(moved) and file in self.output

    def close(self) -> Iterator[bytes]:
        """Close the pipes; return the contents of stdout and stderr."""
        for file in self.files.values():
            with contextlib.suppress(OSError):
                file.close()
        return iter([bytes(output) for output in self.output.values()])


def read_file(path: str) -> Optional[bytes]:
    """Read the first 64 KiB of a regular file; return None if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb", buffering=0) as opened:  # noqa: PTH123 - it is a descriptor
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            pieces = []
            while sum(map(len, pieces)) < FILE_CAPTURE:
                pieces.append(opened.read(FILE_CAPTURE) or b"")
                if not pieces[-1]:
                    break
            return b"".join(pieces)[:FILE_CAPTURE]
    except (OSError, ValueError):
        return None
