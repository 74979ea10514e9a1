"""The processes of one job, from its launcher to the last orphan, and how they are stopped.

Ranks make process groups of their own, daemons leave the session, their parents die: no single mark holds them all. A
process belongs to a job if it descends from the launcher, or is in the launcher's session. It also belongs to the job
if its environment carries the job's label. An orphan that this process adopted while the job ran belongs to the job,
too. The exception is an orphan that other code here may have started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_hetgpu.extensions.runtimes.process.kernel import children, custody, still_running
from pytest_hetgpu.extensions.runtimes.process.ledger import marked, tracker

if TYPE_CHECKING:
    import psutil

LABEL = "HETGPU_JOB"

_LINGER = 0.25  # seconds in which the launcher's leftovers may end by themselves
_KILL_LIMIT = 10.0  # seconds after which a process that survives even KILL is given up


class Tree:
    """One job's processes. `env` is the environment of its launcher, plus the label (a random hex word)."""

    def __init__(self, env: Mapping[str, str], word: str) -> None:
        tracker().processes()
        outer = env.get(LABEL)
        self.env = {**marked(env), LABEL: f"{outer}/{word}" if outer else word}
        self.survivors: dict[int, str] = {}
        self._word = word
        self._inherited = {name: value for name, value in env.items() if os.environ.get(name) == value}
        self._earlier = children()
        self._launcher: subprocess.Popen[bytes] | None = None

    def launch(self, argv: Sequence[str], sink: int) -> None:
        """Start the launcher, printing to the file descriptor `sink`; raise the errors of Popen."""
        with custody.lock:
            self._launcher = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=self.env, start_new_session=True
            )
            custody.launchers.add(self._launcher.pid)

    def wait(self, seconds: float) -> bool:
        """Block until the launcher has ended or `seconds` have passed; return whether it ended."""
        return not still_running(self._launchers(), seconds)

    def pids(self) -> set[int]:
        """Return the pids of the job's running processes."""
        return set(self._left())

    def clear(self, grace: float) -> int | None:
        """Stop and reap all processes of the job; return the launcher's return code (None: another process reaped it).

        A running launcher gets TERM first and has `grace` seconds to clean up. Then the rest gets TERM and has half of
        that. After a KeyboardInterrupt, this waits for nothing more and sends KILL at once.
        """
        gently = True
        while True:
            try:
                if not self._is_clear():
                    self._stop(grace, gently)
                return self._reap_launcher()
            except KeyboardInterrupt:
                gently = False

    def _launchers(self) -> set[int]:
        return {self._launcher.pid} if self._launcher else set()

    def _is_clear(self) -> bool:
        """Return whether no process can be left, by the list of this process's children alone."""
        launcher = self._launchers()
        return custody.gathers_orphans and children() - self._earlier <= launcher and not still_running(launcher, 0)

    def _stop(self, grace: float, gently: bool) -> None:
        launcher = self._launchers()
        if gently and still_running(launcher, 0):
            _signal((process for pid, process in self._left().items() if pid in launcher), signal.SIGTERM)
            still_running(launcher, grace)
        else:
            still_running(set(self._left()) - launcher, _LINGER if gently else 0)
        left = self._left()
        self._note(left)
        if gently:
            _signal(left.values(), signal.SIGTERM)
            still_running(left, grace / 2)
        self._kill()

    def _kill(self) -> None:
        deadline = time.monotonic() + _KILL_LIMIT
        others: frozenset[int] | None = None
        while True:
            left, fallen = self._left(), children() - self._earlier - self._launchers()
            # One check misses processes that fork meanwhile. Only children that are still there at the next check are
            # foreign.
            if not left and (not fallen or fallen == others):
                return
            others = fallen
            if time.monotonic() > deadline:
                self.survivors |= {pid: f"{_name(left[pid])}, which KILL did not end" for pid in left}
                return
            self._note(left)
            _signal(left.values(), signal.SIGKILL)
            still_running(left, deadline - time.monotonic())

    def _note(self, left: Mapping[int, psutil.Process]) -> None:
        for pid in left.keys() - self._launchers() - self.survivors.keys():
            self.survivors[pid] = _name(left[pid])

    def _left(self) -> dict[int, psutil.Process]:
        """Return the job's processes that still run, with the launcher, by pid; reap orphans that ended."""
        members = self._members()
        running = still_running(members, 0)
        for pid in members.keys() - running - self._launchers():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return {pid: process for pid, process in members.items() if pid in running}

    def _members(self) -> dict[int, psutil.Process]:
        table = _processes()
        offspring: dict[int, list[int]] = {}
        for pid, (_, parent) in table.items():
            offspring.setdefault(parent, []).append(pid)
        found = [pid for pid, (process, parent) in table.items() if self._is_marked(process, parent)]
        members: dict[int, psutil.Process] = {}
        while found:
            pid = found.pop()
            if pid not in members:
                members[pid] = table[pid][0]
                found += offspring.get(pid, ())
        return members

    def _is_marked(self, process: psutil.Process, parent: int) -> bool:
        launcher = self._launchers()
        session = _session(process.pid)
        if process.pid in launcher or session in launcher:
            return True
        env = _environment(process)
        if LABEL in env:
            return self._word in env[LABEL].split("/")
        return parent == os.getpid() and not self._is_of_others(process.pid, session, env)

    def _is_of_others(self, pid: int, session: int | None, env: Mapping[str, str]) -> bool:
        """Return whether a child without the label (it ended, or wiped its environment) is no orphan of this job."""
        with custody.lock:
            if pid in custody.launchers or pid in self._earlier:
                return True
        # A job's processes begin outside this session and cannot come back to it.
        return session in (None, os.getsid(0)) or self._inherited.items() <= env.items()

    def _reap_launcher(self) -> int | None:
        """Reap by waitpid, not Popen.wait: if other code has reaped it, Popen returns 0."""
        if self._launcher is None:
            return None
        code = None
        with custody.lock, suppress(ChildProcessError):
            pid, status = os.waitpid(self._launcher.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
        custody.launchers.discard(self._launcher.pid)
        self._launcher.returncode = code or 0  # read by no code; without it Popen would look for the process again
        return code


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal; with TERM also CONT, because a stopped process reacts only to KILL."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
            if number == signal.SIGTERM:
                process.send_signal(signal.SIGCONT)


def _processes() -> dict[int, tuple[psutil.Process, int]]:
    """Return all processes of this machine, each with its parent's pid."""
    import psutil

    table: dict[int, tuple[psutil.Process, int]] = {}
    for pid in psutil.pids():
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            table[pid] = (process, process.ppid())
    return table


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it ended, or access is denied."""
    import psutil

    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _name(process: psutil.Process) -> str:
    import psutil

    try:
        return f"{process.name()} ({process.pid})"
    except psutil.Error:
        return f"({process.pid})"
