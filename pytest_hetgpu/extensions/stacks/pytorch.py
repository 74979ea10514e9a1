"""PyTorch by itself: torchrun and an interpreter, with the wheel's Gloo and NCCL (RCCL), without MPI."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.stacks.base import Release, StackFamily
from pytest_hetgpu.model.job import Stack

_SITES = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
_VERSION = re.compile(r"torch-(\d+(?:\.\d+)*)")


class PyTorch(StackFamily):
    """PyTorch of any release; its ranks report the version."""

    vendor = "torch"
    distribution = "torch"
    launchers = ("torchrun",)
    library = "libtorch_cpu.so"
    marker = b""
    releases: ClassVar[Mapping[str, Release]] = {
        "torch": Release("2.13.0", ("torch==2.13.0", "numpy==2.2.6"), on_request=True),
    }

    @classmethod
    def locate(cls, name: str, prefixes: Iterable[Path]) -> Stack:
        """Find PyTorch in the first prefix that has it, the running interpreter's own the last."""
        prefixes = tuple(prefixes)
        for prefix in prefixes:
            if found := _installed(prefix):
                return cls._in(name, prefix, found)
        raise NotHere(
            f"stack {name} (PyTorch) is not in {', '.join(map(str, prefixes)) or 'any prefix'}; "
            f"install it with: {shlex.quote(str(prefixes[-1] if prefixes else Path('.venv')))}/bin/pip install torch"
        )

    @classmethod
    def from_prefix(cls, name: str, prefix: Path) -> Stack:
        found = _installed(prefix)
        if not found:
            raise NotHere(f"stack {name} (PyTorch) in {prefix} lacks bin/python or torch")
        return cls._in(name, prefix, found)

    @classmethod
    def on_other_node(cls, name: str, prefix: str) -> Stack:
        folder = f"{prefix}/bin/" if prefix else ""
        return Stack(name, cls.vendor, "", prefix, f"{folder}torchrun", f"{folder}python3", torch=True)

    @classmethod
    def _in(cls, name: str, prefix: Path, version: str) -> Stack:
        programs = prefix / "bin"
        home, launcher, interpreter = str(prefix.resolve()), str(programs / "torchrun"), str(programs / "python")
        return Stack(name, cls.vendor, version, home, launcher, interpreter, torch=True)


def _installed(prefix: Path) -> str:
    """Return the version of PyTorch in a prefix with an interpreter, "" without one."""
    if not (prefix / "bin" / "python").exists():
        return ""
    found = (_VERSION.match(path.name) for site in _SITES for path in sorted(prefix.glob(f"{site}/torch-*.dist-info")))
    return next((match[1] for match in found if match), "")
