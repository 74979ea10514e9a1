"""What was found of the way between nodes, number by number; the limit made of it is `evidence.Wire`."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_hetgpu.model.outcome import LinkBandwidth


@dataclass(frozen=True, slots=True)
class Flow:
    """Data from `sender` to `receiver` over so many TCP connections at once, a process each.

    `gbs` is what the receiver got, 1e9 bytes a second, in intervals one after another. `core` is the largest share of
    a core that a connection's process had, `machine` the share of all cores that was in use on the busier node.
    """

    sender: str
    receiver: str
    streams: int
    gbs: tuple[float, ...]
    core: float = 0.0
    machine: float = 0.0

    @property
    def median(self) -> float:
        """Of the intervals; 0 where there is none."""
        ordered = sorted(self.gbs)
        # Not of the library: it takes 5 ms to import, at the start of every session.
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else 0.0


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """Two nodes between which data was moved: by which `tool`, to which `address` of the second.

    `rtt` and `least_rtt` are round trips of 8 bytes in us, median and least. `loopback`: both have one network, that of
    one kernel. `aside` is why another tool was not used; `why` is what went wrong: then flows may be missing.
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
    """What a node's adapter says that it can do: `gbps` in 1e9 bit/s of data, `source` as `rate of mlx5_0:1`."""

    node: str
    gbps: float
    source: str


@dataclass(frozen=True, slots=True)
class LinkReport:
    """All of it for one placement, and the `seconds` that it took."""

    limit: LinkBandwidth
    pairs: tuple[LinkMeasurement, ...] = ()
    rated: tuple[LineRate, ...] = ()
    seconds: float = 0.0
