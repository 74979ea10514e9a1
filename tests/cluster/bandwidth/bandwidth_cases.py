"""Jobs, nodes and answers that the tests of the link are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import CommandResult, OnTimeout, RemoteNode, SshServer, ignore
from pytest_hetgpu.model.bandwidth import Flow
from pytest_hetgpu.model.job import Command, ContainerOptions, Fabric, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.outcome import RunResult

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "", "mpirun", "python3")
SERVED = {"address": "10.0.0.2", "port": 4711, "place": "b"}
TCP = Fabric()
MEASURED: dict[str, Any] = {
    "tool": "pump 1",
    "place": "a",
    "rtt": {"median": 40e-6, "least": 30e-6},
    "flows": [
        {"way": "there", "streams": 1, "rates": [1e9, 3e9, 2e9], "core": 0.5, "machine": 0.25},
        {"way": "back", "streams": 1, "rates": [1.5e9] * 3, "core": 0.5, "machine": 0.25},
        {"way": "there", "streams": 4, "rates": [1e9] * 3, "core": 0.2, "machine": 0.75},
        {"way": "back", "streams": 4, "rates": [1.75e9] * 3, "core": 0.2, "machine": 0.75},
    ],
}


def node(index: int, host: str = "", *, network: str = "", fabric: Fabric = TCP) -> Node:
    """Make a node on a host of its own, or a container with this network."""
    container = ContainerOptions(network=network) if network else None
    hardware = Hardware("box", fabric=fabric, runtime="docker" if network else "ssh")
    return Node(index, hardware, host or f"10.0.0.{index + 1}", 1, f"node{index}", STACK, container=container)


def job(*nodes: Node, rdma: bool = False, operation: str = "allreduce", placement: str = "two") -> Job:
    demand = Requirements(len(nodes), STACK, "ob1", (), (), operation, rdma=rdma)
    return Job("m", "s", "s", {"placement": placement}, nodes, Command(("mpirun",)), 9.0, demand)


def flow(sender: int, receiver: int, *gbs: float, streams: int = 1, **load: float) -> Flow:
    return Flow(f"node{sender}", f"node{receiver}", streams, gbs, **load)


Says = Callable[[Mapping[str, Any]], Mapping[str, Any] | Exception | bytes]


class FakeMember(RemoteNode):
    """A node whose pump answers with the result of `says` for a request: an object, raw bytes, or a raised error."""

    def __init__(self, index: int, says: Says) -> None:
        self.folder, self.uid = f"/tmp/f{index}", 0
        self.index, self.says = index, says
        self.asked: list[dict[str, Any]] = []
        self.argv: list[tuple[str, ...]] = []
        self.swept = 0
        self.gone: str | None = None
        self.returncode = 0

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        raise AssertionError

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        raise AssertionError

    def interfaces(self) -> tuple[str, ...]:
        raise AssertionError

    def host(self) -> Any:
        raise AssertionError

    def key(self) -> str:
        raise AssertionError

    def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        request = json.loads(stdin)
        assert timeout > request["limit"]
        self.asked.append(request)
        self.argv.append(tuple(argv))
        said = self.says(request)
        if isinstance(said, Exception):
            raise said
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        return CommandResult(self.returncode, text, b"Traceback\nImportError: no pump\n" if self.returncode else b"")

    def put(self, files: Mapping[str, bytes]) -> None:
        raise AssertionError

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        raise AssertionError

    def start_sshd(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        raise AssertionError

    def sshd_log(self) -> tuple[str, ...]:
        raise AssertionError

    def sweep(self) -> tuple[str, ...]:
        self.swept += 1
        if self.gone:
            raise ProvisionError(f"node{self.index}", self.gone)
        return ()

    def lost(self) -> str | None:
        return self.gone

    def close(self) -> None:
        raise AssertionError


def good(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer of a node without errors."""
    return SERVED if request["do"] == "serve" else MEASURED
