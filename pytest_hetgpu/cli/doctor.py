"""`hetgpu doctor`: inspects this machine or the hosts of an inventory, and lists the problems that jobs would meet."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

from pytest_hetgpu.cli.hosts import extension_lines, inventory_json, inventory_lines
from pytest_hetgpu.cluster.inspect import FactRequest, HostAnswer, collect, groups
from pytest_hetgpu.cluster.preflight.check import machine_warnings
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.config.inventory.hosts import HERE, LOCAL, Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.inventory.sources import kind_of
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.base import key_trouble, testinfra_host
from pytest_hetgpu.extensions.runtimes.process.query import ask
from pytest_hetgpu.extensions.stacks.base import mpi4py_advice, stack_names
from pytest_hetgpu.model.facts import Environment, Fact, FactState
from pytest_hetgpu.model.job import Hardware, Stack
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import clean, printable_json


@dataclass(frozen=True, slots=True)
class HostConnection:
    """The connection to a host: ssh to `address`; "" is this machine."""

    address: str = ""
    user: str | None = None
    port: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{user}{address}{f':{self.port}' if self.port else ''}" if self.address else "this machine"


Connect = Callable[[HostConnection], Any]
"""Returns the testinfra host of a connection."""

USUAL_STACK = Hardware("").stack
MOST_AT_ONCE = 16
PROBE_TIMEOUT = 20.0
_BYTE_FACTS = ("memory", "memlock", "shm")
_MARKS = {FactState.ABSENT: "-", FactState.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The facts and concerns of one host; `trouble` is the reason if it could not be inspected."""

    name: str
    environment: Environment = field(default_factory=Environment)
    concerns: tuple[PreflightWarning, ...] = ()
    #: the MPIs found, the default one first
    stacks: tuple[Stack, ...] = ()
    trouble: str = ""
    #: the kinds of hardware on the host
    kinds: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether the host was inspected, and no certain concern exists."""
        return not self.trouble and not any(concern.certain for concern in self.concerns)


def connection_to(host: Host) -> HostConnection:
    """Return the connection to a host's engine, which is reachable from here; `address` may serve other hosts only."""
    info = host.reach
    with suppress(ValueError):  # an IPv6 address without brackets is invalid in a URL
        engine = urlsplit(info.engine)
        name, user, port = engine.hostname or "", engine.username or info.user, engine.port or info.port
        if engine.scheme == "ssh" and name:
            own = host.address.strip("[]")
            return HostConnection(own if name == own.lower() else name, user, port, info.key)
    if (host.address in HERE and not info.port) or info.engine.startswith("unix:"):
        return HostConnection()
    return HostConnection(host.address.strip("[]"), info.user, info.port, info.key)


class _ThisMachine:
    """A host for this machine without testinfra, an optional package: it runs the one command of an inspection."""

    def run(self, command: str, *args: str) -> HostAnswer:
        """Run `python3 -c` with these arguments: `command` is never anything else."""
        output = ask([("python3", "-c", *args)])
        return SimpleNamespace(rc=0, stdout=output.decode(errors="replace"), stderr="")


def connect(connection: HostConnection) -> Any:
    """Return the testinfra host of this machine, or of one over ssh, which without testinfra raises NotHere."""
    if not connection.address:
        try:
            return testinfra_host("local://")
        except NotHere:
            return _ThisMachine()
    plain = replace(connection, user=quote(connection.user) if connection.user else None)
    key = f"&ssh_identity_file={quote(connection.key)}" if connection.key else ""
    return testinfra_host(f"ssh://{plain}?timeout=10&controlpersist=0{key}", ssh_extra_args="-o BatchMode=yes")


def examine(suite: MatrixSet, connect: Connect = connect) -> tuple[Diagnosis, ...]:
    """Inspect every host of a suite's inventory once, in parallel; this machine if the inventory has none.

    Raises NotHere if another host needs testinfra, and it is not installed. An unreachable host becomes a Diagnosis
    with trouble.
    """
    places = _group_by_connection(suite.inventory) or {HostConnection(): [("", LOCAL)]}
    stacks = local_stacks(suite)

    def one(connection: HostConnection) -> Diagnosis:
        kinds = tuple(dict.fromkeys(kind for kind, _ in places[connection] if kind))
        prefixes = dict.fromkeys(host.prefix for _, host in places[connection] if host.prefix)
        found = diagnose(
            _display_name(connection, places[connection]),
            connection,
            connect,
            tuple(prefixes),
            () if connection.address else stacks,
        )
        return replace(found, kinds=kinds)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(places))) as pool:
        return tuple(pool.map(one, places))


def diagnose(
    name: str,
    connection: HostConnection,
    connect: Connect,
    prefixes: Sequence[str] = (),
    stacks: tuple[Stack, ...] = (),
) -> Diagnosis:
    """Inspect one host. Search `prefixes` first, then the folders of its `stacks`."""
    trouble = key_trouble(connection.key)
    if trouble:
        return Diagnosis(name, trouble=trouble)
    folders = (*prefixes, *(stack.prefix for stack in stacks if stack.prefix))
    environment = collect(connect(connection), FactRequest(folders, timeout=PROBE_TIMEOUT))
    if all(fact.state is FactState.UNKNOWN for fact in environment.facts.values()):
        why = next((fact.why for fact in environment.facts.values()), "nothing was looked at")
        return Diagnosis(name, environment, trouble=why)
    concerns = (*machine_warnings(environment, name), *_foreign_mpi4py(stacks, name))
    return Diagnosis(name, environment, concerns, stacks)


def _foreign_mpi4py(stacks: Sequence[Stack], name: str) -> Iterator[PreflightWarning]:
    """Yield a warning per stack whose mpi4py is linked with another MPI. Programs without mpi4py run on it."""
    for advice in filter(None, map(mpi4py_advice, stacks)):
        why, _, remedy = advice.partition("; ")
        yield PreflightWarning(Kind.LAUNCH_FAILURE, name, why, remedy, certain=False)


def _group_by_connection(inventory: Inventory) -> dict[HostConnection, list[tuple[str, Host]]]:
    """Group the entries of the inventory, each with its kind, by their connection."""
    places: dict[HostConnection, list[tuple[str, Host]]] = {}
    for kind, hosts in inventory.hardware.items():
        for host in hosts:
            places.setdefault(connection_to(host), []).append((kind, host))
    for one in inventory.configured_hosts:
        places.setdefault(connection_to(one.host), []).append((kind_of(one.entry), one.host))
    return places


def _display_name(connection: HostConnection, entries: Sequence[tuple[str, Host]]) -> str:
    """Format `g4ad, other on 10.0.0.5`, with the connection if it leads elsewhere."""
    kinds = dict.fromkeys(kind for kind, _ in entries)
    if not any(kinds):
        return str(connection)
    addresses = dict.fromkeys(host.address.strip("[]") for _, host in entries)
    by = "" if connection.address in addresses or not connection.address else f" (by way of {connection})"
    return f"{', '.join(kinds)} on {', '.join(addresses)}{by}"


def local_stacks(suite: MatrixSet) -> tuple[Stack, ...]:
    """Return the stacks of this machine, the default one first."""
    ordered = sorted(stack_names(), key=lambda name: (name != USUAL_STACK, name))
    found = map(suite.stack, ordered)
    return tuple(stack for stack in found if not isinstance(stack, NotHere))


def render(diagnoses: Sequence[Diagnosis], width: int | None = None) -> Iterator[str]:
    """Yield the lines of a report for a terminal: the facts of each host by subject, then the concerns."""
    columns = width or shutil.get_terminal_size((100, 24)).columns
    for diagnosis in diagnoses:
        yield diagnosis.name
        if diagnosis.trouble:
            yield from (f"  ! {diagnosis.trouble}", "")
            continue
        for place, stack in enumerate(diagnosis.stacks):
            head = " " * len("stacks found:") if place else "stacks found:"
            where = f"in {stack.prefix}" if stack.prefix else "of the system"
            yield f"  {head} {stack.name} ({stack.vendor} {stack.version}) {where}"
        for title, facts in groups(diagnosis.environment):
            yield from _subject_lines(title, facts, columns)
        yield from _concern_lines(diagnosis, columns)
        yield ""


def _subject_lines(title: str, facts: Mapping[str, Fact], width: int) -> Iterator[str]:
    """Yield one line for an absent subject, else one line per fact."""
    if all(fact.state is FactState.ABSENT for fact in facts.values()):
        why = next(iter(facts.values())).why
        yield f"  {title}: -{f' ({why})' if why else ''}"
        return
    yield f"  {title}"
    for name, fact in facts.items():
        why = f" ({fact.why})" if fact.why else ""
        text = clean(redact(f"{_display_fact(name, fact)}{why}"))
        head = f"    {name:<22} "
        yield from textwrap.wrap(text, width, initial_indent=head, subsequent_indent=" " * 27) or [head]


def _display_fact(name: str, fact: Fact) -> str:
    text = _MARKS.get(fact.state) or fact.text or ""
    return _format_bytes(int(text)) if name in _BYTE_FACTS and text.isdecimal() else text


def _format_bytes(size: int) -> str:
    """Format a size as `23.5 GiB`; sizes below a MiB in KiB."""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


def _concern_lines(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    if not diagnosis.concerns:
        yield "  Nothing is the matter."
    for concern in diagnosis.concerns:
        mark = "!" if concern.certain else "~"
        text = f"{concern.why}: {concern.remedy}"
        yield from textwrap.wrap(text, width, initial_indent=f"  {mark} ", subsequent_indent="    ")


def to_json(diagnoses: Sequence[Diagnosis], inventory: Inventory | None = None) -> str:
    """Build the same report for programs: an object with `hosts`, each with kinds, facts, stacks, concerns and trouble.

    `inventory` lists the hosts of each source, `extensions` those of other packages.
    """
    from pytest_hetgpu.store.environment import facts_json

    hosts = [
        {
            "name": one.name,
            "kinds": list(one.kinds),
            "fine": one.fine,
            "trouble": one.trouble,
            "stacks": {stack.name: stack.prefix for stack in one.stacks},
            "facts": facts_json(one.environment),
            "concerns": [
                {"kind": c.kind.value, "why": c.why, "cure": c.remedy, "certain": c.certain} for c in one.concerns
            ],
        }
        for one in diagnoses
    ]
    whole: dict[str, Any] = {"schema": 1, "hosts": hosts}
    if inventory and inventory.given:
        whole["inventory"] = inventory_json(inventory)
    if theirs := list(extension_lines()):
        whole["extensions"] = theirs
    return printable_json(json.dumps(whole, indent=1))


def run(given: str | None, as_json: bool, print_line: Callable[[str], None], only_list: bool = False) -> int:
    """Run the subcommand; return 0 if everything is fine, else 1. Raises UsageError for a bad inventory.

    With `only_list`, print the hosts of the inventory, and inspect none.
    """
    suite = MatrixSet.load((), Path.cwd(), timeout=PROBE_TIMEOUT, environ=os.environ, inputs=RunInputs(given))
    if only_list and not given:
        raise UsageError("--list needs --inventory FILE")
    diagnoses = () if only_list else examine(suite)
    if as_json:
        print_line(to_json(diagnoses, suite.inventory))
    else:
        if only_list or suite.inventory.sources:
            for line in (*inventory_lines(suite.inventory), ""):
                print_line(line)
        for line in render(diagnoses):
            print_line(line)
        for place, line in enumerate(extension_lines()):
            print_line(f"{' ' * 23 if place else 'added by other packages'}: {line}")
    return 0 if all(diagnosis.fine for diagnosis in diagnoses) else 1
