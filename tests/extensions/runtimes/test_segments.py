"""Shared memory in /dev/shm: what is removed with a job and by `hetgpu clean`, and what stays."""

from __future__ import annotations

import errno
import importlib.util
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest

import pytest_hetgpu
from pytest_hetgpu.extensions.runtimes.base import Deployment
from pytest_hetgpu.extensions.runtimes.local import Local, LocalNodes
from pytest_hetgpu.model.job import Command, Hardware, Node

PROGRAM = Path(pytest_hetgpu.__file__).parent / "remote" / "segments.py"
LEASES = tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 3)
CRASHING = """\
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
world.allreduce(1)
held = {line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/" in line}
os.write(1, b"".join(b"%s\\n" % name.encode() for name in held))
world.Barrier()
os.kill(os.getpid(), 11 if world.rank else 19)
"""
KINDS = {"mpich": "mpich_shm", "openmpi-4": "vader_segment", "openmpi-5": "sm_segment"}
# /proc shows names: a process of another test that maps a segment of the same name would count.
SEGMENT = f"mpich_shm_{os.getpid():x}_0"
# As root in a mount namespace: the machine's own segments are not touched, and nobody touches these.
ALONE = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
CLEANING = """\
import json, os, subprocess, sys
def clean(*options):
    command = (sys.executable, "-m", "pytest_hetgpu.cli", "clean", *options)
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, sorted(os.listdir("/dev/shm"))
for name in ("mpich_shm_1bb34a04_0", "sm_segment.here.0.c3d10001.0"):
    os.write(os.open("/dev/shm/" + name, os.O_CREAT | os.O_WRONLY, 0o600), bytes(2_100_000))
os.closerange(3, 100)
held = open("/dev/shm/sm_segment.here.0.c3d10001.0")
print(json.dumps([clean(), clean("--json"), clean("--yes"), clean()]))
"""


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, over a folder below /dev/shm, in which other tests leave theirs."""
    spec = importlib.util.spec_from_file_location("segments", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="segments-") as folder:
        monkeypatch.setattr(module, "FOLDER", folder)
        yield module


@pytest.fixture(params=["lease", "proc"])
def by(request: pytest.FixtureRequest, segments: ModuleType, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both proofs: the kernel's, which leases only what nobody has open, and /proc of the first PID namespace."""
    if request.param == "proc":
        without_leases(segments, monkeypatch)
    elif not LEASES:
        pytest.skip("Linux before 5.3 leases nothing on a tmpfs")
    else:
        monkeypatch.setattr(segments, "FIRST_PID", "pid:[1]")
    return str(request.param)


def without_leases(segments: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux before 5.3, in the first PID namespace."""
    monkeypatch.setattr(segments, "unopened", lambda _: False)
    monkeypatch.setattr(segments, "FIRST_PID", str(Path("/proc/self/ns/pid").readlink()))


def made(segments: ModuleType, name: str = SEGMENT) -> Path:
    """A segment as an MPI library makes it."""
    path = Path(segments.FOLDER, name)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    path.write_bytes(bytes(4096))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "mpich_shm_OWN_0",
        "mpich_vci_OWN_12",
        "vader_segment.my-host.example.0.OWN.1",
        "sm_segment.my_host.1000.OWN.127",
        "ucx_shm_posix_OWN",
    ],
)
@pytest.mark.usefixtures("by")
def test_what_nobody_uses_goes(segments: ModuleType, name: str) -> None:
    # /proc shows names only: another process of these tests may have its own segments open.
    name = name.replace("OWN", f"{os.getpid():x}")
    path = made(segments, name)
    assert list(segments.scan().unused) == [name]
    assert segments.remove([name]) == [name]
    assert not path.exists()


@pytest.mark.usefixtures("by")
def test_what_a_process_has_mapped_stays(segments: ModuleType) -> None:
    path = made(segments)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        file.close()
        assert segments.scan() == ({}, {}, "")
        assert segments.remove([path.name]) == []
    assert path.exists()
    assert segments.remove([path.name]) == [path.name]


@pytest.mark.usefixtures("by")
def test_what_a_process_has_open_stays(segments: ModuleType) -> None:
    path = made(segments)
    with path.open("rb"):
        assert segments.remove([path.name]) == []
    assert path.exists()


@pytest.mark.parametrize("change", ["other user", "readable", "other name", "link"])
def test_what_may_be_anothers_stays(segments: ModuleType, change: str) -> None:
    path = made(segments, "somebodys_1bb34a04" if change == "other name" else SEGMENT)
    if change == "other user":
        if os.geteuid():
            pytest.skip("only root can give a file away")
        os.chown(path, 4711, -1)
    elif change == "readable":
        path.chmod(0o644)
    elif change == "link":
        path.unlink()
        path.symlink_to(os.devnull)
    assert segments.scan() == ({}, {}, "")
    assert segments.remove([path.name, f"../shm/{path.name}"]) == []
    assert os.path.lexists(path)


def test_nothing_goes_where_those_who_use_it_cannot_be_seen(
    segments: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(segments)
    without_leases(segments, monkeypatch)
    monkeypatch.setattr(segments, "FIRST_PID", "pid:[1]")
    assert segments.remove([path.name]) == []
    assert path.exists()
    seen = segments.scan()
    assert (list(seen.unused), list(seen.doubtful)) == ([], [path.name])
    assert seen.why == "processes outside this container may use it; run `hetgpu clean` on its host"


def test_a_lease_on_anything_but_a_tmpfs_proves_nothing(segments: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(segments)
    monkeypatch.setattr(segments, "FIRST_PID", "pid:[1]")
    monkeypatch.setattr(segments, "on_tmpfs", lambda: False)
    assert segments.remove([path.name]) == []
    assert path.exists()


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.EACCES])
def test_nothing_goes_while_a_process_of_ours_cannot_be_looked_at(
    segments: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = made(segments)
    without_leases(segments, monkeypatch)
    maps = f"/proc/{os.getpid()}/maps"

    def refused(name: str, mode: str = "r") -> IO[Any]:
        if name == maps:
            raise OSError(number, os.strerror(number), name)
        return Path(name).open(mode)

    monkeypatch.setattr(segments, "open", refused, raising=False)
    assert segments.remove([path.name]) == []
    assert path.exists()
    pid = os.getpid()
    assert f"process {pid} of this user may use it and cannot be read; `sudo fuser -v " in segments.scan().why


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH])
def test_a_process_that_ends_meanwhile_uses_nothing(
    segments: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def gone(name: str, _: str) -> IO[Any]:
        raise OSError(number, os.strerror(number), name)

    monkeypatch.setattr(segments, "open", gone, raising=False)
    assert segments.held_by(os.getpid()) == b""


def apart(folder: Path) -> dict[str, str]:
    """The environment of a `hetgpu clean` that looks at nothing but this machine."""
    return {**os.environ, "HETGPU_LEDGERS": str(folder / "ledgers"), "DOCKER_HOST": f"unix://{folder}/none"}


def test_hetgpu_clean_shows_and_removes_it(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if os.geteuid() or unshare is None or subprocess.run((unshare, "-m", "true"), check=False).returncode:
        pytest.skip("needs a mount namespace")
    argv = (unshare, "-m", "sh", "-c", ALONE, "sh", sys.executable, "-c", CLEANING)
    done = subprocess.run(argv, env=apart(tmp_path), capture_output=True, text=True, check=True)
    shown, listed, yes, again = json.loads(done.stdout)
    both = ["mpich_shm_1bb34a04_0", "sm_segment.here.0.c3d10001.0"]
    assert (shown[0], shown[2]) == (1, both)
    (line,) = (line for line in shown[1].splitlines() if line.startswith("segment"))
    assert "/dev/shm/mpich_shm_1bb34a04_0 (2.1 MB)" in line
    assert line.split()[-1] == "-"
    (one,) = (one for one in json.loads(listed[1])["left"] if one["what"] == "segment")
    assert (one["name"], one["id"]) == ("/dev/shm/mpich_shm_1bb34a04_0", "2.1 MB")
    assert "removed 1 segment" in yes[1] or ", 1 segment" in yes[1]
    assert yes[2] == again[2] == both[1:]
    assert "segment" not in again[1]


def crashing(stack: str, prefix: Path) -> Command:
    """Two ranks that share memory, of which one crashes and the other is stopped."""
    root = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
    sharing = {"OMPI_MCA_btl": "vader,self" if stack == "openmpi-4" else "sm,self", "OMPI_MCA_pml": "ob1"}
    argv = (str(prefix / "bin" / "mpirun"), "-n", "2", str(prefix / "bin" / "python"), "-c", CRASHING)
    return Command(argv, {**root, **sharing})


def none_is_left(output: Path, kind: str) -> None:
    """Of the segments that the ranks named."""
    names = {word for word in output.read_text(errors="replace").split() if word.startswith("/dev/shm/")}
    assert any(kind in name for name in names), output.read_text(errors="replace")
    assert [name for name in names if Path(name).exists()] == []


@pytest.mark.real
@pytest.mark.beside
@pytest.mark.parametrize("stack", KINDS)
def test_a_job_whose_rank_crashes_leaves_none(stack: str, stacks_here: Callable[[str], Path], tmp_path: Path) -> None:
    command, output = crashing(stack, stacks_here(stack)), tmp_path / "output.log"
    assert Local(grace=0.2).run(command, output=output, timeout=20).returncode != 0
    none_is_left(output, KINDS[stack])


@pytest.mark.real
@pytest.mark.beside
def test_a_job_below_an_agent_leaves_none(stacks_here: Callable[[str], Path], tmp_path: Path) -> None:
    command, output = crashing("mpich", stacks_here("mpich")), tmp_path / "output.log"
    member = LocalNodes.open(Node(0, Hardware("here"), "localhost", 1, "n0"), Deployment("test", "run", "me"))
    try:
        assert member.run(command, output=output, timeout=20).returncode != 0
    finally:
        member.close()
    none_is_left(output, "mpich_shm")
