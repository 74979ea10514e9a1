"""The interface of platforms."""

from __future__ import annotations

from typing import ClassVar

from pytest_hetgpu.model.job import ContainerOptions


class Platform:
    """One kind of accelerator. A node with a usable one has all paths in `devices`.

    `container` holds the options that a container needs to use it. A plain CPU needs none.
    """

    devices: ClassVar[tuple[str, ...]] = ()
    hint: ClassVar[str] = ""
    container: ClassVar[ContainerOptions] = ContainerOptions()
