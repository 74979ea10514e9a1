"""Data over TCP connections, with one process per connection: sent until the peer closes, or received and counted.

Threads of one interpreter would share a core when blocks are small. Python 3.6 or later.
"""

import json
import os
import resource
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

Fields = Dict[str, Any]

BLOCK, LEAST = 1 << 20, 256 << 10  # bytes that are given to the kernel at once, and asked of it
MARGIN = 3.0  # seconds after which a stream ends by itself
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: drop data in flight when a stream ends


class ProbeError(Exception):
    """An error of the measurement, with a message for people."""


def receive_data(streams: Sequence[socket.socket], warm: float, seconds: float, intervals: int) -> Fields:
    """Receive data from all streams, and then close them.

    Return `rates`, in bytes per second over all streams, one per interval after the `warm` seconds. `core` and
    `machine` are those of `run_streams`. Raises ProbeError if a stream ended before.
    """
    start = time.monotonic() + warm
    marks = [start + seconds * place / intervals for place in range(intervals + 1)]
    results, load = run_streams(streams, lambda stream: _receive_stream(stream, marks), warm + seconds + 2 * MARGIN)
    counts = [sum(one["counts"][place] for one in results) for place in range(len(marks))]
    rates = [(counts[place + 1] - counts[place]) * intervals / seconds for place in range(intervals)]
    return dict(load, rates=rates)


def send_data(streams: Sequence[socket.socket], warm: float, seconds: float) -> Fields:
    """Send over all streams until the other end closes them; return the load as `run_streams` does."""
    deadline = time.monotonic() + warm + seconds + MARGIN
    return run_streams(streams, lambda stream: _send_stream(stream, deadline), warm + seconds + 2 * MARGIN)[1]


def _receive_stream(stream: socket.socket, marks: Sequence[float]) -> Fields:
    """Return the bytes received until each of the times `marks`."""
    block = memoryview(bytearray(LEAST))
    counts = []  # type: List[float]
    total, before = 0, time.monotonic()
    # Whole blocks, so that small packets do not wake the interpreter; after the timeout, a part of a block.
    _wait_at_most(stream, socket.SO_RCVTIMEO, (marks[1] - marks[0]) / 4)
    while len(counts) < len(marks):
        try:
            size = stream.recv_into(block, 0, socket.MSG_WAITALL)
        except BlockingIOError:
            size = 0
        else:
            if not size:
                raise ProbeError("the other end closed a stream too early")
        now = time.monotonic()
        # Assume that data since the last receive came evenly.
        while len(counts) < len(marks) and marks[len(counts)] <= now:
            counts.append(total + size * min(1.0, max(0.0, (marks[len(counts)] - before) / (now - before))))
        total += size
        before = now
    return {"counts": counts}


def _send_stream(stream: socket.socket, deadline: float) -> Fields:
    block = memoryview(bytes(BLOCK))
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ProbeError("the other end did not stop taking data in")
        _wait_at_most(stream, socket.SO_SNDTIMEO, left)
        try:
            for _ in range(64):
                stream.send(block)
        except BlockingIOError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            return {}


def _wait_at_most(stream: socket.socket, option: int, seconds: float) -> None:
    """Set a timeout in the kernel. One in Python would cost a poll(2) per call."""
    micro = max(1000, int(seconds * 1e6))
    stream.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", micro // 1000000, micro % 1000000))


def run_streams(
    streams: Sequence[socket.socket], work: Callable[[socket.socket], Fields], limit: float
) -> Tuple[List[Fields], Fields]:
    """Run `work` for each stream in a process of its own, for at most `limit` seconds; close the streams.

    Return the results, and the load. `core` is the largest share of a core that such a process used. `machine` is the
    busy share of all cores, by all processes.
    """
    before, began = cpu_ticks(), time.monotonic()
    children = []
    for stream in streams:
        stream.setblocking(True)
        read_end, write_end = os.pipe()
        pid = os.fork()
        if not pid:
            set_alarm(limit)
            _run_child(stream, [other for other in streams if other is not stream], work, write_end)
        os.close(write_end)
        children.append((pid, read_end))
    for stream in streams:
        stream.close()
    results = [_read_result(pid, read_end) for pid, read_end in children]
    seconds = max(time.monotonic() - began, 1e-9)
    for one in results:
        if one.get("why"):
            raise ProbeError(one["why"])
    return results, {"core": max(one["cpu"] for one in results) / seconds, "machine": busy_share(before)}


def _run_child(
    stream: socket.socket, others: Sequence[socket.socket], work: Callable[[socket.socket], Fields], write_end: int
) -> None:
    """Run `work` and exit; never return."""
    answer = {"why": "a stream's process failed"}  # type: Fields
    try:
        for other in others:
            other.close()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        answer = work(stream)
    except (OSError, ProbeError) as error:
        answer = {"why": str(error)}
    finally:
        with suppress(BaseException):
            stream.close()
            used = resource.getrusage(resource.RUSAGE_SELF)
            os.write(write_end, json.dumps(dict(answer, cpu=used.ru_utime + used.ru_stime)).encode())
        os._exit(0)


def _read_result(pid: int, pipe: int) -> Fields:
    with open(pipe, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text.decode()) if text else {"why": "a stream's process was killed"}


def set_alarm(seconds: float) -> None:
    """End this process after so many seconds, whatever happens."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def cpu_ticks() -> List[int]:
    """Return ticks since boot of all cores: user, nice, system, idle, iowait, ... (proc(5))."""
    with suppress(OSError, ValueError, IndexError):
        return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return []


def busy_share(before: Sequence[int]) -> float:
    """Return the busy share of all cores' time since `before`; 0 if the kernel does not provide it."""
    after = cpu_ticks()
    spent = [after[place] - before[place] for place in range(min(len(before), len(after)))]
    whole = sum(spent)
    return 1.0 - (spent[3] + spent[4]) / whole if whole > 0 else 0.0
