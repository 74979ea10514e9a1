"""Inspection of a node: the facts of all probes, in one round trip."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

from pytest_hetgpu.cluster.private_files import file_here
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.extensions.probes.base import Probe, RawFacts
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.model.credentials import is_credential
from pytest_hetgpu.model.facts import CLOCK, Environment, Fact, found, unknown
from pytest_hetgpu.model.job import Node

TIMEOUT = 10.0


class HostAnswer(Protocol):
    """The result of a command on a host, as testinfra returns it."""

    @property
    def rc(self) -> int:
        """The exit status."""

    @property
    def stdout(self) -> str:
        """The standard output."""

    @property
    def stderr(self) -> str:
        """The standard error."""


class HostLike(Protocol):
    """The part of a testinfra host that inspection needs."""

    def run(self, command: str, *args: str) -> HostAnswer:
        """Run a command line in which each `%s` is an argument, quoted."""


class FactRequest(NamedTuple):
    """A request for facts: prefixes to search first (of the stack), and variables that ranks will have."""

    prefixes: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    timeout: float = TIMEOUT
    root: str = ""


def collect(
    host: HostLike,
    wanted: FactRequest = FactRequest(),  # noqa: B008 - immutable
    private: Callable[[bytes], AbstractContextManager[str]] = file_here,
) -> Environment:
    """Return the facts of all probes about a node. If the node fails, every fact is unknown, with the reason.

    One command runs on it: `python3 -c PROGRAM REQUEST`. `private` keeps a file on the node: the variables.
    """
    asked = time.time()
    try:
        given = private(json.dumps(dict(wanted.environ)).encode()) if wanted.environ else nullcontext("")
        with given as path:
            answer = host.run("python3 -c %s %s", program(), json.dumps(request(wanted, path)))
    except Exception as error:  # noqa: BLE001 - any transport may be behind it, and a job may still run
        return _all_unknown(f"the node could not be looked at: {_error_text(error)}")
    if answer.rc == 127:
        return _all_unknown("the node has no python3 to look with")
    if answer.rc != 0:
        return _all_unknown(
            f"looking at the node failed with {answer.rc}: {_last_line(answer.stderr) or 'it printed nothing'}"
        )
    seen = read(answer.stdout)
    ahead = _ahead(answer.stdout, asked, time.time())
    return seen if ahead is None else Environment({**seen.facts, CLOCK: found(f"{ahead:.1f}")})


def preload() -> None:
    """Load the probes and the program: best while a node starts."""
    request()
    program()


def request_for(node: Node) -> FactRequest:
    """Return the request for a node of a job: its stack first, with the variables of its hardware."""
    given = (node.hardware.prefix, node.stack.prefix if node.stack else "")
    return FactRequest(tuple(dict.fromkeys(filter(None, given))), node.hardware.env)


def read(text: str) -> Environment:
    """Parse the output of `remote/gather_facts.py`. Earlier lines (the greeting of a login) are skipped."""
    line = _last_line(text, 0)
    try:
        seen = RawFacts.of(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _all_unknown(f"the node's answer cannot be read: {line[:80]!r}")
    return Environment(dict(_facts(seen)))


def program() -> str:
    """Return the text of the program that inspects a node."""
    return (REMOTE / "gather_facts.py").read_text(encoding="utf-8")


def request(wanted: FactRequest = FactRequest(), environ: str = "") -> dict[str, Any]:  # noqa: B008 - immutable
    """Return the requests of all probes, in the format of `remote/gather_facts.py`; `environ` is a file there."""
    asked: dict[str, Any] = {"prefixes": list(wanted.prefixes), "environ": environ}
    asked |= {"timeout": wanted.timeout, "root": wanted.root}
    asked["unset"] = sorted(name for name, value in os.environ.items() if is_credential(name, value))
    for part in ("files", "skip", "paths", "space", "env"):
        listed = [list(one) if isinstance(one, tuple) else one for probe in probes() for one in getattr(probe, part)]
        asked[part] = [one for place, one in enumerate(listed) if one not in listed[:place]]
    for part in ("strings", "commands", "each"):
        asked[part] = {name: one for probe in probes() for name, one in getattr(probe, part).items()}
    return asked


@cache
def probes() -> tuple[Probe, ...]:
    """Return one probe of each kind, the system first, then by name."""
    ordered = sorted(names("probes"), key=lambda name: (name != "system", name))
    return tuple(find("probes", name, Probe)() for name in ordered)  # type: ignore[type-abstract]


def groups(environment: Environment) -> Iterator[tuple[str, dict[str, Fact]]]:
    """Yield the facts of a node by the title of their probe; probes without facts are left out."""
    for probe in probes():
        below = tuple(f"{name}." for name in probe.provides)
        every = environment.facts.items()
        facts = {name: fact for name, fact in every if name in probe.provides or name.startswith(below)}
        if facts:
            yield probe.title, facts


def _facts(seen: RawFacts) -> Iterator[tuple[str, Fact]]:
    for probe in probes():
        try:
            yield from probe.read(seen).items()
        except Exception as error:  # noqa: BLE001 - a probe that cannot read one node must not cost the others' facts
            why = f"what the node answered cannot be read ({type(error).__name__}: {error})"
            yield from ((name, unknown(why)) for name in probe.provides)


def _ahead(text: str, asked: float, answered: float) -> float | None:
    """Return how many seconds a node's clock is ahead: 0 within the request; None if it is unknown."""
    try:
        there = float(json.loads(_last_line(text, 0))["epoch"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return there - min(max(there, asked), answered)


def _all_unknown(why: str) -> Environment:
    return Environment({name: unknown(why) for probe in probes() for name in probe.provides})


def _error_text(error: Exception) -> str:
    """Return the last line of an error. An error of testinfra holds the whole result of ssh."""
    stderr = getattr(error.args[0], "stderr", "") if error.args else ""
    return _last_line(str(stderr or error)) or type(error).__name__


def _last_line(text: str, limit: int = 200) -> str:
    line = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return line[:limit] if limit else line
