"""What every platform file says."""

from __future__ import annotations

from typing import ClassVar


class Platform:
    """One kind of accelerator. `devices` are the paths of which a node with a usable one has all."""

    devices: ClassVar[tuple[str, ...]] = ()
    hint: ClassVar[str] = ""
