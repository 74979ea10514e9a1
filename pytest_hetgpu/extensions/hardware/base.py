"""What every platform file says."""

from __future__ import annotations

from typing import ClassVar

from pytest_hetgpu.model.job import ContainerOptions


class Platform:
    """One kind of accelerator. `devices` are the paths of which a node with a usable one has all.

    `container` is what a container needs to use it; nothing that a plain CPU does not need is in the default.
    """

    devices: ClassVar[tuple[str, ...]] = ()
    hint: ClassVar[str] = ""
    container: ClassVar[ContainerOptions] = ContainerOptions()
