"""A send from memory that the host may not read, like device memory without Large BAR."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pytest_hetgpu.extensions.workloads.base import Sizes, SweepSettings, SweepWorkload


class GuardedSendSettings(SweepSettings):
    """One small message by default: short messages are the ones a CPU copies itself."""

    sizes: Sizes = (64,)
    memory: Literal["guarded"] = "guarded"
    iterations: Annotated[int, Field(ge=1)] = 1
    warmup: Annotated[int, Field(ge=0)] = 0
    repeats: Annotated[int, Field(ge=1, le=1)] = 1


class GuardedSend(SweepWorkload):
    """Even ranks send from pages protected against reading; checked, not timed."""

    Settings = GuardedSendSettings
    operation = "guarded_send"
    torch = False
    measured = False
    paired = True
