"""Frames that are a place in a program, and frames of interpreters, libraries and this package that are none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from pytest_hetgpu.model.lazy_regex import lazy

_NOT_USERS = lazy(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/|^<frozen |\.pyx$|^<string>$"
    r"|(?:^|/)torch/|(?:^|/)mpi4py/|(?:^|/)importlib/"
)
_SYSTEM = lazy(
    r"(?:^|/)(?:libc|libpthread|ld|ld-linux[\w-]*|libdl|librt|libgcc_s|libstdc\+\+|libpython[\d.]*)(?:-[\d.]+)?\.so"
)
_SYSTEM_SOURCE = lazy(r"/(?:sysdeps|nptl|csu|glibc\w*)/|^(?:Modules|Objects|Python|Include)/|^\./(?:Mod|nptl)")
# The import system, and the programs of this package, here and on a node. `fault.py` acts as a user's program.
_INTERNAL = lazy(
    r"/(?:pytest_hetgpu/remote|hetgpu-[^/]*/programs)/(?!fault\.py$)[^/]*\.py$"
    r"|^<frozen |/runpy\.py$|(?:^|/)(?:importlib|mpi4py)/"
)
# Libraries below the calls of MPI and NCCL. Their functions differ from sample to sample.
_COMMUNICATION = lazy(
    r"(?:^|/)(?:lib(?:p?mpi\w*|open-(?:pal|rte)|prrte|pmix|event\w*|hwloc|uc[cmpst]|uc[ct]_\w+|ucx_\w+|fabric|psm\w*"
    r"|ibverbs|rdmacm|mlx\w+|[nr]ccl\w*|nccl-net\w*)(?:-[\d.]+)?|mca_\w+|MPI(?:\.[\w-]+)*)\.so"
)
# Functions that run a program or import a module, as stack lines of earlier releases have them.
_MACHINERY = frozenset(("call_with_frames_removed", "run_code", "run_module_as_main", "harness.py", "iterations.py"))


class StackFrame(NamedTuple):
    """One frame: `library` is the file of native code, `file` and `line` the source if known."""

    function: str
    library: str = ""
    file: str = ""
    line: int = 0
    python: bool = False
    text: str = ""
    number: int = 0


def is_machinery(function: str, place: str) -> bool:
    """Return whether a function, at a place `FILE:LINE`, is of the import system or of our sweeps, by name alone."""
    return function.strip("_") in _MACHINERY or place.partition(":")[0] in _MACHINERY


def is_shallow(frames: Sequence[StackFrame]) -> bool:
    """Return whether a library's call may be missing from a stack without one.

    Either there are only Python frames, or the innermost ones are of a communication library, or could not be unwound.
    """
    if any(frame.python for frame in frames) and all(frame.python for frame in frames):
        return True
    inner = itertools.takewhile(lambda frame: not frame.python, frames)
    return any(_COMMUNICATION.search(frame.library) or _is_broken(frame) for frame in inner)


def _is_broken(frame: StackFrame) -> bool:
    return not (frame.library or frame.file) and frame.function.startswith("0x")


def user_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Return the user's innermost frame, in Python if there is any; else the innermost native one of a program."""
    python = [frame for frame in frames if frame.python]
    own = next((frame for frame in python if not is_installed(frame)), None)
    if own or python:
        return own or python[0]
    native = (
        frame
        for frame in frames
        if frame.function.partition("(")[0] not in ("", "??", "_start", "start_thread", "clone", "clone3")
        and not frame.function.startswith("0x")
        and not _SYSTEM.search(frame.library)
        and not _SYSTEM_SOURCE.search(frame.file)
        and not _COMMUNICATION.search(frame.library)
    )
    return next(native, None)


def is_installed(frame: StackFrame) -> bool:
    """Return whether a Python frame is of the interpreter or of an installed package."""
    return bool(_NOT_USERS.search(frame.file))


def is_internal(frame: StackFrame) -> bool:
    """Return whether a Python frame is no place of a hang: of the import system, or of this package's programs."""
    return frame.python and bool(_INTERNAL.search(frame.file))


def place_of(frame: StackFrame | None) -> str:
    """Return the place of a frame, `train.py:8`; "" without a source file."""
    if frame is None or not frame.file:
        return ""
    name = frame.file.rpartition("/")[2]
    return f"{name}:{frame.line}" if frame.line else name
