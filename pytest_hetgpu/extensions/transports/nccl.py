"""nccl: torch.distributed over NCCL, or over RCCL in a build of PyTorch for ROCm, which has the same name.

Their log at NCCL_DEBUG=INFO, with the subsystem INIT:

    NCCL INFO Using network Socket                                    (src/net.cc: the chosen plugin)
    NCCL INFO comm 0x3a9eba20 rank 0 nRanks 1 nNodes 1 ...            (src/init.cc)
    NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM               (src/transport/p2p.cc)
    NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct         (src/transport/shm.cc)
    NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0      (src/transport/net.cc)
    NCCL version 2.21.5+cuda12.4                                      (src/init.cc)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator

from pytest_hetgpu.extensions.transports import _torch
from pytest_hetgpu.extensions.transports.base import Rendering, Transport, TransportParser, TransportSettings
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Node, Stack
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.transport_classes import (
    OFF_HOST,
    ON_HOST,
    RDMA,
    TCP,
    UNKNOWN,
    Connection,
    RequiredClass,
    TransportMember,
    connection,
)

_CHANNEL = re.compile(
    r"(?:([\w.-]+):\d+:\d+ \[\w+\] NCCL INFO )?"
    r"\bChannel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[(\w+)\])? via (\w+)(?:/([\w .-]+))?"
)
_MOST_PAIRS = 100_000
_NETWORK = re.compile(r"\bUsing network ([\w.-]+(?: [\w.-]+)*)")
_SIZE = re.compile(r"\bcomm 0x\w+ rank \d+ n[rR]anks (\d{1,9})\b")
_NET = re.compile(r"[A-Za-z0-9_.-]+(?: [A-Za-z0-9_.-]+)*")
_VERSION = re.compile(r"\b([NR]CCL) version ?:? ?(\d+\.\d+\.\d+)")


def _net(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _NET.fullmatch(value)):
        raise ValueError(f"{show(value)} is no network's name (Socket, IB, AWS Libfabric, ...)")
    return value


class NcclSettings(TransportSettings):
    """`net`: the network to use between nodes, as NCCL_NET names it (Socket, IB, a plugin's); `netdev`: for sockets."""

    net: Annotated[str | None, BeforeValidator(_net, json_schema_input_type=str | None)] = None
    netdev: str | None = None


class NcclChannels:
    """How the channels of all ranks go; before there is one, the network that was chosen.

    NCCL chooses a network for a rank alone too, and sends nothing over it.
    """

    triggers = (b" via ", b"Using network ", b"CCL version", b" nranks ", b" nRanks ")

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], set[str]] = {}
        self._hosts: dict[int, set[str]] = {}
        self._chosen: set[str] = set()
        self._sizes: set[int] = set()
        self.versions: dict[str, str] = {}

    def feed(self, line: str, number: int) -> None:
        """Read a line of NCCL."""
        if channel := _CHANNEL.search(line):
            self._take(channel)
        elif network := _NETWORK.search(line):
            self._chosen.add(f"nccl/{network[1].lower().replace(' ', '-')}")
        elif size := _SIZE.search(line):
            self._sizes.add(min(int(size[1]), 2))
        elif version := _VERSION.search(line):
            self.versions.setdefault(version[1].lower(), version[2])

    def _take(self, channel: re.Match[str]) -> None:
        over, by = channel[5].lower(), (channel[6] or "").lower()
        pair = int(channel[2]), int(channel[3])
        if pair not in self._pairs and len(self._pairs) >= _MOST_PAIRS:
            pair = (-1, -1)
        self._pairs.setdefault(pair, set()).add(f"nccl/{by if over == 'net' and by else over}".replace(" ", "-"))
        if channel[1]:
            # Both ends of a network connection log it. The receiver's line has that word.
            self._hosts.setdefault(pair[channel[4] == "receive"], set()).add(channel[1])

    @property
    def _network(self) -> set[str]:
        return set() if self._sizes == {1} else self._chosen

    @property
    def transports(self) -> tuple[str, ...]:
        """Return `nccl/p2p`, `nccl/shm`, `nccl/socket`, `nccl/ib`, sorted."""
        return tuple(sorted(set().union(*self._pairs.values()) or self._network))

    @property
    def connections(self) -> frozenset[Connection]:
        """Return the channels by path, as far as the log names the hosts of both ranks."""
        if self._network and not self._pairs:
            return frozenset({connection(UNKNOWN, self._network)})
        return frozenset(connection(self._path(pair), seen) for pair, seen in self._pairs.items())

    def _path(self, pair: tuple[int, int]) -> str:
        # Each communicator numbers its ranks from 0, so a number may mean several hosts.
        hosts = [self._hosts.get(rank, set()) for rank in pair]
        if any(len(each) != 1 for each in hosts):
            return UNKNOWN
        return ON_HOST if hosts[0] == hosts[1] else OFF_HOST


class Nccl(Transport):
    """The backend nccl; proven by the channels that its log shows. HCA and GID are the fabric's to name."""

    Settings = NcclSettings
    settings: NcclSettings
    vendors = _torch.VENDORS
    backend = "nccl"

    def render(self, node: Node, stack: Stack) -> Rendering:
        device = None if self._all_of(node) else self.interface(node)
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
        env |= {self.interface_setting: device.name} if device and device.name else {}
        env |= {"NCCL_NET": self.settings.net} if self.settings.net else {}
        return Rendering(env=env)

    def _all_of(self, node: Node) -> bool:
        """Return whether Slingshot's own setting names all its interfaces, which sockets use together."""
        own = self.settings.netdev is None and self.interface_setting not in node.hardware.env
        return own and node.hardware.fabric.kind == "slingshot"

    @property
    def interface_setting(self) -> str:
        return "NCCL_SOCKET_IFNAME"

    def interface(self, node: Node) -> InterfaceChoice:
        if self._all_of(node):
            return InterfaceChoice("hsn", "all whose names begin with it, as fabric slingshot has it")
        return _torch.netdev(node, self.settings.netdev, self.interface_setting)

    def verbose(self, stack: Stack) -> Rendering:
        return Rendering(env={"NCCL_DEBUG_SUBSYS": "ALL", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"})

    def components(self) -> tuple[str, ...]:
        net = self.settings.net
        return ("nccl/p2p", "nccl/shm", f"nccl/{net.lower().replace(' ', '-')}") if net else ("nccl/*",)

    def members(self) -> tuple[TransportMember, ...]:
        """Return the requested network; on one host NCCL may bypass it."""
        net = self.settings.net
        return (TransportMember(net, TCP if net == "Socket" else RDMA, self.components()[2:]),) if net else ()

    def required_classes(self, paths: Iterable[str]) -> dict[str, RequiredClass]:
        return super().required_classes(path for path in paths if path == OFF_HOST)

    @staticmethod
    def parser() -> TransportParser:
        return NcclChannels()
