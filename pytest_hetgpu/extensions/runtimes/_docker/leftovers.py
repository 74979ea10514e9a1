"""Objects with labels of this project on an engine. Every user sees them; users with the rights remove them."""

from __future__ import annotations

import calendar
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pytest_hetgpu.extensions.runtimes._docker.containers import listed_name
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, engine_of
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Leftover, LeftoverStore, Location

_GONE = (404, 409)  # not there, or being removed


class OnEngine(LeftoverStore):
    """The containers and networks of an engine; `environ` of its location has the variables for TLS."""

    def __init__(self, spot: Location) -> None:
        self._environ = dict(spot.environ)
        with _environment(self._environ):
            self._engine = engine_of("engine", spot.reach)
        self.words = self._engine.at.where

    def list(self) -> list[Leftover]:
        """Implement `LeftoverStore.list`."""
        with _environment(self._environ):
            return labelled(self._engine, self.words)

    def remove(self, found: Sequence[Leftover]) -> None:
        """Implement `LeftoverStore.remove`."""
        for one in found:
            take(self._engine, one, self.words)


_changing = threading.Lock()


@contextmanager
def _environment(environ: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that the engine's library reads, for an engine that is reached over TLS."""
    if not environ:
        yield
        return
    with _changing:
        before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def labelled(engine: Engine, node: str, label: str = "") -> list[Leftover]:
    """Return all objects of any run on the engine, containers first; with `label`, only those with exactly that label.

    Raises:
        NotHere: The site lacks something; the error names `node`.
        ProvisionError: The engine does not answer; the error names `node`.

    """
    wanted = {"label": [f"{LABEL}={label}" if label else LABEL]}
    with engine.speaking(node) as api:
        found = [
            Leftover("container", listed_name(one), one["Id"], one["Labels"][LABEL], float(one["Created"]))
            for one in api.containers(all=True, filters=wanted)
        ]
        found += [
            Leftover("network", one["Name"], one["Id"], one["Labels"][LABEL], _since(str(one["Created"])))
            for one in api.networks(filters=wanted)
        ]
    return found


def take(engine: Engine, left: Leftover, node: str) -> None:
    """Kill and remove an object; ignore a missing one. Raise as `labelled`."""
    import docker

    with engine.speaking(node) as api:
        try:
            if left.kind == "container":
                api.remove_container(left.ident, force=True, v=True)
            else:
                _take_network(api, left.ident)
        except docker.errors.APIError as error:
            if error.status_code not in _GONE:
                raise


def _take_network(api: Any, ident: str) -> None:
    """Remove a network after disconnecting its containers: an engine disconnects an ended container late."""
    for container in api.inspect_network(ident)["Containers"]:
        api.disconnect_container_from_network(container, ident, force=True)
    api.remove_network(ident)


def _since(text: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))) - _offset(text)
    except ValueError:
        return None


def _offset(text: str) -> float:
    """Return the offset from UTC, in seconds, at the end of an RFC 3339 time."""
    if text.endswith("Z") or text[-6:-5] not in ("+", "-"):
        return 0.0
    hours, minutes = text[-5:].split(":")
    return float(f"{text[-6]}1") * (int(hours) * 3600 + int(minutes) * 60)
