"""The common parts of the jobs of the Kubeflow operators."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import KEPT_AFTER, Manifest
from pytest_hetgpu.extensions.runtimes.pods.request import Pods


def run_policy(pods: Pods) -> Manifest:
    """Return the rules for the end of a job: it ends as a whole and not early. Failed pods stay readable."""
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
    """Return a replica specification: `count` pods of a template, none of which starts twice."""
    return {"replicas": count, "restartPolicy": "Never", "template": pod}
