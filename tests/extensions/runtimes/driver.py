"""Runs a command through `Local` in a process of its own, which tests may send signals to and measure.

    python driver.py MANNER OUTPUT TIMEOUT GRACE ARGV...

Prints the RunResult (or the name of what was raised) and its own peak of memory in bytes as one JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import sys
from pathlib import Path

from pytest_hetgpu.extensions.runtimes.local import Local
from pytest_hetgpu.model.job import Command


def peak() -> int:
    """Bytes this program held at most; getrusage would count what its parent held when it forked, too."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def raise_error(number: int, frame: object) -> None:
    raise RuntimeError("not an interrupt")


def prepare(manner: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if manner == "term-interrupts":
        signal.signal(signal.SIGTERM, raise_interrupt)
    elif manner == "term-is-an-error":
        signal.signal(signal.SIGTERM, raise_error)
    elif manner == "ignores-children":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def main(manner: str, output: str, timeout: str, grace: str, *argv: str) -> None:
    prepare(manner)
    said: dict[str, object] = {}
    try:
        result = Local(grace=float(grace)).run(Command(argv), output=Path(output), timeout=float(timeout))
        said |= dataclasses.asdict(result)
    except BaseException as error:  # noqa: BLE001 - it is what the test asks about
        said["raised"] = repr(error)
    said["peak"] = peak()
    sys.stdout.write(json.dumps(said))


main(*sys.argv[1:])
