"""`hetgpu doctor`: looks at this machine, or at every host of an inventory, and says what may break jobs there."""

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
from typing import Any
from urllib.parse import quote, urlsplit

from pytest_hetgpu.cli.hosts import extension_lines, inventory_json, inventory_lines
from pytest_hetgpu.cluster.inspect import Look, collect, groups
from pytest_hetgpu.cluster.preflight.check import standing
from pytest_hetgpu.cluster.preflight.concern import Concern
from pytest_hetgpu.config.inventory.inventory import HERE, LOCAL, Host, Inventory
from pytest_hetgpu.config.inventory.sources import kind_of
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.base import key_trouble, testinfra_host
from pytest_hetgpu.extensions.stacks.base import stack_names
from pytest_hetgpu.model.facts import Environment, Fact, State
from pytest_hetgpu.model.job import Hardware, Stack
from pytest_hetgpu.planning.suite import Beside, Suite
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import clean


@dataclass(frozen=True, slots=True)
class HostConnection:
    """How a host is come to: by ssh to `address`; "" is this machine."""

    address: str = ""
    user: str | None = None
    port: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{user}{address}{f':{self.port}' if self.port else ''}" if self.address else "this machine"


Connect = Callable[[HostConnection], Any]
"""Gives the testinfra host at the end of a connection."""

USUAL_STACK = Hardware("").stack
MOST_AT_ONCE = 16
PROBE_TIMEOUT = 20.0
_BYTE_FACTS = ("memory", "memlock", "shm")
_MARKS = {State.ABSENT: "-", State.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was seen of one host. `kinds` of hardware are there; `trouble` says why nothing was seen.

    `stacks` are the MPIs found, the one that is taken unasked first.
    """

    name: str
    environment: Environment = field(default_factory=Environment)
    concerns: tuple[Concern, ...] = ()
    stacks: tuple[Stack, ...] = ()
    trouble: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether it could be looked at, and nothing certain speaks against it."""
        return not self.trouble and not any(concern.certain for concern in self.concerns)


def connection_to(host: Host) -> HostConnection:
    """Where its engine is, for that can be reached from here; `address` may be for the other hosts alone."""
    info = host.reach
    with suppress(ValueError):  # an IPv6 address without brackets is none of a URL
        engine = urlsplit(info.engine)
        name, user, port = engine.hostname or "", engine.username or info.user, engine.port or info.port
        if engine.scheme == "ssh" and name:
            own = host.address.strip("[]")
            return HostConnection(own if name == own.lower() else name, user, port, info.key)
    if (host.address in HERE and not info.port) or info.engine.startswith("unix:"):
        return HostConnection()
    return HostConnection(host.address.strip("[]"), info.user, info.port, info.key)


def connect(connection: HostConnection) -> Any:
    """The testinfra host of this machine, or of one over ssh. NotHere without testinfra."""
    if not connection.address:
        return testinfra_host("local://")
    plain = replace(connection, user=quote(connection.user) if connection.user else None)
    key = f"&ssh_identity_file={quote(connection.key)}" if connection.key else ""
    return testinfra_host(f"ssh://{plain}?timeout=10&controlpersist=0{key}", ssh_extra_args="-o BatchMode=yes")


def examine(suite: Suite, connect: Connect = connect) -> tuple[Diagnosis, ...]:
    """Looks at every host of a suite's inventory, or at this machine where that names none; each once, several at once.

    Raises NotHere where testinfra is not installed. A host that is out of reach is a Diagnosis with its trouble.
    """
    places = _group_by_connection(suite.inventory) or {HostConnection(): [("", LOCAL)]}
    stacks = _local_stacks(suite)

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
    """Looks at one host. `prefixes` are searched first, then the folders of `stacks`, which are on it."""
    trouble = key_trouble(connection.key)
    if trouble:
        return Diagnosis(name, trouble=trouble)
    folders = (*prefixes, *(stack.prefix for stack in stacks if stack.prefix))
    environment = collect(connect(connection), Look(folders, timeout=PROBE_TIMEOUT))
    if all(fact.state is State.UNKNOWN for fact in environment.facts.values()):
        why = next((fact.why for fact in environment.facts.values()), "nothing was looked at")
        return Diagnosis(name, environment, trouble=why)
    return Diagnosis(name, environment, standing(environment, name), stacks)


def _group_by_connection(inventory: Inventory) -> dict[HostConnection, list[tuple[str, Host]]]:
    """The entries of the inventory, each with its kind, by the connection to them."""
    places: dict[HostConnection, list[tuple[str, Host]]] = {}
    for kind, hosts in inventory.hardware.items():
        for host in hosts:
            places.setdefault(connection_to(host), []).append((kind, host))
    for offer in inventory.offers:
        places.setdefault(connection_to(offer.host), []).append((kind_of(offer.claim), offer.host))
    return places


def _display_name(connection: HostConnection, entries: Sequence[tuple[str, Host]]) -> str:
    """`g4ad, other on 10.0.0.5`, with how it was reached where that is elsewhere."""
    kinds = dict.fromkeys(kind for kind, _ in entries)
    if not any(kinds):
        return str(connection)
    addresses = dict.fromkeys(host.address.strip("[]") for _, host in entries)
    by = "" if connection.address in addresses or not connection.address else f" (by way of {connection})"
    return f"{', '.join(kinds)} on {', '.join(addresses)}{by}"


def _local_stacks(suite: Suite) -> tuple[Stack, ...]:
    """The stacks of this machine, the one that is taken unasked first."""
    ordered = sorted(stack_names(), key=lambda name: (name != USUAL_STACK, name))
    found = map(suite.stack, ordered)
    return tuple(stack for stack in found if not isinstance(stack, NotHere))


def render(diagnoses: Sequence[Diagnosis], width: int | None = None) -> Iterator[str]:
    """The lines of a report for a terminal: each host's facts by subject, then what is the matter."""
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
    """A subject in one line where nothing of it is there, else with a line for each fact."""
    if all(fact.state is State.ABSENT for fact in facts.values()):
        why = next(iter(facts.values())).why
        yield f"  {title}: -{f' ({why})' if why else ''}"
        return
    yield f"  {title}"
    for name, fact in facts.items():
        why = f" ({fact.why})" if fact.why else ""
        said = clean(redact(f"{_display_fact(name, fact)}{why}"))
        head = f"    {name:<22} "
        yield from textwrap.wrap(said, width, initial_indent=head, subsequent_indent=" " * 27) or [head]


def _display_fact(name: str, fact: Fact) -> str:
    text = _MARKS.get(fact.state) or fact.text or ""
    return _format_bytes(int(text)) if name in _BYTE_FACTS and text.isdecimal() else text


def _format_bytes(size: int) -> str:
    """`23.5 GiB`; what is less than a MiB in KiB."""
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


def _concern_lines(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    if not diagnosis.concerns:
        yield "  Nothing is the matter."
    for concern in diagnosis.concerns:
        mark = "!" if concern.certain else "~"
        said = f"{concern.why}: {concern.cure}"
        yield from textwrap.wrap(said, width, initial_indent=f"  {mark} ", subsequent_indent="    ")


def to_json(diagnoses: Sequence[Diagnosis], inventory: Inventory | None = None) -> str:
    """The same for programs: an object with `hosts`, each with its kinds, facts, stacks, concerns and trouble.

    `inventory` is what each of its sources gives, `extensions` what other packages add.
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
                {"kind": c.kind.value, "why": c.why, "cure": c.cure, "certain": c.certain} for c in one.concerns
            ],
        }
        for one in diagnoses
    ]
    whole: dict[str, Any] = {"schema": 1, "hosts": hosts}
    if inventory and inventory.given:
        whole["inventory"] = inventory_json(inventory)
    if theirs := list(extension_lines()):
        whole["extensions"] = theirs
    return json.dumps(whole, indent=1)


def run(given: str | None, as_json: bool, print_line: Callable[[str], None], only_list: bool = False) -> int:
    """The subcommand: 0 where everything is fine, 1 where something is not. UsageError for a bad inventory.

    `only_list`: says what the inventory gives, and looks at no host.
    """
    suite = Suite.load((), Path.cwd(), timeout=PROBE_TIMEOUT, environ=os.environ, beside=Beside(given))
    if only_list and not given:
        raise UsageError("--list needs --inventory FILE")
    diagnoses = () if only_list else examine(suite)
    if as_json:
        print_line(to_json(diagnoses, suite.inventory))
    else:
        if only_list or suite.inventory.gathered:
            for line in (*inventory_lines(suite.inventory), ""):
                print_line(line)
        for line in render(diagnoses):
            print_line(line)
        for place, line in enumerate(extension_lines()):
            print_line(f"{' ' * 23 if place else 'added by other packages'}: {line}")
    return 0 if all(diagnosis.fine for diagnosis in diagnoses) else 1
