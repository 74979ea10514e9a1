"""MPI windows on real stacks: over the requested transport, or no pass; and a UCX that does not fit its MPI."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.readers.osu import OsuParser
from tests.real.test_real_foreign import Cells, Foreign, foreign

__all__ = ["foreign"]

pytestmark = [pytest.mark.real]

SOURCE = Path(__file__).with_name("put_latency.c")
AXES = """\
  transport:
    shm: {{}}
    tcp: {{family: {tcp}}}
    ucx: {{tls: [tcp, self]}}
  workload:
    put: {{kind: osu, program: osu_put_latency, <<: &osu {{folders: "{folder}", sizes: 8..64, check: false}}}}
    create: {{kind: osu, program: osu_put_latency, <<: *osu, arguments: [-w, create]}}
    app: {{kind: command, <<: &app {{folders: "{folder}", success: the program is done}}, argv: [osu_put_latency]}}
    memory: {{kind: command, <<: *app, argv: [osu_put_latency, -w, shared]}}
    silent: {{kind: command, <<: *app, argv: [osu_put_latency, -w, none]}}
  stack: [{stack}]
"""
FALLBACK = "silent fallback: asked for ob1/tcp, MPI windows used osc/rdma:memory (possible: osc/rdma:tcp)"
SHARED = "ranks shared memory by MPI_Win_allocate_shared (osc/sm), beside the transport"
ONE_RANK = "success was shown by 1 of 2 ranks"
UNPROVEN = "the transport of MPI windows, if the program uses any, is not proven: `osc` is neither logged nor pinned"


@pytest.fixture
def one_sided(foreign: Foreign, stacks_here: Callable[[str], Path], tmp_path: Path) -> Callable[..., Cells]:
    """Runs the benchmark of windows of this folder, compiled by the stack, over three transports."""

    def run(stack: str, tcp: str = "ob1", code: int = 0) -> Cells:
        home = stacks_here(stack).resolve()
        program = tmp_path / "osu_put_latency"
        link = f"-Wl,-rpath,{home}/lib"
        subprocess.run([home / "bin" / "mpicc", "-O1", "-o", program, SOURCE, link], check=True)
        cells = foreign(AXES.format(folder=tmp_path, tcp=tcp, stack=stack), stack, code=code)
        found = {name.removeprefix("two-").removesuffix(f"-{stack}"): cell for name, cell in cells.items()}
        assert found["ucx-put"]["tool"].startswith(OsuParser.tool)
        return found

    return run


def failing(cells: Cells) -> dict[str, str]:
    return {name: cell["outcome"] for name, cell in cells.items() if cell["outcome"] != "passed"}


def test_open_mpi_5_shows_each_window(one_sided: Callable[..., Cells]) -> None:
    cells = one_sided("openmpi-5", code=1)
    # Its osc/rdma serves MPI_Win_allocate on one host by shared memory, whatever the byte transfer layer.
    assert failing(cells) == {"tcp-put": "transport_unavailable", "tcp-app": "transport_unavailable"}
    assert cells["tcp-put"]["why"] == FALLBACK
    assert cells["tcp-create"]["transport_seen"] == "ob1/tcp,osc/rdma:tcp"
    assert cells["ucx-put"]["transport_seen"] == "ucx/tcp"
    assert cells["shm-put"]["transport_seen"] == "ob1/sm,osc/sm"
    notes = [
        cells[f"tcp-{name}"].get("notes", "").removeprefix(ONE_RANK).removeprefix(" | ")
        for name in ("memory", "silent")
    ]
    assert notes == [SHARED, ""]


def test_open_mpi_4_is_pinned_for_benchmarks_and_a_program_has_a_note(one_sided: Callable[..., Cells]) -> None:
    cells = one_sided("openmpi-4")
    assert failing(cells) == {}
    latency = {name: float(cell["latency[8,int8]"]) for name, cell in cells.items() if name.endswith("-put")}
    assert latency["tcp-put"] > 3 * latency["shm-put"]
    assert latency["ucx-put"] > 3 * latency["shm-put"]
    notes = [
        cells[f"tcp-{name}"].get("notes", "").removeprefix(ONE_RANK).removeprefix(" | ")
        for name in ("put", "app", "memory")
    ]
    assert notes == ["", UNPROVEN, UNPROVEN]


def test_mpich_has_its_network_module_alone(one_sided: Callable[..., Cells]) -> None:
    cells = one_sided("mpich", tcp="ofi", code=1)
    # Without shared memory there are no windows in it.
    assert failing(cells) == {"tcp-memory": "error", "ucx-memory": "error"}
    assert cells["ucx-put"]["transport_seen"] == "ucx/tcp"
    assert cells["tcp-put"]["transport_seen"] == "ofi/tcp"


def test_a_ucx_that_does_not_fit_is_a_warning_or_the_verdict(
    foreign: Foreign,
    pytester: pytest.Pytester,
    tmp_path: Path,
    lacking: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path), "libucx-cu12==1.17.0"]
    if subprocess.run(pip, check=False).returncode:
        lacking("libucx-cu12", "the package index has no libucx-cu12 1.17.0")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path)
    axes = f"""\
  transport: {{ucx: {{tls: [tcp, self]}}}}
  workload: {{send_recv: {{sizes: 8, repeats: 1}}}}
  library: {{own: {{}}, old: {{env: {{LD_LIBRARY_PATH: {tmp_path}/libucx/lib}}}}}}
"""
    cells = foreign(axes, "openmpi-5")
    old = cells["two-ucx-send_recv-old"]
    assert "preflight" not in cells["two-ucx-send_recv-own"]
    assert old["preflight"].startswith("UCX: UCP API version is incompatible: required >= 1.20, actual 1.17.0")
    assert old["preflight"][:60] in (pytester.path / "reports/latest/summary.md").read_text().replace("\\", "")
    monkeypatch.setenv("HETGPU_PREFLIGHT", "strict")
    assert failing(foreign(axes, "openmpi-5", code=1)) == {"two-ucx-send_recv-old": "missing_library"}
