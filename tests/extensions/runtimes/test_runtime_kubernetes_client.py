"""Which cluster kubectl is asked for, by a kubectl that only says what it is told to say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes._kubernetes import client
from pytest_hetgpu.extensions.runtimes._kubernetes.client import Refused, cluster_of
from pytest_hetgpu.extensions.runtimes.pods.request import Pods

Says = Callable[[str], None]
# What kubectl 1.20 answers where there is no kubeconfig.
NO_CONTEXT = "error: current-context must exist in order to minify"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """`kubectl(text)` has kubectl fail with this text."""

    def says(text: str) -> None:
        program = tmp_path / "kubectl"
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")
        program.chmod(0o700)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return says


def test_in_a_pod_of_the_cluster_no_kubeconfig_is_needed(kubectl: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(client, "_own_namespace", lambda: "team")
    kubectl(NO_CONTEXT)
    found = cluster_of(Pods())
    assert (found.context, found.namespace) == ("", "team")
    assert cluster_of(Pods(namespace="gpu")).namespace == "gpu"


def test_elsewhere_it_is_and_a_context_is_looked_for_there_too(kubectl: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl(NO_CONTEXT)
    with pytest.raises(Refused, match="kubectl has no Kubernetes cluster here: set KUBECONFIG"):
        cluster_of(Pods())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    kubectl("error: cannot locate context nope")
    with pytest.raises(Refused, match="kubectl has no context nope"):
        cluster_of(Pods(context="nope"))


def test_in_a_pod_a_kubeconfig_that_cannot_be_read_is_no_missing_one(
    kubectl: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    kubectl("error: error loading config file: yaml: line 3")
    with pytest.raises(Refused, match="yaml: line 3"):
        cluster_of(Pods())


def test_without_kubectl_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotHere, match="there is no kubectl in PATH"):
        cluster_of(Pods())
