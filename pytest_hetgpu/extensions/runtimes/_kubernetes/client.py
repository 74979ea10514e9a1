"""kubectl, as this machine has it: asked for one thing at a time, always of the same cluster and namespace."""

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
_SLACK = 10.0  # seconds more, for a kubectl that looks for it


class Refused(Exception):
    """What kubectl or the API server answered instead; in words for people as a text."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.text)


@dataclass(frozen=True, slots=True)
class KubernetesCluster:
    """A namespace of a cluster, as kubectl finds it again whatever its configuration's current context becomes.

    `context` is "" for who runs in a pod of the cluster itself; `config` are the files that KUBECONFIG named.
    """

    context: str
    namespace: str
    config: str = ""

    @property
    def where(self) -> str:
        """The cluster, as sentences call it."""
        return f"Kubernetes at {self.context}" if self.context else "Kubernetes"

    @property
    def words(self) -> str:
        """Namespace and cluster, as a table calls them."""
        return f"namespace {self.namespace} of {self.where}"

    def argv(self, *rest: str) -> tuple[str, ...]:
        """Return a call of kubectl; NotHere if there is no kubectl."""
        context = (f"--context={self.context}",) if self.context else ()
        return (program(), *context, f"--namespace={self.namespace}", *rest)

    def ask(self, *rest: str, stdin: bytes = b"") -> str:
        """Return the output of kubectl; Refused if it fails, or is not there any more."""
        try:
            argv = self.argv(f"--request-timeout={_PATIENCE:g}s", *rest)
        except NotHere as missing:
            raise Refused(Refusal(str(missing))) from None
        return _answer(argv, self, stdin)

    def get(self, resource: str, *rest: str) -> Object:
        """One object. Raises as `ask`, also for what is not there."""
        return _read(self.ask("get", resource, *rest, "-o", "json"), self)

    def list(self, resources: str, *rest: str) -> Sequence[Object]:
        """Objects, by a selector say. Raises as `ask`."""
        items: Sequence[Object] = self.get(resources, *rest).get("items", ())
        return items

    def create(self, *objects: Object) -> Sequence[Object]:
        """Create objects; return them as the API server has them.

        They are ours, and tested against schemas: a server that is older than one of their fields leaves it out.
        """
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
        return _every(self.ask("create", "--validate=false", "-f", "-", "-o", "json", stdin=text), self)

    def events(self, *, name: str) -> Sequence[Object]:
        """Return the events of the object of that name; nothing if we may not see them, or the server is away."""
        try:
            return self.list("events", f"--field-selector=involvedObject.name={name}")
        except Refused:
            return ()

    def environment(self) -> dict[str, str]:
        """Return the environment of kubectl."""
        return {**os.environ, "LC_ALL": "C", **({"KUBECONFIG": self.config} if self.config else {})}


def program() -> str:
    """Where kubectl is; NotHere, saying how to get it."""
    found = shutil.which("kubectl")
    if found is None:
        raise NotHere(
            "there is no kubectl in PATH, which runtime kubernetes needs: https://kubernetes.io/docs/tasks/tools/ "
            "(Debian: apt-get install kubernetes-client)"
        )
    return found


def cluster_of(pods: Pods) -> KubernetesCluster:
    """Return the cluster and namespace of pods; NotHere if kubectl knows no cluster, Refused as `ask`."""
    config = os.pathsep.join(os.path.abspath(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one)  # noqa: PTH100 - a list of paths
    asked = KubernetesCluster(pods.context, pods.where or "default", config)
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    try:
        seen = _configuration(asked)
    except Refused as refused:
        # Without a kubeconfig kubectl takes the service account of the pod that it is in.
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
    """Return the kubeconfig, as far as it is of a context or the current one."""
    context = (f"--context={asked.context}",) if asked.context else ()
    return _read(_answer((program(), *context, "config", "view", "--minify", "-o", "json"), asked, b""), asked)


def _own_namespace() -> str:
    """Return the namespace of the pod that we are in; "" outside of pods."""
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
    """Each object that kubectl prints, one behind the other."""
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
