"""The stdin and stdout of a container as a pipe. Its stderr is kept until it ends."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError  # noqa: A004 - a class of its own before Python 3.11
from contextlib import suppress
from typing import Any

from pytest_hetgpu.errors import ENGINE_AWAY
from pytest_hetgpu.extensions.runtimes._docker.errors import ended

_HEADER = struct.Struct(">BxxxL")  # stream and length, https://docs.docker.com/reference/api/engine (ContainerAttach)
_STDERR = 2
_KEPT = 8192  # bytes of stderr
_REMOVAL = 10.0  # seconds that an engine may take


class Attached:
    """The raw stream of an attached container, which an engine cuts into frames; `where` names the engine in messages.

    `waiting` is the future answer of `/containers/ID/wait`. `stop` removes the container. `away` returns the evidence
    that the engine itself failed, "" for none.
    """

    def __init__(
        self, where: str, stream: Any, waiting: Any, stop: Callable[[], None], away: Callable[[], str] = str
    ) -> None:
        self._where = where
        self._away = away
        self._stream = stream  # owns the socket, so it must live as long
        self._socket = _socket_of(stream)
        self._socket.settimeout(None)
        self._stop = stop
        self._left = 0
        self._of = 0
        self._said = b""
        self._code: Future[int | None] = Future()
        self._closing = threading.Lock()
        self._closed = False
        threading.Thread(target=self._watch, args=(waiting,), name="hetgpu container", daemon=True).start()

    def send(self, data: bytes) -> None:
        """Write to the stdin of the container; raise OSError if the container has ended."""
        self._socket.sendall(data)

    def recv(self, count: int) -> bytes:
        """Return at most `count` bytes of the container's stdout; return empty bytes at its end."""
        while True:
            while not self._left:
                header = self._exactly(_HEADER.size)
                if not header:
                    return b""
                self._of, self._left = _HEADER.unpack(header)
            data = self._some(min(self._left, count))
            self._left -= len(data)
            if self._of != _STDERR or not data:
                return data
            self._said = (self._said + data)[-_KEPT:]

    def close(self) -> None:
        """Remove the container and close its streams. Closing twice is fine."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._stop()
            self._exit_code()
            let_go(self._stream)

    def why_ended(self) -> str:
        """Return how the container ended, with the end of its stderr; or return that its engine failed first."""
        away = self._away()
        if away:
            return f"{ENGINE_AWAY}: {away}"
        return ended(self._exit_code(), self._said.decode(errors="replace").strip(), self._where)

    def _exit_code(self) -> int | None:
        """Wait until the engine has removed the ended container; return None if it does not report an exit code."""
        try:
            return self._code.result(_REMOVAL)
        except TimeoutError:
            return None

    def _watch(self, waiting: Any) -> None:
        code = None
        with suppress(Exception):  # a broken answer has no exit code
            code = int(json.loads(waiting.content)["StatusCode"])
        self._code.set_result(code)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._some(count - len(data))
            if not more:
                return b""
            data += more
        return data

    def _some(self, count: int) -> bytes:
        try:
            return self._socket.recv(count)
        except OSError:
            return b""


def let_go(stream: Any) -> None:
    """Close the result of `APIClient.attach_socket`, also for a thread that waits in `recv`."""
    with suppress(OSError):
        _socket_of(stream).shutdown(socket.SHUT_RDWR)
    stream._response.close()  # noqa: SLF001 - the SDK hides the connection there


def _socket_of(stream: Any) -> socket.socket:
    found: socket.socket = getattr(stream, "_sock", stream)  # over TLS it is a socket itself
    return found
