"""What the jobs of Kubeflow's operators have in common."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import KEPT_AFTER, Manifest
from pytest_hetgpu.extensions.runtimes.pods.request import Pods


def run_policy(pods: Pods) -> Manifest:
    """How a job ends: as a whole, not before its time, and with what has failed left to be read."""
    policy: Manifest = {
        "activeDeadlineSeconds": pods.ttl + int(pods.ready),
        "backoffLimit": 0,
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": KEPT_AFTER,
    }
    if pods.scheduled_by == "volcano" and pods.queued_in:
        policy["schedulingPolicy"] = {"queue": pods.queued_in}
    return policy


def replicas(pod: Manifest, count: int) -> Manifest:
    """So many pods of a template, none of which is started twice."""
    return {"replicas": count, "restartPolicy": "Never", "template": pod}
