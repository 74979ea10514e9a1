"""The program that claims a machine for others: who is told what, in which order."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

from pytest_hetgpu.leases.claims import Claim

SERVE = """
import sys
from pytest_hetgpu.leases import claims
claims.common_folder = lambda: sys.argv[1]
claims.serve()
"""
TIMES = 300


def test_nobody_is_told_that_they_hold_what_they_have_freed(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-c", SERVE, str(tmp_path)), input=b"{}\nfree\n" * TIMES, capture_output=True, check=True
    )
    hello, *answers = (next(iter(json.loads(line))) for line in done.stdout.splitlines())
    assert hello == "hello"
    assert answers.count("freed") == TIMES
    assert ("held", "held") not in itertools.pairwise(answers)
    assert answers[-1] == "freed"


def test_what_was_released_is_not_granted(tmp_path: Path) -> None:
    claim = Claim(str(tmp_path), "host", {})
    assert claim.granted(0)
    claim.release()
    assert not claim.granted(0)
    assert Claim(str(tmp_path), "host", {}).granted(0)
