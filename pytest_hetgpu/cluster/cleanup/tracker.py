"""The ledger of this process, and a watchdog that cleans up by it if this process is killed."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pytest_hetgpu.cluster.cleanup import ledger
from pytest_hetgpu.cluster.cleanup.owner import Owner, myself
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.process.ledger import VARIABLE, ResourceTracker, tracker, use_tracker
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

_EXIT_TIMEOUT = 5.0  # seconds for a watchdog to end that is no longer needed
_MOST_RESTARTS = 100


class LedgerTracker(ResourceTracker):
    """A tracker that opens the ledger and starts the watchdog before the first resource is made.

    `keep` starts a watchdog that was killed again.
    """

    def __init__(self, owner: Owner, shared: str = "") -> None:
        self.owner = owner
        self.label = owner.text
        self.shared = shared or owner.text
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self._open: dict[int, Location] = {}
        self._count = 0
        self.trouble = ""

    def processes(self) -> None:
        if not any(location.kind == "processes" for location in tuple(self._open.values())):
            self._open_location(ledger.processes_location())

    def host(self, host: str, reach: ConnectionInfo) -> Callable[[], None]:
        return self.place(Location("host", host, reach))

    def place(self, spot: Location, *, once: bool = False) -> Callable[[], None]:
        number = self._open_location(spot, again=not once)
        return lambda: self._close_location(number)

    def cleared(self, spot: Location) -> None:
        for number in [number for number, one in self._open.items() if one == spot]:
            self._close_location(number)

    def close(self) -> None:
        """End the tracking of a run that ends by itself. Forget the resources that are removed.

        Resources that may be left stay in the ledger. The watchdog removes them after this process.
        """
        if tracker() is self:
            use_tracker(ResourceTracker())
            _Current.tracker = None
        with self._lock:
            watchdog, self._watchdog = self._watchdog, None
            if watchdog is None or self._path is None:
                return
            self._open = {number: location for number, location in self._open.items() if location.kind != "processes"}
            done = not self._open
            if done:
                self._path.unlink(missing_ok=True)
                self._path = None
        assert watchdog.stdin is not None
        with suppress(OSError):
            if done:
                watchdog.stdin.write(b"q")
            watchdog.stdin.close()
        if done:
            with suppress(subprocess.TimeoutExpired):
                watchdog.wait(_EXIT_TIMEOUT)
        else:
            watchdog.returncode = 0  # it outlives this process, and no process waits for it

    def _open_location(self, location: Location, *, again: bool = False) -> int:
        with self._lock:
            known = next((number for number, one in self._open.items() if one == location), None)
            if known is not None and not again:
                return known
            self._count += 1
            self._open[self._count] = location
            try:
                self._write(ledger.opened(self._count, location))
                if self._watchdog is None:
                    self._watchdog = self._start_watchdog()
            except (OSError, UsageError) as error:
                self._fail(error)
            return self._count

    def _fail(self, error: Exception) -> None:
        left = "its processes and containers stay until `hetgpu clean`"
        self.trouble = f"no watchdog ({error}): if this run is killed, {left}"

    def keep(self) -> None:
        """Start the watchdog again if it was killed. Any thread may call it."""
        with self._lock:
            watchdog = self._watchdog
            if watchdog is None or watchdog.poll() is None or self.restarts == _MOST_RESTARTS:
                return
            self.restarts += 1
            assert watchdog.stdin is not None
            with suppress(OSError):
                watchdog.stdin.close()
            try:
                self._watchdog = self._start_watchdog()
            except OSError as error:
                self._fail(error)

    def _close_location(self, number: int) -> None:
        with self._lock:
            if self._open.pop(number, None) is not None and self._path is not None and not self.trouble:
                self._write(ledger.closed(number))

    def _write(self, line: str) -> None:
        if self._path is None:
            self._path = ledger.home() / f"{os.getpid()}-{self.owner.token}{ledger.ENDING}"
            line = ledger.head(self.owner) + line
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def _start_watchdog(self) -> subprocess.Popen[bytes]:
        """Start the watchdog in its own session, outside the run's folders. It inherits no open file but its stdin."""
        program = Path(__file__).with_name("watchdog.py")
        command = (sys.executable, "-m", "pytest_hetgpu.cluster.cleanup", str(self._path))
        places = [str(Path(place).absolute()) for place in sys.path]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop(VARIABLE, None)
        argv = (sys.executable, "-I", "-S", str(program), self.owner.pid, self.owner.start, str(self._path), *command)
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, cwd="/", env=env, start_new_session=True
        )


class _Current:
    tracker: LedgerTracker | None = None


def track_resources(run: str, shared: str = "") -> LedgerTracker:
    """Track everything that this process starts, for a run of that name."""
    owner = myself(run)
    if _Current.tracker is None or (_Current.tracker.owner.pid, _Current.tracker.owner.run) != (owner.pid, owner.run):
        _Current.tracker = LedgerTracker(owner, shared)
        use_tracker(_Current.tracker)
        atexit.register(_Current.tracker.close)
    return _Current.tracker
