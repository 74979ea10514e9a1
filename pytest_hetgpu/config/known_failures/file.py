"""Reader of a file of known failures, with every error in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from pytest_hetgpu.config.known_failures import patterns
from pytest_hetgpu.config.known_failures.entries import FailureEntry, MatchCriteria
from pytest_hetgpu.config.matrix import source
from pytest_hetgpu.config.matrix.diagnostics import Diagnostics
from pytest_hetgpu.config.matrix.models import Kinds, Link, Mca, RemedyShape
from pytest_hetgpu.config.matrix.source import SourceError, plain
from pytest_hetgpu.errors import KnowledgeError
from pytest_hetgpu.extensions.shapes import NAME, Form, Name, Shape, Text, Texts
from pytest_hetgpu.model.conditions import check_condition
from pytest_hetgpu.model.failure import Condition, KnownFailure
from pytest_hetgpu.model.messages import show
from pytest_hetgpu.model.verdict import Kind

# The bytes of a log are searched for texts line by line.
Passage = Annotated[str, Form(r"^[^\r\n\x00]{3,200}$", "be one line of 3 to 200 characters")]


class MatchCriteriaShape(Shape):
    """The requirements that a failure must meet, all of them."""

    signature: Annotated[Texts, Field(description="globs, one of which the key fits")] = ()
    pattern: Annotated[
        Annotated[str, AfterValidator(patterns.check)] | None,
        Field(description="a regular expression found in the quoted line or the detail, as RE2 reads it"),
    ] = None
    outcome: Kinds | None = None
    texts: Annotated[tuple[Passage, ...], Field(description="fixed texts that all stand somewhere in the log")] = ()
    any_text: Annotated[tuple[Passage, ...], Field(description="fixed texts of which one stands in the log")] = ()
    unless: Annotated[Kinds | None, Field(description="outcomes of which no further failure in the log is")] = None

    def fit(self) -> MatchCriteria:
        """Convert to MatchCriteria."""
        kinds, unless = (tuple(Kind(name) for name in names or ()) for names in (self.outcome, self.unless))
        return MatchCriteria(self.signature, self.pattern or "", kinds, self.texts, self.any_text, unless)


class FixShape(RemedyShape):
    """The remedy: a sentence, and settings if there are any."""

    text: Text = ""
    mca: Mca = {}


class FailureEntryShape(Shape):
    """One known failure."""

    id: Name
    title: Annotated[Text, Field(min_length=1)]
    match: MatchCriteriaShape
    cause: Annotated[Text, Field(min_length=1)]
    fix: FixShape | None = None
    links: tuple[Link, ...] = ()
    status: Literal["established", "reported", "plausible"] = "established"
    when: dict[Name, Text] = {}
    fixed_in: Text | None = None
    harmless: bool = False

    def entry(self, origin: str) -> FailureEntry:
        """Convert to a FailureEntry."""
        fix = self.fix or FixShape()
        settings = {"env": dict(fix.env), "mca": dict(fix.mca)}
        known = KnownFailure(
            id=self.id,
            title=self.title,
            cause=self.cause,
            fix=fix.text,
            settings={kind: values for kind, values in settings.items() if values},
            links=self.links,
            status=self.status,
            fixed_in=self.fixed_in,
        )
        when = tuple(Condition(fact, wanted) for fact, wanted in self.when.items())
        return FailureEntry(known, self.match.fit(), when, self.harmless, origin)


def read(path: Path) -> tuple[FailureEntry, ...]:
    """Read the entries of a file. Raises KnowledgeError with every error found."""
    diagnostics = Diagnostics(str(path))
    try:
        tree = source.load(path)
    except SourceError as error:
        diagnostics.add(error.line, str(error))
        raise KnowledgeError(diagnostics.listed()) from None
    entries = tuple(_entries(tree, diagnostics))
    if diagnostics:
        raise KnowledgeError(diagnostics.listed())
    return entries


def _entries(tree: source.Node, diagnostics: Diagnostics) -> Iterator[FailureEntry]:
    if not isinstance(tree, source.Sequence):
        diagnostics.add(tree.line, f"a file of known failures is a list of entries, not {show(plain(tree))}")
        return
    first: dict[str, int] = {}
    for node in tree.items:
        if not isinstance(node, source.Mapping):
            diagnostics.add(node.line, f"each entry must be a map, not {show(plain(node))}")
            continue
        try:
            shape = FailureEntryShape.model_validate(plain(node))
        except ValidationError as error:
            name = plain(node.entries["id"]) if "id" in node.entries else None
            place = name if isinstance(name, str) and re.fullmatch(NAME.pattern, name) else "entry"
            diagnostics.invalid(error, node, place, FailureEntryShape)
            continue
        yield from _sound(shape, node, first, diagnostics)


def _sound(
    shape: FailureEntryShape, node: source.Mapping, first: dict[str, int], diagnostics: Diagnostics
) -> Iterator[FailureEntry]:
    """Yield the entry, unless it has an error that its shape alone does not show."""
    if shape.id in first:
        diagnostics.add(node.line, f"{shape.id} is there twice (first in line {first[shape.id]})")
        return
    first[shape.id] = node.line
    fit = shape.match
    if not (fit.signature or fit.pattern or fit.texts or fit.any_text):
        diagnostics.add(node.line, f"{shape.id}.match is empty: give a signature, a pattern or texts")
    if shape.harmless and not (fit.texts or fit.any_text):
        diagnostics.add(node.line, f"{shape.id} is harmless: give the texts that mean nothing")
    for fact, wanted in shape.when.items():
        problem = check_condition(wanted)
        if problem:
            diagnostics.add(node.line, f"{shape.id}.when.{fact}: {problem}")
    yield shape.entry(f"{diagnostics.file}:{node.line}")
