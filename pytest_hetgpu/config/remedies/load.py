"""The shipped remedies, and those that known failures and expectations name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pytest_hetgpu.model import plain_yaml
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.outcome import Outcome

FILE = Path(__file__).with_name("remedies.yaml")
_INTERFACE, _BRIDGES = "{interface}", "{bridges}"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Settings to try, and where they come from: a link, or the id of a known failure."""

    mca: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def typed(self) -> str:
        """Its settings as `NAME=VALUE`."""
        return " ".join(f"{name}={value}" for name, value in {**self.mca, **self.env}.items())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The interfaces of a node with an IPv4 address, and its bridges."""

    interfaces: Sequence[str] = ()
    bridges: Sequence[str] = ()


@cache
def _shipped() -> Sequence[Mapping[str, Any]]:
    text = FILE.read_text(encoding="utf-8")
    found: Sequence[Mapping[str, Any]] = plain_yaml.load(text)
    return found


def remedies(job: Job, outcome: Outcome, around: Surroundings) -> tuple[Remedy, ...]:
    """Return what may cure a failed cell, without settings that it has already.

    First the settings that matching known failures name, then those of its expectations, then the shipped ones.
    """
    found = [Remedy(known.settings.get("mca", {}), known.settings.get("env", {}), known.id) for known in outcome.known]
    found += [
        Remedy(one.remedy.get("mca", {}), one.remedy.get("env", {}), one.issue or one.reason or "")
        for one in job.demand.expectations
    ]
    found += _of_transport(job, outcome, around)
    unique = {one.typed: one for one in reversed(found) if one.typed}
    return tuple(one for one in found if unique.get(one.typed) is one)


def _of_transport(job: Job, outcome: Outcome, around: Surroundings) -> Iterator[Remedy]:
    for one in _shipped():
        fits = job.demand.transport_family in one["transport"]
        fits = fits and one.get("stack", job.demand.stack.vendor) == job.demand.stack.vendor
        if fits and outcome.kind.value in one.get("outcome", (outcome.kind.value,)):
            for mca, env in _filled(one.get("mca", {}), one.get("env", {}), around):
                yield Remedy(mca, env, one["source"])


def _filled(
    mca: Mapping[str, str], env: Mapping[str, str], around: Surroundings
) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Yield settings without placeholders: one for each interface, none if nothing is known for a placeholder."""
    text = str((mca, env))
    if _BRIDGES in text and not around.bridges:
        return
    for interface in around.interfaces if _INTERFACE in text else ("",):
        facts = {_INTERFACE: interface, _BRIDGES: ",".join(around.bridges)}

        def filled(given: Mapping[str, str], facts: Mapping[str, str] = facts) -> Mapping[str, str]:
            made = dict(given)
            for name, fact in facts.items():
                made = {key: value.replace(name, fact) for key, value in made.items()}
            return made

        yield filled(mca), filled(env)
