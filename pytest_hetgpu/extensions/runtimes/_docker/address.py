"""Where a container engine listens: this machine's, or another host's over ssh or TLS. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.model.job import ConnectionInfo

SOCKET = "/var/run/docker.sock"
_SCHEMES = ("unix", "ssh", "tcp", "https")


@dataclass(frozen=True, slots=True)
class Address:
    """`url` as docker clients take it, `where` in words; equal for the same way to the same engine.

    With ssh, `reach` is how to come to `host`, and `socket` the engine's over there.
    """

    url: str
    where: str
    host: str = ""
    reach: ConnectionInfo | None = None
    socket: str = SOCKET

    @property
    def by_ssh(self) -> bool:
        """Whether a tunnel leads there."""
        return bool(self.host)

    @property
    def local(self) -> bool:
        """Whether it is an engine of this machine."""
        return self.url.startswith("unix://")


def address(node: str, reach: ConnectionInfo, environ: Mapping[str, str]) -> Address:
    """The engine of `reach`; where that is empty, the one DOCKER_HOST names, else this machine's.

    ProvisionError (of `node`) for an address that cannot be used, or that would let anyone in.
    """
    url = reach.engine or environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
    source = "" if reach.engine or "DOCKER_HOST" not in environ else "DOCKER_HOST="
    try:
        parts = urlsplit(url)
        return _read(node, url, parts, reach, bool(environ.get("DOCKER_TLS_VERIFY")))
    except ValueError as error:
        raise ProvisionError(node, f"{source}{url} is no address of an engine: {error}") from error


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
