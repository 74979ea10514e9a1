"""One ssh tunnel to a socket on another host, as a socket of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.model import Reach
from pytest_hetgpu.runtimes._process import ProcessPipe
from pytest_hetgpu.runtimes._ssh import explained, ssh_command
from pytest_hetgpu.runtimes.base import key_trouble

# Runs over there: says whether the socket can be used, then stays until our end of the connection closes.
_WATCH = """\
if [ ! -e {socket} ]; then echo hetgpu:absent; elif [ ! -S {socket} ]; then echo hetgpu:other;
elif [ ! -r {socket} ] || [ ! -w {socket} ]; then echo hetgpu:denied $(id -un); else echo hetgpu:ready; fi; exec cat"""
_MARK = b"hetgpu:"
_PATIENCE = 30.0  # seconds for the word from over there
_NOISE = 64 << 10  # bytes that a login shell may print first


@contextmanager
def tunnel(host: str, reach: Reach, socket: str = "/var/run/docker.sock") -> Iterator[str]:
    """The path of a socket here that leads to `socket` on `host`, as long as the context lasts; only we can reach it.

    The tunnel ends with this process, however that ends. NotHere without an ssh client; ProvisionError (of `host`)
    says what is wrong with the way there or with the socket.
    """
    trouble = key_trouble(reach.key)
    if trouble:
        raise ProvisionError(host, trouble)
    with tempfile.TemporaryDirectory(prefix="hetgpu-", ignore_cleanup_errors=True) as folder:
        near = str(Path(folder) / "engine.sock")
        watch = ("exec", "/bin/sh", "-c", _WATCH.format(socket=shlex.quote(socket)))
        # A master connection would keep the tunnel after us: this one stands alone.
        options = ("-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none", "-L", f"{near}:{socket}")
        ssh = ssh_command(host, reach, watch, *options)
        # Should we be killed, ssh ends because our end of its stdin closes, and this removes the folder.
        pipe = _TunnelPipe(("/bin/sh", "-c", '"$@"; code=$?; rm -rf "$0"; exit $code', folder, *ssh))
        try:
            _check(pipe, host, reach, socket)
            yield near
        finally:
            pipe.close()


class _TunnelPipe(ProcessPipe):
    """Knows whether it was given up."""

    given_up = False

    def kill(self) -> None:
        """Ends ssh and the shell round it, whatever they wait for."""
        if self._process.poll() is None:
            self.given_up = True
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _check(pipe: _TunnelPipe, host: str, reach: Reach, socket: str) -> None:
    """Waits for the word from over there, which comes when the tunnel stands: ssh makes it first."""
    said = b""
    limit = threading.Timer(_PATIENCE, pipe.kill)
    limit.daemon = True
    limit.start()
    try:
        while not (_MARK in said and said.endswith(b"\n")):
            data = pipe.recv(4096)
            said += data
            if pipe.given_up:
                raise ProvisionError(host, f"no word from a shell on {host} within {_PATIENCE:g} s")
            if not data or len(said) > _NOISE:
                raise ProvisionError(host, explained(host, reach, pipe.stderr(), pipe.returncode()))
    finally:
        limit.cancel()
    word, _, user = said.rpartition(_MARK)[2].decode(errors="replace").strip().partition(" ")
    if word != "ready":
        raise ProvisionError(
            host,
            {
                "absent": f"there is no {socket} on {host}: is a container engine running there?",
                "other": f"{socket} on {host} is no socket",
                "denied": f"{user} may not use {socket} on {host}: add them to the group that owns it (docker)",
            }.get(word, f"unexpected answer of {host}: {word}"),
        )
