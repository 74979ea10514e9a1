"""A long run to which something happens again and again: `.venv/bin/python benchmarks/soak.py --cells 1000`.

Short cells over containers and over ranks of this machine; after every so many something of the run is killed, told to
stop, or cut off, at a random moment, and a run that ended is resumed, as a nightly job would do it. At the end no cell
may be lost, nothing may be left, and pytest's memory must be flat: sampled while cells run to which nothing happens
(a hang that is looked at takes memory while it lasts: the peak), the median of the last quarter of a session may be 1.2
times that of the first. Sessions shorter than two minutes are not judged. Prints the
figures; `--write docs/reference/reliability.md` puts them there. Exits with 1 where one of the three is not met.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from benchmarks.written import table, write  # noqa: E402
from tests.faults.harness import Session, Site, identity  # noqa: E402
from tests.real.nodes_here import properties  # noqa: E402

STEP = 0.05
SAMPLE = 0.25
LONG_ENOUGH = 120.0
GROWTH = 1.2
WORKLOADS: dict[str, dict[str, object]] = {
    "barrier": {"iterations": 10, "warmup": 1, "repeats": 1},
    "allreduce": {"sizes": [8], "iterations": 10, "warmup": 1, "repeats": 1},
    "fault": {},
    "broadcast": {"sizes": [8], "iterations": 10, "warmup": 1, "repeats": 1},
    "allgather": {"sizes": [64], "iterations": 10, "warmup": 1, "repeats": 1},
}


def matrix(cells: int, nodes: int) -> dict[str, object]:
    """So many cells: half of them over containers, half over ranks of this machine."""
    placements = {
        "contained": {"nodes": ["node"] * nodes},
        "local": {"nodes": ["here"], "ranks_per_node": nodes},
    }
    turns = -(-cells // (len(placements) * len(WORKLOADS)))
    patience = {name: {**settings, "timeout": 15} for name, settings in WORKLOADS.items()}
    return {
        "name": "soak",
        "hardware": {
            "node": {"runtime": "docker", "image": str(ROOT / "containers" / "cpu-ompi5")},
            "here": {"runtime": "local", "mpi": {"stack": "openmpi-5"}},
        },
        "axes": {
            "placement": placements,
            # More ranks than cores: who waits lets others run.
            "transport": {"ob1": {"family": "ob1", "btl": ["tcp", "self"], "mca": {"mpi_yield_when_idle": "1"}}},
            "workload": patience,
            "turn": {f"t{number:03}": {} for number in range(turns)},
        },
    }


def kill_pytest(session: Session, _: str, chance: random.Random) -> None:
    session.process.kill()


def tell(number: signal.Signals) -> Fault:
    def told(session: Session, cell: str, chance: random.Random) -> None:
        session.process.send_signal(number)

    return told


def kill_mpirun(session: Session, _: str, chance: random.Random) -> None:
    chance.choice(session.until(session.launchers, "mpirun")).kill()


def kill_rank(session: Session, _: str, chance: random.Random) -> None:
    chance.choice(session.until(session.ranks, "ranks")).kill()


def kill_container(session: Session, _: str, chance: random.Random) -> None:
    session.site.docked("kill", chance.choice(containers(session)))


def cut_off(session: Session, _: str, chance: random.Random) -> None:
    label = f"label=hetgpu.run={session.run.name}"
    network = session.site.docked("network", "ls", "-q", "--filter", label)[0]
    session.site.docked("network", "disconnect", "-f", network, chance.choice(containers(session)))


def containers(session: Session) -> list[str]:
    label = f"label=hetgpu.run={session.run.name}"
    return session.site.docked("ps", "-q", "--filter", label)


Fault = Callable[[Session, str, random.Random], None]
# What ends a session comes less often, so that some get old.
ENDING: dict[str, Fault] = {
    "kill -9 of pytest": kill_pytest,
    "SIGTERM": tell(signal.SIGTERM),
    "SIGINT": tell(signal.SIGINT),
}
CONTAINED: dict[str, Fault] = {"a container killed": kill_container, "a container cut off": cut_off}
LOCAL: dict[str, Fault] = {"kill -9 of mpirun": kill_mpirun, "kill -9 of a rank": kill_rank}


@dataclass
class Memory:
    """Resident bytes of one session's pytest, while cells run; `peak` is in a cell to which something happened."""

    kept: int
    samples: list[tuple[float, int]] = field(default_factory=list)
    peak: int = 0
    taken: float = 0.0

    def sample(self, pid: int, *, broken: bool) -> None:
        now = time.monotonic()
        if now - self.taken < SAMPLE:
            return
        self.taken = now
        with contextlib.suppress(psutil.Error):
            size = psutil.Process(pid).memory_info().rss
            if broken:
                self.peak = max(self.peak, size)
            elif size:  # What was just killed has none.
                self.samples.append((now, size))

    @property
    def seconds(self) -> float:
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0

    @property
    def growth(self) -> float:
        """Median of the last quarter over that of the first."""
        sizes = [size for _, size in self.samples]
        quarter = len(sizes) // 4
        return statistics.median(sizes[-quarter:]) / statistics.median(sizes[:quarter]) if quarter else 1.0

    def told(self) -> str:
        sizes = [size / 2**20 for _, size in self.samples] or [0.0]
        told = f"{self.kept} kept, {self.seconds:.0f} s, {min(sizes):.0f} to {max(sizes):.0f} MB, x{self.growth:.2f}"
        return f"{told}, {self.peak / 2**20:.0f} MB in a cell that was broken" if self.peak else told


@dataclass
class Soak:
    """One run over many sessions; `ending` is the share of faults that end one."""

    site: Site
    every: int
    ending: float
    chance: random.Random
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    broken: dict[str, str] = field(default_factory=dict)
    memories: list[Memory] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    slowest: float = 0.0
    sessions: int = 0

    def run(self) -> None:
        """Until every cell has its outcome."""
        judged = 0
        session = self.site.start()
        while True:
            self.sessions += 1
            self.memories.append(Memory(judged))
            self._watched(session, judged)
            session.end()
            seconds, left = self.site.cleared(session.run)
            self.slowest = max(self.slowest, seconds)
            self.leaked += left
            print(f"session {self.sessions}: {self.memories[-1].told()}", flush=True)
            for one in left:
                print(f"  left after {seconds:.0f} s: {one}", flush=True)
            before, judged = judged, len(session.judged())
            if judged >= self.site.cells:
                return
            if judged == before:
                sys.exit(f"a session that judged nothing\n{session.said()}")
            session = self.site.start("--hetgpu-resume", session.run.name)

    def _watched(self, session: Session, before: int) -> None:
        """Until it ends; after every so many cells something happens to it."""
        follow = Follow(session)
        due = before + self.every
        while session.process.poll() is None:
            follow.read()
            # What a first cell loads, and what judging a first failure loads, stays loaded.
            if follow.running and len(follow.judged) > before and follow.failed:
                self.memories[-1].sample(session.process.pid, broken=follow.running in self.broken)
            if len(follow.judged) >= due and follow.running and self._hit(session, follow):
                due += self.every
            with contextlib.suppress(Exception):
                session.process.wait(STEP)

    def _hit(self, session: Session, follow: Follow) -> bool:
        """Let a fault happen after a random wait; return whether a cell was still running then."""
        with contextlib.suppress(Exception):
            session.process.wait(self.chance.uniform(0, 0.5))
        follow.read()
        cell, before = follow.running, len(follow.started)
        if not cell:
            return False
        ends = self.chance.random() < self.ending
        faults = ENDING if ends else CONTAINED if cell.startswith("contained") else LOCAL
        name = self.chance.choice(sorted(faults))
        # By then the cell may be over, and its nodes with it.
        with contextlib.suppress(AssertionError, IndexError, psutil.Error):
            faults[name](session, cell, self.chance)
            self.done[name] += 1
            print(f"  {name}, {cell}", flush=True)
            # It may have waited for the processes of the next cell.
            follow.read()
            self.broken.update(dict.fromkeys((cell, *follow.started[before:]), name))
        return True


class Follow:
    """The journals of a run, read on as they grow."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.places: dict[Path, int] = {}
        self.judged: set[tuple[str, ...]] = set()
        self.started: list[str] = []
        self.running = ""
        self.failed = False

    def read(self) -> None:
        for path in sorted(self.session.site.home.glob("reports/*-*/journal/*.jsonl")):
            with path.open("rb") as file:
                file.seek(self.places.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self.places[path] = self.places.get(path, 0) + len(line)
                    with contextlib.suppress(ValueError):
                        self._take(json.loads(line))

    def _take(self, event: dict[str, object]) -> None:
        if event["event"] == "started":
            self.running = str(event["scenario"]) if event["pid"] == self.session.process.pid else ""
            self.started += [self.running] if self.running else []
        elif event["event"] == "judged":
            self.judged.add(identity(event))
            outcome = event["outcome"]
            failed = isinstance(outcome, dict) and outcome.get("kind") != "passed"
            # Earlier sessions' cells did not run in this process.
            self.failed = self.failed or (bool(self.running) and failed)
            self.running = ""


def report(soak: Soak, seconds: float, seed: int) -> tuple[str, bool]:
    """The figures, and whether they are good."""
    cells = properties(soak.site.home / "reports")
    kinds = collections.Counter(cell.get("outcome", "?") for cell in cells.values())
    lost = soak.site.cells - sum(cell.get("verdict") not in (None, "not_run") for cell in cells.values())
    unexplained = [name for name, cell in cells.items() if cell["outcome"] != "passed" and name not in soak.broken]
    for name in unexplained:
        log = soak.site.home / "reports" / "latest" / "scenarios" / name / "output.log"
        end = log.read_text(errors="replace")[-600:] if log.is_file() else ""
        print(f"{name}: {cells[name]['outcome']} {cells[name].get('signature', '')}\n{end}", flush=True)
    old = [memory for memory in soak.memories if memory.seconds >= LONG_ENOUGH]
    growth = max((memory.growth for memory in old), default=1.0)
    rows: list[tuple[str, ...]] = [
        ("cells", f"{soak.site.cells}: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}"),
        ("lost", str(lost)),
        ("failed without a fault", f"{len(unexplained)} {', '.join(unexplained[:5])}".strip()),
        ("faults", ", ".join(f"{count} x {name}" for name, count in soak.done.most_common()) or "none"),
        ("sessions", str(soak.sessions)),
        ("leaked", f"{len(soak.leaked)}; nothing was left after {soak.slowest:.1f} s at the latest"),
        (
            "memory",
            f"{len(old)} sessions of two minutes or more, growth at most x{growth:.2f} (limit x{GROWTH})",
        ),
        ("memory in a broken cell", f"{max(one.peak for one in soak.memories) / 2**20:.0f} MB at most"),
        ("time", f"{seconds / 60:.1f} minutes"),
    ]
    told = f"Seed {seed}, {os.cpu_count()} cores.\n\n{table(('What', 'Seen'), rows)}"
    return told, not (lost or soak.leaked or unexplained) and growth <= GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1000, help="of 2 placements and 5 workloads (1000)")
    parser.add_argument("--nodes", type=int, default=4, help="of each cell (4)")
    parser.add_argument("--every", type=int, default=20, help="cells between two faults (20)")
    parser.add_argument("--ending", type=float, default=0.25, help="share of faults that end the session (0.25)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures there, too")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as home:
        described = matrix(options.cells, options.nodes)
        site = Site(Path(home), described, chance)
        soak = Soak(site, options.every, options.ending, chance)
        try:
            soak.run()
            text, good = report(soak, time.monotonic() - began, options.seed)
        finally:
            site.close()
    print(text)
    if options.write:
        write(options.write, "benchmarks/soak.py", text)
    sys.exit(not good)


if __name__ == "__main__":
    main()
