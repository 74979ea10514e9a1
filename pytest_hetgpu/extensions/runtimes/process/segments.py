"""Shared memory that a job of this machine leaves when its ranks are killed (`remote/segments.py`)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pytest_hetgpu.extensions.package_data import REMOTE

_FOLDER = Path("/dev/shm")  # noqa: S108 - only listed
_MAYBE = re.compile(r"mpich_|vader_segment|sm_segment|ucx_shm")
_PATIENCE = 30.0


class Segments:
    """The segments that existed before a job; `before` has their names if the job belonged to another process."""

    def __init__(self, before: Iterable[str] | None = None) -> None:
        self.before = _names() if before is None else frozenset(before)

    def clear(self) -> None:
        """Remove newer segments without users; check the users only if there are any such segments."""
        since = _names() - self.before
        if since:
            command = (sys.executable, "-I", "-S", "-", json.dumps(sorted(since)))
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, input=program(), capture_output=True, check=False, timeout=_PATIENCE)


def program() -> bytes:
    """Return the text of the program that removes segments."""
    return (REMOTE / "segments.py").read_bytes()


def _names() -> frozenset[str]:
    with suppress(OSError):
        return frozenset(path.name for path in _FOLDER.iterdir() if _MAYBE.match(path.name))
    return frozenset()
