"""Reasons why a pod does not run yet, and whether waiting can help. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason and its remedy, in words. `final`: waiting is useless; `soon`: it is final if it lasts for a while."""

    text: str
    final: bool = False
    soon: bool = False


# Reasons of waiting containers (pkg/kubelet/images/types.go, kubelet/container/sync_result.go).
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_CONTAINER = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
)
_LOOPS = ("CrashLoopBackOff",)
# Errors of a registry that may pass within a minute.
_PASSING = re.compile(
    r"timeout|timed out|toomanyrequests|rate limit|connection re(?:fused|set)|EOF|temporar|\b50[0-9]\b|unavailable",
    re.IGNORECASE,
)
# A policy rejects the same pod each time (PodSecurity, LimitRange, SCC, RBAC).
_POLICY = re.compile(
    r"violates PodSecurity|unable to validate against|(?:max|min)imum .* per |must specify|is invalid|cannot create"
)
_QUOTA = re.compile(r"requested: (?P<asked>\S+), used: \S+, limited: (?P<most>\S+)")
# A cluster that grows adds a node for a pod, and reports that as an event (cluster-autoscaler, Karpenter).
_GROWING = ("TriggeredScaleUp", "Nominated", "NominatedNode")
# A cluster that does not grow reports the reason; after a failed attempt it tries again.
_NOT_GROWING, _LATER = "NotTriggerScaleUp", re.compile(r"backoff")
# Taints that a node loses as it becomes ready.
_JOINING = re.compile(r"node\.(?:cloudprovider\.)?kubernetes\.io/")
_UNIT = {"": Decimal(1), "m": Decimal("0.001")}
_UNIT |= {name: Decimal(1000) ** power for power, name in enumerate("kMGTP", 1)}
_UNIT |= {f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTP", 1)}


def reason(pod: Object, events: Sequence[Object] = (), nodes: Sequence[Object] | None = None) -> Reason:
    """Return why a pod does not run yet; `nodes` are those of the cluster, None if access is denied."""
    status = pod.get("status", {})
    for one in status.get("containerStatuses") or status.get("initContainerStatuses") or ():
        if found := _of_container(one, events):
            return found
    scheduled = next((one for one in status.get("conditions") or () if one.get("type") == "PodScheduled"), None)
    if scheduled is None or scheduled.get("status") != "True":
        return _of_scheduler(pod, scheduled, events, nodes)
    for event in reversed(events):
        if event.get("type") == "Warning":
            return Reason(f"{event.get('reason')}: {_line(event.get('message'))}")
    return Reason(f"its node {pod.get('spec', {}).get('nodeName', '')} is starting it")


def refused(events: Sequence[Object]) -> Reason | None:
    """Return why a controller could not create a pod, which it will retry; None if its events name no reason.

    A pod that is about to be removed may still use up the quota.
    """
    for event in reversed(events):
        if event.get("reason") in ("FailedCreate", "FailedCreatePod") or (
            event.get("type") == "Warning" and "forbidden" in str(event.get("message"))
        ):
            text = _whole(event.get("message"))
            advice = "the quota of the namespace does not allow it: see `kubectl describe quota`; " * ("quota" in text)
            return Reason(f"{advice}{_line(text)}", final=bool(_POLICY.search(text)) or _over(text), soon=True)
    return None


def _over(text: str) -> bool:
    """Return whether one pod alone requests more than a whole quota."""
    if not (found := _QUOTA.search(text)):
        return False
    asked, most = (dict(part.split("=", 1) for part in found[key].split(",")) for key in ("asked", "most"))
    return any(amount(value) > amount(most.get(name, value)) for name, value in asked.items())


def unstarted(main: Object) -> str:
    """Return why a main object has no pods, by its own conditions."""
    if main.get("spec", {}).get("suspend") or main.get("spec", {}).get("runPolicy", {}).get("suspend"):
        return "it is suspended: the queue that holds it (Kueue?) has not let it go"
    if main.get("kind") != "Job" and not main.get("status"):
        return f"this {main.get('kind')} has no status: its operator does not run"
    for one in reversed(main.get("status", {}).get("conditions") or ()):
        if one.get("type") == "Failed" and one.get("status") == "True":
            return _line(one.get("message") or one.get("reason"))
    return "its controller has made none"


def _of_container(status: Object, events: Sequence[Object]) -> Reason | None:
    waiting = status.get("state", {}).get("waiting") or {}
    why, message = str(waiting.get("reason") or ""), _line(waiting.get("message"))
    if why in _IMAGE:
        # While a kubelet waits for its next try, its message repeats only that.
        cause = _pulling(events) if why == "ImagePullBackOff" else _whole(waiting.get("message"))
        image, said = status.get("image", ""), f"{why}: {_line(cause) or message}"
        text = f"the image {image} cannot be pulled: check its name, and `image_pull_secrets` ({said})"
        passing = bool(_PASSING.search(f"{cause} {message}"))
        return Reason(text, final=bool(cause) and not passing, soon=not passing)
    if why in _CONTAINER:
        return Reason(f"its container cannot be made ({why}: {message})", final=True)
    if why in _LOOPS:
        return Reason(f"its container ends as soon as it starts ({message})", final=True)
    return None


def _pulling(events: Sequence[Object]) -> str:
    """Return the error of the last attempt to pull an image; "" if there is none."""
    told = (_whole(one.get("message")) for one in reversed(events) if one.get("reason") == "Failed")
    return next((one for one in told if "pull" in one), "")


def _of_scheduler(
    pod: Object, scheduled: Object | None, events: Sequence[Object], nodes: Sequence[Object] | None
) -> Reason:
    name = pod.get("spec", {}).get("schedulerName") or "default-scheduler"
    told = [_whole(one.get("message")) for one in events if one.get("reason") in ("FailedScheduling", "Unschedulable")]
    whole = _whole((scheduled or {}).get("message")) or next(reversed(told), "")
    message = _line(whole)
    if any(one.get("reason") in _GROWING for one in events):
        return Reason(f"the cluster is adding a node for it ({message})")
    if not message:
        return Reason(f"no scheduler has looked at it: is there one called {name}?")
    parts = _parts(whole)
    never = [advice for part in parts if (advice := _never(part, pod, nodes))]
    if parts and len(never) == len(parts):
        return Reason(f"{'; '.join(dict.fromkeys(never))} ({message})", final=_stays(events), soon=True)
    return Reason(f"there is no room for it ({message})")


def _stays(events: Sequence[Object]) -> bool:
    """Return whether an autoscaler has reported that it adds no node."""
    told = (str(one.get("message")) for one in events if one.get("reason") == _NOT_GROWING)
    return any(not _LATER.search(message) for message in told)


def _parts(message: str) -> list[str]:
    """Split the reasons of a scheduler: `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) ...`."""
    found = re.search(r"0/\d+ nodes are available: (.*?)(?:\. preemption: .*)?$", message)
    return re.split(r", (?=\d+ )", found[1].rstrip(".")) if found else []


def _never(part: str, pod: Object, nodes: Sequence[Object] | None) -> str:
    """Return the advice for a reason that waiting cannot end; "" for a reason that may end."""
    if re.search(r"didn't match (?:node selector|Pod's node affinity|pod affinity rules)", part):
        return "no node has the labels that `node_selector` asks for: see `kubectl get nodes --show-labels`"
    if (taint := re.search(r"taints? \{([^}]*)\}", part)) and not _JOINING.search(taint[1]):
        return f"nodes have the taint {taint[1].rstrip(': ')}: give `tolerations` for it"
    if found := re.match(r"\d+ Insufficient (\S+)", part):
        wanted, most = _asked(pod, found[1]), _most(nodes, found[1])
        if most is not None and wanted > most:
            return f"no node has so much {found[1]}, the most is {_plain(most)}: see `resources`"
    return ""


def _asked(pod: Object, resource: str) -> Decimal:
    found = (one.get("resources", {}).get("requests", {}) for one in pod.get("spec", {}).get("containers") or ())
    return sum((amount(str(one[resource])) for one in found if resource in one), Decimal(0))


def _most(nodes: Sequence[Object] | None, resource: str) -> Decimal | None:
    if not nodes:
        return None
    return max(amount(str(one.get("status", {}).get("allocatable", {}).get(resource, "0"))) for one in nodes)


def amount(text: str) -> Decimal:
    """Convert a Kubernetes quantity (`500m`, `2Gi`) to a number; return 0 for any other text."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    return Decimal(found[1]) * _UNIT[found[2]] if found and found[2] in _UNIT else Decimal(0)


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _line(text: object) -> str:
    """Return one line of at most 300 characters."""
    plain = _whole(text)
    return plain if len(plain) <= 300 else f"{plain[:297]}..."


def _whole(text: object) -> str:
    return " ".join(str(text or "").split())
