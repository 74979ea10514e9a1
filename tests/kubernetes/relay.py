"""Hands on what a kubelet says to dockerd, but for the one wish that only CAP_SYS_RESOURCE can fulfil.

A kubelet has the kernel's OOM killer spare what it needs (`"OomScoreAdj":-998`); where root lacks that capability no
container could be started.

    python tests/kubernetes/relay.py LISTEN DOCKER_SOCKET
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
from pathlib import Path

_WISH = re.compile(rb'"OomScoreAdj":(-\d+)(?=[,}])')
_LONGEST = len(b'"OomScoreAdj":-1000,')


def needed() -> bool:
    """Whether this machine may not do what a kubelet asks for."""
    own = Path("/proc/thread-self/oom_score_adj")
    before = own.read_text()
    try:
        own.write_text("-1")
        own.write_text(before)
    except OSError:
        return True
    return False


def plain(data: bytes) -> tuple[bytes, bytes]:
    """What may go on, and what must wait for more: the same number of bytes, so that no length has to be changed."""
    data = _WISH.sub(lambda wish: b'"OomScoreAdj":' + b"0".rjust(len(wish[1])), data)
    start = data.rfind(b'"', max(0, len(data) - _LONGEST))
    cut = (
        start >= 0 and b'"OomScoreAdj":-'.startswith(data[start : start + 15]) and not re.search(rb"[,}]", data[start:])
    )
    return (data[:start], data[start:]) if cut else (data, b"")


def _pump(source: socket.socket, sink: socket.socket, *, change: bool) -> None:
    held = b""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            data, held = plain(held + data) if change else (data, b"")
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.sendall(held)
        sink.shutdown(socket.SHUT_WR)


def _serve(near: socket.socket, to: str) -> None:
    with near, socket.socket(socket.AF_UNIX) as far:
        far.connect(to)
        back = threading.Thread(target=_pump, args=(far, near), kwargs={"change": False}, daemon=True)
        back.start()
        _pump(near, far, change=True)
        back.join()


def main(listen: str, to: str) -> None:
    """Serves until it is killed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(listen)
        server.listen(64)
        while True:
            threading.Thread(target=_serve, args=(server.accept()[0], to), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
