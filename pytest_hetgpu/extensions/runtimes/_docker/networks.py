"""Networks of placements on an engine, and the leftovers of dead runs there."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any
from weakref import WeakKeyDictionary

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.runtimes._docker.containers import (
    BOOT_LABEL,
    boot_label,
    clean_name,
    labels_of,
    listed_name,
    remove,
)
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.model.job import Node


def network_of(engine: Engine, node: Node, deployment: Deployment) -> str:
    """Return `host`, or the id of the network of the deployment's nodes on this engine; it ends with the deployment."""
    assert node.container is not None
    if node.container.network == "host":
        return "host"

    def make(closing: ExitStack) -> str:
        # An engine takes a name twice, and then finds neither: two workers may make the same placement.
        name = clean_name(f"hetgpu-{deployment.labels['hetgpu.run']}-{deployment.name}-{deployment.token}")
        with engine.speaking(node.name) as api:
            ident = str(api.create_network(name, driver="bridge", labels=labels_of(deployment))["Id"])
        closing.callback(_remove_network, engine, ident)
        return ident

    return deployment.once(("docker network", engine), make)


def _remove_network(engine: Engine, ident: str) -> None:
    """Remove a network; use another tunnel if one broke. A network that stays keeps its label, for a later cleanup."""
    with suppress(HetgpuError):
        try:
            _take_network(engine, ident)
        except EngineGone as gone:
            if engine.reopen(gone.api):
                _take_network(engine, ident)


def _take_network(engine: Engine, ident: str) -> None:
    """Disconnect all containers from a network, then remove it."""
    with engine.speaking("network") as api:
        try:
            api.remove_network(ident)
        except Exception:  # noqa: BLE001 - any error: the second try reports it
            for container in api.inspect_network(ident)["Containers"]:
                remove(api, container)
                with suppress(Exception):
                    api.disconnect_container_from_network(container, ident, force=True)
            api.remove_network(ident)


def remove_left_behind(engine: Engine, node: str) -> tuple[str, ...]:
    """Remove containers and networks of dead processes of this machine; return their names.

    Raises:
        NotHere: The site lacks something; the error names `node`.
        ProvisionError: The engine does not answer; the error names `node`.

    """
    removed = []
    ours = {"label": ["hetgpu.run", BOOT_LABEL]}
    with engine.speaking(node) as api:
        for container in api.containers(all=True, filters=ours):
            if orphaned(container["Labels"]):
                remove(api, container["Id"])
                removed.append(listed_name(container))
        for network in api.networks(filters=ours):
            if orphaned(network["Labels"]):
                _remove_network(engine, network["Id"])
                removed.append(network["Name"])
    return tuple(removed)


def orphaned(labels: Mapping[str, str]) -> bool:
    """Return whether the label hetgpu.boot names a process that has ended, and that would be visible here otherwise.

    Such a process belongs to this boot of this machine and to this PID namespace. A host name may be another machine's.
    """
    owner, ours = labels.get(BOOT_LABEL, "").split(), boot_label(os.getpid()).split()
    if len(owner) != 4 or owner[:2] != ours[:2] or not owner[2].isdecimal():
        return False
    try:
        os.kill(int(owner[2]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return False
    now = boot_label(int(owner[2])).split()
    return bool(now) and now != owner  # its pid belongs to another process now


def group_numbers(engine: Engine, node: Node, deployment: Deployment) -> tuple[str, ...]:
    """Return the node's groups as numbers of the engine's host, to which the devices belong.

    A name that the host lacks stays, because the image may have it.
    """
    assert node.container is not None
    groups = node.container.groups
    if all(group.isdecimal() for group in groups):
        return groups
    known = _groups_of_host(engine, node, deployment)
    return tuple(known.get(group, group) for group in groups)


_MOST_GROUPS = 16 << 20  # bytes
_hosts: WeakKeyDictionary[Engine, Mapping[str, str]] = WeakKeyDictionary()


def _groups_of_host(engine: Engine, node: Node, deployment: Deployment) -> Mapping[str, str]:
    """Return the host's /etc/group, read through a container that mounts it and never starts."""
    if engine not in _hosts:
        assert node.image is not None
        with engine.speaking(node.name) as api:
            shown = {"Type": "bind", "Source": "/etc/group", "Target": "/hetgpu-group", "ReadOnly": True}
            ident = api.create_container(
                node.image.reference,
                ["true"],
                host_config=api.create_host_config(mounts=[shown]),
                labels=labels_of(deployment),
            )["Id"]
            try:
                chunks, _ = api.get_archive(ident, "/hetgpu-group")
                _hosts[engine] = groups_in(_only_file(_first(chunks, _MOST_GROUPS)))
            finally:
                remove(api, ident)
    return _hosts[engine]


def _first(chunks: Iterable[bytes], most: int) -> bytes:
    """Return at most `most` bytes of a stream."""
    found = bytearray()
    for chunk in chunks:
        found += chunk[: most - len(found)]
        if len(found) >= most:
            break
    return bytes(found)


def _only_file(tar: bytes) -> str:
    """Return the content of an archive's first file, as far as it is there; "" for data that is no archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            found: Any = next((archive.extractfile(member) for member in archive if member.isfile()), None)
            return str(found.read(len(tar)).decode(errors="replace")) if found else ""
    except (tarfile.TarError, OSError, EOFError):
        return ""


def groups_in(text: str) -> dict[str, str]:
    """Return the group numbers of an /etc/group by name."""
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: row[2] for row in rows if len(row) >= 3 and row[2].isdecimal()}
