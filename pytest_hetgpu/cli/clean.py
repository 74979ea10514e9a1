"""`hetgpu clean`: shows the leftovers of dead runs, and removes them on request."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.cluster.cleanup.ledger import Ledger, home, ledgers
from pytest_hetgpu.cluster.cleanup.ledger_cleanup import CleanupResult, CleanupStatus, logged_problems, process_ledger
from pytest_hetgpu.cluster.cleanup.owner import Owner, OwnerState, myself, state_of
from pytest_hetgpu.cluster.cleanup.plan import FoundResource, Scope, counted, make_plan, table
from pytest_hetgpu.cluster.cleanup.targets import CleanupTarget, target_of, why
from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.config.inventory.hosts import HERE
from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.extensions.runtimes.lookup import mistakes_of, runtimes
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import ConnectionInfo
from pytest_hetgpu.store.text import printable_json

EXIT_LEFTOVERS = 1


@dataclass(frozen=True)
class CleanOptions:
    """The options of the command; `engines` and `inventories` are further places, `runs` the only ones to clean."""

    yes: bool = False
    json: bool = False
    engines: tuple[str, ...] = ()
    inventories: tuple[Path, ...] = ()
    all_users: bool = False
    elsewhere: bool = False
    forget: bool = False
    runs: tuple[str, ...] = ()

    def concerns(self, owner: Owner) -> bool:
        """Return whether the resources of an owner are included."""
        return not self.runs or owner.run in self.runs


Print = Callable[[str], None]


def run(options: CleanOptions, print_line: Print, print_error: Print, ask: Callable[[str], str] | None = None) -> int:
    """Show leftovers and remove those that may be removed. Return 0 if none are left, else 1.

    `ask` puts a question to the user; None if there is no terminal. Raises UsageError for input that cannot be read.
    """
    run_ledgers = [ledger for ledger in ledgers(home()) if options.concerns(ledger.owner)]
    try:
        places, trouble = _find_places(options, run_ledgers)
        found, unseen = _inspect(places)
        usual = _usual_only(options, run_ledgers)
        # Most machines have an engine that no run here used: its errors are only remarks.
        remarks = [line for place, line in unseen if place.words in usual]
        trouble += [line for place, line in unseen if place.words not in usual]
        me = myself("")
        scope = Scope(me.uid, me.machine, me.user, options.all_users, options.elsewhere)
        plan = make_plan((one for one in found if options.concerns(one.resource.owner)), scope, state_of)
        for line in () if options.json else [*remarks, *trouble]:
            print_error(line)
        if options.json:
            _print_json(plan.dead, plan.kept, trouble, print_line)
        else:
            _print_table(plan.dead, plan.kept, print_line)
        if plan.dead and not (options.yes or _confirm(plan.dead, ask)):
            if not options.json:
                print_line("nothing was removed; `hetgpu clean --yes` removes it")
            return EXIT_LEFTOVERS
        left = _remove(plan.dead)
        for line in left:
            print_error(f"not removed: {line}")
        if plan.dead and not left and not options.json:
            print_line(f"removed {counted(plan.dead)}")
        # The leftovers of a place that did not answer were not shown, so cleaning by ledger needs --yes.
        unfinished = _close_ledgers(
            run_ledgers, bool(left), blind=bool(trouble) and not options.yes, forget=options.forget
        )
        for line in unfinished:
            print_error(line)
        return EXIT_LEFTOVERS if left or trouble or unfinished else 0
    finally:
        for name, runtime in runtimes():
            try:
                with mistakes_of(name):
                    runtime.shut()
            except HetgpuError as error:
                print_error(str(error))


def _find_places(options: CleanOptions, run_ledgers: Iterable[Ledger]) -> tuple[list[CleanupTarget], list[str]]:
    """Return all places to inspect, and the errors of those that cannot be.

    They are this machine, its engine if it has one, and the places that ledgers and the user name.
    """
    spots = [Location("processes"), *_engine_locations(options)]
    spots += [spot for file in options.inventories for spot in _inventory_locations(file)]
    spots += [spot for ledger in run_ledgers for spot in ledger.locations]
    defaults, trouble = _default_locations()
    spots += defaults
    places = {}
    for spot in dict.fromkeys(spots):
        try:
            place = target_of(spot)
            # In one namespace, each run inspects its own kinds of resources.
            places[place.words, spot.environ if place.within else ()] = place
        except HetgpuError as error:
            trouble.append(str(error))
    return list(places.values()), trouble


def _default_locations() -> tuple[list[Location], list[str]]:
    """Return the services of this machine, and the errors of runtimes that could not be asked."""
    spots, trouble = [], []
    for name, runtime in runtimes():
        try:
            with mistakes_of(name):
                spot = runtime.default_location(os.environ)
        except HetgpuError as error:
            trouble.append(str(error))
        else:
            spots += [spot] if spot else []
    return spots, trouble


def _usual_only(options: CleanOptions, run_ledgers: Iterable[Ledger]) -> set[str]:
    """Return the names of places that are inspected only because they exist: nothing names them."""
    named = [*_engine_locations(options), *(spot for ledger in run_ledgers for spot in ledger.locations)]
    found = set()
    for spot in _default_locations()[0]:
        with suppress(HetgpuError):
            found |= set() if spot in named else {target_of(spot).words}
    return found


def _engine_locations(options: CleanOptions) -> list[Location]:
    return [spot for url in options.engines for spot in _locations_of_url(url)]


def _locations_of_url(url: str) -> Iterable[Location]:
    if not url.startswith(("ssh://", "unix://", "tcp://", "https://")):
        raise UsageError(f"--engine {url}: write ssh://USER@HOST, unix:///PATH, or tcp://HOST:PORT for one with TLS")
    return _services(ConnectionInfo(url))


def _services(reach: ConnectionInfo) -> Iterable[Location]:
    """Yield the services that create nodes on a host, of all runtimes."""
    for name, runtime in runtimes():
        with mistakes_of(name):
            spot = runtime.location_of(reach, os.environ)
        if spot:
            yield spot


def _inventory_locations(file: Path) -> Iterable[Location]:
    """Yield the hosts and engines of an inventory."""
    for hosts in read_inventory(file).hardware.values():
        for host in hosts:
            if host.reach.engine:
                yield from _services(host.reach)
            if host.address not in HERE:
                yield Location(
                    "host", host.address, ConnectionInfo("", host.reach.user, host.reach.port, host.reach.key)
                )


def _inspect(places: Sequence[CleanupTarget]) -> tuple[list[FoundResource], list[tuple[CleanupTarget, str]]]:
    """Inspect all places in parallel. A place that does not answer becomes an error line."""

    def look(place: CleanupTarget) -> tuple[list[FoundResource], str]:
        try:
            return [FoundResource(place, thing) for thing in place.find()], ""
        except HetgpuError as error:
            return [], f"{place.words} was not looked at: {why(error, place)}"

    with ThreadPoolExecutor(max_workers=min(16, len(places))) as pool:
        answers = list(pool.map(look, places))
    # This machine may also be a host of the inventory.
    once = {(one.target.within, one.resource): one for found, _ in answers for one in found}
    return list(once.values()), [(place, error) for place, (_, error) in zip(places, answers, strict=True) if error]


def _remove(dead: Iterable[FoundResource]) -> list[str]:
    """Remove leftovers; return a sentence on each one that remains."""
    owners: dict[CleanupTarget, set[Owner]] = {}
    for one in dead:
        owners.setdefault(one.target, set()).add(one.resource.owner)
    left = []
    for place, whose in owners.items():
        try:
            left += [f"{thing.kind} {thing.name} on {place.words}" for thing in place.clear(whose)]
        except HetgpuError as error:
            left.append(f"what is on {place.words}: {why(error, place)}")
    return left


def _close_ledgers(run_ledgers: Iterable[Ledger], failed: bool, *, blind: bool, forget: bool) -> list[str]:
    """Remove the ledgers of dead runs without leftovers; return the reasons why others stay.

    If `blind`, remove nothing but ledgers.
    """
    if failed:
        return []
    lines = []
    for ledger in run_ledgers:
        if state_of(ledger.owner) is OwnerState.DEAD:
            worked = CleanupResult(CleanupStatus.LEFT) if blind else process_ledger(ledger.path)
            if worked.status is CleanupStatus.LEFT and forget:
                ledger.path.unlink(missing_ok=True)
                ledger.path.with_suffix(".log").unlink(missing_ok=True)
            elif worked.status is CleanupStatus.LEFT:
                lines += [f"run {ledger.owner.run}: {line}" for line in worked.problems or logged_problems(ledger.path)]
    return lines


def _confirm(dead: Sequence[FoundResource], ask: Callable[[str], str] | None) -> bool:
    if ask is None:
        return False
    return ask(f"remove {counted(dead)}? [y/N] ").strip().lower() in ("y", "yes")


def _print_table(dead: Sequence[FoundResource], kept: Iterable[str], print_line: Print) -> None:
    for line in table(dead, time.time()) if dead else ["nothing of a dead run was found"]:
        print_line(line)
    for line in kept:
        print_line(line)


def _print_json(dead: Iterable[FoundResource], kept: Iterable[str], trouble: Iterable[str], print_line: Print) -> None:
    things = [
        {
            "what": one.resource.kind,
            "name": one.resource.name,
            "id": one.resource.ident,
            "where": one.target.words,
            "owner": f"{one.resource.owner.user}@{one.resource.owner.host}",
            "since": one.resource.since,
            "run": one.resource.owner.run,
        }
        for one in dead
    ]
    print_line(printable_json(json.dumps({"left": things, "kept": list(kept), "trouble": list(trouble)})))
