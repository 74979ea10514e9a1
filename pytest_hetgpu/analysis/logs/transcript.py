"""From a run's output to Evidence: records, proof of transport, and signatures, in one streaming pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_hetgpu.analysis.logs.banner import fact_name, mpi_banner
from pytest_hetgpu.analysis.logs.passages import lines
from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.analysis.logs.scan import Ear, Line, Scan
from pytest_hetgpu.analysis.logs.signs import last_of_program
from pytest_hetgpu.analysis.logs.versions import Versions
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.last_error import last_error
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import Hello, RankExit
from pytest_hetgpu.model.transport_classes import UNKNOWN, Connection, connection

if TYPE_CHECKING:
    from pytest_hetgpu.model.outcome import Evidence

# A launcher cuts records, and what is missing ends one of the lines that follow (`frames`).
_RECORDS = (b"@hetgpu:", b'{"t":"')
_RECORD_CONTEXT = 10_000


# What libraries say at their debug levels is no failure, and may be most of a log (ucs/debug/log.c, utils/ucc_log.h,
# libfabric's src/log.c, NCCL's debug.h).
UNHEARD = (
    *(b"UCX  %b" % level for level in (b"DEBUG", b"TRACE", b"REQ  ", b"DATA ", b"ASYNC", b"FUNC ", b"POLL ")),
    *(
        b"%b DEBUG " % layer
        for layer in (b"UCC ", b"UCC_COLL", b"CL_BASIC", b"CL_HIER", b"TL_UCP", b"TL_CUDA", b"TL_NCCL")
    ),
    *(
        b"%b DEBUG " % layer
        for layer in (b"TL_RCCL", b"TL_SELF", b"TL_SHARP", b"cuda mc", b"cuda ec", b"rocm mc", b"rocm ec")
    ),
    b"<debug>",
    b"<trace>",
    b" NCCL TRACE ",
    b" NCCL CALL ",
)

# The launcher's words on an abort; a separator and other ranks' output may stand between the program's own and them.
_GAVE_UP = "MPI_Abort@"
_BEFORE = 10


class LogReader(Protocol):
    """Is fed the lines that hold one of `triggers`, decoded and without their ends; `number` counts from 1."""

    @property
    def triggers(self) -> tuple[bytes, ...]:
        """Fixed parts of the lines it wants."""

    def feed(self, line: str, number: int) -> None:
        """Take one line."""


class ProofReader(LogReader, Protocol):
    """Reads what carried the data, and the versions that libraries said of themselves, by lower-case name."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Components seen between ranks."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions by lower-case name of the library."""


def dialects() -> tuple[LogParser, ...]:
    """A fresh reader of every dialect there is."""
    return tuple(find("signatures", name, LogParser)() for name in names("signatures"))  # type: ignore[type-abstract]


@dataclass(frozen=True)
class Heard:
    """All that one pass over a log gave. `readings` come as dialects told them, not yet in order.

    `failed` says of dialects that broke off what they failed at.
    """

    records: Records
    matches: tuple[FailureMatch, ...]
    exits: tuple[RankExit, ...]
    failed: tuple[str, ...]
    versions: Mapping[str, str]
    head: tuple[str, ...]
    tail: tuple[str, ...]
    lines: int

    @property
    def ranks(self) -> Mapping[Process, int]:
        """Which rank each process said it was."""
        return {(hello.host.split(".")[0], hello.pid): rank for rank, hello in self.records.hellos.items()}

    def survived(self, match: FailureMatch) -> bool:
        """Whether the program went on after a line: something that only it can have written follows."""
        if match.priority >= Priority.CONSEQUENCE:
            return True
        last = self._last_of_program
        return last is not None and last > match.signature.line

    @cached_property
    def _last_of_program(self) -> int | None:
        """The number of the program's last own line in the tail."""
        first = self.lines - len(self.tail) + 1
        told = {other.signature.line - first for other in self.matches}
        place = last_of_program(self.tail, told)
        return None if place is None else first + place


def listen(path: Path, *, proof: ProofReader | None = None, spoken: Sequence[LogParser] | None = None) -> Heard:
    """One streaming pass over the log in `path`.

    A log that is missing, empty, broken off, binary or of 1 GB gives an answer too; memory does not grow with it.
    Raises OSError for a file that is there and cannot be read.
    """
    records, versions = RecordReader(), Versions()
    understood = [_Listener(dialect) for dialect in (dialects() if spoken is None else spoken)]
    ears = [
        Ear(_RECORDS, lambda line: records.feed(line.raw), _RECORD_CONTEXT),
        Ear(versions.triggers, lambda line: versions.feed(line.said)),
    ]
    ears += [_proof_ear(proof)] if proof else []
    ears += [listener.ear for listener in understood]
    scan = Scan(ears, UNHEARD)
    scan.file(path)
    for listener in understood:
        listener.finish()
    return Heard(
        records=records.finish(),
        matches=tuple(match for listener in understood for match in listener.matches),
        exits=tuple(sorted((ended for one in understood for ended in one.exits), key=lambda ended: ended.rank)),
        failed=tuple(listener.failed for listener in understood if listener.failed),
        versions=versions.found,
        head=scan.head,
        tail=scan.tail,
        lines=scan.lines,
    )


def read(path: Path, *, proof: ProofReader | None = None, spoken: Sequence[LogParser] | None = None) -> Evidence:
    """All that judges need of the output in `path`: `proof` is the transport family's reader, `spoken` defaults to all.

    Reads as `listen` does.
    """
    from pytest_hetgpu.model.outcome import Evidence

    heard = listen(path, proof=proof, spoken=spoken)
    told = heard.records
    return Evidence(
        hellos=told.hellos,
        rows=tuple(told.rows),
        checks=told.checks,
        wrong=tuple(told.wrong),
        done=frozenset(told.done),
        transports=tuple(sorted({*proof.transports, *told.carried})) if proof else (),
        connections=_connections(proof, told.carried) if proof else (),
        versions=_library_versions(told.hellos.values())
        | dict(told.versions)
        | (dict(proof.versions) if proof else {}),
        exits=heard.exits,
        signatures=failures(path, heard, heard.matches),
        tail=heard.tail,
        figures=told.figures,
        devices=told.devices,
        lacks=told.lacks,
        ended=told.ended,
        last_row=told.last_row,
    )


def failures(path: Path, heard: Heard, matches: Sequence[FailureMatch]) -> tuple[Signature, ...]:
    """The failures among readings of the log in `path`, the most telling first.

    Where the first is that a program gave up, the line is quoted in which it said why, if it did just before.
    """
    found = by_priority(matches, heard.ranks, heard.survived)
    if not (found and found[0].key.startswith(_GAVE_UP)):
        return found
    first = found[0]
    before = lines(path, max(1, first.line - _BEFORE), first.line - 1)
    said = last_error(before, first.ranks[0] if len(first.ranks) == 1 else None)
    if said is None:
        return found
    return (replace(first, primary_line=said.quote, line=said.number), *found[1:])


def _connections(proof: ProofReader, carried: Iterable[str]) -> tuple[Connection, ...]:
    """Connections by the log and by ranks that looked at their own; a reader that tells no paths has one kind."""
    whole = (connection(UNKNOWN, proof.transports),) if proof.transports else ()
    found = getattr(proof, "connections", whole)
    return tuple(sorted({*found, *(connection(UNKNOWN, (name,)) for name in carried)}))


def _proof_ear(reader: LogReader) -> Ear:
    def take(line: Line) -> None:
        reader.feed(line.text, line.number)

    return Ear(reader.triggers, take, getattr(reader, "context", 0))


class _Listener:
    """A dialect and what it made of the log. One that fails, which none should, costs its own readings only."""

    def __init__(self, dialect: LogParser) -> None:
        self.dialect = dialect
        self.failed = ""
        self.matches: tuple[FailureMatch, ...] = ()
        self.exits: tuple[RankExit, ...] = ()

    def take(self, line: Line) -> None:
        if self.failed:
            return
        try:
            self.dialect.feed(line.said)
        except Exception as error:  # noqa: BLE001 - a log must never be without an answer
            self._fail(error, line.number)

    def finish(self) -> None:
        try:
            self.matches = tuple(self.dialect.finish())
            self.exits = tuple(self.dialect.exits())
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error, 0)

    def _fail(self, error: Exception, number: int) -> None:
        where = f" in line {number}" if number else ""
        self.failed = f"{type(self.dialect).__name__}{where}: {type(error).__name__}: {error}"

    @property
    def ear(self) -> Ear:
        return Ear(self.dialect.triggers, self.take, self.dialect.context)


def _library_versions(hellos: Iterable[Hello]) -> dict[str, str]:
    """Versions of the MPI libraries that ranks have loaded; ranks of several versions give them all, with commas."""
    seen: dict[str, set[str]] = {}
    for hello in hellos:
        vendor, version = mpi_banner(hello.library)
        if version:
            seen.setdefault(fact_name(vendor), set()).add(version)
    return {vendor: ", ".join(sorted(versions)) for vendor, versions in seen.items()}
