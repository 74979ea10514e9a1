"""`hetgpu clean`: shows what dead runs have left, and removes it when told to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.cluster.cleanup import findings
from pytest_hetgpu.cluster.cleanup.findings import Found, Scope
from pytest_hetgpu.cluster.cleanup.ledger import Ledger, home, ledgers
from pytest_hetgpu.cluster.cleanup.owner import Life, Owner, life, myself
from pytest_hetgpu.cluster.cleanup.sweep import Place, place_of, why
from pytest_hetgpu.cluster.cleanup.work import Result, Worked, last_words, work_off
from pytest_hetgpu.config.inventory import inventory
from pytest_hetgpu.errors import HetgpuError, UsageError
from pytest_hetgpu.extensions.runtimes.lookup import mistakes_of, runtimes
from pytest_hetgpu.extensions.runtimes.traits.leftovers import Location
from pytest_hetgpu.model.job import Reach

LEFT = 1


@dataclass(frozen=True)
class Wish:
    """What the user asked for; `engines` and `inventories` are further places, `runs` the only ones that matter."""

    yes: bool = False
    json: bool = False
    engines: tuple[str, ...] = ()
    inventories: tuple[Path, ...] = ()
    all_users: bool = False
    elsewhere: bool = False
    forget: bool = False
    runs: tuple[str, ...] = ()

    def concerns(self, owner: Owner) -> bool:
        """Whether an owner's things are meant."""
        return not self.runs or owner.run in self.runs


Say = Callable[[str], None]


def run(wish: Wish, say: Say, complain: Say, ask: Callable[[str], str] | None = None) -> int:
    """Shows, removes what may be removed, and gives the exit status: 0 nothing is left, 1 something is.

    `ask` puts a question to the user, None where nobody is there. UsageError for what cannot be read.
    """
    books = [book for book in ledgers(home()) if wish.concerns(book.owner)]
    try:
        places, trouble = _places(wish, books)
        found, unseen = _seen(places)
        usual = _unnamed(wish, books)
        # Most machines have an engine that is nobody's business here: what it says against us is told, no more.
        remarks = [line for place, line in unseen if place.words in usual]
        trouble += [line for place, line in unseen if place.words not in usual]
        me = myself("")
        scope = Scope(me.uid, me.machine, me.user, wish.all_users, wish.elsewhere)
        sorted_ = findings.sort((one for one in found if wish.concerns(one.thing.owner)), scope, life)
        for line in () if wish.json else [*remarks, *trouble]:
            complain(line)
        if wish.json:
            _tell(sorted_.dead, sorted_.kept, trouble, say)
        else:
            _show(sorted_.dead, sorted_.kept, say)
        if sorted_.dead and not (wish.yes or _agreed(sorted_.dead, ask)):
            if not wish.json:
                say("nothing was removed; `hetgpu clean --yes` removes it")
            return LEFT
        left = _removed(sorted_.dead)
        for line in left:
            complain(f"not removed: {line}")
        if sorted_.dead and not left and not wish.json:
            say(f"removed {findings.counted(sorted_.dead)}")
        # What a place has that did not answer was shown to nobody, so working a ledger off needs --yes.
        unfinished = _closed(books, bool(left), blind=bool(trouble) and not wish.yes, forget=wish.forget)
        for line in unfinished:
            complain(line)
        return LEFT if left or trouble or unfinished else 0
    finally:
        for name, runtime in runtimes():
            try:
                with mistakes_of(name):
                    runtime.shut()
            except HetgpuError as error:
                complain(str(error))


def _places(wish: Wish, books: Iterable[Ledger]) -> tuple[list[Place], list[str]]:
    """Everywhere to look: here, the engine here if there is one, what ledgers and the user name. What is no place."""
    spots = [Location("processes"), *_of_engines(wish)]
    spots += [spot for file in wish.inventories for spot in _listed(file)]
    spots += [spot for book in books for spot in book.spots]
    usual, trouble = _usual()
    spots += usual
    places = {}
    for spot in dict.fromkeys(spots):
        try:
            place = place_of(spot)
            # In one namespace each run looks for kinds of its own.
            places[place.words, spot.environ if place.within else ()] = place
        except HetgpuError as error:
            trouble.append(str(error))
    return list(places.values()), trouble


def _usual() -> tuple[list[Location], list[str]]:
    """Return the services of this machine, and sentences on runtimes that could not be asked."""
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


def _unnamed(wish: Wish, books: Iterable[Ledger]) -> set[str]:
    """The words of places that are looked at only because they are there: nobody named them."""
    named = [*_of_engines(wish), *(spot for book in books for spot in book.spots)]
    found = set()
    for spot in _usual()[0]:
        with suppress(HetgpuError):
            found |= set() if spot in named else {place_of(spot).words}
    return found


def _of_engines(wish: Wish) -> list[Location]:
    return [spot for url in wish.engines for spot in _spots_of(url)]


def _spots_of(url: str) -> Iterable[Location]:
    if not url.startswith(("ssh://", "unix://", "tcp://", "https://")):
        raise UsageError(f"--engine {url}: write ssh://USER@HOST, unix:///PATH, or tcp://HOST:PORT for one with TLS")
    return _services(Reach(url))


def _services(reach: Reach) -> Iterable[Location]:
    """Return the services that make nodes of a host, of all runtimes."""
    for name, runtime in runtimes():
        with mistakes_of(name):
            spot = runtime.location_of(reach, os.environ)
        if spot:
            yield spot


def _listed(file: Path) -> Iterable[Location]:
    """Hosts and engines of an inventory."""
    for hosts in inventory.read(file).hardware.values():
        for host in hosts:
            if host.reach.engine:
                yield from _services(host.reach)
            if host.address not in inventory.HERE:
                yield Location("host", host.address, Reach("", host.reach.user, host.reach.port, host.reach.key))


def _seen(places: Sequence[Place]) -> tuple[list[Found], list[tuple[Place, str]]]:
    """What is there, looked at side by side; a place that does not answer is named, and the rest goes on."""

    def look(place: Place) -> tuple[list[Found], str]:
        try:
            return [Found(place, thing) for thing in place.look()], ""
        except HetgpuError as error:
            return [], f"{place.words} was not looked at: {why(error, place)}"

    with ThreadPoolExecutor(max_workers=min(16, len(places))) as pool:
        answers = list(pool.map(look, places))
    # This machine may be a host of the inventory, too.
    once = {(one.place.within, one.thing): one for found, _ in answers for one in found}
    return list(once.values()), [(place, said) for place, (_, said) in zip(places, answers, strict=True) if said]


def _removed(dead: Iterable[Found]) -> list[str]:
    """Removes them; sentences on what is still there."""
    owners: dict[Place, set[Owner]] = {}
    for one in dead:
        owners.setdefault(one.place, set()).add(one.thing.owner)
    left = []
    for place, whose in owners.items():
        try:
            left += [f"{thing.kind} {thing.name} on {place.words}" for thing in place.clear(whose)]
        except HetgpuError as error:
            left.append(f"what is on {place.words}: {why(error, place)}")
    return left


def _closed(books: Iterable[Ledger], failed: bool, *, blind: bool, forget: bool) -> list[str]:
    """Ledgers of dead runs with nothing left go; what keeps others. If `blind` nothing is removed but ledgers."""
    if failed:
        return []
    lines = []
    for book in books:
        if life(book.owner) is Life.DEAD:
            worked = Worked(Result.LEFT) if blind else work_off(book.path)
            if worked.result is Result.LEFT and forget:
                book.path.unlink(missing_ok=True)
                book.path.with_suffix(".log").unlink(missing_ok=True)
            elif worked.result is Result.LEFT:
                lines += [f"run {book.owner.run}: {line}" for line in worked.trouble or last_words(book.path)]
    return lines


def _agreed(dead: Sequence[Found], ask: Callable[[str], str] | None) -> bool:
    if ask is None:
        return False
    return ask(f"remove {findings.counted(dead)}? [y/N] ").strip().lower() in ("y", "yes")


def _show(dead: Sequence[Found], kept: Iterable[str], say: Say) -> None:
    for line in findings.table(dead, time.time()) if dead else ["nothing of a dead run was found"]:
        say(line)
    for line in kept:
        say(line)


def _tell(dead: Iterable[Found], kept: Iterable[str], trouble: Iterable[str], say: Say) -> None:
    things = [
        {
            "what": one.thing.kind,
            "name": one.thing.name,
            "id": one.thing.ident,
            "where": one.place.words,
            "owner": f"{one.thing.owner.user}@{one.thing.owner.host}",
            "since": one.thing.since,
            "run": one.thing.owner.run,
        }
        for one in dead
    ]
    say(json.dumps({"left": things, "kept": list(kept), "trouble": list(trouble)}))
