"""One ssh tunnel to a socket on another host, as a socket of this machine, shared by the processes of a run.

The processes meet in a private folder, whose name only holders of the run's label can compute. Each user of the tunnel
holds the writing end of a fifo, which is the stdin of ssh. When the last user closes it or is killed, ssh reads the end
of file and ends too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import RawIOBase
from pathlib import Path

from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes.base import key_trouble
from pytest_hetgpu.extensions.runtimes.process.ledger import OWNER_FILE, tracker
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.model.job import ConnectionInfo

# Runs on the other host: reports whether the socket can be used, then waits until this end closes the connection.
_WATCH = """\
if [ ! -e {socket} ]; then echo hetgpu:absent; elif [ ! -S {socket} ]; then echo hetgpu:other;
elif [ ! -r {socket} ] || [ ! -w {socket} ]; then echo hetgpu:denied $(id -un); else echo hetgpu:ready; fi; exec cat"""
_MARK = b"hetgpu:"
_PATIENCE = 30.0  # seconds for the report of the other host
_NOISE = 64 << 10  # bytes that a login shell may print first
_FOREIGN = "{} is not ours alone: remove it, or set TMPDIR to a folder of your own"


_LIFE, _NEAR, _WHY = "life", "engine.sock", ".why"
# Its arguments: the folder of this tunnel, the parent folder of its kind, and the ssh command. The holder of the
# parent's lock removes the parent. Without a holder all users may have been killed, and this script removes it.
_KEPT = """\
one=$0 all=$1; shift; "$@" <"$one/life"; code=$?; rm -rf "$one"
( if flock -n 9 && [ "$all" -ef /dev/fd/9 ]; then
    set -- "$all"/*/; [ -d "$1" ] || { rm -f "$all/.owner" "$all/.why"; rmdir "$all"; }
fi ) 2>/dev/null 9<"$all"
exit $code"""
_ALONE = secrets.token_hex(16)  # the label that processes outside any run share


@contextmanager
def tunnel(host: str, reach: ConnectionInfo, socket: str = "/var/run/docker.sock") -> Iterator[str]:
    """Open a tunnel to `socket` on `host`; yield the path of a local socket that only this user can reach.

    Processes of one run share one ssh. A process that finds it broken opens another. The tunnel ends with its last
    user, however that one ends.

    Raises:
        NotHere: There is no ssh client.
        ProvisionError: The connection or the socket does not work; the error names `host` and the reason.

    """
    trouble = key_trouble(reach.key)
    if trouble:
        raise ProvisionError(host, trouble)
    shared = hashlib.sha256(repr((tracker().shared or _ALONE, host, reach, socket)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"hetgpu-{shared}")
    with _alone(folder, host, hearing=True):
        use = _joined(folder) or _opened(folder, host, reach, socket)
    try:
        yield str(use.near)
    finally:
        with _alone(folder, host):
            use.leave()


@contextmanager
def _alone(folder: Path, host: str, *, hearing: bool = False) -> Iterator[None]:
    """Keep other processes from opening, joining or leaving a tunnel of that folder.

    Create the folder, and remove it once it is empty.

    With `hearing`, raise ProvisionError if the last holder of the lock could open no tunnel: its reason holds here too.
    """
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except (NotADirectoryError, PermissionError):
            raise ProvisionError(host, _FOREIGN.format(folder)) from None
        try:
            found = os.fstat(number)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:  # a foreign lock could block us for ever
                raise ProvisionError(host, _FOREIGN.format(folder))
            try:
                why = os.open(_WHY, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=number)
            except FileNotFoundError:
                continue
            with open(why, "r+b", buffering=0) as told:  # noqa: PTH123 - it is a descriptor
                fcntl.flock(number, fcntl.LOCK_EX)
                if os.fstat(number).st_nlink:  # else the previous holder of the lock has removed it
                    with _noting(told, host):
                        try:
                            yield
                        finally:
                            _clear(folder, number)
                    return
                said = told.read().decode()
            if hearing and said:
                raise ProvisionError(host, said)
        finally:
            os.close(number)


@contextmanager
def _noting(told: RawIOBase, host: str) -> Iterator[None]:
    """Record for the processes that wait for the lock why no tunnel could be opened; record nothing after a success."""
    told.truncate(0)
    try:
        yield
    except ProvisionError as error:
        told.write(str(error).removeprefix(f"{host}: ").encode())
        raise


def _clear(folder: Path, number: int) -> None:
    """Remove the socket if no tunnel is in it, and it is still the one that was opened as `number`."""
    with suppress(FileNotFoundError):
        if os.fstat(number).st_nlink and not any(map(Path.is_dir, folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)


class _Use:
    """The part of one process in a tunnel. `place` has the tunnel's files; `pipe` is set if this process opened it."""

    def __init__(self, place: Path, pipe: _TunnelPipe | None = None) -> None:
        self.near = place / _NEAR
        self._pipe = pipe
        # Open for reading too, so that opening never blocks. ssh reads the end once all writers have closed.
        self._life = os.open(place / _LIFE, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._life, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Release the tunnel; the last user removes it."""
        last = True
        try:
            fcntl.flock(self._life, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            last = False
        os.close(self._life)
        if self._pipe:
            (self._pipe.close if last else self._pipe.abandon)()
        if last:
            shutil.rmtree(self.near.parent, ignore_errors=True)


def _joined(folder: Path) -> _Use | None:
    """Return this process's part in an existing tunnel; None if there is none or it is broken."""
    for place in filter(Path.is_dir, folder.iterdir()):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            trial.connect(str(place / _NEAR))
            return _Use(place)
    return None


def _opened(folder: Path, host: str, reach: ConnectionInfo, socket: str) -> _Use:
    """Return this process's part in a tunnel that it opens."""
    place = folder / secrets.token_hex(4)
    watch = ("exec", "/bin/sh", "-c", _WATCH.format(socket=shlex.quote(socket)))
    # A master connection would keep the tunnel alive after the last user, so this ssh uses none.
    options = ("-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none", "-L", f"{place / _NEAR}:{socket}")
    ssh = ssh_command(host, reach, watch, *options)
    with ExitStack() as undoing:
        undoing.callback(shutil.rmtree, place, ignore_errors=True)
        place.mkdir(mode=0o700)
        if tracker().shared:
            (folder / OWNER_FILE).write_text(tracker().shared)
        os.mkfifo(place / _LIFE, 0o600)
        pipe = _TunnelPipe(("/bin/sh", "-c", _KEPT, str(place), str(folder), *ssh), label=tracker().shared)
        undoing.callback(pipe.close)
        undoing.callback(pipe.kill)  # without a writer it blocks for ever in opening its fifo
        use = _Use(place, pipe)
        undoing.callback(use.leave)
        _check(pipe, host, reach, socket)
        undoing.pop_all()
    return use


class _TunnelPipe(ProcessPipe):
    """The pipe of a tunnel, with a flag for an abandoned one."""

    given_up = False

    def kill(self) -> None:
        """Kill ssh and its shell, also while they wait."""
        if self._process.poll() is None:
            self.given_up = True
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def abandon(self) -> None:
        """Leave the tunnel to other processes of the run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.returncode = 0


def _check(pipe: _TunnelPipe, host: str, reach: ConnectionInfo, socket: str) -> None:
    """Wait for the byte from the other end, which comes when the tunnel works: ssh creates its socket first."""
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
