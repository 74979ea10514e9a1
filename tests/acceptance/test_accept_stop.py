"""A session that is stopped from outside: the cell in flight is in no report a pass, and nothing is left running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from junitparser import JUnitXml

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HANG = "two-ob1-tcp-allreduce-hang"


def verdicts(path: Path) -> dict[str, list[str]]:
    return {
        case.name: [type(e).__name__.lower() for e in case.result]
        for suite in JUnitXml.fromfile(str(path))
        for case in suite
    }


def as_in_a_terminal() -> None:
    """Whoever runs these tests in the background may have these signals ignored."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def wait_for_word(fifo: Path) -> None:
    """Until the hanging cell says that it is up."""
    reader = os.open(fifo, os.O_RDWR)
    try:
        assert select.select([reader], [], [], 60)[0], "the hanging cell never came up"
    finally:
        os.close(reader)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_in_mid_cell(
    matrix: Callable[..., Path],
    stacks: Path,
    latest: Callable[[], Path],
    pytester: pytest.Pytester,
    mode: tuple[str, ...],
    number: signal.Signals,
) -> None:
    matrix(["good", "hang"])
    fifo = pytester.path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "pytest", "--hetgpu-matrix", "demo.yaml", "--junitxml", "own.xml", *mode]
    run = subprocess.Popen(
        command,
        cwd=pytester.path,
        env={**os.environ, "STANDIN_FIFO": str(fifo)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
    )
    wait_for_word(fifo)
    run.send_signal(number)
    printed, _ = run.communicate(timeout=50)
    assert run.returncode == 2, printed
    ours, own = verdicts(latest() / "junit.xml"), verdicts(pytester.path / "own.xml")
    assert ours[HANG] in (["failure"], ["error"])
    assert next(found for name, found in own.items() if HANG in name) in (["failure"], ["error"])
    left = [p for p in psutil.process_iter(["cmdline"]) if str(stacks) in " ".join(p.info["cmdline"] or ())]
    assert not left
