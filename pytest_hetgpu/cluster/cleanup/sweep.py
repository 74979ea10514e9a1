"""Inspect and clear the places that can hold resources of runs: this machine, hosts, container engines, namespaces."""

from __future__ import annotations

import abc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.cluster.cleanup.owner import Owner, nobody, parse
from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.lookup import broken_runtimes, mistakes_of, runtimes
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Leftover, LeftoverStore, Location
from pytest_hetgpu.model.job import ConnectionInfo

_PATIENCE = 60.0  # seconds for a host to answer
_REMOVAL = 20.0  # seconds in which removed resources must disappear
_LOOK_EVERY = 0.1
_NOBODY = "nobody"
_LOADER = """\
import sys, types
sys.modules["segments"] = types.ModuleType("segments")
exec(compile({!r}, "segments.py", "exec"), sys.modules["segments"].__dict__)
"""


@dataclass(frozen=True)
class Thing:
    """A resource with the label of an owner.

    A segment of shared memory has no label: its owner is `nobody`, as no process uses it. Its `ident` is its size.
    """

    #: process, folder, segment, or a kind of a runtime (container, network, ...)
    kind: str
    name: str
    ident: str
    owner: Owner
    #: Seconds since 1970.
    since: float | None
    #: It was removed already, and its place only takes its time.
    going: bool = False
    #: The reason why it is not removed: a process may use it.
    stays: str = ""


class Place(abc.ABC):
    """One machine, engine or namespace. Errors are HetgpuErrors."""

    #: A name for people.
    words: str
    #: The scope in which names of resources are unique; "" if they are unique everywhere.
    within: str = ""

    @abc.abstractmethod
    def look(self) -> list[Thing]:
        """Return all labelled resources there."""

    @abc.abstractmethod
    def clear(self, owners: Iterable[Owner]) -> list[Thing]:
        """Remove the resources of these owners there. Return those that are left."""


class _Machine(Place):
    """A machine on which a program lists and removes resources; `name` is empty for this machine."""

    name = ""

    def look(self) -> list[Thing]:
        return self._asked([])

    def clear(self, owners: Iterable[Owner]) -> list[Thing]:
        wanted = set(owners)
        labels = [_NOBODY if owner == nobody(self.name) else owner.text for owner in wanted]
        return [one for one in self._asked(labels) if one.owner in wanted and not one.stays]

    def _asked(self, labels: list[str]) -> list[Thing]:
        request = json.dumps({"remove": labels, "patience": _REMOVAL})
        code, out, said = self._run(request, program())
        try:
            told = json.loads(out)
            things = [_thing(one, self.name) for one in told["things"]]
        except (ValueError, KeyError, TypeError):
            raise ProvisionError(self.words, said or f"python3 ended there with exit status {code}") from None
        return [thing for thing in things if thing]

    @abc.abstractmethod
    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        """Return the exit status, stdout, and an error message in case stdout is no answer."""


class Here(_Machine):
    """Processes and folders of this machine."""

    words = "this machine"

    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        return _answer((sys.executable, "-I", "-", request), program, self.words)


class Host(_Machine):
    """Processes and folders of a host, by ssh."""

    def __init__(self, host: str, reach: ConnectionInfo) -> None:
        self.words = f"{host}{f', port {reach.port}' if reach.port else ''}"
        self._host, self._reach = host, reach
        self.name = host

    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        argv = ssh_command(self._host, self._reach, ("python3", "-", request))
        code, out, said = _answer(argv, program, self.words)
        return code, out, explained(self._host, self._reach, said, code)


class AtRuntime(Place):
    """A place where a runtime makes nodes: a container engine, a namespace."""

    def __init__(self, runtime: str, store: LeftoverStore) -> None:
        self._runtime, self._store = runtime, store
        self.words, self.within = store.words, store.within

    def look(self) -> list[Thing]:
        with mistakes_of(self._runtime):
            found = [(one, parse(one.owner)) for one in self._store.list()]
        return [Thing(one.kind, one.name, one.ident, owner, one.created, one.going) for one, owner in found if owner]

    def clear(self, owners: Iterable[Owner]) -> list[Thing]:
        """Remove and return as `Place.clear` does."""

        def take(things: list[Thing]) -> None:
            with mistakes_of(self._runtime):
                self._store.remove([Leftover(one.kind, one.name, one.ident, one.owner.text) for one in things])

        return _until_gone(self, owners, take)


def place_of(spot: Location) -> Place:
    """Return the place of a location in a ledger. Raise ProvisionError if no runtime can reach it."""
    if spot.kind == "processes":
        return Here()
    if spot.kind == "host":
        return Host(spot.host, spot.reach)
    for name, runtime in runtimes():
        if runtime.location_kind == spot.kind:
            with mistakes_of(name):
                return AtRuntime(name, runtime.leftovers(spot))
    where = spot.host or spot.reach.engine or spot.kind
    missing = f"no runtime that is installed looks at a place of the kind {spot.kind!r}"
    raise ProvisionError(where, "; ".join((missing, *broken_runtimes())))


def why(error: HetgpuError, place: Place) -> str:
    """Return the text of an error of a place without the name of the place."""
    return str(error).removeprefix(f"{place.words}: ").removeprefix("engine: ")


def _answer(argv: tuple[str, ...], stdin: bytes, words: str) -> tuple[int, bytes, str]:
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=_PATIENCE, cwd="/")
    except subprocess.TimeoutExpired:
        raise ProvisionError(words, f"no answer within {_PATIENCE:g} s") from None
    except OSError as error:
        raise ProvisionError(words, f"{argv[0]} cannot be started: {error.strerror}") from None
    return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()


def program() -> bytes:
    """Return the program that inspects a machine, its two files as one text."""
    folder = REMOTE
    return _LOADER.format((folder / "segments.py").read_text("utf-8")).encode() + (folder / "leftovers.py").read_bytes()


def _thing(told: Mapping[str, Any], host: str) -> Thing | None:
    """Return a resource from the answer of a host, with all types checked; None if it is malformed."""
    unlabelled = told["kind"] == "segment" and told["owner"] == _NOBODY
    owner = nobody(host) if unlabelled else parse(str(told["owner"]))
    if owner is None or not (unlabelled or told["kind"] in ("process", "folder")):
        return None
    since = told["since"] if isinstance(told["since"], int | float) else None
    stays = str(told.get("stays", ""))[:300]
    return Thing(told["kind"], str(told["name"])[:200], str(told["ident"])[:200], owner, since, stays=stays)


def _until_gone(place: Place, owners: Iterable[Owner], take: Callable[[list[Thing]], None]) -> list[Thing]:
    """Remove resources until two looks find nothing: requests of a dead owner may still be served.

    Resources that are on their way out are neither removed again nor waited for.
    """
    wanted = set(owners)
    deadline, empty = time.monotonic() + _REMOVAL, 0
    while True:
        left = [one for one in place.look() if one.owner in wanted and not one.going]
        empty = 0 if left else empty + 1
        if empty > 1 or time.monotonic() > deadline:
            return left
        take(left)
        time.sleep(_LOOK_EVERY)
