"""Known failures: established causes of signatures, with sources. Shipped in `known_failures/`, extended by users.

    - id: ucx-no-large-bar
      title: the CPU copies into GPU memory that it cannot reach
      match: {signature: SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_*_short, pattern: invalid permissions}
      cause: ...
      fix: {text: ..., env: {UCX_ROCM_COPY_D2H_THRESH: 0}}
      links: [https://github.com/openucx/ucc/issues/1043]
      status: established

An entry matches a failure if everything in `match` is found. The key matches by glob, a pattern in the quoted line or
the detail, texts anywhere in the log. It does not match if the log has a further failure of a kind in `unless`. Nor
does it match if the facts of the run contradict a condition of `when`. If a fact is unknown, the entry is only possible
and names what would prove it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_hetgpu.config.known_failures.patterns import found
from pytest_hetgpu.model.conditions import KnownFacts, describe_proof, matches, needs_proof
from pytest_hetgpu.model.failure import Condition, KnownFailure, Signature
from pytest_hetgpu.model.verdict import Kind

STATUSES = ("established", "reported", "plausible")
QUOTED = 60


class MatchCriteria(NamedTuple):
    """The requirements of an entry: one of `signatures`, of `kinds` and of `any_texts`, and all `texts`.

    Empty ones require nothing. No further failure in the log may be of the kinds `unless`. Such a failure would be the
    cause, or have a cause of its own.
    """

    signatures: tuple[str, ...] = ()
    pattern: str = ""
    kinds: tuple[Kind, ...] = ()
    texts: tuple[str, ...] = ()
    any_texts: tuple[str, ...] = ()
    unless: tuple[Kind, ...] = ()

    @property
    def weight(self) -> int:
        """The number of requirements. An entry with more of them is more specific."""
        parts = (self.signatures, self.pattern, self.texts, self.any_texts)
        return sum(map(bool, parts)) + len(self.texts)

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts to search for."""
        return (*self.texts, *self.any_texts)

    def matches(self, signature: Signature, present: Mapping[str, object], others: Iterable[Signature] = ()) -> bool:
        """Return whether a failure meets all requirements.

        `present` are the texts in its log, `others` the log's other failures.
        """
        text = f"{signature.primary_line}\n{signature.detail or ''}"
        return (
            (not self.signatures or any(fnmatch.fnmatchcase(signature.key, glob) for glob in self.signatures))
            and (not self.kinds or signature.kind in self.kinds)
            and self.has_texts(present)
            and not any(other.kind in self.unless and other.key != signature.key for other in others)
            and (not self.pattern or found(self.pattern, text))
        )

    def has_texts(self, present: Mapping[str, object]) -> bool:
        """Return whether the log contains the required texts."""
        some = not self.any_texts or any(text in present for text in self.any_texts)
        return some and all(text in present for text in self.texts)


class FailureEntry(NamedTuple):
    """One known failure with its match rule.

    A `harmless` entry is about a text that runs survive. `origin` is its position, `FILE:LINE`.
    """

    known: KnownFailure
    match: MatchCriteria
    when: tuple[Condition, ...] = ()
    harmless: bool = False
    origin: str = ""

    @property
    def id(self) -> str:
        """The name by which a matrix may expect it."""
        return self.known.id

    def in_view_of(self, facts: KnownFacts, capabilities: Collection[str] | None) -> KnownFailure | None:
        """Return the known failure with its unproven conditions; None if a fact contradicts one."""
        held = [(condition, matches(condition, facts, capabilities)) for condition in self.when]
        if any(one is False for _, one in held):
            return None
        open_ones = [describe_proof(condition) for condition, one in held if one is None and needs_proof(condition)]
        return replace(self.known, unproven=tuple(open_ones)) if open_ones else self.known


class HarmlessText(NamedTuple):
    """An alarming but harmless text, with the first line that contains it and a `quote` of that line."""

    entry: FailureEntry
    line: int
    text: str = ""
    quote: str = ""

    def quoted(self, line: str) -> HarmlessText:
        """Return it with a quote of the line: its beginning, or the part from the text on."""
        flat = " ".join(line.split())
        at = max(flat.find(self.text), 0)
        start = 0 if at + len(self.text) <= QUOTED else at
        cut = flat[start : start + QUOTED]
        return self._replace(quote=f"{'...' * (start > 0)}{cut}{'...' * (start + QUOTED < len(flat))}")


class KnownFailures(NamedTuple):
    """All entries of the package and of the user, by id."""

    by_id: Mapping[str, FailureEntry]

    @property
    def texts(self) -> frozenset[str]:
        """Every text that some entry requires."""
        return frozenset(text for entry in self.by_id.values() for text in entry.match.all_texts)

    @property
    def harmless_texts(self) -> frozenset[str]:
        """The harmless texts. In the log of a run that did not fail, only these are searched for."""
        return frozenset(text for entry in self.by_id.values() if entry.harmless for text in entry.match.all_texts)

    def known_causes(
        self,
        signature: Signature,
        present: Mapping[str, object],
        facts: KnownFacts,
        capabilities: Collection[str] | None = None,
        others: Sequence[Signature] = (),
    ) -> tuple[KnownFailure, ...]:
        """Return the known causes of a failure: proven ones first, then the best established, then the most specific.

        `facts` are those of the run, `others` the further failures in the same log. None for `capabilities` leaves open
        which the nodes have.
        """
        fitting = [
            (known, entry.match.weight)
            for entry in self._matching(signature, present, others)
            if (known := entry.in_view_of(facts, capabilities))
        ]
        fitting.sort(key=lambda one: (bool(one[0].unproven), STATUSES.index(one[0].status), -one[1]))
        return tuple(known for known, _ in fitting)

    def facts_in_question(
        self, signature: Signature, present: Mapping[str, object], others: Sequence[Signature] = ()
    ) -> frozenset[str]:
        """Return the names of the facts in the conditions of all entries that match a failure."""
        entries = self._matching(signature, present, others)
        return frozenset(condition.fact for entry in entries for condition in entry.when)

    def _matching(
        self, signature: Signature, present: Mapping[str, object], others: Sequence[Signature]
    ) -> Iterator[FailureEntry]:
        for entry in self.by_id.values():
            if not entry.harmless and entry.match.matches(signature, present, others):
                yield entry

    def harmless_texts_in(self, present: Mapping[str, int]) -> tuple[HarmlessText, ...]:
        """Return the harmless texts of a log."""
        noises = []
        for entry in self.by_id.values():
            lines = [(present[text], text) for text in entry.match.all_texts if text in present]
            if entry.harmless and lines and entry.match.has_texts(present):
                noises.append(HarmlessText(entry, *min(lines)))
        return tuple(noises)
