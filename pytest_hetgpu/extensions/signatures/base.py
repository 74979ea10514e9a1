"""Base class of log parsers: each matches one kind of failure text.

Keys read `WHAT@WHERE!FUNCTION` (`SIGSEGV@libuct.so!uct_tcp_ep_am_short`, `ValueError@train.py!main`,
`no-component@pml`). They hold nothing that differs between two runs of one bug, and no glob characters `*?[]`.
"""

from __future__ import annotations

import abc
import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy as lazy  # noqa: PLC0414 - dialects have it from here
from pytest_hetgpu.model.records import RankExit

Process = tuple[str, int]
"""Host name up to its first dot, and process id."""


LONGEST_QUOTE = 4096
_LONGEST_TOKEN = 120
_LONGEST_SLUG = 60
_LONGEST_SLUGGED = 500
_PREFIX = lazy(r"\[(?=[^\[\]\s:]*[A-Za-z])([^\[\]\s:/]+):0*(\d{1,10})(?!\d)(?:\s*:\d+)*\]")
# Addresses, names in brackets, URLs, paths, and words with numbers: they differ between hosts and runs of one bug.
_PATH = r"\b\w+://\S+|(?<![\w.~/-])(?:~\w*|\.{1,2})?/[\w.~+%@-]+(?:/[\w.~+%@-]*)*|\b[\w.-]+(?:/[\w.+-]+){2,}"
_VARIABLE = lazy(_PATH + r"|0x[0-9a-f]+|\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>|\S*\d{3,}\S*|\b\d+\b")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as parsers get it; `number` counts from 1.

    `text` is without NULs, escape sequences and prefixes of a launcher or log collector. `rank`, `host` and `time` come
    from such a prefix; the time is as it is written there. `whole` is the line as the log has it.
    """

    text: str
    number: int
    rank: int | None = None
    host: str | None = None
    whole: str = ""
    time: str | None = None

    @property
    def quote(self) -> str:
        """Return the line as a signature quotes it."""
        return (self.whole or self.text).strip()[:LONGEST_QUOTE]


class Priority(enum.IntEnum):
    """Explanatory value of a match, highest first: the lowest layer's message precedes those of layers above."""

    CAUSE = 0
    """Names the failing thing itself: a signal handler's report, an exception, a missing library."""
    RELAYED = 1
    """An upper layer's message about a lower failure: `MPI_INIT failed`, no PML could be opened."""
    EXIT = 2
    """The launcher's message about the first rank's exit."""
    ENDING = 2
    """The old name of `EXIT`."""
    SYMPTOM = 3
    """An error with its cause elsewhere, such as a connection refused by a peer that may be dead."""
    UNSPECIFIC = 4
    """A failure without any cause: `MPI_ERR_OTHER`."""
    STUCK = 5
    """Positions of waiting processes, from stacks of a job that did not end."""
    LIMIT = 6
    """A time limit ended the run; why the run took so long remains open."""
    CONSEQUENCE = 7
    """A failure's effect on other ranks: a peer is gone, the launcher cleans up."""


class Phase(enum.Enum):
    """Phase of a run in which a text is printed."""

    SUBMITTED = "submitted"
    """A scheduler has the job."""
    STARTING = "starting"
    """A launcher starts the ranks."""
    CONNECTING = "connecting"
    """The ranks are up and initialise their libraries."""
    COMMUNICATING = "communicating"
    FINISHING = "finishing"
    """An end that began elsewhere is carried out: a launcher ends the other ranks, a scheduler reports on its job."""


@dataclass(frozen=True, slots=True, init=False)
class FailureMatch:
    """One failure that a parser matched, and the process that the text names.

    A `fatal` match proves that the run failed: a handler's backtrace, an uncaught exception, a launcher's final report.
    A run may survive an error that a library only logs. `phase` is None if the text may be of any. `weight` and
    `certain` are old names of `priority` and `fatal`.
    """

    signature: Signature
    priority: Priority = Priority.CAUSE
    process: Process | None = None
    fatal: bool = True
    phase: Phase | None = None

    def __init__(  # noqa: PLR0913 - a field each
        self,
        signature: Signature,
        priority: Priority = Priority.CAUSE,
        process: Process | None = None,
        fatal: bool = True,
        phase: Phase | None = None,
        *,
        weight: Priority | None = None,
        certain: bool | None = None,
    ) -> None:
        object.__setattr__(self, "signature", signature)
        object.__setattr__(self, "priority", priority if weight is None else weight)
        object.__setattr__(self, "process", process)
        object.__setattr__(self, "fatal", fatal if certain is None else certain)
        object.__setattr__(self, "phase", phase)

    @property
    def weight(self) -> Priority:
        """Return the priority, under its old name."""
        return self.priority

    @property
    def certain(self) -> bool:
        """Return whether it is fatal, under the old name."""
        return self.fatal


class LogParser(abc.ABC):
    """Parser of one kind of failure text; a new object parses one log.

    `triggers` are fixed parts of its lines. `context` is the number of lines after each such line to feed as well.
    Ranks write at the same time, so lines of other origin may stand in between.
    """

    triggers: ClassVar[tuple[bytes, ...]]
    context: ClassVar[int] = 0

    @abc.abstractmethod
    def feed(self, line: LogLine) -> None:
        """Take one line. Never raise for any line."""

    @abc.abstractmethod
    def finish(self) -> Sequence[FailureMatch]:
        """Return all matches, after the end of the log."""

    def exits(self) -> Sequence[RankExit]:
        """Return the exits of ranks, if these texts report them."""
        return ()


def process_of(line: str) -> Process | None:
    """Return the process in a prefix of Open MPI or UCX (`[node1:04057]`, `[node1:4057 :0]`), None without one."""
    found = _PREFIX.search(line)
    return (found[1].split(".")[0], int(found[2])) if found else None


def token(text: str) -> str:
    """Return a name as part of a key: the last part of a path, without characters special to globs or folders."""
    name = text.strip().rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+-]+", "-", name).strip("-")[:_LONGEST_TOKEN]


def slug(text: str) -> str:
    """Return a message as part of a key: without numbers, addresses, names in brackets and quotation marks.

    >>> slug("tcp_ep 0x55fa04 (state=CONNECTED): send(29) failed: Input/output error")
    'tcp_ep-send-failed-Input-output-error'
    """
    words = re.findall(r"[A-Za-z_][\w.+]*", _VARIABLE.sub(" ", text[:_LONGEST_SLUGGED]))
    short = ""
    for word in words:
        if len(short) + len(word) > _LONGEST_SLUG:
            break
        short += f"-{word}"
    return short.strip("-.")
