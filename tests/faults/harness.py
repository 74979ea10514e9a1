"""One run that something happens to: started, watched and hit from outside, then held against the same four checks."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
SEED = "HETGPU_FAULT_SEED"
MARK = "HETGPU_FAULT_SITE"
AT_NIGHT = pytest.mark.nightly(reason="`workers` does the same and more; `.ci/nightly faults` repeats both")
CLEARED = 30.0
"""Seconds that a run's things may outlast it."""
PATIENCE = 100.0
STEP = 0.02
IDENTITY = ("matrix", "scenario")

# A line in one write: those of two ranks must not be mixed. Ranks meet every 50 ms: a cell is as long where much runs,
# and takes no core from its neighbours.
MEETING = """\
import os, time
from mpi4py import MPI
for step in range({steps}):
    MPI.COMM_WORLD.allreduce(step)
    time.sleep(0.05)
    if not step:
        os.write(1, b"met once\\n")
os.write(1, b"met %d\\n" % MPI.COMM_WORLD.size)
"""
# The same, and each rank takes 16 MiB more at every meeting.
GROWING = (
    MEETING.format(steps=24)
    .replace("time.sleep", "taken = [*taken, bytearray(16 << 20)]; time.sleep")
    .replace("for", "taken = []\nfor")
)
# pty.spawn is a terminal: pytest below it is the foreground of a session of its own, and is hung up when it dies.
TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"

Look = TypeVar("Look")
Event = dict[str, Any]


def command(program: str, **settings: Any) -> dict[str, Any]:
    """A workload of ranks that run a Python program, and print `met` where all is well."""
    argv = ["{python}", "-c", program]
    return {"kind": "command", "argv": argv, "success": "met [0-9]", "timeout": 20, **settings}


def meetings(cells: int, seconds: float = 0.5) -> dict[str, Any]:
    """So many workloads whose ranks meet for that long."""
    return {f"meet{number}": command(MEETING.format(steps=round(seconds / 0.05))) for number in range(cells)}


def local(workloads: Mapping[str, Any], ranks: int = 2) -> dict[str, Any]:
    """A matrix over ranks of this machine."""
    return {
        "name": "faults",
        "hardware": {"here": {"runtime": "local", "mpi": {"stack": "openmpi-5"}}},
        "axes": {
            "placement": {"two": {"nodes": ["here"], "ranks_per_node": ranks}},
            "transport": {"ob1": {"family": "ob1", "btl": ["tcp", "self"]}},
            "workload": dict(workloads),
        },
    }


def containers(workloads: Mapping[str, Any]) -> dict[str, Any]:
    """A matrix over two containers, whose ranks have only TCP between them."""
    matrix = local(workloads)
    image = str(ROOT / "containers" / "cpu-ompi5")
    matrix["hardware"] = {"node": {"runtime": "docker", "image": image}}
    matrix["axes"]["placement"] = {"pair": ["node", "node"]}
    return matrix


INVENTORY = {
    "hardware": {"node": ["localhost"], "here": ["localhost"]},
    "build": {"*": {"network": "host"}, "cpu-ompi5": {"args": {"BASE": "hetgpu-base:bookworm"}}},
}


class Site:
    """A place of its own for one run: folder, temporary files, leases; `token` is in the environment of all it starts.

    `engine` is a DOCKER_HOST; None for this machine's own.
    """

    def __init__(self, home: Path, matrix: Mapping[str, Any], chance: random.Random, engine: str | None = None) -> None:
        self.home = home
        self.chance = chance
        self.token = secrets.token_hex(8)
        self.engine = engine
        # Short, for sockets lie in it.
        self.temporary = Path(tempfile.mkdtemp(prefix="hf-"))
        self.docker = any(one.get("runtime") == "docker" for one in matrix["hardware"].values())
        self.cells = math.prod(map(len, matrix["axes"].values()))
        self.env: dict[str, str] = {}
        home.joinpath("faults.yaml").write_text(json.dumps(matrix))
        home.joinpath("hosts.yaml").write_text(json.dumps(INVENTORY))
        home.joinpath("pytest.ini").write_text("[pytest]\n")

    @property
    def environment(self) -> dict[str, str]:
        """What the run's processes have in theirs."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HETGPU_"))}
        given = {name: os.environ[name] for name in os.environ if name.startswith("HETGPU_STACK")}
        engine = {"DOCKER_HOST": self.engine} if self.engine else {}
        own = {"TMPDIR": str(self.temporary), "HETGPU_LEASES": str(self.temporary / "leases"), MARK: self.token}
        return {**kept, "HETGPU_STACKS": str(ROOT / ".stacks"), **given, **engine, **own, **self.env}

    def argv(self, *options: str) -> tuple[str, ...]:
        """pytest's command line."""
        inventory = ("--hetgpu-inventory", "hosts.yaml") if self.docker else ()
        # The wire is measured for seconds; nothing here is about speed.
        wire = ("--hetgpu-wire", "off") if self.docker else ()
        own = ("-rs", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--hetgpu-matrix", "faults.yaml")
        return (sys.executable, "-m", "pytest", *own, *inventory, *wire, *options)

    def start(self, *options: str, terminal: bool = False) -> Session:
        """Starts a session of pytest; in a terminal of its own, or with its output in a file."""
        command = self.argv(*options)
        return Session(self, (sys.executable, "-c", TERMINAL, *command) if terminal else command)

    def call(self, *argv: str, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return subprocess.run(
            argv, cwd=self.home, env=self.environment, text=True, capture_output=True, check=False, timeout=patience
        )

    def resumed(self, run: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """`pytest --hetgpu-resume RUN`, done."""
        return self.call(*self.argv("--hetgpu-resume", run.name, *options), patience=200)

    def docked(self, *arguments: str) -> list[str]:
        """The words that docker prints; none where the engine is down."""
        return self.call("docker", *arguments).stdout.split()

    def processes(self) -> Iterator[psutil.Process]:
        """What was started by this site's runs and lives: zombies do not."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.token and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def left(self, run: Path) -> list[str]:
        """Processes, containers, networks and folders that should not outlast a run."""
        found = [f"process {p.pid} {' '.join(_words(p))[:120]}" for p in self.processes()]
        found += [f"folder {path}" for path in self.temporary.glob("hetgpu-*")]
        if self.docker:
            label = f"label=hetgpu.run={run.name}"
            found += [f"container {one}" for one in self.docked("ps", "-aq", "--filter", label)]
            found += [f"network {one}" for one in self.docked("network", "ls", "-q", "--filter", label)]
        return found

    def cleared(self, run: Path) -> tuple[float, list[str]]:
        """Seconds until nothing was left of a run, and what still is after CLEARED of them."""
        began = time.monotonic()
        while (found := self.left(run)) and time.monotonic() - began < CLEARED:
            time.sleep(STEP)
        return time.monotonic() - began, found

    def close(self) -> None:
        """Takes away by force whatever a failed test left."""
        for process in list(self.processes()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        for run in self.home.glob("reports/*-*"):
            label = f"label=hetgpu.run={run.name}"
            if self.docker:
                for container in self.docked("ps", "-aq", "--filter", label):
                    self.docked("rm", "-f", container)
                for network in self.docked("network", "ls", "-q", "--filter", label):
                    self.docked("network", "rm", network)
        shutil.rmtree(self.temporary, ignore_errors=True)


class Session:
    """A session of pytest that runs, with its output in a file."""

    def __init__(self, site: Site, command: Sequence[str]) -> None:
        self.site = site
        self.printed = site.home / f"printed-{secrets.token_hex(4)}"
        self.kept: dict[tuple[str, ...], Event] = {}
        self.launches: Counter[tuple[str, ...]] = Counter()
        self.flying: list[str] = []
        with self.printed.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=site.home,
                env=site.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_in_a_terminal,  # noqa: PLW1509 - no other thread of this process takes a lock
            )

    @property
    def run(self) -> Path:
        """The folder of its run, which there is once it has begun."""
        (found,) = self.site.home.glob("reports/*-*")
        return found

    def events(self, name: str | None = None) -> list[Event]:
        """What its journal holds so far; of one kind."""
        journals = sorted(self.site.home.glob("reports/*-*/journal/*.jsonl"))
        return [one for one in events_of(journals) if name in (None, one["event"])]

    def judged(self) -> dict[tuple[str, ...], Event]:
        """The outcomes so far, by cell."""
        return {identity(event): event["outcome"] for event in self.events("judged")}

    def until(self, look: Callable[[], Look | None], what: str, patience: float = PATIENCE) -> Look:
        """What `look` finds, looked for as long as the session lives."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if (found := look()) is not None:
                return found
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(STEP)
                raise AssertionError(f"the session ended with {code} before there was {what}\n{self.said()}")
        raise AssertionError(f"no {what} in {patience:g} s\n{self.said()}")

    def reaches(self, cell: int | None = None, spread: float = 0.8, output: str = "") -> str:
        """Waits for a random moment after the start of the cell of this number, or of any but the first and the last.

        With `output` after the cell has printed that. Gives the cell's name. `kept` then has the outcomes so far, and
        `flying` the cells without one.
        """
        number = cell or self.site.chance.randint(2, self.site.cells - 1)

        def started() -> str | None:
            events = self.events("started")
            if (
                len({event["pid"] for event in events}) > 1
            ):  # of one process they are in order, wherever its clock jumps
                events.sort(key=lambda event: float(event["epoch"]))
            found = list(dict.fromkeys(map(identity, events)))
            return found[number - 1][-1] if len(found) >= number else None

        def printed() -> bool | None:
            log = self.run.parent / ".private" / self.run.name / f"{name}.log"
            return True if log.is_file() and output in log.read_text(errors="replace") else None

        name = self.until(started, f"cell {number}")
        if output:
            self.until(printed, f"{output!r} of {name}")
        fraction = self.site.chance.uniform(0, spread)
        print(f"hit {fraction:.3f} s after {output or 'the start'} of cell {number}, {name}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(fraction)
        self.kept = self.judged()
        self.flying = in_flight(self.events())
        self.launches = Counter(identity(event) for event in self.events("started"))
        return name

    def end(self, patience: float = PATIENCE) -> int:
        """Waits for its end, and gives its exit code."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the session did not end in {patience:g} s\n{self.said()}") from None

    def said(self) -> str:
        """The end of what it printed."""
        return self.printed.read_text(errors="replace")[-4000:]

    def ranks(self) -> list[psutil.Process] | None:
        """Processes that are ranks here; None where there is none."""
        return self._those(lambda p: "OMPI_COMM_WORLD_RANK" in p.environ() and "python" in p.name())

    def launchers(self) -> list[psutil.Process] | None:
        """mpirun, by whatever name; None where there is none."""
        return self._those(lambda p: p.name() in ("mpirun", "prterun"))

    def _those(self, fits: Callable[[psutil.Process], bool]) -> list[psutil.Process] | None:
        found = []
        for process in self.site.processes():
            with contextlib.suppress(psutil.Error):
                if fits(process):
                    found.append(process)
        return found or None

    def node(self, name: str) -> str:
        """The id of the container that is this node."""
        labels = ("--filter", f"label=hetgpu.run={self.run.name}", "--filter", f"label=hetgpu.node={name}")
        return self.site.docked("ps", "-q", "--no-trunc", *labels)[0]


def identity(event: Event) -> tuple[str, ...]:
    """The cell of an event."""
    return tuple(str(event[name]) for name in IDENTITY)


def events_of(journals: Sequence[Path]) -> list[Event]:
    """All whole lines, one journal after the other: the clock may have jumped."""
    found = []
    for path in journals:
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def in_flight(events: Sequence[Event]) -> list[str]:
    """Cells that were started and have no outcome."""
    started = dict.fromkeys(identity(event) for event in events if event["event"] == "started")
    judged = {identity(event) for event in events if event["event"] == "judged"}
    return [cell[-1] for cell in started if cell not in judged]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or [process.name()]
    except psutil.Error:
        return ["?"]


def _as_in_a_terminal() -> None:
    """Whoever runs these tests in the background, or by nohup, may have these signals ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
