"""The transport of `remote/dump_stacks.py` to the ranks, as a local process or through an agent, and of its answer."""

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
_LEAST = 2.0  # seconds that a dump takes in total
_PAUSE = 0.01


def program() -> str:
    """Return the text of the program that dumps stacks."""
    return (REMOTE / "dump_stacks.py").read_text(encoding="utf-8")


def py_spy() -> str | None:
    """Return the path of py-spy on this machine: beside the current interpreter, or on the PATH."""
    places = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    beside = (str(place / TOOL) for place in places if os.access(place / TOOL, os.X_OK))
    return next(beside, None) or shutil.which(TOOL)


def machine() -> str:
    """Return a unique name of this machine: different machines may have the same host name."""
    return platform.machine() if sys.platform == "linux" else ""


def looking_here(pids: Callable[[], Iterable[int]]) -> StackDumper:
    """Return a dumper for processes of this machine: `pids` and their descendants."""

    def look(request: Mapping[str, Any], seconds: float) -> bytes:
        asked = {**request, "pids": sorted(pids()), "seconds": seconds, "py_spy": py_spy(), "alone": True}
        return _answer(json.dumps(asked).encode(), seconds + MARGIN)

    return look


def _answer(request: bytes, seconds: float) -> bytes:
    """Return the program's output, after ending all processes that it started."""
    pipe = subprocess.PIPE
    argv = (sys.executable, "-I", "-c", program())
    # It makes its own group, so that all of it can be killed. It stays in this session: it does not belong to the job.
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
    """Reap the program's orphans, which become children of this process."""
    latest = time.monotonic() + MARGIN
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0) or time.monotonic() < latest:
            time.sleep(_PAUSE)


def looking_over(link: AgentConnection, folder: str, request: Mapping[str, Any], seconds: float) -> bytes:
    """Dump the processes below the agent of `link`; send py-spy to its `folder` if it is needed and usable there."""
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
    """Return whether a node requests py-spy instead of answering."""
    return bool(unpacked(answer).get("wants"))


def unpacked(answer: bytes) -> dict[str, Any]:
    """Unpack a node's answer; return an empty dict if it is nothing, or no answer."""
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
    """Return the answer; None if it does not come in time. That alone does not mark the node as lost."""
    try:
        return link.wait(call, max(0.1, seconds))
    except HetgpuError:
        return None
