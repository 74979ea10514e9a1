"""Device and managed memory of MPI programs: all data gets in and out of it, over a stand-in for the driver.

These tests do not show how an MPI handles addresses of a real device: those of the stand-in are the host's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.model.records import MessagePoint
from tests.remote.mpi_runs import PROGRAMS, Mpirun

pytestmark = pytest.mark.real

SOURCE = Path(__file__).with_name("standin_device.c")
LIBRARIES = {"cuda": "libcuda.so.1", "rocm": "libamdhip64.so"}
SWEEPS = ("allreduce", "allgather", "alltoall", "broadcast", "gather", "reduce", "reduce_scatter", "scatter")
Lacking = Callable[[str, str], None]


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: Lacking) -> Callable[[str], None]:
    """Put a stand-in on the loader's path, under the name of a platform's library."""
    compiler = shutil.which("cc")
    if compiler is None:
        lacking("cc", "no C compiler: apt-get install gcc libc6-dev")

    def put(platform: str) -> None:
        target = tmp_path / LIBRARIES[platform]
        subprocess.run((str(compiler), "-shared", "-fPIC", "-w", "-o", target, SOURCE), check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    return put


Standin = Callable[[str], None]


@pytest.mark.parametrize("platform", LIBRARIES)
@pytest.mark.parametrize("memory", ["device", "managed"])
def test_every_collective_is_right_in_it(mpirun: Mpirun, standin: Standin, platform: str, memory: str) -> None:
    standin(platform)
    for name in SWEEPS:
        places = () if name == "broadcast" else ("--in-place", "both")
        args = ("--sizes", "64,4096", "--memory", memory, "--iterations", "2", "--repeats", "2", *places)
        records = (ran := mpirun(PROGRAMS / f"{name}.py", *args)).records
        assert (ran.returncode, records.wrong) == (0, ()), ran.text
        points = {
            MessagePoint(size, "float32", place) for size in (64, 4096) for place in ("", "in")[: 1 + bool(places)]
        }
        assert records.checks == dict.fromkeys(range(2), dict.fromkeys(points, 0))
        assert {row.point for row in records.rows} == points


@pytest.mark.parametrize("name", ["send_recv", "bidirectional_send_recv"])
def test_pairs_too_and_each_rank_tells_what_it_used(mpirun: Mpirun, standin: Standin, name: str) -> None:
    standin("cuda")
    ran = mpirun(PROGRAMS / f"{name}.py", "--sizes", "8,1000", "--memory", "device", "--dtypes", "float16,float64")
    assert (ran.returncode, ran.records.wrong) == (0, ()), ran.text
    devices = {device.rank: device for device in ran.records.devices}
    assert [(devices[rank].index, devices[rank].name, devices[rank].arch) for rank in range(2)] == [
        (0, "Stand-in 0", "sm_90"),
        (1, "Stand-in 1", "sm_90"),
    ]
    # The data of the largest point: they are sent, and each of 20 iterations has a result of its own.
    assert {device.peak for device in devices.values()} == {40000}
    assert {device.memory for device in devices.values()} == {1 << 30}


@pytest.mark.parametrize(
    ("platform", "variable", "told"),
    [
        ("cuda", "STANDIN_FULL", "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"),
        ("rocm", "STANDIN_FULL", "hipMalloc: hipErrorOutOfMemory"),
        ("cuda", "STANDIN_NONE", "libcuda.so.1: it sees no device"),
    ],
)
def test_what_the_driver_refuses_is_told(
    mpirun: Mpirun, standin: Standin, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, told: str
) -> None:
    standin(platform)
    monkeypatch.setenv(variable, "1")
    ran = mpirun(PROGRAMS / "send_recv.py", "--sizes", "8", "--memory", "device")
    assert ran.returncode != 0
    assert told in ran.text


def test_without_a_driver_both_are_named(mpirun: Mpirun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    ran = mpirun(PROGRAMS / "send_recv.py", "--sizes", "8", "--memory", "device")
    if ran.returncode == 0:
        pytest.skip("there is an accelerator here")
    assert "no accelerator for device or managed memory on " in ran.text
    assert "libcuda.so.1: cannot open shared object file" in ran.text
    assert "libamdhip64.so: cannot open shared object file" in ran.text


def test_the_kernel_tells_the_architecture_of_a_place(tmp_path: Path) -> None:
    for node, (location, version) in enumerate(((0, 0), (0xC100, 100101), (0x8300, 90010))):
        folder = tmp_path / str(node)
        folder.mkdir()
        text = f"simd_count {node}\ngfx_target_version {version}\ndomain 0\nlocation_id {location}\n"
        (folder / "properties").write_text(text)
    code = (
        f"import sys; sys.path.insert(0, {str(PROGRAMS)!r}); from accelerator import gfx_name; t = {str(tmp_path)!r}\n"
        "print(*(gfx_name(place, t) or '-' for place in ('0000:c1:00.0', '0000:83:00.0', '0001:83:00.0', 'what', '')))"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gfx1011", "gfx90a", "-", "-", "-"]
