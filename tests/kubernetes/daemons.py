"""The words that each daemon of a Kubernetes for tests is started with, in a folder of its files."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kubernetes import certificates

PAUSE = "hetgpu-pause:1"
NODE = "kind0"
PORTS = ("api", "etcd", "peer", "manager", "scheduler", "kubelet")

Words = Callable[[Path, Mapping[str, int]], tuple[str, ...]]
_CONFIG = "--kubeconfig=admin.kubeconfig"


def _etcd(_: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "peer"))
    return (
        *("--data-dir=etcd", "--log-outputs=stderr", f"--listen-client-urls={client}"),
        *(f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"),
        *(f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
    )


def _apiserver(folder: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    return (
        *(f"--etcd-servers=http://127.0.0.1:{ports['etcd']}", "--authorization-mode=RBAC", "--client-ca-file=ca.crt"),
        *(f"--secure-port={ports['api']}", "--bind-address=127.0.0.1", f"--advertise-address={address()}"),
        *("--tls-cert-file=server.crt", "--tls-private-key-file=server.key", f"--cert-dir={folder}"),
        *("--kubelet-client-certificate=admin.crt", "--kubelet-client-key=admin.key"),
        *("--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"),
        *(f"--service-account-issuer={certificates.ISSUER}", "--service-cluster-ip-range=10.231.0.0/16"),
        "--kubelet-preferred-address-types=InternalIP",
    )


def _manager(folder: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    return (
        *(_CONFIG, "--leader-elect=false", "--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt"),
        *(f"--cert-dir={folder}", "--port=0", f"--secure-port={ports['manager']}"),
        *("--node-monitor-grace-period=6s", "--node-monitor-period=1s"),
    )


def _scheduler(folder: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    return (_CONFIG, "--leader-elect=false", "--port=0", f"--cert-dir={folder}", f"--secure-port={ports['scheduler']}")


def _kubelet(folder: Path, ports: Mapping[str, int]) -> tuple[str, ...]:
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address(),
        "port": ports["kubelet"],
        "healthzPort": 0,
        "authentication": {"x509": {"clientCAFile": f"{folder}/ca.crt"}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "50Mi"},
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "tlsCertFile": f"{folder}/server.crt",
        "tlsPrivateKeyFile": f"{folder}/server.key",
    }
    folder.joinpath("kubelet.json").write_text(json.dumps(settings))
    engine = folder / "docker.sock"
    return (
        *("--config=kubelet.json", _CONFIG, f"--hostname-override={NODE}", f"--node-ip={address()}"),
        *(f"--root-dir={folder}/kubelet", f"--cert-dir={folder}", f"--volume-plugin-dir={folder}/plugins"),
        *(f"--pod-infra-container-image={PAUSE}", "--image-gc-high-threshold=100"),
        *((f"--docker-endpoint=unix://{engine}",) if engine.exists() else ()),
    )


WORDS: Mapping[str, Words] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _manager,
    "kube-scheduler": _scheduler,
    "kubelet": _kubelet,
}


def address() -> str:
    """An address of this machine's that is not loopback, which API server and kubelet want to tell of."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
