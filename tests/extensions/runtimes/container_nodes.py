"""Nodes for tests on a real container engine, and what is there of them."""

from __future__ import annotations

import json
import os
import platform
import secrets
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pytest_hetgpu.extensions.runtimes.base import Gathering, Member
from pytest_hetgpu.extensions.runtimes.docker import Docker
from pytest_hetgpu.model.job import ConnectionInfo, ContainerOptions, Hardware, Image, Node

BASE = os.environ.get("HETGPU_BASE", "hetgpu-base:bookworm")


def node(index: int = 0, image: Image | None = None, *, engine: str = "", **options: Any) -> Node:
    """A node `nodeN`, on the placement's own network unless `options` (of ContainerOptions) say otherwise."""
    container = replace(ContainerOptions(network="user"), **options)
    return Node(
        index,
        Hardware("cpu", runtime="docker"),
        "localhost",
        1,
        name=f"node{index}",
        reach=ConnectionInfo(engine),
        image=image or Image(BASE),
        container=container,
    )


def owner() -> str:
    """How labels name the process that asks."""
    return f"tests@{platform.node()}:{os.getpid()}"


def docker(*arguments: str) -> str:
    """What the docker command line prints."""
    done = subprocess.run(("docker", *arguments), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def left(run: str) -> list[str]:
    """Containers and networks that carry a run's label."""
    label = f"label=hetgpu.run={run}"
    containers = docker("ps", "-a", "--filter", label, "--format", "{{.Names}}")
    return [*containers.split(), *docker("network", "ls", "--filter", label, "--format", "{{.Name}}").split()]


class Site:
    """Placements of one made-up run, and their nodes; all of it is closed at the end."""

    def __init__(self) -> None:
        self.run = f"test-{secrets.token_hex(4)}"
        self._gatherings: dict[str, Gathering] = {}
        self._members: list[Member] = []

    def placement(self, name: str = "mixed") -> Gathering:
        """The gathering of that name."""
        return self._gatherings.setdefault(name, Gathering(name, self.run, owner()))

    def open(self, which: Node, placement: str = "mixed") -> Member:
        """The node, opened."""
        member = Docker.open(which, self.placement(placement))
        self._members.append(member)
        return member

    def inspect(self, name: str, placement: str = "mixed") -> Any:
        """What the engine says of the container of a node."""
        labels = (f"hetgpu.run={self.run}", f"hetgpu.placement={placement}", f"hetgpu.node={name}")
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        (found,) = docker("ps", "-aq", "--no-trunc", *filters).split()
        return json.loads(docker("inspect", found))[0]

    def close(self) -> None:
        """Every node and placement."""
        for member in self._members:
            member.close()
        for gathering in self._gatherings.values():
            gathering.close()
        Docker.shut()


def local_site(lacking: Callable[[str, str], None]) -> Iterator[Site]:
    """For a fixture: a site on this machine's engine, which is clean again afterwards."""
    try:
        import docker as sdk
    except ImportError:
        lacking("docker", "the Docker SDK for Python is not installed: pip install docker")
    try:
        client = sdk.from_env(timeout=10)
    except sdk.errors.DockerException as error:
        lacking("docker", f"no Docker engine answers here ({error})")
    try:
        client.images.get(BASE)
    except sdk.errors.ImageNotFound:
        lacking("docker", f"the engine has no image {BASE} (see containers/, or give HETGPU_BASE)")
    finally:
        client.close()
    made = Site()
    try:
        yield made
    finally:
        made.close()
    assert left(made.run) == []
