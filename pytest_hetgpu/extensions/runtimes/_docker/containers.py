"""The container of a node: the request to the engine, and the container that it creates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.attach import Attached, let_go
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.process.ledger import LABEL, tracker
from pytest_hetgpu.model.job import ContainerOptions, Node

BOOT_LABEL = "hetgpu.boot"

_TRIES = 3  # names


def container_name(deployment: Deployment, node: Node) -> str:
    """Return `hetgpu-RUN-PLACEMENT-NODE` for readers of `docker ps`. No code finds a container by this name."""
    return clean_name(f"hetgpu-{deployment.labels['hetgpu.run']}-{deployment.name}-{node.name}")


def labels_of(deployment: Deployment) -> dict[str, str]:
    """Return the labels of every object that a run creates on an engine.

    Other processes on this machine read hetgpu.boot to find out whether this process still runs.
    """
    us = {BOOT_LABEL: boot_label(os.getpid()), LABEL: tracker().label}
    return {**deployment.labels, **{name: value for name, value in us.items() if value}}


def boot_label(pid: int) -> str:
    """Return `BOOT NAMESPACE PID START`, which is unique to one process on any machine; "" if /proc lacks it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {pid} {stat.rpartition(')')[2].split()[19]}"  # noqa: PTH115
    except (OSError, ValueError, IndexError):
        return ""


def clean_name(text: str) -> str:
    """Replace all characters that engines reject in names."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)


def host_config(options: ContainerOptions, network: str) -> dict[str, Any]:
    """Return the keywords for `APIClient.create_host_config`; `network` is `host` or the id of a network.

    Raises:
        ValueError: No engine accepts the options.

    """
    asked: dict[str, Any] = {
        "auto_remove": True,
        "init": True,
        "network_mode": network,
        "devices": list(options.devices),
        "group_add": list(options.groups),
        "cap_add": list(options.cap_add),
        "security_opt": [_security(option) for option in options.security],
        "ipc_mode": options.ipc,
        "shm_size": options.shm,
        "ulimits": [{"name": name, "soft": value, "hard": value} for name, value in sorted(options.ulimits.items())],
        "device_requests": [gpu_request(options.gpus)] if options.gpus else None,
        "mounts": [mount(volume) for volume in options.volumes],
    }
    return {key: value for key, value in asked.items() if value}


def gpu_request(gpus: str) -> dict[str, Any]:
    """Return the request of `docker run --gpus` for `all`, a count, or `device=0,1`; raise ValueError for others."""
    wanted = gpus.strip().strip("\"'")
    request: dict[str, Any] = {"driver": "", "count": 0, "device_ids": None, "capabilities": [["gpu"]], "options": {}}
    if wanted == "all":
        return {**request, "count": -1}
    if wanted.isdecimal():
        return {**request, "count": int(wanted)}
    key, _, devices = wanted.partition("=")
    if key != "device" or not devices:
        raise ValueError(f"gpus: {gpus!r} is none of: all, a number, device=0,1")
    return {**request, "device_ids": devices.split(",")}


def mount(volume: str) -> dict[str, Any]:
    """Convert `HOST:CONTAINER[:ro]` to a mount of the engine API.

    HOST is an existing folder of the engine's host, or a named volume.
    """
    source, _, rest = volume.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"volumes: {volume!r} is not HOST:CONTAINER or HOST:CONTAINER:ro")
    kind = "bind" if source.startswith("/") else "volume"
    return {"Type": kind, "Source": source, "Target": target, **({"ReadOnly": True} if mode == "ro" else {})}


def _security(option: str) -> str:
    """Return a security option, with a seccomp profile as the text of its file: the engine takes only the text."""
    key, _, value = option.partition("=")
    if key != "seccomp" or value in ("unconfined", "builtin") or value.startswith("{"):
        return option
    if Path(value).exists() and not Path(value).is_file():
        raise ValueError(f"security: the seccomp profile {value} is not a file")
    try:
        return f"seccomp={Path(value).read_text(encoding='utf-8')}"
    except OSError as error:
        raise ValueError(f"security: the seccomp profile {value} cannot be read: {error.strerror}") from error


def start(  # noqa: PLR0913
    engine: Engine, node: Node, deployment: Deployment, *, network: str, groups: Sequence[str], command: Sequence[str]
) -> Attached:
    """Start the node's container with `command`, and attach to its stdin and stdout.

    The container ends when its stdin does, however this process ends. The engine removes it when it ends. After an
    error no container is left.

    Raises:
        NotHere: The site lacks something.
        ProvisionError: The engine cannot start the container.
        docker.errors.ImageNotFound: The engine has lost the image.

    """
    with engine.speaking(node.name) as api, ExitStack() as unwinding:
        since = engine.watch(api)
        ident = _create(api, node, deployment, _asked(api, node, network, groups, command))
        unwinding.callback(remove, api, ident)
        stream = api.attach_socket(ident, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        unwinding.callback(let_go, stream)
        # Request this before it starts: the container may end at once.
        waiting = api.post(
            f"{api.base_url}/v{api.api_version}/containers/{ident}/wait",
            params={"condition": "removed"},
            stream=True,
            timeout=None,
        )
        unwinding.callback(waiting.close)
        api.start(ident)
        unwinding.pop_all()
        return Attached(engine.at.where, stream, waiting, lambda: remove(api, ident), lambda: engine.away(since))


def listed_name(container: Mapping[str, Any]) -> str:
    """Return the name of a listed container; the short id of one that a killed engine left without a name."""
    names = container["Names"] or (str(container["Id"])[:12],)
    return str(names[0]).lstrip("/")


def remove(api: Any, ident: str) -> None:
    """Kill and remove a container, which may be missing or about to be removed."""
    import docker
    import requests

    try:
        api.remove_container(ident, force=True, v=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return  # not there, being removed, or a failed engine: the end of its stdin ends it too


def _asked(api: Any, node: Node, network: str, groups: Sequence[str], command: Sequence[str]) -> dict[str, Any]:
    assert node.image is not None
    assert node.container is not None
    try:
        keywords = host_config(node.container, network)
    except ValueError as error:
        raise ProvisionError(node.name, str(error)) from error
    alias = api.create_endpoint_config(aliases=[node.name])
    return {
        "image": node.image.reference,
        "entrypoint": [command[0]],
        "command": list(command[1:]),
        "hostname": node.name,
        "user": node.container.user or None,
        "stdin_open": True,
        "host_config": api.create_host_config(**{**keywords, **({"group_add": list(groups)} if groups else {})}),
        "networking_config": api.create_networking_config({network: alias}) if network != "host" else None,
    }


def _create(api: Any, node: Node, deployment: Deployment, asked: Mapping[str, Any]) -> str:
    """Create a container and return its id; use another name if this one is taken."""
    import docker

    labels = {**labels_of(deployment), "hetgpu.node": node.name}
    name = container_name(deployment, node)
    for left in reversed(range(_TRIES)):
        try:
            return str(api.create_container(name=name, labels=labels, **asked)["Id"])
        except docker.errors.APIError as error:
            if error.status_code != 409 or not left:
                raise
            name = f"{container_name(deployment, node)}-{os.urandom(3).hex()}"
    raise AssertionError
