"""Locks on other hosts. A process there holds the lock, and frees it when its pipe to this process breaks."""

from __future__ import annotations

import atexit
import json
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import HetgpuError, ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.link import BOOT
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.model.job import ConnectionInfo

_ANSWER_TIMEOUT = 30.0  # seconds for an answer of a host
_MIN_WAIT = 1.0  # seconds for an immediate answer
_HEARTBEAT = 20.0  # seconds between two heartbeats; host_lock.SILENCE is several of them
_MAX_NOISE = 64 << 10  # bytes that a login shell may print first
_RETRY_AFTER = 60.0  # seconds until a host that failed is tried again


class RemoteLock:
    """The lock of another host, with its `identity` as `HostLock.identity`. Raises ProvisionError if there is none."""

    def __init__(self, host: str, reach: ConnectionInfo) -> None:
        self.host = host
        self._reach = reach
        text = Path(__file__).with_name("host_lock.py").read_bytes()
        label = filter(None, (tracker().label,))
        argv = ssh_command(host, reach, ("python3", "-u", "-c", BOOT, str(len(text)), *label))
        self._untrack = tracker().host(host, reach)
        try:
            self._pipe = ProcessPipe(argv)
        except OSError as error:
            self._untrack()
            raise ProvisionError(host, f"ssh cannot be started: {error.strerror}") from error
        self._answers: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._granted = False
        threading.Thread(target=self._read_answers, name=f"lease of {host}", daemon=True).start()
        try:
            self._send(text)
            hello = self._answer(_ANSWER_TIMEOUT)
            if "hello" not in hello:
                raise ProvisionError(host, str(hello.get("refused", "no answer that can be read"))[:300])  # noqa: TRY301
        except BaseException:
            self.close()
            raise
        self.identity = str(hello["hello"])
        threading.Thread(target=self._send_heartbeats, name=f"beat of {host}", daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether the connection is lost, and the lock with it."""
        return self._stopped.is_set()

    def ask(self, who: Mapping[str, Any]) -> None:
        """Request the lock for `who` (fields for people)."""
        self._granted = False
        self._send(json.dumps(who).encode() + b"\n")

    def granted(self, seconds: float | None) -> bool:
        """Wait until the lock is held or `seconds` (at least one) have passed. Raise ProvisionError for a lost host."""
        deadline = None if seconds is None else time.monotonic() + max(seconds, _MIN_WAIT)
        with suppress(TimeoutError):
            while not self._granted:  # late answers to `holder` may come first
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                self._granted = "held" in self._answer(left)
        return self._granted

    def holder(self) -> Mapping[str, Any]:
        """Return the holder; empty if it is unknown."""
        with suppress(HetgpuError, TimeoutError):
            self._send(b"who\n")
            while "held" in (answer := self._answer(_ANSWER_TIMEOUT)):
                self._granted = True  # meanwhile
            found = answer.get("holder")
            return found if isinstance(found, dict) else {}
        return {}

    def free(self) -> None:
        """Free the lock, or stop waiting for it. A lost host has freed it already."""
        with suppress(HetgpuError):
            self._send(b"free\n")
            try:
                while "freed" not in self._answer(_ANSWER_TIMEOUT):
                    pass
            except TimeoutError:
                self.close()

    def close(self) -> None:
        """Let the process on the host end."""
        self._stopped.set()
        self._pipe.close()
        self._untrack()  # it has started nothing, and ends with its pipe

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # the reader of the answer gets the error
            self._pipe.send(data)

    def _answer(self, seconds: float | None) -> Mapping[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if answer is None:
            self._answers.put(None)
            code = self._pipe.returncode()
            raise ProvisionError(self.host, explained(self.host, self._reach, self._pipe.stderr(), code))
        return answer

    def _read_answers(self) -> None:
        kept, noise = b"", 0
        while data := self._received():
            *lines, kept = (kept + data).split(b"\n")
            for line in lines:
                try:
                    answer = json.loads(line)
                except ValueError:
                    answer = None
                if isinstance(answer, dict):
                    self._answers.put(answer)
                else:
                    noise += len(line)
            if noise + len(kept) > _MAX_NOISE:
                break
        self._stopped.set()
        self._answers.put(None)

    def _received(self) -> bytes:
        try:
            return self._pipe.recv(4096)
        except OSError:
            return b""

    def _send_heartbeats(self) -> None:
        while not self._stopped.wait(_HEARTBEAT):
            self._send(b"\n")


class RemoteLocks:
    """The remote locks of this process. Each is made once; a host that failed is tried again only after a while."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ConnectionInfo], RemoteLock] = {}
        self._failed: dict[tuple[str, ConnectionInfo], tuple[float, str]] = {}

    def of(self, hosts: Iterable[tuple[str, ConnectionInfo]]) -> dict[tuple[str, ConnectionInfo], RemoteLock | str]:
        """Connect to the lock of each host, in parallel. Return locks, or the reason why a host has none."""
        keys = tuple(dict.fromkeys(hosts))
        with self._lock:
            for key, lock in list(self._locks.items()):
                if lock.lost:
                    self._locks.pop(key).close()
            now = time.monotonic()
            missing = [key for key in keys if key not in self._locks and self._failed.get(key, (0.0,))[0] <= now]
            if missing:
                with ThreadPoolExecutor(max_workers=min(16, len(missing))) as pool:
                    for key, made in zip(missing, pool.map(_connect, missing), strict=True):
                        if isinstance(made, RemoteLock):
                            self._locks[key] = made
                        else:
                            self._failed[key] = now + _RETRY_AFTER, made
            return {key: self._locks[key] if key in self._locks else self._failed[key][1] for key in keys}

    def close(self) -> None:
        """Close all."""
        with self._lock:
            kept, self._locks = tuple(self._locks.values()), {}
            self._failed.clear()
        for lock in kept:
            lock.close()


def _connect(key: tuple[str, ConnectionInfo]) -> RemoteLock | str:
    """Return a lock, or why the host has none. If it is unreachable, provisioning a node there reports that."""
    try:
        return RemoteLock(*key)
    except HetgpuError as error:
        return str(error).removeprefix(f"{key[0]}: ")
    except TimeoutError:
        return f"no answer in {_ANSWER_TIMEOUT:.0f} s"


remote_locks = RemoteLocks()
atexit.register(remote_locks.close)
