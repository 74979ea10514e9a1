"""The record of everything that this process starts, so that a watchdog can remove it after this process was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

LABEL = "hetgpu.label"
VARIABLE = "HETGPU_OWNER"
OWNER_FILE = ".owner"


class ResourceTracker:
    """A tracker that records nothing. Callers call each method before they create anything at that location."""

    label = ""
    """The label of everything that is made; "" for none."""

    shared = ""
    """The label of objects that all processes of a run share; their maker may end before the others."""

    def processes(self) -> None:
        """Record that processes of this machine are about to be started."""

    def host(self, host: str, reach: ConnectionInfo) -> Callable[[], None]:
        """Record that an agent is about to start on a host; call the result when it has ended by itself."""
        return lambda: None

    def place(self, spot: Location, *, once: bool = False) -> Callable[[], None]:
        """Record that something is about to be created at a location; call the result after its removal.

        `once`: do not record a known location again.
        """
        return lambda: None

    def cleared(self, spot: Location) -> None:
        """Record that nothing with this run's label is at a location any more."""


def marked(env: Mapping[str, str], label: str = "") -> dict[str, str]:
    """Return the environment of a process of this machine, with that label, else the tracker's if it has one."""
    label = label or tracker().label
    return {**env, VARIABLE: label} if label else dict(env)


class _Kept:
    tracker = ResourceTracker()


def use_tracker(tracker: ResourceTracker) -> None:
    """Send all later records to this tracker."""
    _Kept.tracker = tracker


def tracker() -> ResourceTracker:
    """Return the tracker that gets the records."""
    return _Kept.tracker
