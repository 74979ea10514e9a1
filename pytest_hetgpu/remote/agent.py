"""The node agent. It runs commands on one node for the process that holds its pipe, and cleans up when the pipe closes.

It is never imported. Its text, with that of the modules that it imports, is sent over the pipe. Python 3.6 or later
runs it. Then it prints MAGIC, and exchanges frames on stdin and stdout. A frame is `struct !II` (the lengths of a JSON
header and of a body), then header and body. Each request has an `id`, and its answer has the same.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple

from agent_capture import CapturedOutput, read_file
from agent_dir import describe_node, private_folder
from agent_sshd import AgentError, AgentSshd, make_key
from agent_tree import descendants, processes, send_signals, still_running
from segments import names as segments
from segments import remove

Fields = Dict[str, Any]
Answer = Tuple[Fields, bytes]

MAGIC = b"\0hetgpu-agent 1\0"  # a login shell may print text before it
LINGER = 0.25  # seconds in which leftovers of a command may end by themselves
KILL_LIMIT = 10.0  # seconds to wait for a process after KILL
CHUNK = 256 << 10  # bytes of output in one frame
PIECE = 16 << 10  # bytes written at once, so that progress on a slow link is visible
BACKLOG = 2 << 20  # bytes: more than a pipe holds (F_SETPIPE_SZ below) and one chunk
F_SETPIPE_SZ = 1031
IFF_UP, IFF_LOOPBACK = 0x1, 0x8  # linux/if.h


class StreamedCommand:
    """A command with streamed output. `pid` is set from its start (`launched`) until it is reaped."""

    def __init__(self) -> None:
        self.launched = threading.Event()
        self.pid: Optional[int] = None
        self.linger, self.grace = LINGER, 1.0
        self.passed = 0  # bytes of its output
        self.passing = False


class Agent:
    """The server of requests, each in a thread of its own; the methods named `do_...` are the requests."""

    def __init__(self, out: int, folder: str) -> None:
        self.out = out
        self.folder = folder
        self.lock = threading.Lock()  # for the fields below, and to start processes
        self.writing = threading.Lock()
        self.closing = False
        self.moved = 0  # bytes that we sent
        self.segments = segments()  # segments of shared memory that existed before us
        self.owned: Set[int] = set()
        self.runs: Dict[int, StreamedCommand] = {}
        self.sshd = AgentSshd(folder, self.start)

    def send_frame(self, fields: Fields, body: bytes = b"") -> None:
        """Send one frame. Send none after the end has begun: later output of commands is caused by our own signals.

        If the pipe is broken, end the agent.
        """
        head = json.dumps(fields).encode()
        left = memoryview(struct.pack("!II", len(head), len(body)) + head + body)
        with self.writing:
            try:
                while left and not self.closing:
                    count = os.write(self.out, left[:PIECE])
                    self.moved += count
                    left = left[count:]
            except OSError:
                os.kill(os.getpid(), signal.SIGTERM)

    def serve(self) -> None:
        """Answer requests until the pipe closes."""
        while True:
            sizes = sys.stdin.buffer.read(8)
            if len(sizes) < 8:
                return
            head, body = struct.unpack("!II", sizes)
            fields = json.loads(sys.stdin.buffer.read(head).decode())
            if fields["op"] == "bye":
                return
            if fields["op"] == "run":
                self.runs[fields["id"]] = StreamedCommand()
            content = sys.stdin.buffer.read(body)
            threading.Thread(target=self.answer, args=(fields, content), daemon=True).start()

    def answer(self, request: Fields, body: bytes) -> None:
        """Run one request and send its result."""
        try:
            fields, body = getattr(self, "do_" + request["op"])(request, body)
        except AgentError as error:
            fields, body = {"error": str(error)}, b""
        except Exception as error:  # noqa: BLE001 - the client waits for an answer
            fields, body = {"error": f"{type(error).__name__}: {error}"}, b""
        self.send_frame(dict(fields, id=request["id"]), body)

    def start(self, argv: List[str], env: Dict[str, str], **files: Any) -> "subprocess.Popen[bytes]":
        """Start a process that is owned by the agent until `reap`."""
        with self.lock:
            if self.closing:
                raise OSError(errno.ESHUTDOWN, "the agent is ending")
            # A launcher that is killed leaves files named by its number, on which the next of that number fails.
            merged = {**os.environ, "TMPDIR": self.folder, **env}
            process: subprocess.Popen[bytes] = subprocess.Popen(
                argv, env=merged, cwd="/", start_new_session=True, **files
            )
            self.owned.add(process.pid)
            return process

    def reap(self, process: "subprocess.Popen[bytes]") -> Optional[int]:
        """Return the return code of a process that ended; None if even KILL does not end it."""
        if still_running([process.pid], KILL_LIMIT):
            return None
        with self.lock:
            self.owned.discard(process.pid)
            return process.wait()

    def do_ask(self, request: Fields, body: bytes) -> Answer:
        """Run a short command and return its whole output until it ends, even if its children keep the pipes open."""
        pipe = subprocess.PIPE
        try:
            process = self.start(
                request["argv"], request["env"], stdin=pipe if body else subprocess.DEVNULL, stdout=pipe, stderr=pipe
            )
        except (OSError, ValueError) as error:
            return {"failed": describe_failure(error, request)}, b""
        captured = CapturedOutput(process, body)
        ended = captured.until_ended(time.monotonic() + request["timeout"])
        if not ended:
            send_signals([process.pid, *descendants(processes(), [process.pid])], signal.SIGKILL)
        out, err = captured.close()
        return {"ended": ended, "returncode": self.reap(process), "stdout": len(out)}, out + err

    def do_run(self, request: Fields, _: bytes) -> Answer:
        """Run a command and forward its output as it comes. Stop all leftovers when it ends."""
        run = self.runs[request["id"]]
        read_end, write_end = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(read_end, F_SETPIPE_SZ, 1 << 20)
        try:
            process = self.start(
                request["argv"], request["env"], stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end
            )
            run.pid = process.pid
        except (OSError, ValueError) as error:
            os.close(read_end)
            return {"failed": describe_failure(error, request)}, b""
        finally:
            run.launched.set()
            os.close(write_end)
        forwarder = threading.Thread(target=self.forward_output, args=(read_end, request["id"], run), daemon=True)
        forwarder.start()
        still_running([process.pid], None)
        self.send_frame({"id": request["id"], "event": "ended"})
        survivors = self.stop_strays(run.linger, run.grace, process.pid)
        cut = not self.drain(forwarder, run)
        run.pid = None
        return {"returncode": self.reap(process), "survivors": survivors, "cut": cut}, b""

    def drain(self, forwarder: threading.Thread, run: StreamedCommand) -> bool:
        """Wait for the rest of a command's output while data moves; return whether all of it was forwarded.

        The command has ended: data beyond the capacity of the pipe comes from other processes.
        """
        end, before, now = run.passed + BACKLOG, -1, 0
        while forwarder.is_alive() and run.passed < end and before != now:
            before = self.moved if run.passing else run.passed
            forwarder.join(KILL_LIMIT)
            now = self.moved if run.passing else run.passed
        return not forwarder.is_alive() or run.passed >= end

    def forward_output(self, read_end: int, number: int, run: StreamedCommand) -> None:
        """Forward the output of a command until no process holds its pipe."""
        with open(read_end, "rb", buffering=0) as pipe:
            for chunk in iter(lambda: pipe.read(CHUNK), b""):
                run.passing = True
                self.send_frame({"id": number, "event": "output"}, chunk)
                run.passing = False
                run.passed += len(chunk)

    def do_stop(self, request: Fields, _: bytes) -> Answer:
        """Ask a command to end, and kill it after `grace` seconds; with 0, kill all its processes at once."""
        run = self.runs[request["run"]]
        run.launched.wait()
        run.linger, run.grace = 0.0, request["grace"] / 2
        if run.pid is not None:
            if request["grace"]:
                send_signals([run.pid], signal.SIGTERM, signal.SIGCONT)  # a stopped process acts on nothing but KILL
                still_running([run.pid], request["grace"])
            if run.pid is not None:
                send_signals([run.pid], signal.SIGKILL)
            if not request["grace"]:
                self.stop_strays(0.0, 0.0)
        return {}, b""

    def do_sweep(self, request: Fields, _: bytes) -> Answer:
        return {"survivors": self.stop_strays(request["linger"], request["grace"])}, b""

    def find_strays(self, mine: Optional[int] = None) -> Dict[int, str]:
        """Return running descendants by pid, without the processes that the agent owns; include `mine`."""
        table = processes()
        listener = self.sshd.process.pid if self.sshd.process else 0
        with self.lock:
            spared = self.owned - {mine, listener}
            found = [pid for pid in descendants(table, [os.getpid()], spared) if pid != listener]
            for pid in found:
                parent, _, state = table[pid]
                if state == "Z" and parent == os.getpid() and pid not in self.owned:
                    with contextlib.suppress(OSError):
                        os.waitpid(pid, os.WNOHANG)
        return {pid: table[pid][1] for pid in found if table[pid][2] not in "ZX"}

    def stop_strays(self, linger: float, grace: float, mine: Optional[int] = None) -> List[str]:
        """Stop all strays: wait `linger` seconds, then send TERM, wait `grace` seconds, then send KILL."""
        still_running(self.find_strays(mine), linger)
        names = found = self.find_strays(mine)
        if found and grace:
            send_signals(found, signal.SIGTERM, signal.SIGCONT)
            still_running(found, grace)
        deadline, empty = time.monotonic() + KILL_LIMIT, 0
        while found and empty < 2:  # one listing misses processes that fork meanwhile
            left = self.find_strays(mine)
            names = {**names, **left}
            empty = 0 if left else empty + 1
            if time.monotonic() > deadline:
                names.update({pid: name + ", which KILL did not end" for pid, name in left.items()})
                break
            send_signals(left, signal.SIGKILL)
            still_running(left, deadline - time.monotonic())
        remove(segments() - self.segments)
        return [f"{name} ({pid})" for pid, name in sorted(names.items()) if not name.startswith("sshd")]

    def do_put(self, request: Fields, body: bytes) -> Answer:
        """Write files, one after another in `body`, below the folder."""
        at = 0
        for name, size in request["files"]:
            path = Path(self.folder, name)
            if not name or "\0" in name or name.startswith("/") or {"..", "."} & set(name.split("/")):
                raise AgentError(f"{name!r} does not lie below the folder")
            for parent in reversed(path.relative_to(self.folder).parents):
                with contextlib.suppress(FileExistsError):
                    Path(self.folder, parent).mkdir(0o700)
            if path.parent.resolve() != path.parent:
                raise AgentError(f"{name!r} does not lie below the folder")
            file = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(file, "wb") as opened:  # noqa: PTH123 - it is a descriptor
                opened.write(body[at : at + size])
            at += size
        return {}, b""

    def do_read(self, request: Fields, _: bytes) -> Answer:
        found = [read_file(path) for path in request["paths"]]
        return {"sizes": [None if one is None else len(one) for one in found]}, b"".join(filter(None, found))

    def do_exists(self, request: Fields, _: bytes) -> Answer:
        return {"exist": [Path(path).exists() for path in request["paths"]]}, b""

    def do_interfaces(self, _: Fields, __: bytes) -> Answer:
        flags = {}
        for listed in Path("/sys/class/net").glob("*/flags"):
            flags[listed.parent.name] = int((read_file(str(listed)) or b"0").decode(), 16)
        up = [name for name, flag in flags.items() if flag & IFF_UP]
        return {"up": sorted(up, key=lambda name: (not flags[name] & IFF_LOOPBACK, name))}, b""

    def do_key(self, _: Fields, __: bytes) -> Answer:
        return {"public": make_key(self.folder + "/key")}, b""

    def do_settle(self, request: Fields, _: bytes) -> Answer:
        """Rename the folder to the name that the other nodes use, if that name is free here."""
        wanted = Path(self.folder).with_name(Path(request["name"]).name)
        with contextlib.suppress(OSError):
            wanted.mkdir(0o700)  # fails if the name exists, even as a link
            Path(self.folder).rename(wanted)
            self.folder = self.sshd.folder = str(wanted)
        return {"folder": self.folder}, b""

    def do_start_sshd(self, request: Fields, _: bytes) -> Answer:
        env = {"TMPDIR": self.folder, **request["env"]}
        env.update({name: os.environ[name] for name in ("HETGPU_OWNER",) if name in os.environ})
        for name in ("PATH", "LD_LIBRARY_PATH"):
            places = list(filter(None, (env.get(name), os.environ.get(name))))
            env.update({name: os.pathsep.join(places)} if places else {})
        return dict(self.sshd.open(request["key"], env)), b""

    def do_log(self, _: Fields, __: bytes) -> Answer:
        return {"lines": list(self.sshd.log)}, b""

    def shut_down(self) -> NoReturn:
        """Kill all descendants, remove the folder, and exit, even if other threads wait."""
        with self.lock:
            self.closing = True
            self.owned.clear()
        self.sshd.process = None
        self.stop_strays(0.0, 0.0)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)


def describe_failure(error: Exception, request: Fields) -> Fields:
    """Return the reasons why a command was not started, from which `_starting.py` builds a sentence."""
    env = dict(os.environ, **request["env"])
    path = env.get("PATH", "")
    sizes = (len(os.fsencode(text)) + 1 for text in (*request["argv"], *env, *env.values()))
    found = bool(request["argv"]) and shutil.which(request["argv"][0], path=path) is not None
    number = error.errno if isinstance(error, OSError) else None
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return {"errno": number, "text": text, "size": sum(sizes), "found": found, "path": path}


def main() -> None:
    """Serve until the pipe closes or a signal ends the agent."""
    out = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.write(out, MAGIC)
    if sys.argv[2:]:
        os.environ["HETGPU_OWNER"] = sys.argv[2]
    try:
        agent = Agent(out, private_folder())
    except AgentError as error:
        Agent(out, "").send_frame({"id": 0, "error": str(error)})
        return
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        agent.send_frame(dict(describe_node(agent.folder), id=0))
        agent.serve()
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        agent.shut_down()


if __name__ == "__main__":
    main()
