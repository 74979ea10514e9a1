"""What carries our labels on an engine, seen by anybody and taken away by whoever may."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.extensions.runtimes._docker.engine import Engine
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL

_GONE = (404, 409)  # not there, or being removed


@dataclass(frozen=True, slots=True)
class Left:
    """A container or network (`kind`). `created`: seconds since 1970, None where the engine's words are strange."""

    kind: str
    ident: str
    name: str
    labels: Mapping[str, str]
    created: float | None


def labelled(engine: Engine, node: str, label: str = "") -> list[Left]:
    """All that any run has there, containers first; with `label` only what carries just that.

    Raises NotHere and ProvisionError of `node` where the engine cannot be asked.
    """
    wanted = {"label": [f"{LABEL}={label}" if label else LABEL]}
    with engine.speaking(node) as api:
        found = [
            Left("container", one["Id"], one["Names"][0].lstrip("/"), one["Labels"], float(one["Created"]))
            for one in api.containers(all=True, filters=wanted)
        ]
        found += [
            Left("network", one["Id"], one["Name"], one["Labels"], _since(str(one["Created"])))
            for one in api.networks(filters=wanted)
        ]
    return found


def take(engine: Engine, left: Left, node: str) -> None:
    """Kills and removes it; one that is gone already is fine. Raises as `labelled`."""
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
    """Whoever is still in it is let go first: an engine that ends a container takes its time to take it out."""
    for container in api.inspect_network(ident)["Containers"]:
        api.disconnect_container_from_network(container, ident, force=True)
    api.remove_network(ident)


def _since(text: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))) - _offset(text)
    except ValueError:
        return None


def _offset(text: str) -> float:
    """Seconds that the end of an RFC 3339 time is ahead of UTC."""
    if text.endswith("Z") or text[-6:-5] not in ("+", "-"):
        return 0.0
    hours, minutes = text[-5:].split(":")
    return float(f"{text[-6]}1") * (int(hours) * 3600 + int(minutes) * 60)
