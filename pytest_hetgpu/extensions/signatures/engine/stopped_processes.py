"""Launchers and daemons of a job that a signal has stopped, as lines of this package in its output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import token
from pytest_hetgpu.model.lazy_regex import lazy

_LINE = lazy(
    r"hetgpu: stopped: (?P<name>\S{1,120})(?: on (?P<host>[\w.-]{1,253}))? \(pid (?P<pid>\d{1,9})\) was stopped by"
)
_MOST_IN_KEY = 3


class StoppedProcess(NamedTuple):
    """One process in state T."""

    name: str
    host: str
    pid: int

    @property
    def sentence(self) -> str:
        """Return `mpirun on node1 (pid 4711) was stopped by a signal (state T), send it SIGCONT`."""
        where = f" on {self.host}" if self.host else ""
        return f"{self.name}{where} (pid {self.pid}) was stopped by a signal (state T), send it SIGCONT"

    @property
    def line(self) -> str:
        """Return the line that `parse_stopped` matches."""
        return f"hetgpu: stopped: {self.sentence}"


def parse_stopped(text: str) -> StoppedProcess | None:
    """Return the process that such a line names."""
    found = _LINE.match(text)
    return StoppedProcess(found["name"], found["host"] or "", int(found["pid"])) if found else None


def stopped_key(processes: Iterable[StoppedProcess]) -> str:
    """Return the key of a hang that stopped processes explain: their names, not their numbers."""
    names = sorted({token(one.name) for one in processes} - {""})
    return "stopped@" + "+".join(names[:_MOST_IN_KEY])
