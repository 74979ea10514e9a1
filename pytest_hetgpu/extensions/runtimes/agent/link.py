"""The near end of a node agent's pipe (`remote/agent.py` is the far end): requests, answers, and why it ended."""

from __future__ import annotations

import itertools
import json
import queue
import re
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import fields as fields_of
from typing import Any, Protocol

from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.process.kernel import HEEDING
from pytest_hetgpu.extensions.runtimes.process.ledger import tracker

BOOT = 'import sys;exec(compile(sys.stdin.buffer.read(int(sys.argv[1])),"agent","exec"))'

_MAGIC = b"\0hetgpu-agent 1\0"
_MODULES = (
    "segments",
    "agent_tree",
    "agent_capture",
    "agent_sshd",
    "agent_dir",
    "agent",
)  # each imports only earlier ones
_LOADER = """\
import sys, types
if sys.version_info < (3, 6):
    sys.exit("python3 is %s.%s there, 3.6 or later is needed" % sys.version_info[:2])
for name, text in {modules!r}:
    module = types.ModuleType("__main__" if name == "agent" else name)
    sys.modules[name] = module
    exec(compile(text, name + ".py", "exec"), module.__dict__)
"""
CLOSED = "closed"
"""The value of `AgentConnection.lost` after an agent that ended on request."""

_NOISE = 64 << 10  # bytes that a login shell may print before the agent's first message
_CHUNK = 1 << 20
_HEAD, _BODY = 1 << 20, 64 << 20  # bytes of an answer: the longest there are are some KiB, and 8 MiB (ask)
_FOLDER = r"/[A-Za-z0-9_./+-]*"
_FAREWELL = 20.0  # seconds for the agent to stop everything and end


class Pipe(Protocol):
    """Both directions of the agent's stdin and stdout. One thread calls `send`, another one `recv`."""

    def send(self, data: bytes) -> None:
        """Write all of `data`; raise OSError if there is no reader any more."""

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes once there are any; return b"" or raise OSError at the end."""

    def close(self) -> None:
        """Close both directions, and end a `recv` in another thread. Closing twice is fine."""

    def why_ended(self) -> str:
        """Return the cause of the end for users (the last of stderr, an exit status); called once, at the end."""


@dataclass(frozen=True, slots=True)
class AgentHello:
    """The first message of an agent, about its node. `path` is its PATH, `folder` its private folder."""

    pid: int
    host: str
    user: str
    uid: int
    cpus: int
    python: str
    folder: str
    path: str
    subreaper: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its fields, and the bytes that came with it."""

    fields: Mapping[str, Any]
    body: bytes


@dataclass(eq=False)
class Call:
    """A pending request. Others name it by `number`; `ended` is the time at which its command ended."""

    number: int
    on_output: Callable[[bytes], None] | None
    ended: float | None = None
    reply: Reply | None = None


class AgentConnection:
    """Requests to the agent at the other end of `pipe`, several at a time and from several threads.

    The constructor sends the agent and waits at most `patience` seconds for its hello. Without a hello it closes the
    pipe and raises ProvisionError with `name` and the reason.
    """

    hello: AgentHello

    def __init__(self, pipe: Pipe, name: str, *, patience: float = 60.0) -> None:
        self.name = name
        self._pipe = pipe
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._calls: dict[int, Call] = {}
        self._lost: str | None = None
        self._closed = False
        self._noise = b""
        self._last_received = time.monotonic()
        # One thread sends and one receives, so that a signal's exception never leaves half a frame in the pipe.
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        greeting = self._register(0, None)
        self._outbox.put(agent_source())
        self._threads = [
            threading.Thread(target=job, name=f"hetgpu {name}", daemon=True) for job in (self._send, self._receive)
        ]
        try:
            for thread in self._threads:
                thread.start()
            self.hello = self._greeted(greeting, patience)
        except BaseException:
            self._shut()
            raise

    def _greeted(self, greeting: Call, patience: float) -> AgentHello:
        try:
            reply = self.wait(greeting, patience)
        except LostNode as error:
            raise ProvisionError(self.name, self._lost or str(error)) from None
        if reply is None:
            raise ProvisionError(
                self.name, f"no answer from python3 on the node within {patience:g} s{self._printed()}"
            )
        return _hello(self.name, reply.fields)

    def lost(self) -> str | None:
        """Return why the node cannot answer any more; None while it can."""
        with self._changed:
            return self._lost

    def silent(self) -> float:
        """Return the seconds since the last message of the agent."""
        return time.monotonic() - self._last_received

    def call(
        self, op: str, body: bytes = b"", on_output: Callable[[bytes], None] | None = None, **fields: object
    ) -> Call:
        """Send a request; `on_output` gets the output before the answer, in the receiving thread."""
        call = self._register(next(self._numbers), on_output)
        self._post({"op": op, "id": call.number, **fields}, body)
        return call

    def request(self, op: str, body: bytes = b"", *, patience: float = 60.0, **fields: object) -> Reply:
        """Send a request and return its answer; an agent without one within `patience` seconds counts as lost."""
        call = self.call(op, body, None, **fields)
        reply = self.wait(call, patience)
        if reply is None:
            self.give_up(f"its agent did not answer within {patience:g} s")
            raise LostNode(self.name, self.lost() or "")
        return reply

    def wait(self, call: Call, seconds: float | None = None) -> Reply | None:
        """Return the answer; None if none comes within `seconds`.

        Raises:
            LostNode: No answer can come any more.
            ProvisionError: The agent could not do it; the error has its reason.

        """
        self._wait(lambda: call.reply is not None, seconds)
        if call.reply is not None and "error" in call.reply.fields:
            raise ProvisionError(self.name, call.reply.fields["error"])
        return call.reply

    def wait_ended(self, call: Call, seconds: float) -> bool:
        """Return whether a call's command ended within `seconds`, or was not started; raise LostNode as `wait`."""
        return self._wait(lambda: call.ended is not None or call.reply is not None, seconds)

    def give_up(self, why: str) -> None:
        """Count the node as lost."""
        self._end(why)
        self._pipe.close()

    def close(self) -> None:
        """Let the agent stop everything and wait until it has; never raise for a node that is lost."""
        try:
            with self._changed:
                self._closed = True
            if self.lost() is None:
                self._post({"op": "bye", "id": 0}, b"")
                self._threads[1].join(_FAREWELL)
        finally:
            self._shut()

    def _shut(self) -> None:
        self._outbox.put(None)
        self._pipe.close()

    def _register(self, number: int, on_output: Callable[[bytes], None] | None) -> Call:
        call = Call(number, on_output)
        with self._changed:
            self._calls[number] = call
        return call

    def _post(self, fields: Mapping[str, object], body: bytes) -> None:
        head = json.dumps(fields).encode()
        self._outbox.put(struct.pack("!II", len(head), len(body)) + head + body)

    def _wait(self, done: Callable[[], bool], seconds: float | None) -> bool:
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while not done():
                if self._lost is not None:
                    raise LostNode(self.name, self._lost)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(HEEDING if left is None else min(left, HEEDING))
        return True

    def _send(self) -> None:
        with suppress(OSError):  # the receiving thread has a better reason
            while (data := self._outbox.get()) is not None:
                self._pipe.send(data)

    def _receive(self) -> None:
        why = ""
        try:
            self._skip_noise()
            while True:
                head, body = _lengths(self._exactly(8))
                fields = json.loads(self._exactly(head))
                self._dispatch(Reply(fields, self._exactly(body)))
        except (EOFError, OSError):
            pass
        except Exception as error:  # noqa: BLE001 - after any error the waiting threads must end
            why = f"its agent's answers cannot be read ({type(error).__name__}: {error})"
        with self._changed:
            closed = self._closed
        said = why or "the connection ended"
        try:
            said = CLOSED if closed else why or self._pipe.why_ended() + self._printed()
        finally:
            self._end(said)

    def _dispatch(self, reply: Reply) -> None:
        number, event = reply.fields["id"], reply.fields.get("event")
        if type(number) is not int:
            raise TypeError("an answer to nothing")
        with self._changed:
            call = self._calls.get(number) if event else self._calls.pop(number, None)
            if call is None:
                return
            if event is None:
                call.reply = reply
            elif event == "ended":
                call.ended = time.monotonic()
            self._changed.notify_all()
        if event == "output" and call.on_output is not None:
            call.on_output(reply.body)

    def _end(self, why: str) -> None:
        with self._changed:
            if self._lost is None:
                self._lost = why
            self._calls.clear()
            self._changed.notify_all()

    def _skip_noise(self) -> None:
        while _MAGIC not in self._noise:
            if len(self._noise) > _NOISE:
                raise ValueError(f"{len(self._noise)} bytes of something else")
            data = self._pipe.recv(_CHUNK)
            if not data:
                raise EOFError
            self._noise += data
        self._noise, _, rest = self._noise.partition(_MAGIC)
        self._buffer = bytearray(rest)

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self._pipe.recv(_CHUNK)
            if not data:
                raise EOFError
            self._last_received = time.monotonic()
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _printed(self) -> str:
        """Return the output before the agent's first message, for an error."""
        text = self._noise[:500].decode(errors="replace").strip()
        return f"; it printed: {text}" if text else ""


def _lengths(data: bytes) -> tuple[int, int]:
    head, body = struct.unpack("!II", data)
    if head > _HEAD or body > _BODY:
        raise ValueError(f"one of {head} and {body} bytes")
    return head, body


def _hello(name: str, said: Mapping[str, Any]) -> AgentHello:
    """Read an agent's first answer, and check the type of each part."""
    known: dict[str, Any] = {one.name: said.get(one.name) for one in fields_of(AgentHello)}
    wrong = [one.name for one in fields_of(AgentHello) if type(known[one.name]).__name__ != one.type]
    if wrong or set(said) - set(known) - {"id"}:
        raise ProvisionError(name, f"its agent's greeting cannot be read ({', '.join(wrong) or 'unknown fields'})")
    checked_folder(name, known["folder"])
    return AgentHello(**known)


def checked(name: str, what: str, pattern: str, value: object) -> str:
    """Return a text of a node if it matches `pattern` as a whole: it enters files of other nodes."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ProvisionError(name, f"the node's agent answered with {str(value)[:100]!r}, which is no {what}")
    return value


def checked_folder(name: str, value: object) -> str:
    """Return a folder on a node; it must contain no quotes, because the files of ssh cannot hold them."""
    return checked(name, "folder that ssh's files can name", _FOLDER, value)


def boot_command(interpreter: str = "python3") -> tuple[str, ...]:
    """Return the command that runs the agent on a node; its stdin and stdout are the pipe of a connection.

    Its last word is the owner, which appears in process lists and in the environment of all child processes.
    """
    return (interpreter, "-u", "-c", BOOT, str(len(agent_source())), *filter(None, (tracker().label,)))


def agent_source() -> bytes:
    """Return the first data of a connection: the agent's modules, and the code that loads them."""
    folder = REMOTE
    modules = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    return _LOADER.format(modules=modules).encode()
