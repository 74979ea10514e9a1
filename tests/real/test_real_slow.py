"""A slowdown planted on the link between two containers is caught, and nothing else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.nodes_here import ROOT

pytestmark = [pytest.mark.real, pytest.mark.nightly(reason="six runs over a limited link")]


def test_a_fifth_less_on_the_link_is_slow_and_a_clean_run_is_not(engine: None, tmp_path: Path) -> None:
    """Three of each here, in a random order; ten of each is what `benchmarks/slow.py` does by itself."""
    command = (sys.executable, ROOT / "benchmarks" / "slow.py", "--runs", "3")
    environ = os.environ | {"HETGPU_LEASES": str(tmp_path)}
    tmp_path.chmod(0o700)
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "caught 3 of 3; false alarms 0 of 3; compare right in 6 of 6" in done.stdout
    runs = re.findall(r"^\| (80 %|nothing) \| (\w+) \| (\d) \|", done.stdout, re.MULTILINE)
    assert sorted(runs) == [("80 %", "slow", "1")] * 3 + [("nothing", "passed", "0")] * 3
