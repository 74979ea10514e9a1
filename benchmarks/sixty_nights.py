"""Run a small matrix sixty times, with a slower link from the fortieth run on: a history of real noise.

    .venv/bin/python benchmarks/sixty_nights.py --dump tests/data/history/sixty-nights.sql

Two containers exchange messages over their bridge, and two processes of one container over its loopback. From the run
`--slow` on, `tc` limits the link of the containers, and a variable of UCX is set as the fact that changed with it.
Prints `hetgpu history`. Needs a Docker engine and its base image (containers/make-base bookworm).
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.slow import HOSTS, ROOT

MATRIX = f"""\
name: nights
hardware:
  node: {{runtime: docker, image: {ROOT}/containers/cpu-ompi5, container: {{cap_add: [NET_ADMIN]}}}}
axes:
  placement: {{pair: [node, node], same: {{nodes: [node], ranks_per_node: 2}}}}
  transport: {{ob1: {{btl: [tcp, self]}}}}
  workload:
    send_recv: {{sizes: [8, 1M], iterations: 20}}
    allreduce: {{sizes: [8, 1M], iterations: 20}}
"""
SCENARIO = """\
from pathlib import Path


def test_cell(cluster, run):
    limit = Path("limit").read_text().split()
    for node in cluster.nodes if limit and len(cluster.nodes) > 1 else ():
        done = node.runtime.exec(("tc", "qdisc", "replace", "dev", "eth0", "root", *limit))
        assert done.returncode == 0, done.stderr
    run()
"""
LIMIT = "tbf rate 8gbit burst 1mb latency 50ms"
FACT = ("UCX_LOG_LEVEL", "warn")


def main() -> None:
    """Run the series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--slow", type=int, default=40, help="the first run with the limit (40)")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="write the history here as SQL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, text in (("nights.yaml", MATRIX), ("hosts.yaml", HOSTS), ("test_nights.py", SCENARIO)):
            (place / name).write_text(text)
        for number in range(1, options.runs + 1):
            one_night(place, slow=number >= options.slow)
        history = place / "reports" / "history.sqlite"
        subprocess.run((sys.executable, "-m", "pytest_hetgpu.cli", "history"), cwd=place, check=True)
        if options.dump:
            options.dump.write_text(dump(history))


def one_night(place: Path, *, slow: bool) -> None:
    """Run the matrix once."""
    (place / "limit").write_text(LIMIT if slow else "")
    environ = {**os.environ, **({FACT[0]: FACT[1]} if slow else {})}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hetgpu-matrix", "nights.yaml")
    given = ("--hetgpu-inventory", "hosts.yaml", "test_nights.py")
    done = subprocess.run((*command, *given), cwd=place, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def dump(history: Path) -> str:
    """Return a history as SQL, without the temporary folder of its runs."""
    with closing(sqlite3.connect(history)) as db:
        db.execute("UPDATE run SET folder = '', machine = 'host'")
        marks = [
            f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return "\n".join([*marks, *db.iterdump()]) + "\n"


if __name__ == "__main__":
    main()
