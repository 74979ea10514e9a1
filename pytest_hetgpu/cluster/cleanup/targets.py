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

from pytest_hetgpu.cluster.cleanup.owner import Owner, dead_owner, parse
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
class Resource:
    """A resource with the label of an owner.

    A segment of shared memory has no label: its owner is a `dead_owner`, as it is unused. Its `ident` is its size.
    """

    #: process, folder, segment, or a kind of a runtime (container, network, ...)
    kind: str
    name: str
    ident: str
    owner: Owner
    #: Seconds since 1970.
    since: float | None
    #: It was removed already, and its place only takes its time.
    being_removed: bool = False
    #: The reason why it is not removed: a process may use it.
    stays: str = ""


class CleanupTarget(abc.ABC):
    """One machine, engine or namespace. Errors are HetgpuErrors."""

    #: A name for people.
    words: str
    #: The scope in which names of resources are unique; "" if they are unique everywhere.
    within: str = ""

    @abc.abstractmethod
    def find(self) -> list[Resource]:
        """Return all labelled resources there."""

    @abc.abstractmethod
    def clear(self, owners: Iterable[Owner]) -> list[Resource]:
        """Remove the resources of these owners there. Return those that are left."""


class _Machine(CleanupTarget):
    """A machine on which a program lists and removes resources; `name` is empty for this machine."""

    name = ""

    def find(self) -> list[Resource]:
        return self._request([])

    def clear(self, owners: Iterable[Owner]) -> list[Resource]:
        wanted = set(owners)
        labels = [_NOBODY if owner == dead_owner(self.name) else owner.text for owner in wanted]
        return [one for one in self._request(labels) if one.owner in wanted and not one.stays]

    def _request(self, labels: list[str]) -> list[Resource]:
        request = json.dumps({"remove": labels, "patience": _REMOVAL})
        code, out, error = self._run(request, program())
        try:
            answer = json.loads(out)
            resources = [_resource(one, self.name) for one in answer["things"]]
        except (ValueError, KeyError, TypeError):
            raise ProvisionError(self.words, error or f"python3 ended there with exit status {code}") from None
        return [resource for resource in resources if resource]

    @abc.abstractmethod
    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        """Return the exit status, stdout, and an error message in case stdout is no answer."""


class LocalHost(_Machine):
    """Processes and folders of this machine."""

    words = "this machine"

    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        return _run_program((sys.executable, "-I", "-", request), program, self.words)


class SshHost(_Machine):
    """Processes and folders of a host, by ssh."""

    def __init__(self, host: str, reach: ConnectionInfo) -> None:
        self.words = f"{host}{f', port {reach.port}' if reach.port else ''}"
        self._host, self._reach = host, reach
        self.name = host

    def _run(self, request: str, program: bytes) -> tuple[int, bytes, str]:
        argv = ssh_command(self._host, self._reach, ("python3", "-", request))
        code, out, error = _run_program(argv, program, self.words)
        return code, out, explained(self._host, self._reach, error, code)


class RuntimeTarget(CleanupTarget):
    """A place where a runtime makes nodes: a container engine, a namespace."""

    def __init__(self, runtime: str, store: LeftoverStore) -> None:
        self._runtime, self._store = runtime, store
        self.words, self.within = store.words, store.within

    def find(self) -> list[Resource]:
        with mistakes_of(self._runtime):
            found = [(one, parse(one.owner)) for one in self._store.list()]
        return [Resource(one.kind, one.name, one.ident, owner, one.created, one.going) for one, owner in found if owner]

    def clear(self, owners: Iterable[Owner]) -> list[Resource]:
        """Remove and return as `CleanupTarget.clear` does."""

        def take(resources: list[Resource]) -> None:
            with mistakes_of(self._runtime):
                self._store.remove([Leftover(one.kind, one.name, one.ident, one.owner.text) for one in resources])

        return _clear_until_empty(self, owners, take)


def target_of(location: Location) -> CleanupTarget:
    """Return the place of a location in a ledger. Raise ProvisionError if no runtime can reach it."""
    if location.kind == "processes":
        return LocalHost()
    if location.kind == "host":
        return SshHost(location.host, location.reach)
    for name, runtime in runtimes():
        if runtime.location_kind == location.kind:
            with mistakes_of(name):
                return RuntimeTarget(name, runtime.leftovers(location))
    where = location.host or location.reach.engine or location.kind
    missing = f"no runtime that is installed looks at a place of the kind {location.kind!r}"
    raise ProvisionError(where, "; ".join((missing, *broken_runtimes())))


def why(error: HetgpuError, target: CleanupTarget) -> str:
    """Return the text of an error of a place without the name of the place."""
    return str(error).removeprefix(f"{target.words}: ").removeprefix("engine: ")


def _run_program(argv: tuple[str, ...], stdin: bytes, words: str) -> tuple[int, bytes, str]:
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


def _resource(answer: Mapping[str, Any], host: str) -> Resource | None:
    """Return a resource from the answer of a host, with all types checked; None if it is malformed."""
    unlabelled = answer["kind"] == "segment" and answer["owner"] == _NOBODY
    owner = dead_owner(host) if unlabelled else parse(str(answer["owner"]))
    if owner is None or not (unlabelled or answer["kind"] in ("process", "folder")):
        return None
    since = answer["since"] if isinstance(answer["since"], int | float) else None
    stays = str(answer.get("stays", ""))[:300]
    return Resource(answer["kind"], str(answer["name"])[:200], str(answer["ident"])[:200], owner, since, stays=stays)


def _clear_until_empty(
    target: CleanupTarget, owners: Iterable[Owner], take: Callable[[list[Resource]], None]
) -> list[Resource]:
    """Remove resources until two looks find nothing: requests of a dead owner may still be served.

    Resources that are on their way out are neither removed again nor waited for.
    """
    wanted = set(owners)
    deadline, empty = time.monotonic() + _REMOVAL, 0
    while True:
        left = [one for one in target.find() if one.owner in wanted and not one.being_removed]
        empty = 0 if left else empty + 1
        if empty > 1 or time.monotonic() > deadline:
            return left
        take(left)
        time.sleep(_LOOK_EVERY)
