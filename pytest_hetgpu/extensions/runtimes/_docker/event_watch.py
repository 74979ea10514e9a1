"""A watch over a container engine: its stream of events ends when the engine does, or a proxy before it has enough."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Vigil:
    """A stream of events of one engine, read for its end alone, in a thread. `ended` is called once, at that end.

    `ended` has to find out whether the engine is away.

    A stream that an engine (or a proxy before it) does not grant tells nothing, and is not its end.
    """

    def __init__(self, api: Any, ended: Callable[[], None]) -> None:
        self._api = api
        self._ended = ended
        self._lock = threading.Lock()
        self._stream: Any = None
        self._stopped = False
        self.over = False
        """Whether nothing is watched any more."""
        threading.Thread(target=self._listen, name="hetgpu engine", daemon=True).start()

    def stop(self) -> None:
        """End it without a report."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                _close(self._stream)

    def _listen(self) -> None:
        with suppress(Exception):  # whatever it is, nothing more can be learnt here
            # Events of the daemon itself are rare; the stream is there for its end.
            stream = self._api.events(filters={"type": ["daemon"]})
            with self._lock:
                self._stream = stream
                if self._stopped:
                    _close(stream)
            with suppress(Exception):  # a stream that breaks off has ended, too
                for _ in stream:
                    pass
            with self._lock:
                stopped = self._stopped
            if not stopped:
                self._ended()  # without the lock: it asks the engine, whose lock whoever stops us may have
        self.over = True


def _close(stream: Any) -> None:
    with suppress(Exception):  # the SDK looks for a socket that may be gone
        stream.close()
