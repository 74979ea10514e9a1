"""Platforms: device paths of a node, and the drivers that create them."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.hardware.base import Platform
from pytest_hetgpu.extensions.registry import find, names


@pytest.mark.parametrize("name", names("hardware"))
def test_a_platform_with_devices_says_what_brings_them(name: str) -> None:
    platform = find("hardware", name, Platform)
    assert all(device.startswith("/dev/") for device in platform.devices)
    assert bool(platform.devices) == bool(platform.hint)


def test_every_machine_has_a_cpu() -> None:
    assert find("hardware", "cpu", Platform).devices == ()


def test_the_devices_of_the_drivers() -> None:
    assert find("hardware", "cuda", Platform).devices == ("/dev/nvidiactl",)
    assert find("hardware", "rocm", Platform).devices == ("/dev/kfd", "/dev/dri")
