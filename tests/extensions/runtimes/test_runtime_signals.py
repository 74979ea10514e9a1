"""A signal whose handler raises ends a wait soon, also where the kernel gave it to a thread that does not wait."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.process.kernel import still_running
from tests.extensions.runtimes.member_nodes import member, output

__all__ = ["member", "output"]

LONG, SOON = 100.0, 50.0
WAITS = 30  # looks in a row at which the main thread sleeps


@pytest.fixture
def interrupting() -> Iterator[threading.Thread]:
    """A thread that, once the main one sleeps, interrupts itself: so does a signal that comes just before the sleep."""
    status = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")

    def interrupt() -> None:
        asleep = 0
        for _ in itertools.count():
            asleep = asleep + 1 if status.read_text().rpartition(")")[2].split()[0] == "S" else 0
            if asleep > WAITS:
                break
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt("SIGTERM")))
    thread = threading.Thread(target=interrupt)
    yield thread
    thread.join()
    signal.signal(signal.SIGTERM, before)


def test_a_wait_for_a_process(interrupting: threading.Thread) -> None:
    with subprocess.Popen((sys.executable, "-c", "import signal; signal.pause()")) as process:
        began = time.monotonic()
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            still_running([process.pid], LONG)
        process.kill()
    assert time.monotonic() - began < SOON


def test_a_wait_for_an_answer(interrupting: threading.Thread, member: AgentNode) -> None:
    began = time.monotonic()
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        member.exec(("sleep", str(LONG)), timeout=LONG)
    assert time.monotonic() - began < SOON
