"""A real Kubernetes of one node on one machine: ready in some seconds, gone without a trace.

Its API server has RBAC, certificates and tokens of service accounts; its kubelet runs pods on this machine's dockerd,
with the images that are there. Needs root, docker, openssl, etcd, and the programs that build.py makes, on PATH or in
the folder that HETGPU_KUBERNETES names.

    python tests/kubernetes/cluster.py COMMAND...     runs COMMAND with KUBECONFIG set; fails if it leaves a pod
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.kubernetes import certificates, relay  # noqa: E402
from tests.kubernetes.build import PROGRAMS  # noqa: E402
from tests.kubernetes.daemons import NODE, PAUSE, PORTS, WORDS, address  # noqa: E402

NAMESPACE, CLOSED, TIGHT = "tests", "closed", "tight"
NEEDED = ("docker", "etcd", "openssl", "setpriv", *PROGRAMS)
VARIABLE = "HETGPU_KUBERNETES"
# What dockershim gives every container that it makes.
OURS = "label=io.kubernetes.docker.type"

_ENGINE = "/var/run/docker.sock"
_LOCK = Path("/run/lock/hetgpu-kubernetes.lock")
_LEFT = ("/var/lib/dockershim", "/var/log/pods", "/var/log/containers", "/var/lib/kubelet", "/var/lib/cni", "/etc/cni")
_WAITING = threading.Event()
# What a user of the runtime may do in a namespace, and no more; docs/reference/kubernetes.md asks for the same.
RIGHTS: list[dict[str, list[str]]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
    {
        "apiGroups": ["kubeflow.org"],
        "resources": ["mpijobs", "pytorchjobs"],
        "verbs": ["create", "get", "list", "delete"],
    },
    {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
]


def path() -> str:
    """PATH with the folder of the programs first."""
    return os.pathsep.join(filter(None, (os.environ.get(VARIABLE, ""), os.environ.get("PATH", ""))))


def lacks() -> str:
    """What of a cluster's needs is missing here; "" where nothing is."""
    missing = [program for program in NEEDED if shutil.which(program, path=path()) is None]
    if missing:
        return (
            f"no {', '.join(missing)} here: apt-get install etcd-server openssl docker.io, "
            f"python tests/kubernetes/build.py FOLDER, and {VARIABLE}=FOLDER"
        )
    return "a kubelet needs root" if os.geteuid() else ""


@dataclass
class Cluster:
    """A running cluster; `config` is an administrator's kubeconfig, `user` that of one with RIGHTS in NAMESPACE."""

    folder: Path
    ports: dict[str, int]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def user(self) -> Path:
        return self.folder / "user.kubeconfig"

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """What kubectl prints for the administrator."""
        done = subprocess.run(
            (_program("kubectl"), f"--kubeconfig={self.config}", "--request-timeout=20s", *words),
            input=stdin, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Creates or changes objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, *words: str) -> list[dict[str, Any]]:
        """The items of `kubectl get`, the administrator's."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *words, "-o", "json"))["items"]
        return found

    def pods(self, namespace: str = NAMESPACE) -> list[str]:
        """Names of pods that are there to stay."""
        return [one["metadata"]["name"] for one in self.get("pods", "-n", namespace) if not _going(one)]

    def left(self, *, going: bool = False) -> list[str]:
        """What of runs is there, in any namespace, as `kind/name`; of pods that were told to go only if asked to.

        This kubelet lets go of a pod by chance at once, or when it collects dead containers, once a minute.
        """
        found = self.get("pods,jobs,services", "-A", "-l", "hetgpu.run")
        return [f"{one['kind']}/{one['metadata']['name']}" for one in found if going or not _going(one)]

    def until(self, condition: Callable[[], object], seconds: float = 60.0, what: str = "") -> None:
        """Returns once a condition holds; RuntimeError with the daemons' logs where it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {seconds:g} s still not: {what or condition}\n{self.logs()}")
            _WAITING.wait(0.1)

    def logs(self) -> str:
        """The ends of all the daemons' logs."""
        texts = {one.name: one.read_text(errors="replace").splitlines()[-12:] for one in self.folder.glob("*.log")}
        return "\n".join(f"== {name}\n" + "\n".join(lines) for name, lines in sorted(texts.items()))

    def write_config(self, name: str, user: dict[str, str], namespace: str = NAMESPACE) -> Path:
        """A kubeconfig `NAME.kubeconfig` with a context `NAME`."""
        cluster = {"server": f"https://127.0.0.1:{self.ports['api']}", "certificate-authority": f"{self.folder}/ca.crt"}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": "rig", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "rig", "user": name, "namespace": namespace}}],
        }
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(json.dumps(text))
        file.chmod(0o600)
        return file

    def token(self, seconds: float) -> str:
        """A token of the user's account, good for so many seconds."""
        account = json.loads(self.kubectl("get", "serviceaccount", "user", "-n", NAMESPACE, "-o", "json"))
        return certificates.token(self.folder, NAMESPACE, "user", account["metadata"]["uid"], seconds=seconds)

    def start(self, name: str) -> None:
        """Starts a daemon: etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kubelet."""
        argv = (_program(name), *WORDS[name](self.folder, self.ports))
        self._start(name, argv)

    def relay(self) -> None:
        """Stands between kubelet and dockerd, where that is needed."""
        if relay.needed():
            sock = self.folder / "docker.sock"
            self._start("relay", (sys.executable, relay.__file__, str(sock), _ENGINE))
            self.until(sock.exists, what="a relay")

    def _start(self, name: str, argv: tuple[str, ...]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            # It ends with us, also where we are killed.
            self.daemons[name] = subprocess.Popen(
                ("setpriv", "--pdeathsig=KILL", *argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )

    def kill(self, name: str) -> None:
        """Pulls the plug of a daemon."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def answers(self) -> bool:
        """Whether the API server is there, with its first roles in place."""
        return "ok" in self.kubectl("get", "--raw", "/readyz", check=False)

    def ready(self) -> bool:
        """Whether the node takes pods."""
        found = self.kubectl("get", "node", NODE, "-o", "json", check=False)
        conditions = json.loads(found)["status"].get("conditions", ()) if found else ()
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def down(self) -> None:
        """Ends everything, and takes away what kubelet and dockerd have of it."""
        for name in reversed(list(self.daemons)):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name)
        _sweep()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.folder)):
                subprocess.run(("umount", "-l", line.split()[1]), check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """A cluster for as long as the block runs; one at a time on a machine, for two kubelets share no dockerd."""
    kept = [Path(one) for one in _LEFT if not Path(one).exists()]
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ports = dict(zip(PORTS, _free(len(PORTS)), strict=True))
        cluster = Cluster(Path(tempfile.mkdtemp(prefix="hetgpu-kubernetes-", dir="/run")), ports)
        try:
            _up(cluster)
            yield cluster
        finally:
            cluster.down()
            for one in kept:
                shutil.rmtree(one, ignore_errors=True)


def _up(cluster: Cluster) -> None:
    folder = cluster.folder
    _sweep()
    _pause_image()
    cluster.start("etcd")
    certificates.authority(folder)
    certificates.certificate(folder, "server", "/CN=hetgpu", addresses=f"IP:127.0.0.1,IP:{address()}")
    certificates.certificate(folder, "admin", "/O=system:masters/CN=admin")
    cluster.write_config("admin", {"client-certificate": f"{folder}/admin.crt", "client-key": f"{folder}/admin.key"})
    cluster.start("kube-apiserver")
    cluster.relay()
    cluster.until(cluster.answers, what="an API server")
    for name in ("kube-controller-manager", "kube-scheduler", "kubelet"):
        cluster.start(name)
    cluster.apply(*_first())
    cluster.until(lambda: cluster.kubectl("get", "sa", "default", "-n", NAMESPACE, check=False), what="accounts")
    cluster.until(cluster.ready, what="a ready node")
    cluster.write_config("user", {"token": cluster.token(86400)})


def _first() -> Iterator[dict[str, Any]]:
    """Namespaces, and who may do what in them."""
    for name in (NAMESPACE, CLOSED, TIGHT):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "user", "namespace": NAMESPACE}}
    rbac = "rbac.authorization.k8s.io/v1"
    user = {"kind": "ServiceAccount", "name": "user", "namespace": NAMESPACE}
    for namespace in (NAMESPACE, TIGHT):
        where = {"name": "hetgpu", "namespace": namespace}
        yield {"apiVersion": rbac, "kind": "Role", "metadata": where, "rules": RIGHTS}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hetgpu"}
        yield {"apiVersion": rbac, "kind": "RoleBinding", "metadata": where, "roleRef": role, "subjects": [user]}
    quota = {"hard": {"pods": "1"}}
    yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": TIGHT}, "spec": quota}


def _pause_image() -> None:
    """What holds a pod's namespaces, and reaps; no registry is asked for the usual one."""
    text = b'FROM hetgpu-base:bookworm\nENTRYPOINT ["bash", "-c", "trap exit TERM; sleep infinity & wait"]\n'
    subprocess.run(("docker", "build", "-q", "-t", PAUSE, "-"), input=text, capture_output=True, check=True)


def _sweep() -> None:
    """Removes the containers of kubelets that are gone."""
    found = subprocess.run(("docker", "ps", "-aq", "--filter", OURS), capture_output=True, text=True, check=False)
    if found.stdout.split():
        subprocess.run(("docker", "rm", "-f", *found.stdout.split()), capture_output=True, check=False)


def _going(one: dict[str, Any]) -> bool:
    return bool(one["metadata"].get("deletionTimestamp"))


def _program(name: str) -> str:
    return shutil.which(name, path=path()) or name


def _free(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def main(argv: list[str]) -> int:
    """Runs a command on a cluster of its own; 1 where it leaves a pod, a job or a service."""
    if lack := lacks():
        sys.exit(lack)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with running() as cluster:
        print(f"ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
        env = {**os.environ, "KUBECONFIG": str(cluster.user), "PATH": path(), "KUBECONFIG_ADMIN": str(cluster.config)}
        status = subprocess.run(argv, env=env, check=False).returncode
        left = cluster.left()
        for one in left:
            print(f"left: {one}", file=sys.stderr)
        return status or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
