"""The time that a whole run may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

OPTION = "--hetgpu-budget"


@dataclass(frozen=True, slots=True)
class Budget:
    """`seconds` for a run, spent at `deadline` by the monotonic clock, which all processes of a machine share.

    No change of the time of day reaches it.
    """

    seconds: float = math.inf
    deadline: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Budget:
        """Return a budget that begins now; None: no limit."""
        return cls() if seconds is None else cls(seconds, clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.deadline - self.clock()) if math.isfinite(self.deadline) else math.inf

    @property
    def spent(self) -> str:
        """The reason why nothing more is started; an empty text while there is time left."""
        return "" if self.left else self.why

    @property
    def why(self) -> str:
        """The text for a cell that the end of the budget reached."""
        return f"the run's time was spent ({OPTION} {self.seconds:g})"


UNLIMITED = Budget()
