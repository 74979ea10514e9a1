"""A pod's pipe that never came to be, by a kubectl that fails as a real one does."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._kubernetes.client import KubernetesCluster
from pytest_hetgpu.extensions.runtimes._kubernetes.node import _Exec
from pytest_hetgpu.extensions.runtimes._kubernetes.placement import PodSlot
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection
from pytest_hetgpu.extensions.runtimes.pods.request import Pods

PLACEMENT = Mock(cluster=KubernetesCluster("c", "n"), pods=Pods(image="i:1"))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (
            "Error from server: error dialing backend: remote error: tls: internal error",
            "the API server of Kubernetes at c does not reach the kubelet of that pod's node, which",
        ),
        ('error: exec: "python3": executable file not found in $PATH', "the image has no python3"),
    ],
)
def test_what_no_command_could_be_run_in_was_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, says: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\necho '{said}' >&2; exit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ProvisionError, match=says) as caught:
        AgentConnection(_Exec(PLACEMENT, PodSlot("p", "10.0.0.7", "n1")), "n1", patience=60.0)
    assert "lost" not in str(caught.value)
