"""gloo: torch.distributed over Gloo's TCP connections."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.transports import _torch
from pytest_hetgpu.extensions.transports.base import (
    Interfaces,
    Rendering,
    Transport,
    TransportParser,
    TransportSettings,
)
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.transport_classes import TCP, Connection, TransportMember


class GlooSettings(TransportSettings):
    """`netdev`: the interface."""

    netdev: Interfaces = None


class AssumedTransport:
    """A parser without lines: Gloo logs no connections. Each rank inspects its own sockets, and reports them."""

    triggers: tuple[bytes, ...] = ()
    transports: tuple[str, ...] = ()
    connections: tuple[Connection, ...] = ()
    versions: Mapping[str, str] = {}

    def feed(self, line: str, number: int) -> None:
        """Ignore the line."""


class Gloo(Transport):
    """The backend gloo. Left to itself it takes the interface that the host's own name leads to, often a wrong one.

    GLOO_SOCKET_IFNAME: https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables.
    """

    Settings = GlooSettings
    settings: GlooSettings
    vendors = _torch.VENDORS
    backend = "gloo"

    def render(self, node: Node, stack: Stack) -> Rendering:
        device = self.interface(node)
        return Rendering(env={self.interface_setting: device.name} if device.name else {})

    @property
    def interface_setting(self) -> str:
        return "GLOO_SOCKET_IFNAME"

    def interface(self, node: Node) -> InterfaceChoice:
        return _torch.netdev(node, self.settings.netdev, self.interface_setting)

    def verbose(self, stack: Stack) -> Rendering:
        return Rendering(env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"})

    def components(self) -> tuple[str, ...]:
        return ("gloo/tcp",)

    def members(self) -> tuple[TransportMember, ...]:
        return (TransportMember("gloo", TCP, self.components()),)

    @staticmethod
    def parser() -> TransportParser:
        return AssumedTransport()
