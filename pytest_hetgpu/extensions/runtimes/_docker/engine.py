"""Connections to container engines: one per engine and process, shared by all placements."""

from __future__ import annotations

import importlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from types import ModuleType
from typing import Any

from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.address import Address, address
from pytest_hetgpu.extensions.runtimes._docker.errors import EngineError, refused, unreachable
from pytest_hetgpu.extensions.runtimes._docker.event_watch import Vigil
from pytest_hetgpu.extensions.runtimes._docker.tunnel import tunnel
from pytest_hetgpu.model.job import ConnectionInfo

_VERSION = re.compile(r"\d+")
_NO_DEADLOCK = (1, 42)  # API version of Docker 23.0
_PATIENCE = 60.0  # seconds; builds and pulls have none
_PING = 10.0  # seconds in which a reachable engine answers a ping
_AT_ONCE = 1.0  # the same in seconds after its events have ended; a daemon that restarts takes longer
_JUST = 60.0  # seconds after which an absence no longer explains the end of a container


class EngineGone(ProvisionError):
    """A failed engine, or a failed connection to it, while `api` was in use."""

    def __init__(self, node: str, reason: str, api: Any) -> None:
        super().__init__(node, reason)
        self.api = api


class Engine:
    """One engine, reachable by any of `reaches`. The first use of `api` connects."""

    def __init__(self, at: Address) -> None:
        self.at = at
        self.reaches: set[ConnectionInfo] = set()
        self._lock = threading.Lock()
        self._removal = threading.Lock()
        self._closing = ExitStack()
        self._api: Any = None
        self._known: Mapping[str, Any] = {}
        self._vigil: Vigil | None = None
        self._broke = 0.0
        self._start = ""
        self.breaks = 0
        """The number of failures so far, of the engine or of the connection to it."""
        self.met = False
        """Whether it has ever answered this process."""

    @property
    def api(self) -> Any:
        """Return a `docker.APIClient` that several threads may use; use it within `speaking`."""
        with self._lock:
            if self._api is None:
                with ExitStack() as opened:
                    self._api, self._known = _client(self.at, opened)
                    self._closing = opened.pop_all()
                    self.met = True
            return self._api

    def removal(self) -> AbstractContextManager[object]:
        """Return the lock to hold while a container of a network is removed.

        Docker before 20.10.27, and others of API 1.41, can deadlock for good. This happens if two containers of one
        network are removed at the same time (moby issue 46661). Pull request 42545 fixed it in 23.0; newer engines need
        no lock.
        """
        with self._lock:
            version = str(self._api.api_version) if self._api is not None else ""
        return self._removal if tuple(map(int, _VERSION.findall(version))) < _NO_DEADLOCK else nullcontext()

    @contextmanager
    def speaking(self, node: str) -> Iterator[Any]:
        """Yield the API. Convert errors of the engine to NotHere or ProvisionError of `node`, with an explanation."""
        docker, foreign = _foreign()
        api = None
        try:
            api = self._connected(node)
            yield api
        except docker.errors.APIError as error:
            raise _raised(refused(str(error.explanation or error), self.at.where), node) from error
        except foreign as error:
            trouble = unreachable(str(error), self.at.where)
            if not self.met or _timed_out(error):
                raise _raised(trouble, node) from error
            raise EngineGone(node, trouble.text, api) from error

    def _connected(self, node: str) -> Any:
        try:
            return self.api
        except ProvisionError as error:  # a tunnel's error, whose message names the host
            why = str(error).removeprefix(f"{error.node}: ")
            raise (EngineGone(node, why, None) if self.met else ProvisionError(node, why)) from error

    @property
    def connected(self) -> bool:
        """Return whether there is a connection."""
        return self._api is not None

    def reopen(self, broken: Any) -> bool:
        """Drop the connection `broken` if it uses ssh; return whether it did. The next use then makes another one."""
        if self.at.by_ssh:
            self._drop(broken)
        return self.at.by_ssh

    @property
    def address(self) -> str:
        """Return the address of the engine in the form that users write."""
        return f"ssh://{self.at.host}" if self.at.by_ssh else self.at.url

    @property
    def restart(self) -> str:
        """Return how a user starts the engine again."""
        return "start its daemon (`sudo systemctl start docker`)"

    def watch(self, api: Any) -> int:
        """Watch from now on whether the engine fails; return the number of its failures so far."""
        with self._lock:
            if self._vigil is None or self._vigil.over:
                self._start = _start(api)
                self._vigil = Vigil(api, self._ended)
            return self.breaks

    def away(self, since: int) -> str:
        """Return the evidence that the engine is away, or was since `watch` returned `since`; "" without evidence.

        Any process may have killed a container that ended, so this asks the engine anew. Its daemon must not have
        restarted. It must not have been silent if its event stream has just ended.
        """
        if not self._pings(_PING):
            return f"{self.at.where}{', or the way to it,' if self.at.by_ssh else ''} does not answer"
        self._anew()
        if self.breaks != since and time.monotonic() - self._broke < _JUST:
            return f"{self.at.where} was away and is back: its daemon was started anew, or did not answer meanwhile"
        return ""

    def answers(self, patience: float = _PING) -> bool:
        """Return whether the engine answers a new connection; over ssh, open a new tunnel if the old one broke."""
        if self._pings(patience):
            return True
        if not self.at.by_ssh:
            return False
        self._drop(self._api)
        _, foreign = _foreign()
        with suppress(HetgpuError, *foreign):
            return bool(self.api.ping())
        return False

    def _pings(self, patience: float) -> bool:
        """Return whether a new connection gets an answer: an engine that stops still answers its open connections."""
        docker, foreign = _foreign()
        with self._lock:
            api, known = self._api, self._known
        if api is None:
            return False
        try:
            with closing(docker.APIClient(version=api.api_version, timeout=patience, **known)) as fresh:
                return bool(fresh.ping())
        except foreign:
            return False

    def _ended(self) -> None:
        """Count a failure at the end of the event stream, unless the engine answers as before (a proxy ended it)."""
        if self.connected and self._pings(_AT_ONCE):
            self._anew()
        elif self.connected:
            self._went()

    def _anew(self) -> bool:
        """Return whether the daemon has restarted since the last check; count that once."""
        now = _start(self._api)
        if not (self._start and now and now != self._start):
            return False
        self._start = now
        self._went()
        return True

    def _went(self) -> None:
        """Count one failure."""
        self._broke = time.monotonic()
        self.breaks += 1

    def close(self) -> None:
        """Close the connection and its tunnel."""
        self._drop(self._api)

    def _drop(self, api: Any) -> None:
        with self._lock:
            if api is None or self._api is not api:  # another thread closed it
                return
            self._api = None
            vigil, self._vigil = self._vigil, None
            if vigil:
                vigil.stop()
            api.close()
            self._closing.close()


_engines: dict[Address, Engine] = {}
_lock = threading.Lock()


def engine_of(node: str, reach: ConnectionInfo) -> Engine:
    """Return the engine that `reach` names, always the same object.

    Raises:
        ProvisionError: The address cannot be used.

    """
    at = address(node, reach, os.environ)
    with _lock:
        engine = _engines.setdefault(at, Engine(at))
        engine.reaches.add(reach)
        return engine


def engines() -> tuple[Engine, ...]:
    """Return all engines that were requested and not closed."""
    with _lock:
        return tuple(_engines.values())


def close_engines() -> None:
    """Close every connection; later requests connect anew."""
    with _lock:
        engines = tuple(_engines.values())
        _engines.clear()
    for engine in engines:
        with suppress(Exception):
            engine.close()


def _start(api: Any) -> str:
    """Return the start time of the daemon, by the network that it creates then; "" without one or without an answer."""
    with suppress(Exception):  # any error of the SDK means that the time is unknown
        return str(api.inspect_network("bridge").get("Created", ""))
    return ""


def _client(at: Address, opened: ExitStack) -> tuple[Any, Mapping[str, Any]]:
    """Return a client, and the keywords that make another client of the same engine."""
    docker, _ = _foreign()
    if at.local:
        with socket.socket(socket.AF_UNIX) as trial:  # its error is plainer than that of the SDK
            trial.settimeout(_PATIENCE)
            trial.connect(at.url.removeprefix("unix://"))
    url = f"unix://{opened.enter_context(tunnel(at.host, at.reach, at.socket))}" if at.reach else at.url
    environment = {**os.environ, "DOCKER_HOST": url}
    if at.by_ssh or at.local:
        environment.pop("DOCKER_TLS_VERIFY", None)
        environment.pop("DOCKER_CERT_PATH", None)
    known = docker.utils.kwargs_from_env(environment=environment)
    return docker.APIClient(version="auto", timeout=_PATIENCE, **known), known


def _foreign() -> tuple[ModuleType, tuple[type[Exception], ...]]:
    """Return the docker SDK and the exceptions of the libraries below it; raise NotHere if the SDK is not installed."""
    try:
        docker = importlib.import_module("docker")
        requests = importlib.import_module("requests")
        urllib3 = importlib.import_module("urllib3")
    except ImportError as error:
        raise NotHere(
            f"the runtime docker needs the Docker SDK for Python ({error}): pip install 'pytest-hetgpu[docker]'"
        ) from error
    below = (docker.errors.DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)
    return docker, below


def _timed_out(error: Exception) -> bool:
    """Return whether the engine is only slow, so that its other answers may still come over the same connection."""
    return isinstance(error, importlib.import_module("requests").exceptions.Timeout)


def _raised(trouble: EngineError, node: str) -> NotHere | ProvisionError:
    return NotHere(f"{node}: {trouble.text}") if trouble.absent else ProvisionError(node, trouble.text)
