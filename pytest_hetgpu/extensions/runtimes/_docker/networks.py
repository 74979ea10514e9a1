"""Networks of placements on an engine, and what runs that died have left there."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Any
from weakref import WeakKeyDictionary

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.runtimes._docker.containers import BOOT_LABEL, boot_label, clean_name, labels_of, remove
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine, EngineGone
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.model.job import Node


def network_of(engine: Engine, node: Node, deployment: Deployment) -> str:
    """`host`, or the id of the network that the deployment's nodes on this engine share, and which goes with it."""
    assert node.container is not None
    if node.container.network == "host":
        return "host"

    def make(closing: ExitStack) -> str:
        # The engine takes a name twice, and then finds neither: two workers may make the same placement.
        name = clean_name(f"hetgpu-{deployment.labels['hetgpu.run']}-{deployment.name}-{deployment.token}")
        with engine.speaking(node.name) as api:
            ident = str(api.create_network(name, driver="bridge", labels=labels_of(deployment))["Id"])
        closing.callback(_remove_network, engine, ident)
        return ident

    return deployment.once(("docker network", engine), make)


def _remove_network(engine: Engine, ident: str) -> None:
    """By another tunnel where one broke; what cannot be removed is left to who finds its label."""
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
        except Exception:  # noqa: BLE001 - whatever it was, the second try tells
            for container in api.inspect_network(ident)["Containers"]:
                remove(api, container)
                with suppress(Exception):
                    api.disconnect_container_from_network(container, ident, force=True)
            api.remove_network(ident)


def remove_left_behind(engine: Engine, node: str) -> tuple[str, ...]:
    """Remove containers and networks of dead processes of this machine; return their names.

    Raises NotHere and ProvisionError of `node` if the engine cannot be asked.
    """
    removed = []
    ours = {"label": ["hetgpu.run", BOOT_LABEL]}
    with engine.speaking(node) as api:
        for container in api.containers(all=True, filters=ours):
            if orphaned(container["Labels"]):
                remove(api, container["Id"])
                removed.append(container["Names"][0].lstrip("/"))
        for network in api.networks(filters=ours):
            if orphaned(network["Labels"]):
                _remove_network(engine, network["Id"])
                removed.append(network["Name"])
    return tuple(removed)


def orphaned(labels: Mapping[str, str]) -> bool:
    """Whether the label hetgpu.boot names a process that has ended, and would be seen here if it had not.

    That is one of this boot of this machine (a host's name may be another's too) and of this namespace of processes.
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
    return bool(now) and now != owner  # its number is another's now


def group_numbers(engine: Engine, node: Node, deployment: Deployment) -> tuple[str, ...]:
    """Return the node's groups as numbers of the engine's host, to which the devices belong.

    A name that the host lacks stays, for the image may know it.
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
    """Its /etc/group, read through a container that shows it and is never started."""
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
    """Bytes of a stream, at most so many."""
    found = bytearray()
    for chunk in chunks:
        found += chunk[: most - len(found)]
        if len(found) >= most:
            break
    return bytes(found)


def _only_file(tar: bytes) -> str:
    """Return the content of the first file of an archive, as far as it is there; "" for what is no archive."""
    try:
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            found: Any = next((archive.extractfile(member) for member in archive if member.isfile()), None)
            return str(found.read(len(tar)).decode(errors="replace")) if found else ""
    except (tarfile.TarError, OSError, EOFError):
        return ""


def groups_in(text: str) -> dict[str, str]:
    """Numbers by name, of an /etc/group."""
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: row[2] for row in rows if len(row) >= 3 and row[2].isdecimal()}
