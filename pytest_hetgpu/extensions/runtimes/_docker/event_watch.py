"""A watch over a container engine. Its event stream ends when the engine ends, or when a proxy cuts the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Vigil:
    """The event stream of one engine, which a thread reads only to notice its end.

    The thread calls `ended` once, at that end. `ended` has to find out whether the engine is away.

    A stream that an engine or its proxy refuses is no evidence, and does not count as an end.
    """

    def __init__(self, api: Any, ended: Callable[[], None]) -> None:
        self._api = api
        self._ended = ended
        self._lock = threading.Lock()
        self._stream: Any = None
        self._stopped = False
        self.over = False
        """Whether the watch has ended."""
        threading.Thread(target=self._listen, name="hetgpu engine", daemon=True).start()

    def stop(self) -> None:
        """End the watch without a report."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                _close(self._stream)

    def _listen(self) -> None:
        with suppress(Exception):  # after any error the watch has nothing more to report
            # Daemon events are rare; the stream exists only for its end.
            stream = self._api.events(filters={"type": ["daemon"]})
            with self._lock:
                self._stream = stream
                if self._stopped:
                    _close(stream)
            with suppress(Exception):  # a broken stream has ended, too
                for _ in stream:
                    pass
            with self._lock:
                stopped = self._stopped
            if not stopped:
                self._ended()  # without the lock: it locks the engine, and the caller of `stop` may hold that lock
        self.over = True


def _close(stream: Any) -> None:
    with suppress(Exception):  # the SDK looks for a socket that may be gone
        stream.close()
