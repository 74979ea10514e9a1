"""Reports on a disk that is too small for all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

Matrix = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("stacks")


@pytest.fixture
def small_disk(pytester: pytest.Pytester) -> Iterator[Path]:
    """A disk of 1 MB, less than the page takes."""
    place = pytester.path / "disk"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place))
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    yield place
    subprocess.run(("umount", "-l", place), check=True)


def test_the_run_ends_as_ever_and_says_what_is_not_there(
    small_disk: Path, matrix: Matrix, run_pytest: Callable[..., pytest.RunResult]
) -> None:
    matrix(("good",))
    done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-reports", str(small_disk / "reports"))
    said = done.stdout.str()
    assert done.ret == 0
    assert "reports: not written: index.html (No space left on device); `hetgpu report " in said
    (names,) = (
        line.partition("  (")[2] for line in said.splitlines() if line.startswith("reports: ") and "  (" in line
    )
    assert names == "summary.md, junit.xml, journal/, scenarios/)"
    assert "Traceback" not in said + done.stderr.str()
    run = (small_disk / "reports" / "latest").resolve()
    assert ET.parse(run / "junit.xml").getroot().get("tests") == "1"
    assert "Of 1 cell, 1 works." in (run / "summary.md").read_text()
    assert not (run / "index.html").exists()
