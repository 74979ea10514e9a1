"""Classes of transports, paths between ranks, and the class that each path requires.

A transport of the matrix is a list of members (`tls: [rc, tcp, self]`), each of one class. The best class of the list
that fits a path must carry the data there. Device copies and a rank's own loopback never count as a carrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

ON_HOST, OFF_HOST = "on-host", "off-host"
PATHS = (ON_HOST, OFF_HOST)
UNKNOWN = "unknown"
"""Path of connections in a log that does not show whether they leave a host."""

RDMA, SHARED_MEMORY, TCP = "RDMA", "shared memory", "tcp"
NO_CARRIER = "no carrier"
"""Class of device copies and of a rank's loopback: they move no data between ranks."""
ANY = "any"
"""Class of a group with members of several classes: it requires none of them."""

_BEST_FIRST = {ON_HOST: (SHARED_MEMORY, RDMA, TCP), OFF_HOST: (RDMA, TCP)}


class Connection(NamedTuple):
    """A kind of connection between ranks in a log: its path, and the components that carry its data.

    `unsure` lists components that may carry short messages only.
    """

    path: str
    components: tuple[str, ...]
    unsure: tuple[str, ...] = ()


class TransportMember(NamedTuple):
    """One entry of a transport's list: its name there, its class ("" if not known), globs of its components."""

    name: str
    kind: str
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequiredClass:
    """The class that must carry the data of one path.

    Attributes:
        kind: the class.
        asked: names of all members of the list that can carry data.
        best: names of its members of that class.
        components: globs of their components.

    """

    kind: str
    asked: tuple[str, ...]
    best: tuple[str, ...]
    components: tuple[str, ...]

    def met_by(self, carried: Iterable[str]) -> bool:
        """Return whether one of these components is of the class."""
        return any(fnmatchcase(name, glob) for name in carried for glob in self.components)


@dataclass(frozen=True, slots=True)
class OneSided:
    """The requirements for one-sided communication (MPI windows), which takes a path of its own.

    Attributes:
        components: globs of the components that may carry it.
        benchmark: the program measures nothing else, so its component must be proven.
        pinned: settings of the job exclude every other component.
        logged: the MPI logs the component of each window.

    """

    components: tuple[str, ...]
    benchmark: bool = False
    pinned: bool = False
    logged: bool = False


def required_class(members: Sequence[TransportMember], path: str) -> RequiredClass | None:
    """Return the class that a list requires on a path; None if no class fits the path, or the list has none."""
    if any(member.kind == ANY for member in members):
        return None
    asked = tuple(member.name for member in members if member.kind != NO_CARRIER)
    for kind in _BEST_FIRST[path]:
        if best := [member for member in members if member.kind == kind]:
            globs = dict.fromkeys(glob for member in best for glob in member.components)
            return RequiredClass(kind, asked, tuple(member.name for member in best), tuple(globs))
    return None


def connection(path: str, components: Iterable[str], unsure: Iterable[str] = ()) -> Connection:
    """Return a connection with its components sorted."""
    return Connection(path, tuple(sorted({*components})), tuple(sorted({*unsure})))


def by_path(connections: Iterable[Connection]) -> dict[str, tuple[str, ...]]:
    """Return all components of each path, `unknown` last."""
    found: dict[str, set[str]] = {}
    for one in connections:
        found.setdefault(one.path, set()).update(one.components)
    return {path: tuple(sorted(found[path])) for path in (*PATHS, UNKNOWN) if found.get(path)}


def describe_carriers(carried: Mapping[str, Sequence[str]]) -> str:
    """Describe the carriers of data in one line: `ucx/posix + ucx/cma (on-host), ucx/tcp (off-host)`."""
    return ", ".join(f"{' + '.join(names)} ({_of(path)})" for path, names in carried.items())


def _of(path: str) -> str:
    return "path not known" if path == UNKNOWN else path
