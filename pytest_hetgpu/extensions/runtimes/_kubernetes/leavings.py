"""What carries our labels in a namespace, seen by anybody and taken away by whoever may."""

from __future__ import annotations

import calendar
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hetgpu.extensions.runtimes._kubernetes.client import Cluster, Object, Refused
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import RESOURCES, Manifest, resource
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL

RUN = "hetgpu.run"
# Pods last: their controllers, gone, make no new ones.
EVERYTHING = (*RESOURCES.values(), "pods")


@dataclass(frozen=True, slots=True)
class Left:
    """An object; `owner` is the text that says whose, `created` are seconds since 1970, or None.

    `going`: it was told to go, and the cluster removes it once its node has ended what runs, however long that takes.
    """

    kind: str
    name: str
    resource: str
    owner: str
    created: float | None
    going: bool


def resources(made: Sequence[Manifest]) -> tuple[str, ...]:
    """The kinds of all that is made, and the pods of it."""
    return (*dict.fromkeys(resource(one) for one in made), "pods")


def remove(cluster: Cluster, kinds: Sequence[str], selector: str) -> None:
    """Has all that is so labelled removed, and does not wait for it: Refused where it cannot be."""
    cluster.ask("delete", ",".join(kinds), "-l", selector, "--ignore-not-found", "--wait=false", "--cascade=background")


def labelled(cluster: Cluster, kinds: Sequence[str]) -> list[Left]:
    """All that any run has there, of kinds that the cluster knows. Refused where one may not be seen."""
    found: list[Left] = []
    for kind in kinds:
        try:
            found += [_left(one, kind) for one in cluster.list(kind, "-l", RUN)]
        except Refused as refused:
            if not (refused.refusal.absent or refused.refusal.missing):
                raise
    return found


def take(cluster: Cluster, found: Sequence[tuple[str, str]]) -> None:
    """Removes objects, by kind and name; those that are gone already are fine. Raises as `remove`."""
    names = [f"{kind}/{name}" for kind, name in found]
    if names:
        cluster.ask("delete", *names, "--ignore-not-found", "--wait=false", "--cascade=background")


def _left(found: Object, kind: str) -> Left:
    meta = found["metadata"]
    owner = str((meta.get("annotations") or {}).get(LABEL, ""))
    return Left(
        str(found.get("kind", kind)).lower(),
        str(meta["name"]),
        kind,
        owner,
        _since(meta.get("creationTimestamp")),
        bool(meta.get("deletionTimestamp")),
    )


def _since(text: object) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None
