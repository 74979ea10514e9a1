"""Known failures: what is established about a signature, and where. Shipped in `knowledge/`, and added by users.

    - id: ucx-no-large-bar
      title: the CPU copies into GPU memory that it cannot reach
      match: {signature: SIGSEGV@libuct_rocm.so!uct_rocm_copy_ep_*_short, pattern: invalid permissions}
      cause: ...
      fix: {text: ..., env: {UCX_ROCM_COPY_D2H_THRESH: 0}}
      links: [https://github.com/openucx/ucc/issues/1043]
      status: established

An entry fits a failure when all that `match` asks for is there: the key by glob, a pattern in the quoted line or the
detail, texts anywhere in the log; and unless a further failure in the log is of the kinds `unless`, or a condition of
`when` is known not to hold.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_hetgpu.config.known_failures.patterns import found
from pytest_hetgpu.model.conditions import matches
from pytest_hetgpu.model.failure import Condition, KnownFailure, Signature
from pytest_hetgpu.model.verdict import Kind

STATUSES = ("established", "reported", "plausible")
QUOTED = 60


class MatchRule(NamedTuple):
    """What a failure must show: one of `signatures`, `kinds` and `any_texts` each, all `texts`; of empty ones none.

    No further failure in its log may be of the kinds `unless`: it would be the reason, or have one of its own.
    """

    signatures: tuple[str, ...] = ()
    pattern: str = ""
    kinds: tuple[Kind, ...] = ()
    texts: tuple[str, ...] = ()
    any_texts: tuple[str, ...] = ()
    unless: tuple[Kind, ...] = ()

    @property
    def weight(self) -> int:
        """How much is asked for: the entry that asks for more says more."""
        parts = (self.signatures, self.pattern, self.texts, self.any_texts)
        return sum(map(bool, parts)) + len(self.texts)

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts that are looked for."""
        return (*self.texts, *self.any_texts)

    def matches(self, signature: Signature, present: Mapping[str, object], others: Iterable[Signature] = ()) -> bool:
        """Whether a failure shows all of it; `present` are the texts in its log, `others` the log's other failures."""
        said = f"{signature.primary_line}\n{signature.detail or ''}"
        return (
            (not self.signatures or any(fnmatch.fnmatchcase(signature.key, glob) for glob in self.signatures))
            and (not self.kinds or signature.kind in self.kinds)
            and self.has_texts(present)
            and not any(other.kind in self.unless and other.key != signature.key for other in others)
            and (not self.pattern or found(self.pattern, said))
        )

    def has_texts(self, present: Mapping[str, object]) -> bool:
        """Whether the log holds the texts that are asked for."""
        some = not self.any_texts or any(text in present for text in self.any_texts)
        return some and all(text in present for text in self.texts)


class FailureEntry(NamedTuple):
    """One known failure, and what one must show to be it.

    A `harmless` entry is about a text that runs survive. `origin` is where it is written, `FILE:LINE`.
    """

    known: KnownFailure
    match: MatchRule
    when: tuple[Condition, ...] = ()
    harmless: bool = False
    origin: str = ""

    @property
    def id(self) -> str:
        """The name by which a matrix may expect it."""
        return self.known.id


class HarmlessText(NamedTuple):
    """A frightening text that means nothing, and the number of the first line that holds it; `quote` is from there."""

    entry: FailureEntry
    line: int
    text: str = ""
    quote: str = ""

    def quoted(self, line: str) -> HarmlessText:
        """The same with a quote of the line: its beginning, or where the text stands if that is further on."""
        told = " ".join(line.split())
        at = max(told.find(self.text), 0)
        start = 0 if at + len(self.text) <= QUOTED else at
        cut = told[start : start + QUOTED]
        return self._replace(quote=f"{'...' * (start > 0)}{cut}{'...' * (start + QUOTED < len(told))}")


class KnownFailures(NamedTuple):
    """All entries, of the package and of the user, by id."""

    by_id: Mapping[str, FailureEntry]

    @property
    def texts(self) -> frozenset[str]:
        """Every text that some entry asks for."""
        return frozenset(text for entry in self.by_id.values() for text in entry.match.all_texts)

    @property
    def harmless_texts(self) -> frozenset[str]:
        """Those that mean nothing: all that is to be looked for in the log of a run that did not fail."""
        return frozenset(text for entry in self.by_id.values() if entry.harmless for text in entry.match.all_texts)

    def about(
        self,
        signature: Signature,
        present: Mapping[str, object],
        facts: Mapping[str, str],
        capabilities: Iterable[str] = (),
        others: Sequence[Signature] = (),
    ) -> tuple[KnownFailure, ...]:
        """What is known of a failure: what is best established first, then what fits most closely.

        `others` are the further failures in the same log.
        """
        able = frozenset(capabilities)
        fitting = [
            entry
            for entry in self.by_id.values()
            if not entry.harmless
            and entry.match.matches(signature, present, others)
            and all(matches(condition, facts, able) is not False for condition in entry.when)
        ]
        fitting.sort(key=lambda entry: (STATUSES.index(entry.known.status), -entry.match.weight))
        return tuple(entry.known for entry in fitting)

    def noise(self, present: Mapping[str, int]) -> tuple[HarmlessText, ...]:
        """The harmless texts of a log."""
        noises = []
        for entry in self.by_id.values():
            lines = [(present[text], text) for text in entry.match.all_texts if text in present]
            if entry.harmless and lines and entry.match.has_texts(present):
                noises.append(HarmlessText(entry, *min(lines)))
        return tuple(noises)
