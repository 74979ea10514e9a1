"""How Open MPI's launchers say that ranks ended: mpirun of 4.x, prterun of 5.x, and MPI_Abort's own text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_hetgpu.evidence import RankExit, Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._frames import signal_name
from pytest_hetgpu.signatures.base import Dialect, Process, Reading, Weight, quoted

_WINDOW = 6
_MOST_READINGS = 10_000
_TRACEBACK = "Traceback (most recent call last)"
_FROM_OUTSIDE = ("SIGTERM", "SIGINT", "SIGHUP")

# Help texts are filled to the width of a page, so a sentence may break anywhere: they are matched joined by blanks.
_SIGNALLED = re.compile(r"noticed that process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_COUNTED = re.compile(r"Process name: \[(?:\[\d+,\d+\],|[^\]@]*@\d+,)(\d+)\] Exit code: (\d+)")
_ABORTED = re.compile(
    r"MPI_ABORT was invoked on rank (\d+) in communicator "
    r".*?(?:Proc: \[\[\d+,\d+\],(\d+)\] Errorcode: |with errorcode )(-?\d+)"
)
_LEFT = re.compile(r"has exited due to process rank (\d+) with PID (\d+) on node (\S+) (calling|exiting)")


class OpenMpiExits(Dialect):
    """Readings and RankExits from the epilogue of a job."""

    triggers = (
        b"noticed that process rank",
        b"Process name: [",
        b"MPI_ABORT was invoked on rank",
        b"has exited due to process rank",
        _TRACEBACK.encode(),
    )
    context = _WINDOW

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._exits: dict[int, RankExit] = {}
        self._text = ""
        self._first = ("", 0)
        self._left = 0
        self._raised = False

    def feed(self, line: str, number: int) -> None:
        self._raised |= _TRACEBACK in line
        if any(trigger.decode() in line for trigger in self.triggers):
            self._text, self._first, self._left = "", (quoted(line), number), _WINDOW
        if self._left:
            self._left -= 1
            self._text = f"{self._text} {' '.join(line[:1000].split())}".strip()
            self._read(quoted(line), number)

    def _read(self, line: str, number: int) -> None:
        forms: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, int], None]], ...] = (
            (_SIGNALLED, self._signalled),
            (_COUNTED, self._counted),
            (_ABORTED, self._aborted),
            (_LEFT, self._left_early),
        )
        for pattern, told in forms:
            found = pattern.search(self._text)
            if found:
                self._left = 0
                told(found, line, number)

    def _signalled(self, found: re.Match[str], line: str, number: int) -> None:
        name = signal_name(int(found[4]))
        line, number = (line, number) if "signal" in line else self._first
        self._add(
            RankExit(int(found[1]), signal=int(found[4])),
            _process(found),
            Signature(Kind.CRASH, name, line, number, signal=name),
        )

    def _counted(self, found: re.Match[str], line: str, number: int) -> None:
        exit_code = RankExit(int(found[1]), code=int(found[2]))
        self._add(
            exit_code, None, Signature(Kind.ERROR, f"exit@{found[2]}", line, number, detail=f"exit code {found[2]}")
        )

    def _aborted(self, found: re.Match[str], _line: str, _number: int) -> None:
        called = RankExit(int(found[2] or found[1]), code=int(found[3]), aborted=True)
        self._add(
            called,
            None,
            Signature(Kind.ERROR, f"MPI_Abort@{found[3]}", *self._first, detail=f"MPI_Abort, error code {found[3]}"),
        )

    def _left_early(self, found: re.Match[str], _line: str, _number: int) -> None:
        rank, aborted = int(found[1]), found[4] == "calling"
        self._exits.setdefault(rank, RankExit(rank, aborted=aborted))
        if not aborted:
            detail = "exited without MPI_Finalize"
            self._add(
                self._exits[rank],
                _process(found),
                Signature(Kind.ERROR, "no-finalize@mpirun", *self._first, detail=detail),
            )

    def _add(self, ended: RankExit, process: Process | None, signature: Signature) -> None:
        before = self._exits.get(ended.rank, RankExit(ended.rank))
        if len(self._readings) >= _MOST_READINGS:
            return
        if before.signal is None and before.code is None:
            self._exits[ended.rank] = ended
        weight = Weight.CONSEQUENCE if signature.signal in _FROM_OUTSIDE else Weight.ENDING
        hosts = (process[0],) if process else ()
        self._readings.append(Reading(replace(signature, ranks=(ended.rank,), hosts=hosts), weight, process))

    def finish(self) -> Sequence[Reading]:
        return tuple(_of_exception(reading) if self._raised else reading for reading in self._readings)

    def exits(self) -> Sequence[RankExit]:
        return tuple(self._exits.values())


def _process(found: re.Match[str]) -> Process | None:
    """The process that the launcher names; some releases print PID 0."""
    return (found[3].split(".")[0], int(found[2])) if int(found[2]) else None


def _of_exception(reading: Reading) -> Reading:
    """`python -m mpi4py` calls MPI_Abort with 1 for an exception, whose traceback says more (mpi4py/run.py)."""
    return replace(reading, weight=Weight.CONSEQUENCE) if reading.signature.key == "MPI_Abort@1" else reading
