"""No accelerator: every node can be this."""

from __future__ import annotations

from pytest_hetgpu.extensions.hardware.base import Platform


class Cpu(Platform):
    """The CPU platform: host memory only."""
