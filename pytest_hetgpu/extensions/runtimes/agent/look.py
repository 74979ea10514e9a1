"""Sends `remote/dump_stacks.py` to where ranks are, and brings its answer back: as our process, or by an agent."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, Call, Reply
from pytest_hetgpu.extensions.runtimes.base import StackDumper

TOOL = "py-spy"
MARGIN = 1.0  # seconds that an answer may come late
LARGEST = 256 << 20  # bytes of an answer
_LEAST = 2.0  # seconds that a look takes, all in all
_PAUSE = 0.01


def program() -> str:
    """Return the text of the program that looks at processes."""
    return (REMOTE / "dump_stacks.py").read_text(encoding="utf-8")


def py_spy() -> str | None:
    """Where py-spy is on this machine: beside our own interpreter, or on the PATH."""
    places = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    beside = (str(place / TOOL) for place in places if os.access(place / TOOL, os.X_OK))
    return next(beside, None) or shutil.which(TOOL)


def machine() -> str:
    """Return this machine's own name, for what runs on it may run on others of that name."""
    return platform.machine() if sys.platform == "linux" else ""


def looking_here(pids: Callable[[], Iterable[int]]) -> StackDumper:
    """Look at processes of this machine, `pids` and their descendants."""

    def look(request: Mapping[str, Any], seconds: float) -> bytes:
        asked = {**request, "pids": sorted(pids()), "seconds": seconds, "py_spy": py_spy(), "alone": True}
        return _answer(json.dumps(asked).encode(), seconds + MARGIN)

    return look


def _answer(request: bytes, seconds: float) -> bytes:
    """Return the program's output; whatever it has started is gone with it."""
    pipe = subprocess.PIPE
    argv = (sys.executable, "-I", "-c", program())
    # It makes a group of its own, so that all of it can be killed, and stays in our session: it is none of the job's.
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    try:
        return process.communicate(request, seconds)[0]
    except subprocess.TimeoutExpired:
        return b""
    finally:
        process.kill()
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        _reap(process.pid)


def _reap(group: int) -> None:
    """Reap what the program had started and could not wait for: orphans are ours."""
    latest = time.monotonic() + MARGIN
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0) or time.monotonic() < latest:
            time.sleep(_PAUSE)


def looking_over(link: AgentConnection, folder: str, request: Mapping[str, Any], seconds: float) -> bytes:
    """Look at what runs below the agent of `link`; py-spy is sent to its `folder` if it is needed and can be used."""
    deadline = time.monotonic() + seconds
    asked = {"pids": [], **request, "below": [link.hello.pid]}
    tool = py_spy()
    answer = _asked(link, {**asked, "offer": machine() if tool else ""}, deadline)
    if not (tool and wants(answer)):
        return answer
    packed = zlib.compress(Path(tool).read_bytes(), 6)
    sent = link.call("put", packed, files=[(f"{TOOL}.z", len(packed))])
    arrived = _reply(link, sent, deadline - time.monotonic() - _LEAST)
    place = f"{folder}/{TOOL}.z" if arrived is not None else ""
    return _asked(link, {**asked, "py_spy": place}, max(deadline, time.monotonic() + _LEAST))


def wants(answer: bytes) -> bool:
    """Whether a node asks for py-spy instead of answering."""
    return bool(unpacked(answer).get("wants"))


def unpacked(answer: bytes) -> dict[str, Any]:
    """Unpack a node's answer; empty if it is nothing, or no answer."""
    try:
        found = json.loads(zlib.decompressobj().decompress(answer, LARGEST))
    except (zlib.error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _asked(link: AgentConnection, request: Mapping[str, Any], deadline: float) -> bytes:
    left = max(0.1, deadline - time.monotonic())
    body = json.dumps({**request, "seconds": left}).encode()
    argv = ["python3", "-c", program()]
    reply = _reply(link, link.call("ask", body, argv=argv, env={}, timeout=left + MARGIN), left + 2 * MARGIN)
    size = reply.fields.get("stdout") if reply is not None else 0
    return reply.body[:size] if reply is not None and isinstance(size, int) else b""


def _reply(link: AgentConnection, call: Call, seconds: float) -> Reply | None:
    """Return the answer; None if there is none in time, which makes no node a lost one."""
    try:
        return link.wait(call, max(0.1, seconds))
    except HetgpuError:
        return None
