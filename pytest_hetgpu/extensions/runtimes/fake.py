"""A runtime without I/O, for tests of its callers: a function replaces the commands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.base import OnTimeout, Runtime, TimeoutInfo, ignore
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult

Answer = Callable[[Command], "tuple[int | None, bytes]"]


class FakeRuntime(Runtime):
    """A fake: `function` maps a command to its return code (None: it ran until the timeout) and its output in bytes.

    `run` passes on the exceptions of the function. `missing` are the paths this node lacks, `up` its interfaces.
    """

    def __init__(self, function: Answer, *, missing: Sequence[str] = (), up: Sequence[str] = ("lo",)) -> None:
        self._function = function
        self._missing = frozenset(missing)
        self._up = tuple(up)

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Call the function, append its output to `output`, and report no time, or all of it for a hung command."""
        started = time.time()
        returncode, printed = self._function(command)
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as sink:
            sink.write(printed)
        hung = returncode is None
        if hung:
            overdue(TimeoutInfo(timeout, timeout, lambda *_: b""))
        return RunResult(
            argv=command.argv,
            returncode=returncode,
            output=str(output),
            started=started,
            seconds=timeout if hung else 0.0,
            timed_out=hung,
            quiet=timeout if hung else 0.0,
        )

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return those of `paths` that are in `missing`."""
        return tuple(path for path in paths if path in self._missing)

    def interfaces(self) -> tuple[str, ...]:
        """Return `up`."""
        return self._up

    def host(self) -> Any:
        """Raise NotHere: a fake has no host."""
        raise NotHere("a fake runtime has no host to look at")
