"""The pipe of a connection: the stdin and stdout of ssh, or of an agent on this machine."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pytest_hetgpu.extensions.runtimes.process.ledger import marked, tracker

_PATIENCE = 5.0  # seconds for a process whose pipe is closed to end by itself
_LINES, _LONGEST = 40, 1000  # lines of stderr that are kept, and bytes per line


class ProcessPipe:
    """A process in its own session, beyond the reach of a terminal's Ctrl-C.

    The constructor raises the errors of Popen. The process's stdin closes when this process ends, however it ends: a
    process that reads it ends then too. It carries the given label, or that of the tracker.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, label: str = "") -> None:
        pipe = subprocess.PIPE
        tracker().processes()
        env = marked(os.environ if env is None else env, label)
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, bufsize=0, start_new_session=True
        )
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._closing, self._sending, self._receiving = threading.Lock(), threading.Lock(), threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def send(self, data: bytes) -> None:
        """Implement `Pipe.send`."""
        stdin, left = self._process.stdin, memoryview(data)
        assert stdin is not None
        with self._sending:
            if stdin.closed:
                raise BrokenPipeError
            while left:
                left = left[os.write(stdin.fileno(), left) :]

    def recv(self, size: int) -> bytes:
        """Implement `Pipe.recv`."""
        stdout = self._process.stdout
        assert stdout is not None
        with self._receiving:
            return b"" if stdout.closed else os.read(stdout.fileno(), size)

    def close(self) -> None:
        """Implement `Pipe.close`: end the process's stdin, and kill the process if it stays."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._closing:
            if not self._sending.acquire(timeout=_PATIENCE):  # the other end does not read
                self._process.kill()
                self._sending.acquire()
            with suppress(OSError):
                self._process.stdin.close()
            self._sending.release()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            with self._receiving:
                self._process.stdout.close()

    def why_ended(self) -> str:
        """Implement `Pipe.why_ended`: return the last lines of its stderr, else its exit status."""
        return self.stderr() or f"the connection ended ({_status(self.returncode())})"

    def returncode(self) -> int:
        """Wait for the exit status and return it."""
        self.close()
        return self._process.returncode

    def stderr(self) -> str:
        """Return the last lines of stderr, once the process has ended."""
        self._listener.join(_PATIENCE)
        return "\n".join(self._lines)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as said:
            for line in iter(lambda: said.readline(_LONGEST), b""):
                self._lines.append(line.decode(errors="replace").rstrip())


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
