"""The docker commands that a user can type to do the work of runtime `docker` for a node. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_hetgpu.model.job import ConnectionInfo, ContainerOptions, Image, Node


def run_command(node: Node, placement: str, *, labels: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the `docker run` of a node's container, which then sleeps.

    `node.image` and `node.container` must be set. Network `user` in the node's options is the network that
    `network_command` makes.
    """
    assert node.image is not None
    assert node.container is not None
    return (
        *docker(node.reach),
        *("run", "-d", "--rm", "--init", "--name", container_name(node, placement), "--hostname", node.name),
        *_network(node, placement),
        *(f"--label={key}={value}" for key, value in sorted((labels or {}).items())),
        *_options(node.container),
        *("--entrypoint", "sleep", node.image.reference, "infinity"),
    )


def network_command(reach: ConnectionInfo, placement: str) -> tuple[str, ...]:
    """Return the command that makes the network of a placement whose nodes are containers of one engine."""
    return (*docker(reach), "network", "create", network_name(placement))


def build_command(image: Image, reach: ConnectionInfo) -> tuple[str, ...]:
    """Return the command that builds an image from its folder; () for a reference, which `docker run` pulls."""
    if not image.folder:
        return ()
    args = (token for name, value in sorted(image.args.items()) for token in ("--build-arg", f"{name}={value}"))
    network = ("--network", image.network) if image.network else ()
    return (*docker(reach), "build", "-t", image.reference, *args, *network, image.folder)


def network_name(placement: str) -> str:
    """Return the name of a placement's network."""
    return _plain(f"hetgpu-{placement}")


def container_name(node: Node, placement: str) -> str:
    """Return the name of a node's container that a user makes by hand."""
    return _plain(f"hetgpu-{placement}-{node.name}")


def _plain(name: str) -> str:
    """Replace the characters that engines reject in a name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


def docker(reach: ConnectionInfo) -> tuple[str, ...]:
    """Return the docker client for the engine of a node."""
    return ("docker", "-H", _address(reach)) if reach.engine else ("docker",)


def _address(reach: ConnectionInfo) -> str:
    """Return the engine's address with the user and port that it leaves to the host's entry."""
    scheme, _, rest = reach.engine.partition("://")
    if scheme != "ssh":
        return reach.engine
    place, slash, path = rest.partition("/")
    if reach.user and "@" not in place:
        place = f"{reach.user}@{place}"
    if reach.port and ":" not in place.rpartition("]")[2]:
        place = f"{place}:{reach.port}"
    return f"ssh://{place}{slash}{path}"


def _network(node: Node, placement: str) -> tuple[str, ...]:
    assert node.container is not None
    if node.container.network == "host":
        return ("--network", "host")
    return ("--network", network_name(placement), "--network-alias", node.name)


def _options(options: ContainerOptions) -> tuple[str, ...]:
    return (
        *(f"--device={device}" for device in options.devices),
        *(f"--group-add={group}" for group in options.groups),
        *(f"--cap-add={capability}" for capability in options.cap_add),
        *(f"--security-opt={option}" for option in options.security),
        *((f"--ipc={options.ipc}",) if options.ipc else ()),
        *((f"--shm-size={options.shm}",) if options.shm else ()),
        *(f"--ulimit={name}={value}" for name, value in sorted(options.ulimits.items())),
        *((f"--gpus={_gpus(options.gpus)}",) if options.gpus else ()),
        *((f"--user={options.user}",) if options.user else ()),
        *(f"--mount={_mount(volume)}" for volume in options.volumes),
    )


def _gpus(gpus: str) -> str:
    """Return the GPUs for the command line: a list of devices gets double quotes, for commas separate fields there."""
    return f'"{gpus}"' if gpus.startswith("device=") and "," in gpus else gpus


def _mount(volume: str) -> str:
    """Return the volume for --mount: -v would create a folder that the host lacks."""
    source, target, *rest = volume.split(":")
    kind = "bind" if source.startswith("/") else "volume"
    return f"type={kind},source={source},target={target}{',readonly' if 'ro' in rest else ''}"
