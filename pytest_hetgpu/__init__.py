"""Compatibility matrices of GPUs, transports and collectives, run by pytest.

These are the types for annotations of scenario modules. The fixtures `scenario`, `cluster` and `run` come with the
plugin. Names are imported on first use, so that pytest starts as fast with the plugin as without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pytest_hetgpu._version import __version__

if TYPE_CHECKING:
    from pytest_hetgpu.cluster.cluster import Cluster
    from pytest_hetgpu.model.failure import Signature
    from pytest_hetgpu.model.job import Scenario
    from pytest_hetgpu.model.outcome import Outcome
    from pytest_hetgpu.model.records import Measurement
    from pytest_hetgpu.model.verdict import Kind, Verdict
    from pytest_hetgpu.session.fixtures import Run


__all__ = ["Cluster", "Kind", "Measurement", "Outcome", "Run", "Scenario", "Signature", "Verdict", "__version__"]

_HOMES = {
    "Cluster": "cluster.cluster",
    "Kind": "model.job",
    "Measurement": "model.outcome",
    "Outcome": "model.outcome",
    "Run": "session.fixtures",
    "Scenario": "model.job",
    "Signature": "model.outcome",
    "Verdict": "model.job",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
