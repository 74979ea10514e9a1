"""One MPI: where its launcher, interpreter and library are, and what its ranks must report."""

from __future__ import annotations

import abc
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.model import Stack
from pytest_hetgpu.registry import find, known, names


@dataclass(frozen=True, slots=True)
class Release:
    """One supported release: what its ranks say of themselves, and the pinned packages that make it."""

    version: str
    requirements: tuple[str, ...]


class StackFamily(abc.ABC):
    """A family of stacks that differ by release; a stack's name is `FAMILY-RELEASE`, like `openmpi-5`."""

    vendor: ClassVar[str]
    distribution: ClassVar[str]
    launcher: ClassVar[str] = "mpirun"
    releases: ClassVar[Mapping[str, Release]]

    @classmethod
    def locate(cls, name: str, prefixes: Iterable[Path]) -> Stack:
        """The stack in the first prefix (a virtual environment) that holds it; NotHere says how to install it."""
        prefixes = tuple(prefixes)
        for prefix in prefixes:
            interpreter, launcher = prefix / "bin" / "python", prefix / "bin" / cls.launcher
            if cls.holds(name, prefix) and launcher.exists() and interpreter.exists():
                version = cls.releases[name].version
                return Stack(name, cls.vendor, version, str(prefix.resolve()), str(launcher), str(interpreter))
        raise NotHere(cls.advice(name, prefixes))

    @classmethod
    def holds(cls, name: str, prefix: Path) -> bool:
        """Whether a virtual environment has a release's package, in just its version."""
        package = f"{cls.distribution}-{cls.releases[name].version}.dist-info"
        return any(prefix.glob(f"lib/python3*/site-packages/{package}"))

    @classmethod
    def advice(cls, name: str, prefixes: tuple[Path, ...]) -> str:
        """What was looked for, where, and the two commands that put it there."""
        home = shlex.quote(next((str(p) for p in prefixes if p.name == name), f"stacks/{name}"))
        packages = " ".join(cls.releases[name].requirements)
        where = ", ".join(map(str, prefixes)) or "any prefix"
        return (
            f"stack {name} ({cls.vendor} {cls.releases[name].version}) is not in {where}; "
            f"install it with: python3 -m venv {home} && {home}/bin/pip install {packages}"
        )

    @classmethod
    def planned(cls, name: str) -> Stack:
        """The stack by its bare names, for a plan printed where it is not installed."""
        return Stack(name, cls.vendor, cls.releases[name].version, "", cls.launcher, "python3")


def stack_names() -> tuple[str, ...]:
    """Every stack that a matrix may name."""
    return tuple(sorted(name for family in names("stacks") for name in find("stacks", family, StackFamily).releases))


def family_of(name: str) -> type[StackFamily]:
    """The family of a stack's name; UsageError lists the known stacks."""
    for family in names("stacks"):
        found = find("stacks", family, StackFamily)
        if name in found.releases:
            return found
    raise UsageError(f"unknown stack {name!r} {known(name, stack_names())}")
