"""Addresses of container engines: on this machine, or on another host over ssh or TLS. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo

SOCKET = "/var/run/docker.sock"
_TLS = ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
_SCHEMES = ("unix", "ssh", "tcp", "https")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an engine: `url` is its form for docker clients, `where` its name in messages.

    Two addresses are equal if they lead to the same engine in the same way. With ssh, `reach` has the connection
    settings of `host`. `socket` is the path of the engine's socket there.
    """

    url: str
    where: str
    host: str = ""
    reach: ConnectionInfo | None = None
    socket: str = SOCKET

    @property
    def by_ssh(self) -> bool:
        """Return whether the address is reached through an ssh tunnel."""
        return bool(self.host)

    @property
    def local(self) -> bool:
        """Return whether the engine runs on this machine."""
        return self.url.startswith("unix://")


def address(node: str, reach: ConnectionInfo, environ: Mapping[str, str]) -> Address:
    """Return the engine of `reach`; if that is empty, the one that DOCKER_HOST names, else the one of this machine.

    Raises:
        ProvisionError: The address of `node` cannot be used, or would let anyone in.

    """
    url = reach.engine or environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
    source = "" if reach.engine or "DOCKER_HOST" not in environ else "DOCKER_HOST="
    try:
        parts = urlsplit(url)
        return _read(node, url, parts, reach, bool(environ.get("DOCKER_TLS_VERIFY")))
    except ValueError as error:
        raise ProvisionError(node, f"{source}{url} is no address of an engine: {error}") from error


def engine_spot(reach: ConnectionInfo, environ: Mapping[str, str]) -> Location:
    """Return the location of an engine, with all that is needed to reach it without this environment."""
    url = reach.engine or environ.get("DOCKER_HOST", "")
    tls = url.startswith(("tcp://", "https://"))
    needed = tuple((name, environ[name]) for name in _TLS if tls and name in environ)
    return Location("engine", "", ConnectionInfo(url, reach.user, reach.port, reach.key), needed)


def _read(node: str, url: str, parts: SplitResult, reach: ConnectionInfo, tls: bool) -> Address:
    if parts.scheme == "unix":
        own = url == f"unix://{SOCKET}"
        return Address(url, "this machine's Docker engine" if own else f"the Docker engine at {url}")
    if parts.scheme == "ssh":
        if not parts.hostname or parts.password:
            raise ValueError("write ssh://USER@HOST, or ssh://USER@HOST:PORT")
        how = ConnectionInfo("", parts.username or reach.user, parts.port or reach.port, reach.key)
        socket = parts.path if len(parts.path) > 1 else SOCKET
        return Address("ssh://", f"the Docker engine of {parts.hostname}", parts.hostname, how, socket)
    if parts.scheme not in _SCHEMES:
        raise ValueError("write ssh://USER@HOST or unix:///PATH")
    if not tls:
        raise ProvisionError(
            node,
            f"the engine {url} is used only over ssh or TLS: who reaches it without a key is root on its host. "
            "Write ssh://USER@HOST, or set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH",
        )
    return Address(url, f"the Docker engine at {parts.netloc}")
