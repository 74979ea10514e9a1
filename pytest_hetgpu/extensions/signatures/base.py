"""What a dialect is: it reads one kind of failure text and says what each text means.

Keys read `WHAT@WHERE!FUNCTION` (`SIGSEGV@libuct.so!uct_tcp_ep_am_short`, `ValueError@train.py!main`,
`no-component@pml`), hold nothing that differs between two runs of one bug, and none of the glob characters `*?[]`.
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
_VARIABLE = lazy(r"0x[0-9a-f]+|\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>|\S*\d{3,}\S*|\b\d+\b")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as dialects read it; `number` counts from 1.

    `text` is without NULs, escape sequences, and what a launcher or log collector put before it; `rank` and `host` are
    what that prefix said. `whole` is the line as it stands in the log.
    """

    text: str
    number: int
    rank: int | None = None
    host: str | None = None
    whole: str = ""

    @property
    def quote(self) -> str:
        """The line as a signature quotes it."""
        return (self.whole or self.text).strip()[:LONGEST_QUOTE]


class Priority(enum.IntEnum):
    """How much a text explains, most first. The lowest layer's own words outweigh what the layers above felt of it."""

    CAUSE = 0
    """Names the failing thing itself: a signal handler's report, an exception, a library that is not there."""
    RELAYED = 1
    """An upper layer's word on a failure that a lower one may have named: `MPI_INIT failed`, no PML could be opened."""
    EXIT = 2
    """The launcher's word on how the first rank ended."""
    SYMPTOM = 3
    """An error whose reason lies elsewhere, such as a connection refused by somebody who may be dead."""
    UNSPECIFIC = 4
    """That something failed, in the words of a layer that does not know what: `MPI_ERR_OTHER`."""
    STUCK = 5
    """Where processes were found waiting: stacks that somebody took of a job that did not end."""
    LIMIT = 6
    """That a time limit ended the run; it says nothing of why the run took so long."""
    CONSEQUENCE = 7
    """What a failure did to the other ranks: a peer is gone, the launcher cleans up."""


@dataclass(frozen=True, slots=True)
class FailureMatch:
    """One failure as a text told it, and the process that the text names.

    `certain` texts prove that the run failed: a handler's backtrace, an uncaught exception, a launcher's epilogue.
    What a library merely logs, however loudly, a run may survive.
    """

    signature: Signature
    priority: Priority = Priority.CAUSE
    process: Process | None = None
    fatal: bool = True


class LogParser(abc.ABC):
    """One kind of failure text; a fresh object reads one log.

    `triggers` are fixed parts of the lines it wants; `context` the number of lines after each such line that it is fed
    as well, whatever they hold. Ranks write at the same time, so foreign lines may stand between its own.
    """

    triggers: ClassVar[tuple[bytes, ...]]
    context: ClassVar[int] = 0

    @abc.abstractmethod
    def feed(self, line: LogLine) -> None:
        """Take one line. Never raises, whatever it holds."""

    @abc.abstractmethod
    def finish(self) -> Sequence[FailureMatch]:
        """Everything read, once the log has ended."""

    def exits(self) -> Sequence[RankExit]:
        """How ranks ended, where these texts say it."""
        return ()


def process_of(line: str) -> Process | None:
    """The process in Open MPI's and UCX's prefix (`[node1:04057]`, `[node1:4057 :0]`), None where there is none."""
    found = _PREFIX.search(line)
    return (found[1].split(".")[0], int(found[2])) if found else None


def token(text: str) -> str:
    """A name as it may stand in a key: of a path the last part, and no character that a glob or a folder minds."""
    name = text.strip().rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.+-]+", "-", name).strip("-")[:_LONGEST_TOKEN]


def slug(text: str) -> str:
    """A message as a key: without numbers, addresses, names in brackets and quotation marks.

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
