"""Options as data, each also an ini key and a variable. Command line, environment, ini, default: the first wins."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

OFF = "off"


@dataclass(frozen=True)
class Option:
    """One option; `name` gives `--hetgpu-NAME`, ini key `hetgpu_NAME` and variable `HETGPU_NAME`.

    Of one with `same` a cell needs the value that it had, to be run again; one that `may_be_off` takes the word `off`
    for its value, too.
    """

    name: str
    help: str
    metavar: str = ""
    kind: Literal["path", "paths", "words", "seconds", "flag", "choice", "run"] = "path"
    everywhere: bool = True
    choices: tuple[str, ...] = ()
    same: bool = False
    may_be_off: bool = False

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
    Option("inventory", "where the hardware of the matrix is", "FILE", same=True),
    Option("reports", "folder for what runs leave (default: reports)", "DIR"),
    Option(
        "history",
        "file that every run's outcomes and numbers go into, or off (default: history.sqlite in the reports folder)",
        "FILE",
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
        "debug-rerun",
        "run each new or changed failure once more with its libraries' debug output, kept beside it",
        kind="flag",
    ),
    Option(
        "anonymise",
        "reports, issues and bundles have stand-ins for hosts, addresses, users and home paths",
        kind="flag",
    ),
    Option("cell", "run only the cell of this id; repeatable", "ID", "words", everywhere=False),
    Option("plan", "print each job's exact commands, start nothing", kind="flag", everywhere=False),
)


@dataclass(frozen=True)
class Settings:
    """Options as resolved for one run. Without a `history` of its own a run goes into that of its reports folder."""

    matrix: tuple[Path, ...] = ()
    inventory: Path | None = None
    reports: Path = Path("reports")
    history: Path | Literal["off"] | None = None
    baseline: str | None = None
    knowledge: tuple[Path, ...] = ()
    timeout: float = 120.0
    preflight: str = "warn"
    wire: float | Literal["off"] = 0.25
    debug_rerun: bool = False
    anonymise: bool = False
    cell: tuple[str, ...] = ()
    plan: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def typed(self) -> tuple[str, ...]:
        """What is to be typed so that a cell is the same once more, wherever it was said this time."""
        tokens: list[str] = []
        for option in OPTIONS:
            value = getattr(self, option.field)
            if option.same and value != getattr(Settings, option.field):
                values = value if isinstance(value, tuple) else (value,)
                tokens += (token for one in values for token in (option.flag, _as_typed(one)))
        return tuple(tokens)


def _as_typed(value: Path | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def register(parser: pytest.Parser) -> None:
    """Declares every option."""
    group = parser.getgroup("hetgpu", "compatibility matrices of GPUs, transports and collectives")
    for option in OPTIONS:
        keywords: dict[str, Any] = {"dest": option.dest, "help": option.help, "default": None}
        if option.kind == "flag":
            keywords["action"] = "store_true"
        else:
            keywords["metavar"] = option.metavar
            keywords["action"] = "append" if option.kind in ("paths", "words") else "store"
        group.addoption(option.flag, **keywords)
        if option.everywhere:
            ini = "paths" if option.kind == "paths" else "string"
            parser.addini(option.dest, f"{option.help} (like {option.flag})", type=ini, default=None)  # type: ignore[arg-type]


def resolve(config: pytest.Config, environ: Mapping[str, str] = os.environ) -> Settings:
    """What the user asked for. Raises pytest.UsageError for a value that cannot be meant."""
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        value, source = _given(option, config, environ)
        if value not in (None, [], ""):
            found[option.field] = _convert(option, value, source)
            sources[option.field] = source
    return Settings(**found, sources=sources)


def _truth(text: str, source: str) -> bool:
    """What a flag's ini key or variable says."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise pytest.UsageError(f"{source}: {text!r} is none of {', '.join(words)}")
    return words[text.lower()]


def _given(option: Option, config: pytest.Config, environ: Mapping[str, str]) -> tuple[Any, str]:
    typed = config.getoption(option.dest)
    if typed not in (None, False):
        return typed, option.flag
    variable = option.dest.upper()
    if option.everywhere and environ.get(variable):
        text = environ[variable]
        return (text.split(os.pathsep) if option.kind == "paths" else text), variable
    if not option.everywhere:
        return None, ""
    value = config.getini(option.dest)
    if value and option.kind == "path" and config.inipath and not (option.may_be_off and value == OFF):
        value = config.inipath.parent / value
    if value and option.kind == "run" and config.inipath and (beside := config.inipath.parent / value).exists():
        value = str(beside)
    return value, f"{option.dest} in {config.inipath}"


def _convert(option: Option, value: Any, source: str) -> Any:
    if option.may_be_off and value == OFF:
        return OFF
    if option.kind in ("paths", "words"):
        return tuple(value if option.kind == "words" else map(Path, value))
    if option.kind in ("path", "run"):
        return Path(value) if option.kind == "path" else str(value)
    if option.kind == "flag":
        return value is True or _truth(str(value), source)
    if option.kind == "choice":
        if value not in option.choices:
            raise pytest.UsageError(f"{source}: {value!r} is none of {', '.join(option.choices)}")
        return value
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise pytest.UsageError(
            f"{source}: {value!r} is not a number of seconds above 0{', nor off' * option.may_be_off}"
        )
    return seconds
