"""Series of nightly values, and the findings about them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class CourseShape(str, enum.Enum):
    """The course of a series over its nights."""

    STEADY = "steady"
    """One level and noise."""
    STEPS = "steps"
    """The level changed at one or more nights, and stayed."""
    DRIFT = "drift"
    """The level moves slowly, night by night."""
    TWO_LEVELS = "two levels"
    """The values alternate between two levels."""
    TOO_FEW = "too few"
    """Fewer nights than any test needs."""


@dataclass(frozen=True, slots=True)
class NightSeries:
    """Positive values of one quantity, one per night, oldest first; None for a night without a value.

    `labels` maps a fact (`host`) to its text in each night, None if unknown.
    """

    values: Sequence[float | None]
    labels: Mapping[str, Sequence[str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LevelStep:
    """One change of the level.

    Attributes:
        night: place of the first night of the new level in the series.
        before: median between the step before (or the first night) and this step.
        after: median between this step and the next one (or the last night).
        p: probability that noise alone separates the two levels as much at a given night.

    """

    night: int
    before: float
    after: float
    p: float

    @property
    def ratio(self) -> float:
        """Return the new level in units of the old one."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class LevelPair:
    """Two levels between which a series alternates.

    Attributes:
        low: median of the nights at the lower level.
        high: median of the nights at the higher level.
        share: share of the nights at the higher level.
        fact: the label that decides the level, like `host`; "" if no label does.
        at_low: values of that label at the lower level.
        at_high: values of that label at the higher level.

    """

    low: float
    high: float
    share: float
    fact: str = ""
    at_low: tuple[str, ...] = ()
    at_high: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """The course of one series.

    Attributes:
        shape: the kind of course.
        known: number of nights with a value.
        level: median since the last step, or of all nights; None without a value.
        noise: relative standard deviation between nights about the course; None if the values are too few.
        steps: the changes of the level, oldest first; only for `CourseShape.STEPS`.
        drift: end of the fitted line in units of its start; only for `CourseShape.DRIFT`.
        levels: the two levels; only for `CourseShape.TWO_LEVELS`.

    """

    shape: CourseShape
    known: int
    level: float | None = None
    noise: float | None = None
    steps: tuple[LevelStep, ...] = ()
    drift: float | None = None
    levels: LevelPair | None = None

    @property
    def name(self) -> str:
        """Return the shape in words: `two levels, by host: ci1, ci2`."""
        if self.levels and self.levels.fact:
            both = ", ".join((*self.levels.at_low, *self.levels.at_high))
            return f"{self.shape.value}, by {self.levels.fact}: {both}"
        if self.drift is not None:
            return f"{self.shape.value}, {self.drift - 1:+.1%}"
        return self.shape.value
