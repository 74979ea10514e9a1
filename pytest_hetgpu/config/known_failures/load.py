"""The known failures of a run: those of the package and those of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pytest_hetgpu.config.known_failures.entries import FailureEntry, KnownFailures, MatchCriteria
from pytest_hetgpu.model import plain_yaml
from pytest_hetgpu.model.failure import Condition, KnownFailure
from pytest_hetgpu.model.verdict import Kind

SHIPPED = Path(__file__).parent


@cache
def known_failures(added: tuple[Path, ...] = ()) -> KnownFailures:
    """Load the shipped entries and those of the files `added`; a user's entry replaces a shipped one of its id.

    Raises KnowledgeError with every error in those files.
    """
    entries = {entry.id: entry for path in sorted(SHIPPED.glob("*.yaml")) for entry in _shipped(path)}
    if added:
        from pytest_hetgpu.config.known_failures.file import read

        for path in added:
            entries |= {entry.id: entry for entry in read(path)}
    return KnownFailures(entries)


def _shipped(path: Path) -> Iterator[FailureEntry]:
    """Yield the entries of a valid file, ten times faster than `file.read`. A test keeps the two equal."""
    text = path.read_text(encoding="utf-8")
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("- ")]
    for given, line in zip(_loaded(text), starts, strict=True):
        yield _entry(given, f"{path}:{line}")


def _loaded(text: str) -> Any:
    try:
        return plain_yaml.load(text)
    except plain_yaml.NotPlain:
        import yaml

        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        return yaml.load(text, Loader=loader)  # noqa: S506 - it makes strings, lists and maps only


def _entry(given: Mapping[str, Any], origin: str) -> FailureEntry:
    match, fix = given["match"], given.get("fix", {})
    settings = {kind: dict(fix[kind]) for kind in ("env", "mca") if kind in fix}
    known = KnownFailure(
        id=given["id"],
        title=given["title"],
        cause=given["cause"],
        fix=fix.get("text", ""),
        settings=settings,
        links=tuple(given.get("links", ())),
        status=given.get("status", "established"),
        fixed_in=given.get("fixed_in"),
    )
    fit = MatchCriteria(
        signatures=_listed(match.get("signature", ())),
        pattern=match.get("pattern", ""),
        kinds=tuple(Kind(name) for name in _listed(match.get("outcome", ()))),
        texts=tuple(match.get("texts", ())),
        any_texts=tuple(match.get("any_text", ())),
        unless=tuple(Kind(name) for name in _listed(match.get("unless", ()))),
    )
    when = tuple(Condition(fact, wanted) for fact, wanted in given.get("when", {}).items())
    return FailureEntry(known, fit, when, given.get("harmless") == "true", origin)


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
