"""How MPICH's launcher says that a rank ended: Hydra's banner (src/pm/hydra/mpiexec/pmiserv_cb.c)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._frames import signal_name
from pytest_hetgpu.signatures.base import Dialect, Process, Reading, Weight, quoted

_BANNER = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
_STRING = "TERMINATED WITH THE EXIT STRING"
_WINDOW = 8
_MOST_READINGS = 1000

_PROCESS = re.compile(r"=\s+PID (\d+) RUNNING AT (\S+)")
_CODE = re.compile(r"=\s+EXIT CODE: (\d+)")
_SIGNAL = re.compile(r"\(signal (\d+)\)")


class MpichExits(Dialect):
    """Hydra names a process, not a rank; a signal is its exit code too, and only the last line tells them apart."""

    triggers = (_BANNER.encode(), _STRING.encode())
    context = _WINDOW

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._process: Process | None = None
        self._code: tuple[str, str, int] | None = None

    def feed(self, line: str, number: int) -> None:
        line = line[:1000]
        if _BANNER in line:
            self._close()
        elif found := _PROCESS.search(line):
            self._process = (found[2].split(".")[0], int(found[1]))
        elif found := _CODE.search(line):
            self._code = (found[1], quoted(line), number)
        elif _STRING in line and (found := _SIGNAL.search(line)):
            name = signal_name(int(found[1]))
            outside = name in ("SIGTERM", "SIGINT", "SIGHUP")
            self._code = None
            self._add(
                Signature(Kind.CRASH, name, quoted(line), number, signal=name),
                Weight.CONSEQUENCE if outside else Weight.ENDING,
            )

    def _close(self) -> None:
        """A banner without a signal: the rank ended by itself."""
        if self._code:
            code, line, number = self._code
            self._add(Signature(Kind.ERROR, f"exit@{code}", line, number, detail=f"exit code {code}"), Weight.ENDING)
        self._process, self._code = None, None

    def _add(self, signature: Signature, weight: Weight) -> None:
        if len(self._readings) < _MOST_READINGS:
            self._readings.append(Reading(signature, weight, self._process))

    def finish(self) -> Sequence[Reading]:
        self._close()
        return tuple(self._readings)
