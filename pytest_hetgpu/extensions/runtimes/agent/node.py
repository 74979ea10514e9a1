"""A node reached through its agent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import HetgpuError, LaunchError, LostNode, NotHere, ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, Call, Reply, checked, checked_folder
from pytest_hetgpu.extensions.runtimes.agent.look import looking_over
from pytest_hetgpu.extensions.runtimes.agent.spawn_errors import NotStarted, empty, error, sink
from pytest_hetgpu.extensions.runtimes.base import (
    CommandResult,
    Deployment,
    OnTimeout,
    RemoteNode,
    SshServer,
    TimeoutInfo,
    ignore,
)
from pytest_hetgpu.extensions.runtimes.process.query import short
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.outcome import RunResult

_MARGIN = 30.0  # seconds that an answer may take on its way
_LINGER, _GRACE = 0.25, 1.0  # seconds for a command's leftovers to end: by themselves, after TERM
_LONGEST = 600.0  # seconds in which the output of a command must have arrived
_LOST = 255  # exit status of ssh after a broken connection
_UNREADABLE = "the agent's answer cannot be read"
_FRAMELESS = "core files are read for jobs of this machine only"
_KEY = r"ssh-ed25519 [A-Za-z0-9+/=]+"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?"


class AgentNode(RemoteNode):
    """The node at the other end of `link`, called `name` in errors.

    `grace` is the seconds a command has to clean up when it must stop. `after` is run once, at the end of `close`.
    """

    def __init__(
        self, name: str, link: AgentConnection, *, grace: float = 2.0, after: Callable[[], None] = lambda: None
    ) -> None:
        self.name = name
        self.link = link
        self.folder = link.hello.folder
        self.uid = link.hello.uid
        self.grace = grace
        self._after: Callable[[], None] | None = after

    def run(self, command: Command, *, output: Path, timeout: float, overdue: OnTimeout = ignore) -> RunResult:
        """Implement `Runtime.run`. For a lost node, return code 255 and explain the loss in the last output line."""
        if not command.argv:
            raise empty()
        with sink(output) as file:
            return _Run(self, command, _Writer(file, output)).result(timeout, overdue)

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        reply = self.link.request("exists", paths=list(paths))
        with self._reading():
            return tuple(path for path, there in zip(paths, reply.fields["exist"], strict=True) if not there)

    def interfaces(self) -> tuple[str, ...]:
        return self._lines("interfaces", "up")

    def host(self) -> Any:
        try:
            from pytest_hetgpu.extensions.runtimes.agent.testinfra_backend import host_of
        except ImportError as missing:
            raise NotHere(f"testinfra cannot be imported ({missing}): pip install pytest-testinfra") from missing
        return host_of(self, self.name)

    def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        """Implement `RemoteNode.exec`; return at most the first 4 MiB of stdout and of stderr."""
        if not argv:
            raise ProvisionError(self.name, str(empty()))
        reply = self.link.request(
            "ask",
            stdin,
            patience=timeout + _MARGIN,
            argv=list(argv),
            env={},
            timeout=min(timeout, threading.TIMEOUT_MAX),
        )
        with self._reading():
            fields = reply.fields
            if "failed" in fields:
                raise ProvisionError(self.name, str(_failure(argv, fields)))
            if not fields["ended"]:
                raise ProvisionError(self.name, f"{short(argv)} took more than {timeout:g} s")
            cut = fields["stdout"]
            return CommandResult(fields["returncode"], reply.body[:cut], reply.body[cut:])

    def put(self, files: Mapping[str, bytes]) -> None:
        sizes = [(name, len(content)) for name, content in files.items()]
        self.link.request("put", b"".join(files.values()), files=sizes)

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        """Implement `RemoteNode.read`; return the first 64 KiB of each regular file, and None for other files."""
        reply = self.link.request("read", paths=list(paths))
        found: dict[str, bytes | None] = {}
        at = 0
        with self._reading():
            for path, size in zip(paths, reply.fields["sizes"], strict=True):
                found[path] = None if size is None else reply.body[at : at + size]
                at += size or 0
        return found

    def settled(self, deployment: Deployment) -> AgentNode:
        """Return this node; its folder gets the common name of the placement, unless two nodes share a host.

        Close the node if that fails.
        """
        try:
            said = self.link.request("settle", name=f"hetgpu-{deployment.token}").fields
            self.folder = checked_folder(self.name, said.get("folder"))
        except BaseException:
            self.close()
            raise
        return self

    def key(self) -> str:
        """Return the public half of an ed25519 key pair, made once in `folder` as `key` and `key.pub`."""
        return self._key(self.link.request("key").fields.get("public"))

    def start_sshd(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        """Implement `RemoteNode.start_sshd`. A second sshd replaces the first."""
        fields = self.link.request("start_sshd", patience=150.0, key=authorized_key, env=dict(environment)).fields
        port = checked(self.name, "port", r"[1-9][0-9]{0,4}", str(fields.get("port")))
        if int(port) > 0xFFFF:
            raise ProvisionError(self.name, f"the node's agent answered with {port}, which is no port")
        user = checked(self.name, "user name", _USER, fields.get("user"))
        return SshServer(port=int(port), host_key=self._key(fields.get("host_key")), user=user)

    def sshd_log(self) -> tuple[str, ...]:
        """Return the last lines that the node's sshd printed: why it refused a login."""
        return self._lines("log", "lines")

    def sweep(self) -> tuple[str, ...]:
        return self._lines("sweep", "survivors", linger=_LINGER, grace=_GRACE)

    def stacks(self, request: Mapping[str, Any], seconds: float) -> bytes:
        return looking_over(self.link, self.folder, request, seconds)

    def lost(self) -> str | None:
        return self.link.lost()

    def close(self) -> None:
        try:
            self.link.close()
        finally:
            after, self._after = self._after, None
            if after is not None:
                after()

    def _key(self, said: object) -> str:
        """Check a public key; return it without its comment."""
        words = said.split(" ", 2)[:2] if isinstance(said, str) else [str(said)]
        return checked(self.name, "public key of ssh's", _KEY, " ".join(words))

    def _lines(self, op: str, name: str, **fields: object) -> tuple[str, ...]:
        """Return an answer that is a list of words."""
        reply = self.link.request(op, **fields)  # type: ignore[arg-type]
        with self._reading():
            return tuple(map(str, list(reply.fields[name])))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Mark the node as lost if an answer that is read inside has the wrong form."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.link.give_up(_UNREADABLE)
            raise LostNode(self.name, _UNREADABLE) from error


class _Writer:
    """A writer of the command's output to its file, in the link's thread, until `stop`."""

    def __init__(self, file: int, output: Path) -> None:
        self.last = time.monotonic()
        self.trouble: OSError | None = None
        self.output = output
        self._file: int | None = file
        self._lock = threading.Lock()
        self._ends_line = True

    def __call__(self, data: bytes) -> None:
        with self._lock:
            if self._file is None or self.trouble is not None or not data:
                return
            self.last = time.monotonic()
            self._ends_line = data.endswith(b"\n")
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError as trouble:
                self.trouble = trouble

    def line(self, text: str) -> None:
        """Write a line of this package after the output."""
        self((b"" if self._ends_line else b"\n") + text.encode(errors="backslashreplace") + b"\n")

    def stop(self) -> None:
        with self._lock:
            self._file = None


class _Run:
    """One command on a node, from its start to its RunResult."""

    def __init__(self, member: AgentNode, command: Command, writer: _Writer) -> None:
        self._node = member
        self._command = command
        self._writer = writer
        self._interrupted: str | None = None
        self._lost: str | None = None

    def result(self, timeout: float, overdue: OnTimeout) -> RunResult:
        started, clock = time.time(), time.monotonic()
        self._writer.last = clock
        call = self._node.link.call(
            "run", on_output=self._writer, argv=list(self._command.started), env=dict(self._command.env)
        )
        ended = timed_out = False
        try:
            ended = self._ended(call, timeout)
            seconds = (call.ended or time.monotonic()) - clock
            quiet = min(seconds, max(0.0, clock + seconds - self._writer.last))
            if not ended and self._interrupted is None and self._lost is None:
                timed_out = self._looked(overdue, TimeoutInfo(seconds, quiet, self._node.stacks))
        finally:
            try:
                reply = self._finished(call, ended)
            finally:
                self._writer.stop()
        if self._writer.trouble is not None:
            raise LaunchError(f"cannot write the output to {self._writer.output}: {self._writer.trouble.strerror}")
        fields: Mapping[str, Any] = reply.fields if reply is not None else {"returncode": _LOST, "survivors": ()}
        if "failed" in fields:
            raise _failure(self._command.argv, fields)
        return RunResult(
            argv=self._command.argv,
            returncode=fields["returncode"],
            output=str(self._writer.output),
            started=started,
            seconds=seconds,
            timed_out=timed_out,
            quiet=quiet,
            interrupted=self._interrupted,
            survivors=tuple(fields["survivors"]),
            frameless=_FRAMELESS if fields["returncode"] != 0 else "",
        )

    def _looked(self, overdue: OnTimeout, what: TimeoutInfo) -> bool:
        """Call `overdue` for a command whose time is over; return False if an interrupt cut that short."""
        try:
            overdue(what)
        except KeyboardInterrupt as cut:
            self._interrupted = str(cut.args[0]) if cut.args else "SIGINT"
        return self._interrupted is None

    def _ended(self, call: Call, timeout: float) -> bool:
        try:
            return self._node.link.wait_ended(call, timeout)
        except KeyboardInterrupt as cut:
            self._interrupted = str(cut.args[0]) if cut.args else "SIGINT"
        except LostNode as lost:
            self._lost = str(lost)
        return False

    def _finished(self, call: Call, ended: bool) -> Reply | None:
        """Return the command's result, after stopping it if it has not ended; return None from a lost node.

        After a KeyboardInterrupt, wait for nothing more: send KILL at once.
        """
        grace, link, reply = self._node.grace, self._node.link, None
        told, latest = ended, time.monotonic() + _LONGEST
        while reply is None and self._lost is None:
            patience = 3 * grace + _MARGIN
            try:
                if not told:
                    link.call("stop", run=call.number, grace=grace)
                    told = True
                reply = link.wait(call, patience)
                if reply is not None and not _is_outcome(reply.fields):
                    reply = None
                    link.give_up(_UNREADABLE)
                    raise LostNode(self._node.name, _UNREADABLE)  # noqa: TRY301 - as if the node were lost before
                # Wait for the output that a slow connection still delivers.
                if reply is None and (link.silent() >= patience or time.monotonic() > latest):
                    link.give_up("its agent did not stop the command")
            except KeyboardInterrupt:
                told, grace = False, 0.0
            except LostNode as lost:
                self._lost = str(lost)
        if reply is not None and reply.fields.get("cut"):
            with suppress(HetgpuError):
                self._writer.line("hetgpu: the end of the output did not come through")
        if self._lost is not None:
            why = link.lost() or self._lost
            with suppress(HetgpuError):
                self._writer.line(f"hetgpu: node {self._node.name} was lost: {' '.join(why.split())}")
        return reply


def _is_outcome(fields: Mapping[str, Any]) -> bool:
    """Return whether the agent's last message about a command has the right form."""
    if "failed" in fields:
        failed = fields["failed"]
        return isinstance(failed, Mapping) and set(failed) == {one.name for one in fields_of(NotStarted)}
    survivors = fields.get("survivors")
    return (
        isinstance(fields.get("returncode", ""), int | None)
        and isinstance(survivors, list)
        and all(isinstance(one, str) for one in survivors)
    )


def _failure(argv: Sequence[str], fields: Mapping[str, Any]) -> LaunchError:
    return error(argv[0], NotStarted(**fields["failed"]))
