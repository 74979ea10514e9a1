"""A Job of the Volcano scheduler (batch.volcano.sh/v1alpha1): one task per kind of hardware, all scheduled at once."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import (
    KEPT_AFTER,
    Asked,
    Manifest,
    metadata,
    service,
    template,
)


def render(asked: Asked) -> list[Manifest]:
    """Return the Job, then the Service."""
    tasks = []
    for group in asked.groups:
        pod = template(asked, group)
        pod["spec"]["subdomain"] = asked.name
        tasks.append({"name": f"kind{group.name}", "replicas": len(group.nodes), "template": pod})
    spec: Manifest = {
        "maxRetry": 1,
        "minAvailable": sum(len(group.nodes) for group in asked.groups),
        # A job that has lost a pod is useless for its other pods.
        "policies": [{"event": "PodEvicted", "action": "AbortJob"}, {"event": "PodFailed", "action": "AbortJob"}],
        "schedulerName": asked.pods.scheduled_by,
        "tasks": tasks,
        "ttlSecondsAfterFinished": KEPT_AFTER,
    }
    if asked.pods.queued_in:
        spec["queue"] = asked.pods.queued_in
    if asked.pods.priority_class:
        spec["priorityClassName"] = asked.pods.priority_class
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata(asked, asked.name, asked.pods),
        "spec": spec,
    }
    return [job, service(asked)]
