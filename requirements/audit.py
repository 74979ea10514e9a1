#!/usr/bin/env python3
"""Asks PyPI for known vulnerabilities of every package in the locks, in just the version that is locked.

    python3 requirements/audit.py [--index https://pypi.org]

Exit codes: 0 none are known; 1 there are, and what to do is said; 75 not all packages could be asked about, so nothing
is known of those (never a silent pass); 4 for a lock or list of accepted advisories that cannot be read.
An advisory that does not concern this project, or has no fix yet, goes into `accepted.txt` with a last day and why.
Uses nothing but Python's own library. (pip-audit takes a package that the index knows nothing of for a good one.)
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
PATIENCE = 30.0
LONGEST = 64 << 20  # bytes of an answer
NONE, FOUND, UNREADABLE, NOT_ASKED = 0, 1, 4, 75
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


class Pin(NamedTuple):
    """A package in a version."""

    name: str
    version: str


class Advisory(NamedTuple):
    """What is known against a package; `ids` are all its names, `fixed` the versions without it."""

    pin: Pin
    ids: tuple[str, ...]
    summary: str
    fixed: tuple[str, ...]


class NoAnswer(Exception):
    """The index could not be asked; says why."""


class Wrong(Exception):
    """A file of ours that cannot be read; says which and why."""


def pins(folder: Path) -> list[Pin]:
    """Every package of every lock, once."""
    found = {
        Pin(match[1], match[2])
        for path in sorted(folder.rglob("*.txt"))
        if path.name != "accepted.txt"
        for line in path.read_text(encoding="utf-8").splitlines()
        if (match := _PIN.match(line))
    }
    if not found:
        raise Wrong(f"there are no locks in {folder}: python3 requirements/lock.py makes them")
    return sorted(found)


def accepted(path: Path, today: date) -> dict[tuple[str, str], str]:
    """Why an advisory of a package is accepted, for those that are today."""
    reasons = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split(None, 3)
        if not words or line.startswith("#"):
            continue
        try:
            ident, package, until, why = words
            last = date.fromisoformat(until)
        except ValueError:
            raise Wrong(f"{path}:{number}: must be: ID PACKAGE YYYY-MM-DD WHY") from None
        if today <= last:
            reasons[ident, package] = why
    return reasons


def advisories(pin: Pin, index: str) -> Iterator[Advisory]:
    """Return the advisories of the index on a package. Raise NoAnswer."""
    for one in _asked(f"{index}/pypi/{pin.name}/{pin.version}/json").get("vulnerabilities", ()):
        if not one.get("withdrawn"):
            ids = (str(one["id"]), *map(str, one.get("aliases") or ()))
            told = " ".join(str(one.get("summary") or one.get("details") or "").split())
            shown = "".join(letter for letter in told if letter.isprintable())[:200]
            yield Advisory(pin, ids, shown, tuple(map(str, one.get("fixed_in") or ())))


def _asked(url: str) -> Mapping[str, Any]:
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        raise Wrong(f"{url}: an index is asked over https")
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - looked at above
            found = json.loads(answer.read(LONGEST))
            if not isinstance(found.get("vulnerabilities"), list):
                raise NoAnswer(f"{url} returned no list of vulnerabilities")
            return dict(found)
    except urllib.error.HTTPError as error:
        error.close()
        raise NoAnswer(f"{url} answers {error.code}") from None
    except (OSError, ValueError, AttributeError) as error:
        raise NoAnswer(f"{url}: {error}") from None


def audit(locked: list[Pin], index: str, known: Mapping[tuple[str, str], str]) -> int:
    """Asks about all packages, and says what was found. An index that does not answer is not asked on and on."""
    bad, unasked = 0, 0
    for place, pin in enumerate(locked):
        try:
            found = list(advisories(pin, index))
        except NoAnswer as why:
            unasked += 1
            say(f"NOT AUDITED: {pin.name} {pin.version}: {why}")
            if unasked == place + 1 >= 3:
                say(f"NOT AUDITED: the other {len(locked) - unasked} packages: {index} cannot be asked from here")
                return NOT_ASKED
            continue
        for one in found:
            reason = next((known[ident, pin.name] for ident in one.ids if (ident, pin.name) in known), None)
            bad += reason is None
            say(told(one, reason))
    say(f"{len(locked) - unasked} of {len(locked)} locked packages audited, {bad} advisories to act on")
    return FOUND if bad else NOT_ASKED if unasked else NONE


def told(one: Advisory, reason: str | None) -> str:
    """Format an advisory with its remedy."""
    what = f"{one.pin.name} {one.pin.version}: {', '.join(one.ids)}: {one.summary}"
    if reason is not None:
        return f"accepted: {what} ({reason})"
    cure = f"fixed in {', '.join(one.fixed)}: python3 requirements/lock.py" if one.fixed else "there is no fix yet"
    accept = f"accept it in requirements/accepted.txt: {one.ids[0]} {one.pin.name} YYYY-MM-DD WHY"
    return f"ADVISORY: {what}\n  {cure}; or {accept}"


def say(text: str) -> None:
    print(f"audit: {text}", flush=True)


def main(arguments: list[str]) -> int:
    """Audits the locks beside this file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index", default="https://pypi.org", help="whom to ask (https://pypi.org)")
    parser.add_argument("--locks", type=Path, default=HERE, help="the folder of the locks")
    parsed = parser.parse_args(arguments)
    try:
        known = accepted(parsed.locks / "accepted.txt", datetime.now(timezone.utc).date())
        return audit(pins(parsed.locks), parsed.index.rstrip("/"), known)
    except (OSError, Wrong) as error:
        print(f"audit: {error}", file=sys.stderr)
        return UNREADABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
