"""The program that claims a machine for others: who is told what, in which order."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_hetgpu.cluster.leases import host_lock
from pytest_hetgpu.cluster.leases.host_lock import HostLock, LockFileError

SERVE = """
import sys
from pytest_hetgpu.cluster.leases import host_lock
host_lock.common_folder = lambda: sys.argv[1]
host_lock.serve()
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
    claim = HostLock(str(tmp_path), "host", {})
    assert claim.granted(0)
    claim.release()
    assert not claim.granted(0)
    assert HostLock(str(tmp_path), "host", {}).granted(0)


def test_a_folder_that_takes_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(LockFileError, match=r"hetgpu-host\.turn cannot be made: No such file or directory"):
        HostLock(str(tmp_path / "none"), "host", {})


def test_what_is_mounted_read_only_is_no_common_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_, last = host_lock.COMMON
    mounted = os.statvfs(first)
    flags = {first: mounted.f_flag | os.ST_RDONLY, last: mounted.f_flag & ~os.ST_RDONLY}
    monkeypatch.setattr("os.statvfs", lambda place: SimpleNamespace(f_flag=flags[place]))
    assert host_lock.common_folder() == last
    flags[last] |= os.ST_RDONLY
    assert host_lock.common_folder() == ""
