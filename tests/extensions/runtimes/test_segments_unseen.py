"""Shared memory in /dev/shm beside processes that cannot be looked at: of other namespaces, or unreadable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.runtimes.test_segments import ALONE, LEASES, PROGRAM, apart

# As another user: a process that cannot be looked at, and what is known of a segment then.
UNREADABLE = """\
import ctypes, importlib.util, json, os, sys, tempfile, time
program, other, leases = sys.argv[1:]
spec = importlib.util.spec_from_file_location("segments", program)
segments = importlib.util.module_from_spec(spec)
spec.loader.exec_module(segments)
with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="segments-") as segments.FOLDER:
    path = segments.FOLDER + "/mpich_shm_1bb34a04_0"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    for one in (segments.FOLDER, path):
        os.chown(one, 54321, 54321)
    heard, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.setuid(54321)
        if other == "zombie":
            os._exit(0)
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        os.write(tell, b"x")
        time.sleep(600)
    if other == "zombie":
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    else:
        os.read(heard, 1)
    looking = os.fork()
    if not looking:
        os.setuid(54321)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        segments.FIRST_PID = os.readlink("/proc/self/ns/pid")
        if leases == "0":
            segments.unopened = lambda _: False
        seen = segments.scan()
        print(json.dumps([list(seen.unused), list(seen.doubtful), seen.why, pid]), flush=True)
        os._exit(0)
    os.waitpid(looking, 0)
    os.kill(pid, 9)
"""
# A process in a PID namespace of its own maps a segment, and closes it; one in another removes what nobody uses.
BESIDE = """\
import json, os, subprocess, sys
unshare, program = sys.argv[1:]
name = "mpich_shm_1bb34a04_0"
HOLD = (
    "import mmap, os, sys\\n"
    "file = os.open('/dev/shm/%s', os.O_CREAT | os.O_RDWR, 0o600)\\n"
    "os.ftruncate(file, 4096)\\n"
    "held = mmap.mmap(file, 4096)\\n"
    "os.closerange(3, 100)\\n"
    "print('mapped', flush=True)\\n"
    "sys.stdin.read()\\n" % name
)
beside = (unshare, "-pf", "--mount-proc")
def removed():
    subprocess.run((*beside, sys.executable, program, json.dumps([name])), check=True)
    return os.listdir("/dev/shm")
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
with subprocess.Popen((*beside, sys.executable, "-c", HOLD), **pipes) as holder:
    holder.stdout.readline()
    used = removed()
    clean = (*beside, sys.executable, "-m", "pytest_hetgpu.cli", "clean")
    said = subprocess.run(clean, capture_output=True, text=True).stdout
    holder.communicate()
print(json.dumps([used, said, removed()]))
"""


@pytest.mark.parametrize("other", ["unreadable", "zombie"])
@pytest.mark.parametrize(
    "leases", [pytest.param(True, marks=pytest.mark.skipif(not LEASES, reason="needs Linux 5.3")), False]
)
def test_an_ordinary_user_whose_process_nobody_may_read(other: str, leases: bool) -> None:
    """Like ssh-agent, or a rank that was killed and that its launcher has not yet waited for."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    argv = (sys.executable, "-c", UNREADABLE, str(PROGRAM), other, str(int(leases)))
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    unused, doubtful, why, pid = json.loads(done.stdout)
    if other == "zombie" or leases:
        assert (unused, doubtful, why) == (["mpich_shm_1bb34a04_0"], [], "")
    else:
        assert (unused, doubtful) == ([], ["mpich_shm_1bb34a04_0"])
        assert f"process {pid} of this user may use it and cannot be read" in why


def test_what_a_process_of_another_namespace_has_mapped_stays(
    tmp_path: Path, lacking: Callable[[str, str], None]
) -> None:
    unshare = shutil.which("unshare")
    if os.geteuid() or not unshare or subprocess.run((unshare, "-mipf", "true"), check=False).returncode:
        lacking("netns", "PID namespaces need root and unshare")
    assert unshare
    argv = (unshare, "-mi", "sh", "-c", ALONE, "sh", sys.executable, "-c", BESIDE, unshare, str(PROGRAM))
    done = subprocess.run(argv, env=apart(tmp_path), capture_output=True, text=True, check=True, timeout=60)
    used, said, after = json.loads(done.stdout)
    assert used == ["mpich_shm_1bb34a04_0"]
    assert "1 segment left alone: on this machine processes outside this container may use it; run `hetgpu" in said
    assert after == ([] if LEASES else used)
