"""A real sshd on loopback, with keys and a configuration of its own (its fixtures: `conftest.py`)."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.model.job import ConnectionInfo


@dataclass(frozen=True)
class Loopback:
    """An sshd on 127.0.0.1; `reach` gets in."""

    folder: Path
    reach: ConnectionInfo

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def know(self, host: str = "127.0.0.1") -> None:
        """Makes its host key the known one of `host`."""
        public = (self.folder / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[{host}]:{self.reach.port} {public}")


def keygen(path: Path) -> str:
    """Makes a key pair; its public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_name(path.name + ".pub").read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
