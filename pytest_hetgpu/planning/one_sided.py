"""The settings and requirements of one-sided communication (MPI windows) in a cell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.config.matrix.matrix import CellSettings
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import Node, RankContext, Stack
from pytest_hetgpu.model.transport_classes import OneSided


def with_windows(rendered: Rendering, settings: CellSettings, stack: Stack, work: Workload) -> Rendering:
    """Add the settings of windows to those of the transport, for a program that may use windows."""
    windows = settings.transport.one_sided(stack, benchmark=bool(work.one_sided))
    if windows is None:
        return rendered
    return Rendering({**rendered.mca, **windows[0].mca}, {**rendered.env, **windows[0].env})


def requirements(
    settings: CellSettings,
    nodes: Sequence[Node],
    contexts: Sequence[RankContext],
    mca: Mapping[str, str],
    work: Workload,
) -> OneSided | None:
    """Return the requirements for windows; None if the transport pins none.

    Windows are pinned if the job still has every setting of the pin after those of the matrix.
    """
    benchmark = bool(work.one_sided)
    pins = [settings.transport.one_sided(node.stack, benchmark=True) for node in nodes if node.stack]
    asked = [settings.transport.one_sided(node.stack, benchmark) for node in nodes if node.stack]
    found = next(filter(None, asked), None)
    if found is None:
        return None
    in_force = all(one and one[1].pinned and _holds(one[0], context, mca) for one in pins for context in contexts)
    return replace(found[1], pinned=in_force, logged=all(one and one[1].logged for one in asked))


def _holds(pin: Rendering, context: RankContext, mca: Mapping[str, str]) -> bool:
    """Return whether a context runs with these settings. A parameter of the command line precedes a variable."""
    parameters = (mca.get(name, context.env.get(f"OMPI_MCA_{name}")) == value for name, value in pin.mca.items())
    return all(parameters) and all(context.env.get(name) == value for name, value in pin.env.items())
