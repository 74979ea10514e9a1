"""A runtime without a world: a function stands in for what a command would have done. For tests of what calls it."""

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
    """`function` maps a command to its return code (None: it ran until the timeout) and the bytes it printed.

    What it raises, `run` raises. `missing` are the paths this node lacks, `up` its interfaces.
    """

    def __init__(self, function: Answer, *, missing: Sequence[str] = (), up: Sequence[str] = ("lo",)) -> None:
        self._function = function
        self._missing = frozenset(missing)
        self._up = tuple(up)

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Ask the function, append what it printed to `output`, and say that it took no time (or, hung, all of it)."""
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
        """Those of `paths` that are in `missing`."""
        return tuple(path for path in paths if path in self._missing)

    def interfaces(self) -> tuple[str, ...]:
        """Return what was given as `up`."""
        return self._up

    def host(self) -> Any:
        """Raise NotHere: there is nothing to look at."""
        raise NotHere("a fake runtime has no host to look at")
