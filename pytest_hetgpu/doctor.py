"""`hetgpu doctor`: looks at this machine, or at every host of an inventory, and says what may break jobs there."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_hetgpu.accounting import Environment, Look, collect, groups
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.inventory import HERE, LOCAL, Host, Inventory
from pytest_hetgpu.model import Hardware
from pytest_hetgpu.preflight.check import standing
from pytest_hetgpu.preflight.concern import Concern
from pytest_hetgpu.probes.base import Fact, State
from pytest_hetgpu.reporting.redaction import redact
from pytest_hetgpu.runtimes.base import testinfra_host
from pytest_hetgpu.stacks.base import stack_names
from pytest_hetgpu.suite import Suite

Reach = Callable[[Host], Any]
"""Gives the testinfra host of a host."""

USUAL_STACK = Hardware("").stack
MOST_AT_ONCE = 16
LOOK_TIMEOUT = 20.0
_BYTES = ("memory", "memlock", "shm")
_MARKS = {State.ABSENT: "-", State.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was seen of one host. `trouble` says why nothing was; `stacks` maps the MPIs found to where they are."""

    name: str
    environment: Environment = field(default_factory=Environment)
    concerns: tuple[Concern, ...] = ()
    stacks: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""

    @property
    def fine(self) -> bool:
        """Whether it could be looked at, and nothing certain speaks against it."""
        return not self.trouble and not any(concern.certain for concern in self.concerns)


def reach(host: Host) -> Any:
    """The testinfra host of this machine, or of one over ssh as its inventory says. NotHere without testinfra."""
    if host.address in HERE:
        return testinfra_host("local://")
    user = f"{quote(host.reach.user)}@" if host.reach.user else ""
    port = f":{host.reach.port}" if host.reach.port else ""
    key = f"&ssh_identity_file={quote(host.reach.key)}" if host.reach.key else ""
    return testinfra_host(
        f"ssh://{user}{host.address}{port}?timeout=10&controlpersist=0{key}", ssh_extra_args="-o BatchMode=yes"
    )


def examine(suite: Suite, reach: Reach = reach) -> tuple[Diagnosis, ...]:
    """Looks at every host of a suite's inventory, or at this machine where that names none; several at once.

    Raises NotHere where testinfra is not installed. A host that is out of reach is a Diagnosis with its trouble.
    """
    hosts = dict(_hosts(suite.inventory)) or {"this machine": LOCAL}
    stacks = _stacks(suite)

    def one(name: str) -> Diagnosis:
        return diagnose(name, hosts[name], reach, stacks)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(hosts))) as pool:
        return tuple(pool.map(one, hosts))


def diagnose(name: str, host: Host, reach: Reach, stacks: Mapping[str, str]) -> Diagnosis:
    """Looks at one host. `stacks` are this machine's; their folders are searched where the host is this machine."""
    here = host.address in HERE
    found = stacks if here else {}
    prefixes = (host.prefix, *(prefix for prefix in found.values() if prefix))
    environment = collect(reach(host), Look(tuple(filter(None, prefixes)), timeout=LOOK_TIMEOUT))
    if all(fact.state is State.UNKNOWN for fact in environment.facts.values()):
        why = next((fact.why for fact in environment.facts.values()), "nothing was looked at")
        return Diagnosis(name, environment, trouble=why)
    return Diagnosis(name, environment, standing(environment, name), found)


def _hosts(inventory: Inventory) -> Iterator[tuple[str, Host]]:
    for kind, hosts in inventory.hardware.items():
        yield from ((f"{kind} on {host.address}", host) for host in hosts)


def _stacks(suite: Suite) -> dict[str, str]:
    """The stacks of this machine with where they are ("": the system's own), the one that is taken unasked first."""
    ordered = sorted(stack_names(), key=lambda name: (name != USUAL_STACK, name))
    found = {name: suite.stack(name) for name in ordered}
    return {name: stack.prefix for name, stack in found.items() if not isinstance(stack, NotHere)}


def render(diagnoses: Sequence[Diagnosis], width: int | None = None) -> Iterator[str]:
    """The lines of a report for a terminal: each host's facts by subject, then what is the matter."""
    columns = width or shutil.get_terminal_size((100, 24)).columns
    for diagnosis in diagnoses:
        yield diagnosis.name
        if diagnosis.trouble:
            yield from (f"  ! {diagnosis.trouble}", "")
            continue
        for stack, prefix in diagnosis.stacks.items():
            yield f"  stack {stack}: {prefix or 'of the system'}"
        for title, facts in groups(diagnosis.environment):
            yield from _subject(title, facts, columns)
        yield from _matters(diagnosis, columns)
        yield ""


def _subject(title: str, facts: Mapping[str, Fact], width: int) -> Iterator[str]:
    """A subject in one line where nothing of it is there, else with a line for each fact."""
    if all(fact.state is State.ABSENT for fact in facts.values()):
        why = next(iter(facts.values())).why
        yield f"  {title}: -{f' ({why})' if why else ''}"
        return
    yield f"  {title}"
    for name, fact in facts.items():
        why = f" ({fact.why})" if fact.why else ""
        said = redact(f"{_shown(name, fact)}{why}")
        head = f"    {name:<22} "
        yield from textwrap.wrap(said, width, initial_indent=head, subsequent_indent=" " * 27) or [head]


def _shown(name: str, fact: Fact) -> str:
    text = _MARKS.get(fact.state) or fact.text or ""
    return _human(int(text)) if name in _BYTES and text.isdecimal() else text


def _human(size: int) -> str:
    """`23.5 GiB`; what is less than a MiB in KiB."""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


def _matters(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    if not diagnosis.concerns:
        yield "  Nothing is the matter."
    for concern in diagnosis.concerns:
        mark = "!" if concern.certain else "~"
        said = f"{concern.why}: {concern.cure}"
        yield from textwrap.wrap(said, width, initial_indent=f"  {mark} ", subsequent_indent="    ")


def to_json(diagnoses: Sequence[Diagnosis]) -> str:
    """The same for programs: an object with `hosts`, each with its facts, stacks, concerns and trouble."""
    from pytest_hetgpu.reporting.environment import facts_json

    hosts = [
        {
            "name": one.name,
            "fine": one.fine,
            "trouble": one.trouble,
            "stacks": dict(one.stacks),
            "facts": facts_json(one.environment),
            "concerns": [
                {"kind": c.kind.value, "why": c.why, "cure": c.cure, "certain": c.certain} for c in one.concerns
            ],
        }
        for one in diagnoses
    ]
    return json.dumps({"schema": 1, "hosts": hosts}, indent=1)


def run(file: Path | None, as_json: bool, say: Callable[[str], None]) -> int:
    """The subcommand: 0 where everything is fine, 1 where something is not. UsageError for a bad inventory."""
    diagnoses = examine(Suite.load((), Path.cwd(), inventory_file=file, timeout=LOOK_TIMEOUT, environ=os.environ))
    if as_json:
        say(to_json(diagnoses))
    else:
        for line in render(diagnoses):
            say(line)
    return 0 if all(diagnosis.fine for diagnosis in diagnoses) else 1
