"""The interface of a transport if the matrix sets the variable or parameter itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.config.matrix.matrix import CellSettings
from pytest_hetgpu.model.interfaces import FREE, InterfaceChoice
from pytest_hetgpu.model.job import Node


def requested(settings: CellSettings, node: Node) -> InterfaceChoice | None:
    """Return the interface of a node, unless the matrix itself sets the variable or parameter for it."""
    pin, rival, options, hardware = (
        settings.transport.interface_setting,
        settings.transport.exclusion_setting,
        settings.options,
        node.hardware,
    )
    writers = {"the cell": (options.env, options.mca), hardware.name: (hardware.env, hardware.mca)}
    for writer, (env, mca) in writers.items() if pin else ():
        if value := _value_of(pin, env, mca):
            return InterfaceChoice(value, f"{pin} of {writer} names it")
        if value := _value_of(rival, env, mca):
            return InterfaceChoice("", f"{rival} of {writer} rules out {value}", FREE)
    return node.interface


def _value_of(name: str, env: Mapping[str, str], mca: Mapping[str, str]) -> str | None:
    """Return the value that a cell or hardware gives to a variable or MCA parameter."""
    return env.get(name) or env.get(f"OMPI_MCA_{name}") or mca.get(name) if name else None


def interface(settings: CellSettings, node: Node) -> InterfaceChoice | None:
    """Return the interface that the transport finally uses on a node; None if it needs none."""
    transport, given = settings.transport, {*settings.options.env, *settings.options.mca}
    pinned, matrix = transport.interface(node), node.interface
    decided = {transport.interface_setting, transport.exclusion_setting}
    return matrix if pinned and matrix and not given.isdisjoint(decided) else pinned


def merged_mca(settings: CellSettings, *layers: Mapping[str, str]) -> dict[str, str]:
    """Merge MCA parameters, later layers first. The last one of mutually exclusive parameters stays."""
    either = (
        {settings.transport.interface_setting, settings.transport.exclusion_setting}
        if settings.transport.exclusion_setting
        else set()
    )
    found: dict[str, str] = {}
    for layer in layers:
        if not either.isdisjoint(layer):
            found = {name: value for name, value in found.items() if name not in either}
        found |= layer
    return found
