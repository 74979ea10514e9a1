"""Settings of a runtime, as a stored job has them."""

from __future__ import annotations

from pytest_hetgpu.extensions.runtimes.base import NodeProvider
from pytest_hetgpu.extensions.shapes import Shape, Text
from pytest_hetgpu.model.job import Hardware
from pytest_hetgpu.model.stored import Stored


class Site(Shape):
    region: Text = "x"


class OfSites(NodeProvider):
    """A runtime that has settings in inventories alone."""

    site_settings = Site


def test_settings_of_a_site_alone_are_read_back() -> None:
    given = OfSites.with_site(None, Site(region="eu"))
    hardware = Hardware("h", settings=Stored("settings", {"region": "eu"}))
    assert OfSites.settings_of(hardware) == given
