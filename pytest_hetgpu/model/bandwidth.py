"""Bandwidth measurements between nodes. `outcome.LinkBandwidth` is the bound derived from them."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_hetgpu.model.outcome import LinkBandwidth


@dataclass(frozen=True, slots=True)
class Flow:
    """A transfer from `sender` to `receiver` over parallel TCP connections, one process per connection.

    Attributes:
        streams: number of connections.
        gbs: received data in 1e9 bytes per second, one value per interval.
        core: largest share of one core that a connection's process used.
        machine: share of all cores in use on the busier node.

    """

    sender: str
    receiver: str
    streams: int
    gbs: tuple[float, ...]
    core: float = 0.0
    machine: float = 0.0

    @property
    def median(self) -> float:
        """Return the median of the intervals; 0 if there is none."""
        ordered = sorted(self.gbs)
        # The import of `statistics` would cost every session 5 ms.
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else 0.0


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """A measurement between two nodes.

    Attributes:
        tool: program that moved the data.
        address: address of the second node.
        rtt: median round trip of 8 bytes in us.
        least_rtt: shortest round trip in us.
        loopback: both nodes share one network stack, that of one kernel.
        aside: reason why another tool was not used.
        why: error; flows may be missing then.

    """

    nodes: tuple[str, str]
    tool: str = ""
    address: str = ""
    flows: tuple[Flow, ...] = ()
    rtt: float | None = None
    least_rtt: float | None = None
    loopback: bool = False
    aside: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class LineRate:
    """The nominal rate of a node's adapter: `gbps` in 1e9 bit/s of data, `source` like `rate of mlx5_0:1`."""

    node: str
    gbps: float
    source: str


@dataclass(frozen=True, slots=True)
class LinkReport:
    """All bandwidth measurements of one placement, and the `seconds` that they took."""

    limit: LinkBandwidth
    pairs: tuple[LinkMeasurement, ...] = ()
    rated: tuple[LineRate, ...] = ()
    seconds: float = 0.0
