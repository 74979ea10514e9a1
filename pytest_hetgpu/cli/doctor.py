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

from pytest_hetgpu.cli.hosts import extensions_listed, listed, listed_json
from pytest_hetgpu.cluster.inspect import Look, collect, groups
from pytest_hetgpu.cluster.preflight.check import machine_warnings
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.config.inventory.inventory import HERE, LOCAL, Host, Inventory
from pytest_hetgpu.config.inventory.sources import kind_of
from pytest_hetgpu.errors import NotHere, UsageError
from pytest_hetgpu.extensions.runtimes.base import key_trouble, testinfra_host
from pytest_hetgpu.extensions.stacks.base import stack_names
from pytest_hetgpu.model.facts import Environment, Fact, FactState
from pytest_hetgpu.model.job import Hardware, Stack
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs
from pytest_hetgpu.store.redaction.redact import redact
from pytest_hetgpu.store.text import clean


@dataclass(frozen=True, slots=True)
class Way:
    """How a host is come to: by ssh to `address`; "" is this machine."""

    address: str = ""
    user: str | None = None
    port: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{user}{address}{f':{self.port}' if self.port else ''}" if self.address else "this machine"


Reach = Callable[[Way], Any]
"""Gives the testinfra host at the end of a way."""

USUAL_STACK = Hardware("").stack
MOST_AT_ONCE = 16
LOOK_TIMEOUT = 20.0
_BYTES = ("memory", "memlock", "shm")
_MARKS = {FactState.ABSENT: "-", FactState.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was seen of one host. `kinds` of hardware are there; `trouble` says why nothing was seen.

    `stacks` are the MPIs found, the one that is taken unasked first.
    """

    name: str
    environment: Environment = field(default_factory=Environment)
    concerns: tuple[PreflightWarning, ...] = ()
    stacks: tuple[Stack, ...] = ()
    trouble: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether it could be looked at, and nothing certain speaks against it."""
        return not self.trouble and not any(concern.certain for concern in self.concerns)


def way_to(host: Host) -> Way:
    """Where its engine is, for that can be reached from here; `address` may be for the other hosts alone."""
    reach = host.reach
    with suppress(ValueError):  # an IPv6 address without brackets is none of a URL
        engine = urlsplit(reach.engine)
        name, user, port = engine.hostname or "", engine.username or reach.user, engine.port or reach.port
        if engine.scheme == "ssh" and name:
            own = host.address.strip("[]")
            return Way(own if name == own.lower() else name, user, port, reach.key)
    if (host.address in HERE and not reach.port) or reach.engine.startswith("unix:"):
        return Way()
    return Way(host.address.strip("[]"), reach.user, reach.port, reach.key)


def reach(way: Way) -> Any:
    """The testinfra host of this machine, or of one over ssh. NotHere without testinfra."""
    if not way.address:
        return testinfra_host("local://")
    plain = replace(way, user=quote(way.user) if way.user else None)
    key = f"&ssh_identity_file={quote(way.key)}" if way.key else ""
    return testinfra_host(f"ssh://{plain}?timeout=10&controlpersist=0{key}", ssh_extra_args="-o BatchMode=yes")


def examine(suite: MatrixSet, reach: Reach = reach) -> tuple[Diagnosis, ...]:
    """Looks at every host of a suite's inventory, or at this machine where that names none; each once, several at once.

    Raises NotHere where testinfra is not installed. A host that is out of reach is a Diagnosis with its trouble.
    """
    places = _places(suite.inventory) or {Way(): [("", LOCAL)]}
    stacks = _stacks(suite)

    def one(way: Way) -> Diagnosis:
        kinds = tuple(dict.fromkeys(kind for kind, _ in places[way] if kind))
        prefixes = dict.fromkeys(host.prefix for _, host in places[way] if host.prefix)
        found = diagnose(_name(way, places[way]), way, reach, tuple(prefixes), () if way.address else stacks)
        return replace(found, kinds=kinds)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(places))) as pool:
        return tuple(pool.map(one, places))


def diagnose(
    name: str, way: Way, reach: Reach, prefixes: Sequence[str] = (), stacks: tuple[Stack, ...] = ()
) -> Diagnosis:
    """Looks at one host. `prefixes` are searched first, then the folders of `stacks`, which are on it."""
    trouble = key_trouble(way.key)
    if trouble:
        return Diagnosis(name, trouble=trouble)
    folders = (*prefixes, *(stack.prefix for stack in stacks if stack.prefix))
    environment = collect(reach(way), Look(folders, timeout=LOOK_TIMEOUT))
    if all(fact.state is FactState.UNKNOWN for fact in environment.facts.values()):
        why = next((fact.why for fact in environment.facts.values()), "nothing was looked at")
        return Diagnosis(name, environment, trouble=why)
    return Diagnosis(name, environment, machine_warnings(environment, name), stacks)


def _places(inventory: Inventory) -> dict[Way, list[tuple[str, Host]]]:
    """The entries of the inventory, each with its kind, by the way to them."""
    places: dict[Way, list[tuple[str, Host]]] = {}
    for kind, hosts in inventory.hardware.items():
        for host in hosts:
            places.setdefault(way_to(host), []).append((kind, host))
    for offer in inventory.offers:
        places.setdefault(way_to(offer.host), []).append((kind_of(offer.claim), offer.host))
    return places


def _name(way: Way, entries: Sequence[tuple[str, Host]]) -> str:
    """`g4ad, other on 10.0.0.5`, with how it was reached where that is elsewhere."""
    kinds = dict.fromkeys(kind for kind, _ in entries)
    if not any(kinds):
        return str(way)
    addresses = dict.fromkeys(host.address.strip("[]") for _, host in entries)
    by = "" if way.address in addresses or not way.address else f" (by way of {way})"
    return f"{', '.join(kinds)} on {', '.join(addresses)}{by}"


def _stacks(suite: MatrixSet) -> tuple[Stack, ...]:
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
            yield from _subject(title, facts, columns)
        yield from _matters(diagnosis, columns)
        yield ""


def _subject(title: str, facts: Mapping[str, Fact], width: int) -> Iterator[str]:
    """A subject in one line where nothing of it is there, else with a line for each fact."""
    if all(fact.state is FactState.ABSENT for fact in facts.values()):
        why = next(iter(facts.values())).why
        yield f"  {title}: -{f' ({why})' if why else ''}"
        return
    yield f"  {title}"
    for name, fact in facts.items():
        why = f" ({fact.why})" if fact.why else ""
        said = clean(redact(f"{_shown(name, fact)}{why}"))
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
        said = f"{concern.why}: {concern.remedy}"
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
                {"kind": c.kind.value, "why": c.why, "cure": c.remedy, "certain": c.certain} for c in one.concerns
            ],
        }
        for one in diagnoses
    ]
    whole: dict[str, Any] = {"schema": 1, "hosts": hosts}
    if inventory and inventory.given:
        whole["inventory"] = listed_json(inventory)
    if theirs := list(extensions_listed()):
        whole["extensions"] = theirs
    return json.dumps(whole, indent=1)


def run(given: str | None, as_json: bool, say: Callable[[str], None], only_list: bool = False) -> int:
    """The subcommand: 0 where everything is fine, 1 where something is not. UsageError for a bad inventory.

    `only_list`: says what the inventory gives, and looks at no host.
    """
    suite = MatrixSet.load((), Path.cwd(), timeout=LOOK_TIMEOUT, environ=os.environ, inputs=RunInputs(given))
    if only_list and not given:
        raise UsageError("--list needs --inventory FILE")
    diagnoses = () if only_list else examine(suite)
    if as_json:
        say(to_json(diagnoses, suite.inventory))
    else:
        if only_list or suite.inventory.gathered:
            for line in (*listed(suite.inventory), ""):
                say(line)
        for line in render(diagnoses):
            say(line)
        for place, line in enumerate(extensions_listed()):
            say(f"{' ' * 23 if place else 'added by other packages'}: {line}")
    return 0 if all(diagnosis.fine for diagnosis in diagnoses) else 1
