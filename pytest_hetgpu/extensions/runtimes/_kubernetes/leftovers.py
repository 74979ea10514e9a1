"""Objects with labels of this project in a namespace. Every user sees them; users with the rights remove them."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster, Object, Refused
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import RESOURCES, Manifest, resource
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Leftover, LeftoverStore, Location

RUN = "hetgpu.run"
# Pods come last: their removed controllers create no new ones.
EVERYTHING = (*RESOURCES.values(), "pods")


class Namespace(LeftoverStore):
    """A namespace; its location has the context as `host`, and NAMESPACE, KUBECONFIG and KINDS in `environ`."""

    def __init__(self, spot: Location) -> None:
        environ = dict(spot.environ)
        self._cluster = KubernetesCluster(
            spot.host, environ.get("NAMESPACE") or "default", environ.get("KUBECONFIG", "")
        )
        self._kinds = tuple(environ["KINDS"].split(",")) if environ.get("KINDS") else EVERYTHING
        # The name of a context is ambiguous: each k3s uses `default`.
        self.words = self._cluster.words + (f" ({self._cluster.config})" if self._cluster.config else "")
        self.within = self.words

    def list(self) -> list[Leftover]:
        """Implement `LeftoverStore.list`; an ending object is removed once its node has ended the processes."""
        with self._speaking():
            return labelled(self._cluster, self._kinds)

    def remove(self, found: Sequence[Leftover]) -> None:
        """Implement `LeftoverStore.remove`."""
        with self._speaking():
            take(self._cluster, [(one.ident, one.name) for one in found])

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            raise ProvisionError(self.words, str(refused)) from None


def namespace_spot(context: str, namespace: str, config: str, kinds: Sequence[str]) -> Location:
    """Return the location of a namespace in which objects of these kinds may be."""
    given = (("NAMESPACE", namespace), ("KUBECONFIG", config), ("KINDS", ",".join(kinds)))
    return Location("namespace", context, environ=tuple((name, value) for name, value in given if value))


def resources(made: Sequence[Manifest]) -> tuple[str, ...]:
    """Return the kinds of all objects that are made, and `pods`."""
    return (*dict.fromkeys(resource(one) for one in made), "pods")


def remove(cluster: KubernetesCluster, kinds: Sequence[str], selector: str) -> None:
    """Request the removal of all objects with these labels without waiting; raise Refused if the cluster denies it."""
    cluster.ask("delete", ",".join(kinds), "-l", selector, "--ignore-not-found", "--wait=false", "--cascade=background")


def labelled(cluster: KubernetesCluster, kinds: Sequence[str]) -> list[Leftover]:
    """Return all objects of any run, of kinds that the cluster has; raise Refused if the cluster denies a kind."""
    found: list[Leftover] = []
    for kind in kinds:
        try:
            found += [_left(one, kind) for one in cluster.list(kind, "-l", RUN)]
        except Refused as refused:
            if not (refused.refusal.absent or refused.refusal.missing):
                raise
    return found


def take(cluster: KubernetesCluster, found: Sequence[tuple[str, str]]) -> None:
    """Remove objects, by kind and name; ignore missing ones. Raise as `remove`."""
    names = [f"{kind}/{name}" for kind, name in found]
    if names:
        cluster.ask("delete", *names, "--ignore-not-found", "--wait=false", "--cascade=background")


def _left(found: Object, kind: str) -> Leftover:
    meta = found["metadata"]
    owner = str((meta.get("annotations") or {}).get(LABEL, ""))
    return Leftover(
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
