"""Files with the values of variables, which no command line may show. Only this user can read them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import RemoteNode


@contextmanager
def file_here(content: bytes) -> Iterator[str]:
    """Keep a file (mode 0600) on this machine inside the context, and yield its path."""
    with tempfile.NamedTemporaryFile(prefix="hetgpu-") as file:
        file.write(content)
        file.flush()
        yield file.name


@contextmanager
def file_on(node: RemoteNode, content: bytes) -> Iterator[str]:
    """Keep a file (mode 0600) on a node inside the context, and yield its path."""
    with files_on([node], {"inspected": content}):
        yield f"{node.folder}/inspected"


@contextmanager
def files_on(nodes: Sequence[RemoteNode], files: Mapping[str, bytes]) -> Iterator[None]:
    """Keep files (mode 0600) in the folders of nodes inside the context, by name.

    Raises:
        ProvisionError: A node cannot write them.

    """
    nodes = nodes if files else ()
    try:
        for node in nodes:
            node.put(files)
        yield
    finally:
        for node in nodes:
            with suppress(ProvisionError):
                node.exec(("rm", "-f", *(f"{node.folder}/{name}" for name in files)))
