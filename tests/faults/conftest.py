"""A fault's seed, its place, and what is noted of it for the table in docs/reference/reliability.md."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checks import Checks
from tests.faults.harness import SEED, Session, Site

Note = Callable[[str, object], None]


class Fault:
    """One run, and what is done to it."""

    def __init__(self, home: Path, chance: random.Random, note: Note) -> None:
        self.home = home
        self.chance = chance
        self.note = note
        self.site: Site | None = None

    def at(self, matrix: Mapping[str, Any], engine: str | None = None) -> Site:
        """A place for a run of this matrix."""
        self.site = Site(self.home, matrix, self.chance, engine)
        return self.site

    def checked(self, session: Session, *hit: str) -> None:
        """Ends in the four checks; `hit` are cells that it is known to have met."""
        Checks(session.site, session, self.note).all(hit)


@pytest.fixture
def fault(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    stack_prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fault]:
    """Random moments come from HETGPU_FAULT_SEED, or from a fresh seed, which is printed."""
    seed = os.environ.get(SEED) or str(random.SystemRandom().randrange(10**6))
    print(f"{SEED}={seed}")

    def note(name: str, value: object) -> None:  # pytest's own record_property warns of a kind of JUnit
        request.node.user_properties.append((name, str(value)))

    note("seed", seed)
    note("fault", title(request.function))
    monkeypatch.setenv("HETGPU_STACK_OPENMPI_5", str(stack_prefix))
    made = Fault(tmp_path, random.Random(f"{seed} {request.node.name}"), note)
    yield made
    if made.site:
        made.site.close()


def title(test: Callable[..., Any]) -> str:
    """The first line of a test's docstring, without its full stop: the row of its fault in the table."""
    return (test.__doc__ or "").strip().splitlines()[0].removesuffix(".")
