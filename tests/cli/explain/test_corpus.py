"""Labelled logs of real failures, if a corpus is given (HETGPU_CORPUS), and the floors that explanations must keep.

The corpus's own score tool, in `../tools`, runs `hetgpu explain --json` on one log at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FLOORS = {
    "outcome": 0.98,
    "failed run not passed": 1.0,
    "right where it answers": 0.98,
    "good run not blamed": 1.0,
    "signal": 0.98,
    "signal not invented": 0.98,
    "frame": 0.98,
    "frame not invented": 0.98,
    "line": 0.95,
    "own key a bug": 1.0,
}
CAUSE = {"cause": 0.95}
# Of these logs some show no sign of success, so that the outcome of a good run is unknown. Few have a frame to name.
FIELD = {"outcome": 0.95, "line": 0.93, "signal not invented": 0.93}
OF = {"lab": FLOORS | CAUSE, "public-log": FLOORS | CAUSE, "field-log": {**FLOORS, **FIELD}}
del OF["field-log"]["frame"], OF["field-log"]["own key a bug"]


@pytest.fixture
def corpus(lacking: Callable[[str, str], None]) -> Path:
    """The corpus's folder."""
    given = os.environ.get("HETGPU_CORPUS", "")
    if not given:
        lacking("corpus", "no corpus of labelled logs: set HETGPU_CORPUS")
    return Path(given)


@pytest.mark.parametrize("origin", OF)
def test_the_answers_keep_their_floors(corpus: Path, origin: str) -> None:
    tool = corpus.resolve().parent / "tools" / "score_corpus.py"
    command = [sys.executable, str(tool), "--corpus", str(corpus), "--origin", origin, "--wrong", "--timeout", "120"]
    command += ["--command", f"{sys.executable} -m pytest_hetgpu.cli explain --json"]
    command += [word for name, floor in OF[origin].items() for word in ("--floor", f"{name}={floor}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
