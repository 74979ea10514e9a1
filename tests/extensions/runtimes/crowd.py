"""A launcher as bad as real ones: it starts a process for each role named, and says who they are once all are there.

    python crowd.py stay|leave|deaf FIFO ROLE...

`stay` waits for ever, `leave` ends at once, `deaf` answers TERM with a line in FIFO and goes on. FIFO may be `-`.
Prints one `ROLE PID` line for each process, its own role being `launcher`, then writes `ready` to FIFO.
"""

import os
import signal
import sys


def rank(role: str, tell: int) -> None:
    if role in ("group", "deaf"):
        os.setpgid(0, 0)
    if role in ("deaf", "stray", "wiped"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if role in ("session", "stray", "wiped"):
        os.setsid()
    if role in ("stray", "wiped") and os.fork():
        os._exit(0)
    if role == "wiped":
        os.set_inheritable(tell, True)
        told = f"import os, signal; os.write({tell}, b'wiped %d\\n' % os.getpid()); signal.pause()"
        os.execve(sys.executable, [sys.executable, "-S", "-c", told], {"LONELY": "1"})
    os.write(tell, f"{role} {os.getpid()}\n".encode())
    if role == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        signal.pause()


def main(manner: str, fifo: str, *roles: str) -> None:
    heard, tell = os.pipe()
    for role in roles:
        if os.fork() == 0:
            rank(role, tell)
    os.close(tell)
    said = b""
    while said.count(b"\n") < len(roles):
        said += os.read(heard, 4096)
    os.write(1, said + b"launcher %d\n" % os.getpid())
    news = os.open(os.devnull if fifo == "-" else fifo, os.O_WRONLY)
    if manner == "deaf":
        signal.signal(signal.SIGTERM, lambda *_: os.write(news, b"TERM\n") and None)
    os.write(news, b"ready\n")
    while manner != "leave":
        signal.pause()


main(*sys.argv[1:])
