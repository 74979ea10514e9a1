"""Requests to `remote/tcp_probe.py` on each node, and its answers. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_hetgpu.cluster.bandwidth.pairs import NodePair, name_of
from pytest_hetgpu.model.bandwidth import Flow, LinkMeasurement
from pytest_hetgpu.model.job import Node
from pytest_hetgpu.planning.placement import address
from pytest_hetgpu.store.encode import RecordError, from_json

STREAMS = (1, 4)
WARM = 0.1  # seconds, before each measurement
INTERVALS = 5
START = 20.0  # seconds for an interpreter on a slow file system, and for unanswered connections
_GIGA, _MICRO = 1e9, 1e6
_FIREWALL = "a firewall or security group must let every TCP port through between the nodes"
_HINTS: Mapping[str, str] = {"timed out": _FIREWALL, "refused": _FIREWALL, "No route": "no route between them"}


class UnreadableAnswer(Exception):
    """An answer that cannot be parsed; its argument is the reason."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address that the second node listens on, or the `error` that prevents it."""

    address: str = ""
    port: int = 0
    place: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One flow: `way` is `there` (to the server) or `back`, `rates` are bytes per second."""

    way: str
    streams: int
    rates: tuple[float, ...]
    core: float
    machine: float


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The round trip of a small message, in seconds."""

    median: float
    least: float


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The measurements of the first node; partial if there is an `error`."""

    tool: str = ""
    place: str = ""
    flows: tuple[Transfer, ...] = ()
    rtt: RoundTrip | None = None
    passed_over: str = ""
    error: str = ""


def deadline(seconds: float) -> float:
    """Return the seconds after which all processes of a pair have ended."""
    # iperf3 counts whole seconds. If it fails, the built-in tool measures again.
    return START + 2 * 2 * len(STREAMS) * (max(seconds, 1.0) + 2.0)


def serve_request(node: Node, token: str, seconds: float) -> dict[str, Any]:
    """Return the request to the node that listens."""
    return {"do": "serve", **_of(node), "token": token, "limit": deadline(seconds)}


def measure_request(node: Node, token: str, seconds: float, endpoint: Endpoint) -> dict[str, Any]:
    """Return the request to the node that connects; each measurement takes `seconds`."""
    plan = {"streams": list(STREAMS), "seconds": seconds, "warm": WARM, "intervals": INTERVALS, "iperf3": True}
    where = {"address": endpoint.address, "port": endpoint.port}
    return {"do": "measure", **_of(node), **plan, **where, "token": token, "limit": deadline(seconds)}


def _of(node: Node) -> dict[str, str]:
    return {"netdev": node.hardware.fabric.netdev or "", "host": address(node)}


def parse_endpoint(text: bytes) -> Endpoint:
    """Parse the output of the node that listens. Raises UnreadableAnswer, also if it does not listen."""
    found: Endpoint = _read(Endpoint, text)
    if found.error:
        raise UnreadableAnswer(found.error)
    return found


def parse_result(text: bytes) -> ProbeResult:
    """Parse the output of the node that connects. Raises UnreadableAnswer."""
    found: ProbeResult = _read(ProbeResult, text)
    numbers = [number for flow in found.flows for number in (*flow.rates, flow.core, flow.machine)]
    numbers += [found.rtt.median, found.rtt.least] if found.rtt else []
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UnreadableAnswer("a number in its answer cannot be one")
    return found


def _read(kind: type[Any], text: bytes) -> Any:
    """Parse the last line; a login shell may have printed others before."""
    lines = text.decode(errors="replace").splitlines()
    line = next((line for line in reversed(lines) if line.strip()), "")
    try:
        return from_json(kind, json.loads(line))
    except (ValueError, RecursionError, RecordError) as error:
        why = f"its answer cannot be read ({error})" if line else "it printed nothing"
        raise UnreadableAnswer(why) from None


def link_measurement(two: NodePair, where: Endpoint, found: ProbeResult) -> LinkMeasurement:
    """Return a pair's measurement for reports."""
    names = (name_of(two[0]), name_of(two[1]))
    flows = [_flow(names, moved) for moved in found.flows]
    why = found.error and f"{names[0]} to {names[1]}: {_hinted(found.error)}"
    return LinkMeasurement(
        names,
        tool=found.tool,
        address=where.address,
        flows=tuple(flows),
        rtt=found.rtt.median * _MICRO if found.rtt else None,
        least_rtt=found.rtt.least * _MICRO if found.rtt else None,
        loopback=bool(where.place) and where.place == found.place,
        aside=found.passed_over,
        why=why or ("" if flows else f"{names[0]} to {names[1]}: nothing was measured"),
    )


def _flow(names: Sequence[str], moved: Transfer) -> Flow:
    sender, receiver = names if moved.way == "there" else reversed(names)
    gbs = tuple(rate / _GIGA for rate in moved.rates)
    return Flow(sender, receiver, moved.streams, gbs, moved.core, moved.machine)


def _hinted(error: str) -> str:
    hint = next((hint for text, hint in _HINTS.items() if text in error), "")
    return f"{error} ({hint})" if hint else error
