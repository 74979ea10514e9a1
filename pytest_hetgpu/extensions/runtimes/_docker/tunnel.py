"""One ssh tunnel to a socket on another host, as a socket of this machine, shared by the processes of a run.

They meet in a private folder, which nobody can guess who does not have the run's label. Whoever needs the tunnel holds
the writing end of a fifo that is ssh's stdin: when the last of them lets go, or is killed, ssh hears that and ends too.
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
from pytest_hetgpu.extensions.runtimes.process.ledger import OWNER_FILE, books
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe
from pytest_hetgpu.extensions.runtimes.process.ssh import explained, ssh_command
from pytest_hetgpu.model.job import ConnectionInfo

# Runs over there: says whether the socket can be used, then stays until our end of the connection closes.
_WATCH = """\
if [ ! -e {socket} ]; then echo hetgpu:absent; elif [ ! -S {socket} ]; then echo hetgpu:other;
elif [ ! -r {socket} ] || [ ! -w {socket} ]; then echo hetgpu:denied $(id -un); else echo hetgpu:ready; fi; exec cat"""
_MARK = b"hetgpu:"
_PATIENCE = 30.0  # seconds for the word from over there
_NOISE = 64 << 10  # bytes that a login shell may print first
_FOREIGN = "{} is not ours alone: remove it, or set TMPDIR to a folder of your own"


_LIFE, _NEAR, _WHY = "life", "engine.sock", ".why"
# Its words: the folder of this tunnel, the one that all of its kind were in, and ssh with its arguments. Who has that
# one's lock takes it away; where nobody has, all who used the tunnel may have been killed.
_KEPT = """\
one=$0 all=$1; shift; "$@" <"$one/life"; code=$?; rm -rf "$one"
( if flock -n 9 && [ "$all" -ef /dev/fd/9 ]; then
    set -- "$all"/*/; [ -d "$1" ] || { rm -f "$all/.owner" "$all/.why"; rmdir "$all"; }
fi ) 2>/dev/null 9<"$all"
exit $code"""
_ALONE = secrets.token_hex(16)  # what processes share that are of no run


@contextmanager
def tunnel(host: str, reach: ConnectionInfo, socket: str = "/var/run/docker.sock") -> Iterator[str]:
    """The path of a socket here that leads to `socket` on `host`, as long as the context lasts; only we can reach it.

    Processes of one run share one ssh. Who finds it broken opens another; it ends with the last who uses it, however
    that ends. NotHere without an ssh client; ProvisionError (of `host`) says what is wrong with the way there or with
    the socket.
    """
    trouble = key_trouble(reach.key)
    if trouble:
        raise ProvisionError(host, trouble)
    shared = hashlib.sha256(repr((books().shared or _ALONE, host, reach, socket)).encode()).hexdigest()[:16]
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
    """No other process opens, joins or leaves a tunnel of that folder meanwhile. It is there, and gone once empty.

    ProvisionError if `hearing` and whoever had the lock before could open none: what they found is true for us, too.
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
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:  # a lock of theirs would hold us for ever
                raise ProvisionError(host, _FOREIGN.format(folder))
            try:
                why = os.open(_WHY, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=number)
            except FileNotFoundError:
                continue
            with open(why, "r+b", buffering=0) as told:  # noqa: PTH123 - it is a descriptor
                fcntl.flock(number, fcntl.LOCK_EX)
                if os.fstat(number).st_nlink:  # else whoever had the lock has removed it
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
    """Writes down why no tunnel could be opened, for those who wait for the lock; nothing if one could."""
    told.truncate(0)
    try:
        yield
    except ProvisionError as error:
        told.write(str(error).removeprefix(f"{host}: ").encode())
        raise


def _clear(folder: Path, number: int) -> None:
    """Removes it if no tunnel is in it, and it is still the one that was opened as `number`."""
    with suppress(FileNotFoundError):
        if os.fstat(number).st_nlink and not any(map(Path.is_dir, folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)


class _Use:
    """One process's part in a tunnel whose files lie in `place`; `pipe` is that of whoever opened it."""

    def __init__(self, place: Path, pipe: _TunnelPipe | None = None) -> None:
        self.near = place / _NEAR
        self._pipe = pipe
        # To read as well, so that opening waits for nobody; what ssh hears is the end of all who can write.
        self._life = os.open(place / _LIFE, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._life, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Lets go: the last one takes the tunnel along."""
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
    """Our part in the tunnel that is there; None where there is none, or none that leads anywhere."""
    for place in filter(Path.is_dir, folder.iterdir()):
        with suppress(OSError), socket.socket(socket.AF_UNIX) as trial:
            trial.connect(str(place / _NEAR))
            return _Use(place)
    return None


def _opened(folder: Path, host: str, reach: ConnectionInfo, socket: str) -> _Use:
    """Our part in a tunnel that we open."""
    place = folder / secrets.token_hex(4)
    watch = ("exec", "/bin/sh", "-c", _WATCH.format(socket=shlex.quote(socket)))
    # A master connection would keep the tunnel after us: this one stands alone.
    options = ("-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=none", "-L", f"{place / _NEAR}:{socket}")
    ssh = ssh_command(host, reach, watch, *options)
    with ExitStack() as undoing:
        undoing.callback(shutil.rmtree, place, ignore_errors=True)
        place.mkdir(mode=0o700)
        if books().shared:
            (folder / OWNER_FILE).write_text(books().shared)
        os.mkfifo(place / _LIFE, 0o600)
        pipe = _TunnelPipe(("/bin/sh", "-c", _KEPT, str(place), str(folder), *ssh), label=books().shared)
        undoing.callback(pipe.close)
        undoing.callback(pipe.kill)  # without a writer it waits for ever in opening its fifo
        use = _Use(place, pipe)
        undoing.callback(use.leave)
        _check(pipe, host, reach, socket)
        undoing.pop_all()
    return use


class _TunnelPipe(ProcessPipe):
    """Knows whether it was given up."""

    given_up = False

    def kill(self) -> None:
        """Ends ssh and the shell round it, whatever they wait for."""
        if self._process.poll() is None:
            self.given_up = True
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def abandon(self) -> None:
        """It goes on without us."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.returncode = 0


def _check(pipe: _TunnelPipe, host: str, reach: ConnectionInfo, socket: str) -> None:
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
