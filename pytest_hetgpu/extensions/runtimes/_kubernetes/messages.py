"""Messages of kubectl, pods and their events, and their explanations for users. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Object = Mapping[str, Any]

NO_CLUSTER = (
    "kubectl has no Kubernetes cluster here: set KUBECONFIG, or write ~/.kube/config (`kubectl config get-contexts` "
    "shows what it has)"
)
# The operators that provide the kinds beyond Kubernetes itself.
OPERATORS = {
    "MPIJob": "the MPI Operator (https://github.com/kubeflow/mpi-operator)",
    "PyTorchJob": "Kubeflow's Training Operator (https://github.com/kubeflow/trainer)",
    "Job": "Volcano (https://volcano.sh)",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failed request.

    `absent`: the site lacks something. `away`: the API server may be back in a moment. `missing`: there is no such
    object. `unreached`: the API server answered, but could not reach the kubelet that it asked.
    """

    text: str
    absent: bool = False
    away: bool = False
    missing: bool = False
    unreached: bool = False


# The reasons for which the kubelet ends a pod (pkg/kubelet/eviction, kubelet/active_deadline.go, kubelet/preemption).
_REASONS = {
    "Evicted": "was evicted",
    "DeadlineExceeded": "reached its deadline: give `ttl` of `kubernetes` more",
    "Preempting": "was preempted",
    "Preempted": "was preempted",
}


class _Reason(NamedTuple):
    """One known message and its explanation: {where} is the cluster, {groups} those of the pattern."""

    pattern: str
    meaning: str
    flag: str = ""


# The first row that matches counts.
_TABLE = (
    _Reason(
        r"is forbidden: exceeded quota: (?P<what>[^\n]*)",
        "{where} has no more room for it in namespace {namespace}: see `kubectl describe quota -n {namespace}`",
    ),
    _Reason(
        r'violates PodSecurity "?(?P<what>[^\n"]*)',
        "namespace {namespace} does not allow such pods (PodSecurity {what}): leave out what it names, or ask "
        "who runs it",
    ),
    _Reason(
        r"admission webhook \"?(?P<what>[^\"\s]+)\"? denied the request",
        "{where} does not admit it (webhook {what}): its message has the reason",
    ),
    _Reason(
        r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'
        r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<there>[^"]+)")?',
        "{user} may not {verb} {resource} in namespace {there} of {where}: check with `kubectl auth can-i {verb} "
        "{typed} -n {there}{context}`, and ask for that right",
    ),
    _Reason(
        r"\(Unauthorized\)|the server has asked for the client to provide credentials|must be logged in",
        "{where} does not take your credentials. They have expired, or are another cluster's; log in again, and check "
        "with `kubectl auth can-i get pods{context}`",
    ),
    _Reason(
        r"getting credentials: (?P<what>[^\n]*)",
        "the credentials for {where} cannot be had: log in again",
    ),
    _Reason(
        r'namespaces "(?P<what>[^"]+)" not found',
        "{where} has no namespace {what}: see `kubectl get namespaces{context}`, and `kubernetes: namespace` of "
        "matrix and inventory",
    ),
    _Reason(
        r'no matches for kind "(?P<kind>\w+)" in (?:version|group) "(?P<what>[^"]+)"|doesn\'t have a resource type',
        "{where} has no {kind} of {what}: it lacks {operator}; `kind: job` needs none",
        "absent",
    ),
    _Reason(r"\(NotFound\)", "{where} has no such object", "missing"),
    _Reason(
        r'context "?(?P<what>[^"\n]+?)"? does not exist|(?:cannot locate context|'
        r"context was not found for specified context:) (?P<other>\S+)",
        "kubectl has no context {what}{other}: see `kubectl config get-contexts`, and `kubernetes: context` of "
        "matrix and inventory",
    ),
    _Reason(
        r"no configuration has been provided|current-context is not set|current-context must exist",
        NO_CLUSTER,
        "absent",
    ),
    _Reason(
        r"error dialing backend: |proxy error from \S+ while dialing ",
        "the API server of {where} does not reach the kubelet of that pod's node, which `kubectl exec` needs: "
        "`kubectl get nodes{context}` shows whether it is there",
        "unreached",
    ),
    _Reason(
        r"x509: |certificate signed by unknown|tls: ",
        "the certificate of {where}, or yours, is not good for it: see its `kubectl config view{context}`",
    ),
    _Reason(
        r"was refused|[Cc]onnection refused|no such host|i/o timeout|no route to host|network is unreachable|"
        r"TLS handshake timeout|Client\.Timeout exceeded|context deadline exceeded|connection reset|unexpected EOF|"
        r": EOF|"
        r"connection lost|\((?:ServiceUnavailable|Timeout|InternalError|TooManyRequests|ServerTimeout)\)|etcdserver: |"
        r"[Uu]nable to connect to the server|currently unable to handle|handlers: ",
        "the API server of {where} does not answer: `kubectl cluster-info{context}` tries it",
        "away",
    ),
)


def refusal(said: str, where: str, namespace: str, context: str = "") -> Refusal:
    """Explain a failure of kubectl by its output."""
    for row in _TABLE:
        if found := re.search(row.pattern, said):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            resource, group = groups.get("resource", ""), groups.get("group", "")
            known = {
                "where": where,
                "namespace": namespace,
                "context": f" --context {context}" if context else "",
                "there": namespace,
                "kind": "such kind",
                "what": "",
                "other": "",
                **{name: value for name, value in groups.items() if value},
                "typed": ".".join(filter(None, (resource.partition("/")[0], group))) + _subresource(resource),
                "operator": OPERATORS.get(groups.get("kind", ""), "the operator that brings it"),
            }
            text = f"{row.meaning.format(**known)} ({_short(said)})"
            return Refusal(text, **({row.flag: True} if row.flag else {}))
    return Refusal(f"{where} refused: {_short(said)}")


def silent(where: str, seconds: float) -> Refusal:
    """Return the refusal for a kubectl that did not end in time."""
    return Refusal(f"the API server of {where} does not answer (kubectl did not end within {seconds:g} s)", away=True)


def unreached(name: str, host: str, why: Refusal) -> str:
    """Return the end of a pod that runs no commands any more, before the cluster gives up its node."""
    told = why.text if why.unreached else "nothing can be run in it any more, while the API server answers"
    return f"pod {name} lost its node {host}: {told}"


def ended(pod: Object, events: Sequence[Object]) -> str:
    """Return how one of this run's pods ended, or was taken, in words; "" without evidence against it."""
    name, status = str(pod["metadata"]["name"]), pod.get("status", {})
    reason, message = str(status.get("reason") or ""), _short(str(status.get("message") or ""))
    told = f" ({message})" if message else ""
    if reason in _REASONS:
        return f"pod {name} {_REASONS[reason]}{told}"
    if reason == "NodeLost" or _happened(events, "NodeNotReady"):
        return f"pod {name} lost its node {pod.get('spec', {}).get('nodeName', '')}: it does not answer any more"
    ends = [one for each in status.get("containerStatuses") or () if (one := each.get("state", {}).get("terminated"))]
    if any(one.get("reason") == "OOMKilled" for one in ends):
        return f"pod {name} was killed for its memory: give `memory` of `resources` more"
    if pod["metadata"].get("deletionTimestamp"):
        return taken(name, events, _disruption(status))
    how = [f"{one.get('reason', '')}, exit code {one.get('exitCode')}" for one in ends]
    over = status.get("phase") in ("Failed", "Succeeded")
    return f"pod {name} ended ({'; '.join(how) or reason or status['phase']}){told}" if how or over else ""


def taken(name: str, events: Sequence[Object], disruption: str = "") -> str:
    """Return the end of a pod that is missing or about to be removed."""
    if event := _happened(events, "Preempted", "Preempting"):
        return f"pod {name} was preempted ({_short(str(event.get('message', '')))})"
    if disruption == "PreemptionByScheduler":
        return f"pod {name} was preempted"
    if event := _happened(events, "Evicted"):
        return f"pod {name} was evicted ({_short(str(event.get('message', '')))})"
    if disruption in ("EvictionByEvictionAPI", "TerminationByKubelet"):
        return f"pod {name} was evicted ({disruption})"
    if _happened(events, "TaintManagerEviction") or disruption in ("DeletionByTaintManager", "DeletionByPodGC"):
        return f"pod {name} lost its node: the cluster gave that up, or is emptying it"
    return f"pod {name} was deleted"


def _disruption(status: Object) -> str:
    found = (one for one in status.get("conditions") or () if one.get("type") == "DisruptionTarget")
    return next((str(one.get("reason") or "") for one in found if one.get("status") == "True"), "")


def _happened(events: Sequence[Object], *reasons: str) -> Object | None:
    return next((one for one in reversed(events) if one.get("reason") in reasons), None)


def _subresource(resource: str) -> str:
    """Return the option for a subresource: kubectl takes `pods/exec` as `pods --subresource=exec`."""
    _, _, name = resource.partition("/")
    return f" --subresource={name}" if name else ""


def _short(said: str) -> str:
    """Return one line of at most 300 characters, without the prefixes of kubectl."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _CHATTER.match(line)]
    text = re.sub(r"^(?:error: |Error from server(?: \(\w+\))?: )", "", "; ".join(dict.fromkeys(lines)))
    # This message already answers that question of kubectl.
    text = text.replace(" - did you specify the right host or port?", "")
    return text if len(text) <= 300 else f"{text[:297]}..."


_CHATTER = re.compile(r"[EWI]\d{4} |command terminated with exit code|Defaulted container|ensure CRDs are installed")
