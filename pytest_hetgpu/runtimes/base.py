"""The border to the world: everything that starts a process or looks at a node goes through a `Runtime`."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.evidence import RunResult
from pytest_hetgpu.model import Command


class Runtime(abc.ABC):
    """Where nodes run. One object may serve many commands, one after another or from several threads."""

    @abc.abstractmethod
    def run(self, command: Command, *, output: Path, timeout: float) -> RunResult:
        """Run `command` to its end, at most `timeout` seconds, and leave nothing of it running.

        What it prints, stdout and stderr as they come, is appended to the file `output` (made with mode 0600).
        A command that fails, is cut short by the timeout or by a KeyboardInterrupt is a RunResult like any other;
        raises LaunchError if it could not be started at all.
        """

    @abc.abstractmethod
    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those of `paths` (say /dev/kfd) that do not exist on the node, in the order given."""

    @abc.abstractmethod
    def interfaces(self) -> tuple[str, ...]:
        """Names of the node's network interfaces that are up, loopback first, then by name."""

    @abc.abstractmethod
    def host(self) -> Any:
        """The node as a testinfra host object; raises NotHere where testinfra is not installed."""


def testinfra_host(spec: str) -> Any:
    """`testinfra.get_host(spec)`, e.g. `local://`; raises NotHere, saying how to get it, where testinfra is missing."""
    try:
        testinfra = importlib.import_module("testinfra")
    except ImportError as error:
        raise NotHere(f"testinfra cannot be imported ({error}): pip install pytest-testinfra") from error
    return testinfra.get_host(spec)
