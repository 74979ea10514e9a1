"""Whoever keeps account of what this process starts, so that somebody can remove it should we be killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

LABEL = "hetgpu.label"
VARIABLE = "HETGPU_OWNER"
OWNER_FILE = ".owner"


class ResourceTracker:
    """Keeps none. Each method is called before anything is made at that place."""

    label = ""
    """The text that everything made carries; "" where nothing is to carry one."""

    shared = ""
    """The same for what all processes of a run use, and whoever made it may end before the others."""

    def processes(self) -> None:
        """Record that processes of this machine are about to be started."""

    def host(self, host: str, reach: ConnectionInfo) -> Callable[[], None]:
        """Record that an agent is about to be started on a host; call the result when it has ended by itself."""
        return lambda: None

    def place(self, spot: Location, *, once: bool = False) -> Callable[[], None]:
        """Something is about to be made at a spot; call what this gives when it is gone.

        `once`: a spot that is known already is not written down again.
        """
        return lambda: None

    def cleared(self, spot: Location) -> None:
        """Nothing with our label is at a spot any more."""


def marked(env: Mapping[str, str], label: str = "") -> dict[str, str]:
    """Return the environment of a process of this machine, with that label, else ours if there is one."""
    label = label or tracker().label
    return {**env, VARIABLE: label} if label else dict(env)


class _Kept:
    tracker = ResourceTracker()


def use_tracker(tracker: ResourceTracker) -> None:
    """From now on everything is told to the tracker."""
    _Kept.tracker = tracker


def tracker() -> ResourceTracker:
    """Who is to be told."""
    return _Kept.tracker
