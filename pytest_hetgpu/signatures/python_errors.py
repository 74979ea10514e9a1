"""Python's tracebacks, and the meaning of the exceptions that end them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures.base import Dialect, Reading, Weight, quoted, token

_START = "Traceback (most recent call last)"
_LONGEST = 4096
_MOST = 1000
_FRAME = re.compile(r'^\s*(?:\[rank\d+\]:\s+)?File "(?P<path>[^"]*)", line \d+(?:, in (?P<function>.+))?$')
_RAISED = re.compile(r"^(?:\[rank(?P<rank>\d+)\]: )?(?P<name>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_NAMED = re.compile(r"(?:\w+\.)*(?:[A-Z]\w*)?(?:Error|Exception|Exit|Interrupt|Timeout|Found|Iteration|Fault|Failure)")
_NOT_OURS = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |\.pyx$")
_MPI_CALL = re.compile(r"\bMPI\.(?:Comm|Intracomm|Intercomm)\.(\w+)$")
_MPI_ERROR = re.compile(r"(MPI_ERR_\w+)(?:: (.*))?")

_NO_MEMORY = r"^[\w.]*(?:MemoryError|OutOfMemoryError)\b|Cannot allocate memory|(?:CUDA|HIP) out of memory"
_NO_SPACE = r"No space left on device: '/dev/shm|Bus error.*out of shared memory"
_NO_KERNEL = r"no kernel image is available|invalid device function|hipErrorNoBinaryForGpu"

# What an exception's name and message mean; a template without a key leaves the exception's own.
_MEANINGS: tuple[tuple[str, Kind, str], ...] = (
    (r"(?P<what>[^\s:]+\.so[\w.]*): cannot open shared object file", Kind.MISSING_LIBRARY, "missing-library@{}"),
    (r"undefined symbol: (?P<what>[\w.]+)", Kind.MISSING_LIBRARY, "undefined-symbol@{}"),
    (r"^ModuleNotFoundError: No module named '(?P<what>[\w.]+)'", Kind.MISSING_LIBRARY, "missing-module@{}"),
    (r"^RuntimeError: cannot load MPI library", Kind.MISSING_LIBRARY, "missing-library@libmpi.so"),  # mpi4py/_mpiabi.py
    (r"^ImportError: ", Kind.MISSING_LIBRARY, ""),
    (_NO_MEMORY, Kind.OUT_OF_MEMORY, ""),
    (_NO_SPACE, Kind.OUT_OF_MEMORY, "no-space@dev-shm"),
    (_NO_KERNEL, Kind.GPU_ARCH_MISMATCH, "no-kernel-image@gpu"),
)


class PythonErrors(Dialect):
    """One reading for each exception at the end of a traceback."""

    triggers = (_START.encode(),)
    context = 120

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._frames: list[tuple[str, str]] = []
        self._open = False
        self._in_frame = False

    def feed(self, line: str, number: int) -> None:
        line = line[:_LONGEST]
        frame = _FRAME.match(line)
        if _START in line:
            # Tracebacks of several ranks may be mixed: frames go on, exceptions are told apart by their lines.
            self._frames, self._open, self._in_frame = [], True, False
        elif not self._open:
            return
        elif frame:
            self._frames.append((frame["path"], frame["function"] or ""))
            self._in_frame = True
        elif self._raised(line, number):
            return
        elif not line.startswith("  "):
            self._in_frame = False

    def _raised(self, line: str, number: int) -> bool:
        found = _RAISED.match(line)
        if not found or not (self._in_frame or _NAMED.fullmatch(found["name"])) or not self._frames:
            return False
        if len(self._readings) < _MOST:
            self._readings.append(_reading(found, self._frames, line, number))
        self._in_frame = False
        return True

    def finish(self) -> Sequence[Reading]:
        return tuple(self._readings)


def _reading(found: re.Match[str], frames: Sequence[tuple[str, str]], line: str, number: int) -> Reading:
    name, message = found["name"].rpartition(".")[2], found["message"] or ""
    said = f"{name}: {message}" if message else name
    kind, key = _meaning(f"{name}: {message}")
    signature = Signature(
        kind,
        key or f"{name}@{_place(frames)}",
        quoted(line),
        number,
        detail=said[:200],
        ranks=(int(found["rank"]),) if found["rank"] else (),
    )
    if name == "Exception" and (error := _MPI_ERROR.match(message)):
        return _mpi(error, frames, signature)
    if name == "FileNotFoundError" and frames[-1][1] == "_get_code_from_file":
        return Reading(replace(signature, kind=Kind.LAUNCH_FAILURE, key="no-program@python"))
    return Reading(signature, Weight.CONSEQUENCE if name in ("KeyboardInterrupt", "SystemExit") else Weight.CAUSE)


def _meaning(said: str) -> tuple[Kind, str]:
    for pattern, kind, key in _MEANINGS:
        found = re.search(pattern, said)
        if found:
            return kind, key.format(token(found.groupdict().get("what") or ""))
    return Kind.ERROR, ""


def _place(frames: Sequence[tuple[str, str]]) -> str:
    """`train.py!main`: the innermost frame of the user's own code, else the innermost of all."""
    path, function = next((frame for frame in reversed(frames) if not _NOT_OURS.search(frame[0])), frames[-1])
    function = "" if function.startswith("<") else token(function)
    return token(path.strip("<>").removeprefix("frozen ")) + (f"!{function}" if function else "")


def _mpi(error: re.Match[str], frames: Sequence[tuple[str, str]], signature: Signature) -> Reading:
    """An error that MPI returned, under the key that Open MPI's own report of it would have."""
    called = next((call for path, function in reversed(frames) if (call := _MPI_CALL.search(function))), None)
    where = f"MPI_{called[1].capitalize()}" if called else _place(frames)
    entry = f"Comm.{called[1]}" if called else None
    weight = Weight.UNSPECIFIC if error[1] in ("MPI_ERR_OTHER", "MPI_ERR_INTERN", "MPI_ERR_UNKNOWN") else Weight.CAUSE
    return Reading(replace(signature, key=f"{error[1]}@{where}", detail=error[0][:200], entry_point=entry), weight)
