"""Options as data, and what a run was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_hetgpu.extensions.inventories import EXAMPLES

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import DatabaseUrl, HistoryPlace

OFF = "off"
AUTO = "auto"
FULL = "full"
STACK = "stack"
BUGS = ("crash", "wrong_result", "hang", "out_of_memory", "error", "unknown", "missing_library", "gpu_arch_mismatch")
RETRIABLE = ("network_failure", "launch_failure", "transport_unavailable", "timeout")


@dataclass(frozen=True)
class Option:
    """One option; `name` gives `--hetgpu-NAME`, ini key `hetgpu_NAME` and variable `HETGPU_NAME`.

    `same`: a cell that runs again needs the value that it had. `may_be_off`: the value may be the word `off`, `word` is
    another one. `least` is the smallest count or size. `bare` is the value of the option if the user gives none.
    """

    name: str
    help: str
    metavar: str = ""
    kind: Literal[
        "path",
        "history",
        "paths",
        "words",
        "seconds",
        "flag",
        "choice",
        "choices",
        "run",
        "source",
        "count",
        "size",
        "strategy",
        "axis",
    ] = "path"
    everywhere: bool = True
    choices: tuple[str, ...] = ()
    same: bool = False
    may_be_off: bool = False
    word: str = ""
    bare: str = ""
    least: int = 0

    @property
    def dest(self) -> str:
        """Attribute on pytest's option namespace, and ini key."""
        return f"hetgpu_{self.field}"

    @property
    def field(self) -> str:
        """Its field in `Settings`."""
        return self.name.replace("-", "_")

    @property
    def flag(self) -> str:
        """As typed on the command line."""
        return f"--hetgpu-{self.name}"


OPTIONS = (
    Option("matrix", "matrix file to run; repeatable", "FILE", "paths"),
    Option(
        "inventory",
        f"where the hardware of the matrix is: a file of ours, or {EXAMPLES}, ...",
        "FILE",
        "source",
        same=True,
    ),
    Option("reports", "folder for what runs leave (default: reports)", "DIR"),
    Option(
        "history",
        "file or postgresql://USER@HOST/DATABASE that every run's outcomes and numbers go into, or off (default: "
        "history.sqlite in the reports folder)",
        "FILE|URL",
        "history",
        may_be_off=True,
    ),
    Option(
        "baseline",
        "earlier run that speeds are held against: its id, latest, last:N, its folder, a history or JUnit file; or off",
        "RUN|FILE",
        "run",
        may_be_off=True,
    ),
    Option(
        "knowledge",
        "file of known failures of your own, besides the shipped ones; repeatable",
        "FILE",
        "paths",
        same=True,
    ),
    Option(
        "signatures",
        "file of rules of your own that make keys of further failure texts; repeatable",
        "FILE",
        "paths",
        same=True,
    ),
    Option(
        "timeout", "seconds a cell may take unless it has its own timeout (default: 120)", "S", "seconds", same=True
    ),
    Option(
        "preflight",
        "what nodes lack for a cell: warn of it (default), let it be the verdict (strict), or do not look (off)",
        "MODE",
        "choice",
        choices=("warn", "strict", "off"),
        same=True,
    ),
    Option(
        "wire",
        "seconds of each measurement of what the network between nodes can carry (default: 0.25), or off",
        "S",
        "seconds",
        same=True,
        may_be_off=True,
    ),
    Option(
        "retries",
        "how often a cell is tried again that failed in a way that may be the environment's (default: 0)",
        "N",
        "count",
    ),
    Option(
        "retry-on",
        f"outcome after which a cell is tried again, instead of network_failure and launch_failure; repeatable, of: "
        f"{', '.join(RETRIABLE)}",
        "KIND",
        "choices",
        choices=RETRIABLE,
    ),
    Option(
        "budget",
        "seconds for the whole run: afterwards no cell starts, and the one that runs is stopped; or off (default)",
        "S",
        "seconds",
        may_be_off=True,
    ),
    Option(
        "quarantine",
        "times in a row that a node may not come up before its other cells are skipped (default: 2), or off",
        "N",
        "count",
        may_be_off=True,
        least=1,
    ),
    Option(
        "output",
        "bytes of a cell's output that are kept, its beginning and its end (default: 256M), or off",
        "SIZE",
        "size",
        may_be_off=True,
        least=1 << 20,
    ),
    Option(
        "debug-rerun",
        "run each new or changed failure once more with its libraries' debug output, kept beside it",
        kind="flag",
    ),
    Option(
        "strategy",
        "the cells that are run: all (full, the default), or a sample with every pair of values (pairwise), every "
        "triple (3-wise), ...; pairwise@7 is another sample",
        "S",
        "strategy",
    ),
    Option(
        "max-cells",
        "cells that the matrices may have, before any is made (default: 100000), or off",
        "N",
        "count",
        may_be_off=True,
        least=1,
    ),
    Option(
        "bisect",
        "axis of sizes, numbers or versions along which to find where the outcome changes, or stack: the versions of a "
        "failed cell's MPI",
        "AXIS",
        "axis",
    ),
    Option(
        "controls",
        "further cells to run after all others, which show where exactly failures occur (default: 0), or auto",
        "N",
        "count",
        word=AUTO,
    ),
    Option(
        "remedies",
        "try the known cures, one at a time, on one cell of each failure",
        kind="flag",
    ),
    Option(
        "minimise",
        "shrink one cell of each failure to the smallest job that fails in the same way",
        kind="flag",
    ),
    Option(
        "anonymise",
        "reports, issues and bundles have stand-ins for hosts, addresses, users and home paths",
        kind="flag",
    ),
    Option(
        "live",
        "show the running cells below pytest's output: where that is a terminal (auto, the default), on or off",
        "MODE",
        "choice",
        choices=("auto", "on", "off"),
    ),
    Option("cell", "run only the cell of this id; repeatable", "ID", "words", everywhere=False),
    Option(
        "resume",
        "take up an earlier run: run what is missing or was in flight (its id, its folder; default: latest)",
        "RUN",
        "run",
        everywhere=False,
        bare="latest",
    ),
    Option("plan", "print each job's exact commands, start nothing", kind="flag", everywhere=False),
)


@dataclass(frozen=True)
class Settings:
    """The options of one run. A run without a `history` option uses the history of its reports folder."""

    matrix: tuple[Path, ...] = ()
    inventory: str | None = None
    reports: Path = Path("reports")
    history: HistoryPlace | Literal["off"] | None = None
    baseline: str | None = None
    knowledge: tuple[Path, ...] = ()
    signatures: tuple[Path, ...] = ()
    timeout: float = 120.0
    preflight: str = "warn"
    wire: float | Literal["off"] = 0.25
    retries: int = 0
    retry_on: tuple[str, ...] = RETRIABLE[:2]
    budget: float | Literal["off"] = "off"
    quarantine: int | Literal["off"] = 2
    output: int | Literal["off"] = 256 << 20
    debug_rerun: bool = False
    strategy: str = FULL
    max_cells: int | Literal["off"] = 100_000
    bisect: str = ""
    controls: int | Literal["auto"] = 0
    remedies: bool = False
    minimise: bool = False
    anonymise: bool = False
    live: str = "auto"
    cell: tuple[str, ...] = ()
    resume: str | None = None
    plan: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def typed(self) -> tuple[str, ...]:
        """The command-line options that run a cell the same way again, from wherever they were set."""
        tokens: list[str] = []
        for option in OPTIONS:
            value = getattr(self, option.field)
            if option.same and value != getattr(Settings, option.field):
                values = value if isinstance(value, tuple) else (value,)
                tokens += (token for one in values for token in (option.flag, _as_typed(one)))
        return tuple(tokens)

    @property
    def database(self) -> DatabaseUrl | None:
        """The database of the history, if it is no file."""
        return None if self.history is None or isinstance(self.history, str | Path) else self.history

    def remembered_in(self, reports: Path, here: Path) -> HistoryPlace | None:
        """Return the history for runs in a `reports` folder, or None if it is off."""
        if self.history is None:
            from pytest_hetgpu.store.folder import HISTORY

            return reports / HISTORY
        return None if self.history == OFF else self.database or here / str(self.history)

    def told(self, option: Option) -> str:
        """Return the value of an option as text."""
        value = getattr(self, option.field)
        return "none" if value is None else _as_typed(value)


def _as_typed(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
