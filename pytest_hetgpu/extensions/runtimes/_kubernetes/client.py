"""The kubectl of this machine: one request at a time, always to the same cluster and namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes._kubernetes import messages
from pytest_hetgpu.extensions.runtimes._kubernetes.messages import Refusal
from pytest_hetgpu.extensions.runtimes.pods.request import Pods

Object = Mapping[str, Any]

_PATIENCE = 20.0  # seconds for an answer of the API server
_SLACK = 10.0  # seconds more, for a kubectl that searches for the server


class Refused(Exception):
    """The error that kubectl or the API server answered; its text is for users."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.text)


@dataclass(frozen=True, slots=True)
class KubernetesCluster:
    """A namespace of a cluster, which kubectl finds even if the current context of its configuration changes.

    `context` is "" for a process in a pod of the cluster itself; `config` are the files that KUBECONFIG named.
    """

    context: str
    namespace: str
    config: str = ""

    @property
    def where(self) -> str:
        """Return the name of the cluster for sentences."""
        return f"Kubernetes at {self.context}" if self.context else "Kubernetes"

    @property
    def words(self) -> str:
        """Return namespace and cluster for tables."""
        return f"namespace {self.namespace} of {self.where}"

    def argv(self, *rest: str) -> tuple[str, ...]:
        """Return a call of kubectl; raise NotHere if there is no kubectl."""
        context = (f"--context={self.context}",) if self.context else ()
        return (program(), *context, f"--namespace={self.namespace}", *rest)

    def ask(self, *rest: str, stdin: bytes = b"") -> str:
        """Return the output of kubectl; raise Refused if it fails or has been removed."""
        try:
            argv = self.argv(f"--request-timeout={_PATIENCE:g}s", *rest)
        except NotHere as missing:
            raise Refused(Refusal(str(missing))) from None
        return _answer(argv, self, stdin)

    def get(self, resource: str, *rest: str) -> Object:
        """Return one object. Raise as `ask`, also if the object is missing."""
        return _read(self.ask("get", resource, *rest, "-o", "json"), self)

    def list(self, resources: str, *rest: str) -> Sequence[Object]:
        """Return objects, for example those of a selector. Raise as `ask`."""
        items: Sequence[Object] = self.get(resources, *rest).get("items", ())
        return items

    def create(self, *objects: Object) -> Sequence[Object]:
        """Create objects; return them as the API server has them.

        The server need not validate them: tests check the manifests against schemas. An older server leaves out the
        fields that it lacks.
        """
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
        return _every(self.ask("create", "--validate=false", "-f", "-", "-o", "json", stdin=text), self)

    def events(self, *, name: str) -> Sequence[Object]:
        """Return the events of the object of that name; nothing if access is denied or the server is away."""
        try:
            return self.list("events", f"--field-selector=involvedObject.name={name}")
        except Refused:
            return ()

    def environment(self) -> dict[str, str]:
        """Return the environment of kubectl."""
        return {**os.environ, "LC_ALL": "C", **({"KUBECONFIG": self.config} if self.config else {})}


def program() -> str:
    """Return the path of kubectl; raise NotHere with installation advice if there is none."""
    found = shutil.which("kubectl")
    if found is None:
        raise NotHere(
            "there is no kubectl in PATH, which runtime kubernetes needs: https://kubernetes.io/docs/tasks/tools/ "
            "(Debian: apt-get install kubernetes-client)"
        )
    return found


def cluster_of(pods: Pods) -> KubernetesCluster:
    """Return the cluster and namespace of pods; raise NotHere if kubectl has no cluster, Refused as `ask`."""
    config = os.pathsep.join(os.path.abspath(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one)  # noqa: PTH100 - a list of paths
    asked = KubernetesCluster(pods.context, pods.where or "default", config)
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    try:
        seen = _configuration(asked)
    except Refused as refused:
        # Without a kubeconfig, kubectl uses the service account of its own pod.
        if not (inside and not pods.context and refused.refusal.absent):
            raise
        seen = {}
    contexts = seen.get("contexts") or ()
    name = pods.context or str(seen.get("current-context") or "")
    if not contexts and not inside:
        raise NotHere(messages.NO_CLUSTER)
    given = next((one["context"].get("namespace") for one in contexts if one.get("name") == name), None)
    return KubernetesCluster(name, pods.where or given or _own_namespace() or "default", config)


def _configuration(asked: KubernetesCluster) -> Object:
    """Return the part of the kubeconfig that belongs to the given or the current context."""
    context = (f"--context={asked.context}",) if asked.context else ()
    return _read(_answer((program(), *context, "config", "view", "--minify", "-o", "json"), asked, b""), asked)


def _own_namespace() -> str:
    """Return the namespace of the pod that this process runs in; "" outside of pods."""
    try:
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def _answer(argv: Sequence[str], cluster: KubernetesCluster, stdin: bytes) -> str:
    try:
        done = subprocess.run(
            argv,
            env=cluster.environment(),
            input=stdin,
            capture_output=True,
            timeout=_PATIENCE + _SLACK,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused(messages.silent(cluster.where, _PATIENCE + _SLACK)) from None
    except OSError as error:
        raise Refused(Refusal(f"kubectl cannot be started: {error.strerror}")) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        raise Refused(messages.refusal(said, cluster.where, cluster.namespace, cluster.context))
    return done.stdout.decode(errors="replace")


def _read(text: str, cluster: KubernetesCluster) -> Object:
    """Read the one object that kubectl printed."""
    found = _every(text, cluster)
    if len(found) != 1:
        raise _unreadable(text, cluster)
    return found[0]


def _every(text: str, cluster: KubernetesCluster) -> list[Object]:
    """Return all objects that kubectl prints one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    try:
        while rest := text[at:].lstrip():
            one, end = decoder.raw_decode(rest)
            at = len(text) - len(rest) + end
            found.append(one)
    except ValueError:
        raise _unreadable(text, cluster) from None
    if not all(isinstance(one, dict) for one in found):
        raise _unreadable(text, cluster)
    return found


def _unreadable(text: str, cluster: KubernetesCluster) -> Refused:
    return Refused(Refusal(f"what kubectl prints of {cluster.where} cannot be read: {text[:100]!r}"))
