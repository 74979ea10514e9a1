"""Runtimes by their names, and questions that the runtimes of several nodes answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache

from pytest_hetgpu.errors import HetgpuError, ProvisionError, UsageError
from pytest_hetgpu.extensions.registry import check, find, names
from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.runtimes.traits.policy import Loss
from pytest_hetgpu.model.job import Hardware, Node
from pytest_hetgpu.model.stored import Stored

FAKE = "fake"
"""The runtime for tests, which has no nodes of a job."""


@cache
def runtime_of(name: str) -> type[NodeProvider]:
    """Return the class of a runtime; the base class for one that cannot be imported.

    A matrix with such a runtime is refused when it is read. A stored job may name one that is not installed here.
    """
    if name in names("runtimes") and name != FAKE:
        with suppress(UsageError):
            return find("runtimes", name, NodeProvider)  # type: ignore[type-abstract]
    return NodeProvider


def runtimes() -> Iterator[tuple[str, type[NodeProvider]]]:
    """Return every runtime with its name."""
    yield from ((name, runtime_of(name)) for name in names("runtimes"))


@contextmanager
def mistakes_of(name: str) -> Iterator[None]:
    """Turn any exception of a runtime's code inside into a ProvisionError that names the runtime."""
    try:
        yield
    except HetgpuError:
        raise
    except Exception as error:
        raise ProvisionError(f"runtime {name!r}", f"{type(error).__name__}: {error}") from error


def broken_runtimes() -> Iterator[str]:
    """Return why runtimes of other packages cannot be imported, one sentence per runtime."""
    for name in names("runtimes"):
        try:
            check("runtimes", name)
        except UsageError as error:
            yield str(error)


def restored(node: Node) -> Node:
    """Return a node from a stored run, with settings of its runtime's own class."""
    hardware = node.hardware
    if not isinstance(hardware.settings, Stored):
        return node
    return replace(node, hardware=replace(hardware, settings=runtime_of(hardware.runtime).settings_of(hardware)))


def by_runtime(nodes: Sequence[Node]) -> Iterator[tuple[type[NodeProvider], list[Node]]]:
    """Return each runtime that nodes are of, in their order, with its nodes."""
    for name in dict.fromkeys(node.hardware.runtime for node in nodes):
        yield runtime_of(name), [node for node in nodes if node.hardware.runtime == name]


def conflict(kinds: Sequence[Hardware], *, launcher: bool = False) -> str:
    """Return why a runtime cannot make its nodes of a placement together; `launcher`: the last one has no ranks."""
    for name in dict.fromkeys(kind.runtime for kind in kinds):
        theirs = [kind for kind in kinds if kind.runtime == name]
        if why := runtime_of(name).conflict(theirs, launcher=launcher and kinds[-1].runtime == name):
            return why
    return ""


def loss_of(key: str) -> Loss | None:
    """Return the loss for a signature's key (`WHAT@RUNTIME`); None for any other key."""
    name = key.rpartition("@")[2]
    return runtime_of(name).losses.get(key) if name in names("runtimes") else None
