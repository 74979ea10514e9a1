"""Numbers of programs of one's own: shown with their unit, compared, held against references, kept in the history."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.test_real_foreign import folder_of, properties

pytestmark = [pytest.mark.real]

APP = """\
import pathlib, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
total = comm.allreduce(1)
if comm.rank == 0:
    seconds = float(pathlib.Path(__file__).with_name("seconds").read_text())
    print(f"Loop time of {seconds:g} on {total} procs for 100 steps")
    print(f"energy 15.8 Ry, {100 / seconds:g} timesteps/s", flush=True)
"""
MATRIX = """\
name: own
hardware: {cpu: {}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {shm: {}, ob1: {}}
  workload:
    app:
      kind: command
      argv: ["{python}", -m, mpi4py, APP]
      success: Loop time
      patterns:
        - {pattern: 'Loop time of (?P<value>\\S+) on', metric: loop, unit: s}
        - {pattern: '(?P<value>\\S+) timesteps/s', metric: rate, unit: timesteps/s}
        - {pattern: 'energy (?P<value>[0-9.]+) Ry', metric: energy, unit: Ry}
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def own(
    pytester: pytest.Pytester,
    stacks_here: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs own.yaml with rules, of a program that says that it took some seconds."""
    pytest.importorskip("re2")
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    monkeypatch.setenv("HETGPU_PREFLIGHT", "off")
    home = tmp_path_factory.mktemp("stacks")
    (home / "openmpi-5").symlink_to(stacks_here("openmpi-5"))
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    app = pytester.path / "app.py"
    app.write_text(APP)

    def run(*options: str, seconds: float = 1.0, rules: str = "") -> pytest.RunResult:
        (pytester.path / "seconds").write_text(str(seconds))
        (pytester.path / "own.yaml").write_text(MATRIX.replace("APP", str(app)) + rules)
        return pytester.runpytest_subprocess("--hetgpu-matrix", "own.yaml", *options, timeout=240)

    return run


def latest(pytester: pytest.Pytester) -> Path:
    return (pytester.path / "reports" / "latest").resolve()


def test_every_report_shows_them_and_the_history_keeps_them(own: Run, pytester: pytest.Pytester) -> None:
    done = own()
    assert done.ret == 0
    done.stdout.fnmatch_lines(["ok *two-shm-app *loop 1.00 s, rate 100 timesteps/s"])
    run = latest(pytester)
    row = "| two-shm-app | loop 1.00 s, rate 100 timesteps/s, energy 15.8 Ry |"
    assert row in (run / "summary.md").read_text().splitlines()
    assert "loop 1.00 s" in (run / "index.html").read_text()
    cell = properties(run)["two-shm-app"]
    assert (cell["loop[0,none]"], cell["rate[0,none]"], cell["energy[0,none]"]) == ("1.0", "100.0", "15.8")
    assert cell["units"] == "loop=s; rate=timesteps/s; energy=Ry"
    with sqlite3.connect(run.parent / "history.sqlite") as db:
        kept = dict(db.execute("SELECT metric, unit FROM measurement"))
    assert kept == {"loop": "s", "rate": "timesteps/s", "energy": "Ry"}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("loop: 0.5", "slow: loop 1 s, expected at most 0.55 (0.5 +10 %) from own.yaml:*"),
        ("rate: 300, tolerance: 0", "slow: rate 100 timesteps/s, expected at least 300 from own.yaml:*"),
    ],
)
def test_a_reference_in_the_metrics_own_unit_and_direction(own: Run, rule: str, expected: str) -> None:
    rules = f"reference:\n  - {{where: {{workload: app, transport: shm}}, {rule}}}\n"
    done = own("--hetgpu-cell", "two-shm-app", rules=rules)
    assert done.ret == 1
    done.stdout.fnmatch_lines([f"*{expected}"])


def test_references_that_hold_and_another_cell(own: Run) -> None:
    rules = (
        "reference:\n  - {where: {workload: app}, loop: 1.5, rate: 90}\n"
        "  - {where: {transport: ob1}, of: {transport: shm}, fraction: 0.9}\n"
    )
    done = own(rules=rules)
    assert done.ret == 0
    assert "may be slow" not in done.stdout.str()


def test_an_earlier_run_as_the_limit_and_the_comparison(own: Run, pytester: pytest.Pytester) -> None:
    assert own().ret == 0
    before = latest(pytester).name
    done = own("--hetgpu-baseline", before, "--hetgpu-cell", "two-shm-app", seconds=2.0)
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*slow: * from baseline *"])
    compared = pytester.run(sys.executable, "-m", "pytest_hetgpu.cli", "compare", before, "latest")
    assert compared.ret == 1
    compared.stdout.fnmatch_lines(["*loop 1 -> 2 s (+100.0 %)*"])


def test_a_direction_that_is_stated(own: Run) -> None:
    rules = "reference:\n  - {where: {workload: app}, energy: 1}\n"
    done = own(rules=rules)
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: own.yaml:*: reference.energy: energy has the unit 'Ry', which does not tell *"])


LAMMPS = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
run 20
"""
ESPRESSO = """\
&control
 calculation='scf', prefix='si', pseudo_dir='/usr/share/espresso/pseudo', outdir='OUT'
/
&system
 ibrav=2, celldm(1)=10.2, nat=2, ntyp=1, ecutwfc=8.0
/
&electrons
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS alat
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 2 2 2 0 0 0
"""
PROGRAMS = """\
name: programs
hardware: {debian: {mpi: {stack: openmpi-system}}}
axes:
  placement: {two: [debian, debian]}
  transport: {shm: {}}
  workload:
    lammps:
      kind: command
      argv: [lmp, -in, FOLDER/in.lj, -log, none]
      success: Total wall time
      patterns:
        - {pattern: 'Loop time of (?P<value>[0-9.]+) on', metric: loop, unit: s}
        - {pattern: '(?P<value>[0-9.]+) timesteps/s', metric: steps, unit: 1/s}
    espresso:
      kind: command
      argv: [pw.x, -in, FOLDER/si.in]
      success: JOB DONE
      patterns: [{pattern: 'PWSCF +: .* (?P<value>[0-9.]+)s WALL', metric: wall, unit: s}]
reference:
  - {where: {workload: lammps}, loop: 100}
  - {where: {workload: espresso}, wall: LIMIT}
"""


@pytest.mark.nightly(reason="needs LAMMPS and Quantum ESPRESSO, and launches one of them seven times")
def test_lammps_and_quantum_espresso(
    pytester: pytest.Pytester,
    lacking: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for program in ("lmp", "pw.x"):
        folder_of(program, lacking)
    if not Path("/usr/share/espresso/pseudo/Si.pz-vbc.UPF").exists():
        lacking("espresso-data", "there is no pseudopotential: apt-get install quantum-espresso-data")
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path))
    (pytester.path / "in.lj").write_text(LAMMPS)
    (pytester.path / "si.in").write_text(ESPRESSO.replace("OUT", str(tmp_path / "out")))
    text = PROGRAMS.replace("FOLDER", str(pytester.path))
    (pytester.path / "programs.yaml").write_text(text.replace("LIMIT", "0.0001"))
    done = pytester.runpytest_subprocess("--hetgpu-matrix", "programs.yaml", timeout=240)
    done.stdout.fnmatch_lines(
        [
            "ok *two-shm-lammps *loop * s, steps * 1/s",
            "new *two-shm-espresso *slow: wall * s, expected at most 0.00011 *",
        ]
    )
    (pytester.path / "programs.yaml").write_text(text.replace("LIMIT", "100"))
    assert pytester.runpytest_subprocess("--hetgpu-matrix", "programs.yaml", timeout=240).ret == 0


TRAINING = """\
import os, time
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    started = time.perf_counter()
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.ones(32, 64)).square().mean().backward()
        optimizer.step()
    rate = 20 * 32 / (time.perf_counter() - started)
    if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
        print(f"epoch {epoch}: {rate:.1f} samples/s", flush=True)
"""
TORCH = """\
name: torch
hardware: {cpu: {mpi: {stack: openmpi-5-torch}}}
axes:
  placement: {two: [cpu, cpu]}
  transport: {shm: {}}
  workload:
    train:
      kind: command
      argv: ["{python}", TRAINING]
      mpi: false
      success: 'epoch 2'
      patterns: [{pattern: 'epoch .*: (?P<value>[0-9.]+) samples/s', metric: rate, unit: samples/s, repeats: true}]
reference:
  - {where: {workload: train}, rate: LIMIT}
"""


@pytest.mark.nightly(reason="needs the stack with PyTorch, and launches the training several times")
def test_samples_per_second_of_a_training_script(
    pytester: pytest.Pytester,
    stacks_here: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path))
    monkeypatch.setenv("HETGPU_STACKS", str(stacks_here("openmpi-5-torch").parent))
    script = pytester.path / "train.py"
    script.write_text(TRAINING)
    matrix = pytester.path / "torch.yaml"
    matrix.write_text(TORCH.replace("TRAINING", str(script)).replace("LIMIT", "0.001"))
    done = pytester.runpytest_subprocess("--hetgpu-matrix", "torch.yaml", timeout=240)
    done.stdout.fnmatch_lines(["ok *two-shm-train *rate * samples/s"])
    matrix.write_text(matrix.read_text().replace("0.001", "1e9"))
    done = pytester.runpytest_subprocess("--hetgpu-matrix", "torch.yaml", timeout=240)
    done.stdout.fnmatch_lines(["new *two-shm-train *slow: rate * samples/s, expected at least 9e+08 *"])
