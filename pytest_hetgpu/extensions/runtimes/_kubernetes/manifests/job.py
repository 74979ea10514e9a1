"""One Job per kind of hardware (batch/v1), and a Service that all their pods share."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import (
    KEPT_AFTER,
    Asked,
    Group,
    Manifest,
    metadata,
    pods_of,
    service,
    template,
)


def render(asked: Asked) -> list[Manifest]:
    """Return the Jobs, then the Service."""
    return [*(_job(asked, group) for group in asked.groups), service(asked)]


def _job(asked: Asked, group: Group) -> Manifest:
    pods = pods_of(group.nodes[0])
    pod = template(asked, group)
    # The host name of a pod is then JOB-0, which the Service resolves.
    pod["spec"]["subdomain"] = asked.name
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(asked, f"{asked.name}-{group.name}", pods),
        "spec": {
            # A Job that never starts ends too.
            "activeDeadlineSeconds": pods.ttl + int(pods.ready),
            "backoffLimit": 0,
            "completionMode": "Indexed",
            "completions": len(group.nodes),
            "parallelism": len(group.nodes),
            "ttlSecondsAfterFinished": KEPT_AFTER,
            "template": pod,
        },
    }
