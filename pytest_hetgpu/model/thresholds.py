"""The nouns of speed: what the matrix expects of a cell, and what each of a run's points is held against. Pure.

A share is written 0.1 for 10 %; bandwidths are in GB/s (1e9 B/s), latencies in us, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TOLERANCE = 0.1
"""What a number may be worse than it is expected to be, where the matrix says nothing else."""
BANDWIDTHS = ("busbw", "algbw")
SPEEDS = ("fabric", "wire")
"""What a fraction may be of besides another cell."""


@dataclass(frozen=True, slots=True)
class PerformanceReference:
    """What the matrix expects of a cell's speed; `origin` is where it stands, `FILE:LINE`.

    Either `numbers` of a `metric` by size (0: every size), or a `fraction` of something's speed: `of` is one of
    `SPEEDS`, or `cell` for the cell of this matrix whose id is `cell`. It concerns sizes from `min_size` on.
    """

    origin: str
    metric: str = ""
    numbers: Mapping[int, float] = field(default_factory=dict)
    of: str = ""
    cell: str = ""
    fraction: float = 1.0
    min_size: int = 0
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True)
class Threshold:
    """What the times of one point are held against: `seconds` of one operation, one number or several measured ones.

    They may be worse by `tolerance`: less bandwidth, more latency, as the `metric` says that it is told in. `source`
    says where it comes from, `tool` which program measured it, with its version, where that is not ours. Without
    seconds nothing can be told, for the reason `lacks`; a run that is `owed` the comparison has not passed then.
    """

    metric: str
    source: str
    seconds: tuple[float, ...] = ()
    tolerance: float = TOLERANCE
    lacks: str = ""
    owed: bool = True
    tool: str = ""

    def worst(self, seconds: float) -> float:
        """The longest time that is still within the tolerance of `seconds`."""
        if self.metric in BANDWIDTHS:
            return seconds / (1 - self.tolerance)
        return seconds * (1 + self.tolerance)
