"""The names that extension packages import: base classes, what their methods take and return, and errors.

Names are imported on first use, so importing this module costs nothing. Base classes may change before 1.0; the
changelog lists changes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_hetgpu.errors import LostNode, NotHere, ProvisionError, UsageError
    from pytest_hetgpu.extensions.fabrics.base import FabricKind
    from pytest_hetgpu.extensions.hardware.base import Platform
    from pytest_hetgpu.extensions.inventories.base import Found, Listing, Source
    from pytest_hetgpu.extensions.launchers.base import Launcher, Start
    from pytest_hetgpu.extensions.probes.base import Probe
    from pytest_hetgpu.extensions.readers.base import OutputParser
    from pytest_hetgpu.extensions.runtimes.agent import reached_by
    from pytest_hetgpu.extensions.runtimes.base import Deployment, NodeProvider, RemoteNode
    from pytest_hetgpu.extensions.runtimes.traits.policy import LeaseRequest
    from pytest_hetgpu.extensions.shapes import Shape, Text
    from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority
    from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
    from pytest_hetgpu.extensions.stacks.base import Release, StackFamily
    from pytest_hetgpu.extensions.transports.base import Rendering, Transport
    from pytest_hetgpu.extensions.workloads.base import Workload
    from pytest_hetgpu.model.job import Command, Job, Node, Stack
    from pytest_hetgpu.model.verdict import Kind

__all__ = [
    "Command",
    "Deployment",
    "FabricKind",
    "FailureMatch",
    "Found",
    "Job",
    "Kind",
    "Launcher",
    "LeaseRequest",
    "Listing",
    "LogLine",
    "LogParser",
    "LostNode",
    "MatchRule",
    "Node",
    "NodeProvider",
    "NotHere",
    "OutputParser",
    "Platform",
    "Priority",
    "Probe",
    "ProvisionError",
    "Release",
    "RemoteNode",
    "Rendering",
    "RuleParser",
    "Shape",
    "Source",
    "Stack",
    "StackFamily",
    "Start",
    "Text",
    "Transport",
    "UsageError",
    "Workload",
    "reached_by",
]

_HOMES = {
    "Command": "model.job",
    "Deployment": "extensions.runtimes.base",
    "FabricKind": "extensions.fabrics.base",
    "FailureMatch": "extensions.signatures.base",
    "Found": "extensions.inventories.base",
    "Job": "model.job",
    "Kind": "model.verdict",
    "Launcher": "extensions.launchers.base",
    "LeaseRequest": "extensions.runtimes.traits.policy",
    "Listing": "extensions.inventories.base",
    "LogLine": "extensions.signatures.base",
    "LogParser": "extensions.signatures.base",
    "LostNode": "errors",
    "MatchRule": "extensions.signatures.engine.rules",
    "Node": "model.job",
    "NodeProvider": "extensions.runtimes.base",
    "NotHere": "errors",
    "OutputParser": "extensions.readers.base",
    "Platform": "extensions.hardware.base",
    "Priority": "extensions.signatures.base",
    "Probe": "extensions.probes.base",
    "ProvisionError": "errors",
    "Release": "extensions.stacks.base",
    "RemoteNode": "extensions.runtimes.base",
    "Rendering": "extensions.transports.base",
    "RuleParser": "extensions.signatures.engine.rules",
    "Shape": "extensions.shapes",
    "Source": "extensions.inventories.base",
    "Stack": "model.job",
    "StackFamily": "extensions.stacks.base",
    "Start": "extensions.launchers.base",
    "Text": "extensions.shapes",
    "Transport": "extensions.transports.base",
    "UsageError": "errors",
    "Workload": "extensions.workloads.base",
    "reached_by": "extensions.runtimes.agent",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"pytest_hetgpu.{_HOMES[name]}"), name)
