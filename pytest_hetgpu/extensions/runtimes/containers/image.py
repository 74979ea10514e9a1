"""The image of a kind of hardware: built from an existing folder, or a reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import DOCKERFILE, reference
from pytest_hetgpu.model.job import Hardware, Image


def image_of(kind: Hardware, places: Iterable[Path], build: tuple[Mapping[str, str], str]) -> Image:
    """Return the image of a folder with a Dockerfile, searched for like a matrix; else of a reference.

    `build` are the arguments and the network from the inventory. Raise UsageError for a missing folder.
    """
    wanted = kind.image or ""
    folder = next((place / wanted for place in places if (place / wanted / DOCKERFILE).is_file()), None)
    if folder is None:
        if wanted.startswith(("containers/", "/")):
            looked = ", ".join(dict.fromkeys(str(place / wanted) for place in places))
            raise UsageError(f"{wanted!r} is no folder with a {DOCKERFILE} (looked for {looked})")
        return Image(wanted)
    args, network = build
    args = {**kind.build_args, **args}
    path = str(folder.resolve())
    return Image(reference(path, args), path, args, network or kind.build_network)
