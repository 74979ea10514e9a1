"""From a run's output to Evidence: records, proof of transport, and signatures, in one streaming pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_hetgpu.analysis.logs.line_index import LineIndex
from pytest_hetgpu.analysis.logs.lines import parse_line, strip_controls
from pytest_hetgpu.analysis.logs.mpi_version import fact_name, parse_mpi_version
from pytest_hetgpu.analysis.logs.outline import Outline, first_rank_line
from pytest_hetgpu.analysis.logs.prefixes import prefix_of
from pytest_hetgpu.analysis.logs.program_lines import last_program_line
from pytest_hetgpu.analysis.logs.records import RecordReader, Records
from pytest_hetgpu.analysis.logs.scan import Scan, ScannedLine, Subscription
from pytest_hetgpu.analysis.logs.success import Proof, Success, SuccessSigns, signs_at_end
from pytest_hetgpu.analysis.logs.text_search import read_lines
from pytest_hetgpu.analysis.logs.versions import Versions
from pytest_hetgpu.analysis.run_model import Course, Reader, explained
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority, Process
from pytest_hetgpu.extensions.signatures.engine.last_error import last_error
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.extensions.signatures.engine.rules import without
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.records import Hello, RankExit
from pytest_hetgpu.model.transport_classes import UNKNOWN, Connection, connection

if TYPE_CHECKING:
    from pytest_hetgpu.model.outcome import Evidence

# A launcher cuts records; the missing part ends one of the next lines (`frames`).
_RECORDS = (b"@hetgpu:", b'{"t":"')
_RECORD_CONTEXT = 10_000


# Debug messages of libraries are no failures, and may be most of a log. Sources: ucs/debug/log.c, utils/ucc_log.h,
# libfabric's src/log.c, NCCL's debug.h.
DEBUG_NOISE = (
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

# Key of the launcher's message about an abort. A separator and other ranks' output may precede it.
_GAVE_UP = "MPI_Abort@"
_BEFORE = 10


class TransportLogReader(Protocol):
    """A transport's reader of its own log lines; the part of `transports.base.ProofReader` that is required."""

    @property
    def triggers(self) -> tuple[bytes, ...]:
        """Return the fixed parts of the lines to feed."""

    def feed(self, line: str, number: int) -> None:
        """Take one line that holds a trigger, decoded and without its end; `number` counts from 1."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Return the components seen between ranks."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Return versions by the lower-case name of the library."""


def log_parsers(own: Sequence[MatchRule] = ()) -> tuple[LogParser, ...]:
    """Return a new instance of each log parser. Rules of a user precede, and replace shipped ones of their ids."""
    return tuple(parser() for parser in _parsers(tuple(own)))


@lru_cache(maxsize=8)
def _parsers(own: tuple[MatchRule, ...]) -> tuple[type[LogParser], ...]:
    shipped = tuple(find("signatures", name, LogParser) for name in names("signatures"))  # type: ignore[type-abstract]
    if not own:
        return shipped
    from pytest_hetgpu.extensions.signatures.engine.own_rules import own_parser

    ids = frozenset(rule.id for rule in own)
    return (own_parser(own), *(without(parser, ids) for parser in shipped))


@dataclass(frozen=True)
class ScanResult:
    """Result of one pass over a log; `matches` are in the order of parsers, not yet by priority.

    `failed` describes exceptions of parsers.
    """

    records: Records
    matches: tuple[FailureMatch, ...]
    exits: tuple[RankExit, ...]
    failed: tuple[str, ...]
    versions: Mapping[str, str]
    head: tuple[str, ...]
    tail: tuple[str, ...]
    lines: int
    outline: Outline = field(default_factory=Outline)
    signs: tuple[Success, ...] = ()
    prefix: re.Pattern[str] | None = None
    line_index: LineIndex | None = None

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The first and last lines without the learned prefix, then also without known ones."""
        whole = [self._without_learned(line) for line in (*self.head, *self.tail)]
        return (*whole, *(parse_line(line, 0).text for line in whole))

    def _without_learned(self, line: str) -> str:
        return line if self.prefix is None else self.prefix.sub("", strip_controls(line), count=1)

    def reader(self, path: Path) -> Reader:
        """Return a reader of the log's lines; `path` is that of the scanned log."""
        return partial(read_lines, path, prefix=self.prefix, line_index=self.line_index)

    @property
    def ranks(self) -> Mapping[Process, int]:
        """Rank of each process, as the process reports it."""
        return {(hello.host.split(".")[0], hello.pid): rank for rank, hello in self.records.hellos.items()}

    def survived(self, match: FailureMatch) -> bool:
        """Return whether a line that only the program can have written follows a match."""
        if match.priority >= Priority.CONSEQUENCE:
            return True
        last = self._last_of_program
        return last is not None and last > match.signature.line

    @cached_property
    def _last_of_program(self) -> int | None:
        """The number of the program's last own line in the tail."""
        first = self.lines - len(self.tail) + 1
        told = {other.signature.line - first for other in self.matches}
        place = last_program_line([parse_line(line, 0, self.prefix).text for line in self.tail], told)
        return None if place is None else first + place


def scan_log(
    path: Path, *, proof: TransportLogReader | None = None, parsers: Sequence[LogParser] | None = None
) -> ScanResult:
    """Scan the log in `path` in one streaming pass.

    A log that is missing, empty, cut off, binary or of 1 GB gives a result, too; memory does not grow with its size.
    Raise OSError for an existing file that cannot be read.
    """
    records, versions, outline, signs = RecordReader(), Versions(), Outline(), SuccessSigns()
    adapters = [_ParserAdapter(parser) for parser in (log_parsers() if parsers is None else parsers)]
    subscriptions = [
        Subscription(_RECORDS, lambda line: records.feed(line.raw), _RECORD_CONTEXT),
        Subscription(versions.triggers, lambda line: versions.feed(line.parsed)),
        Subscription(outline.triggers, lambda line: outline.feed(line.parsed)),
        Subscription(signs.triggers, lambda line: signs.feed(line.parsed)),
    ]
    subscriptions += [_proof_subscription(proof)] if proof else []
    subscriptions += [adapter.subscription for adapter in adapters]
    prefix = prefix_of(path)
    scan = Scan(subscriptions, DEBUG_NOISE, prefix, whole=proof is not None)
    scan.file(path)
    for adapter in adapters:
        adapter.finish()
    outline.started = first_rank_line(scan.head, [parse_line(text, 0, prefix).text for text in scan.head])
    ranks = records.finish()
    return ScanResult(
        records=ranks,
        matches=tuple(match for adapter in adapters for match in adapter.matches),
        exits=tuple(sorted((ended for one in adapters for ended in one.exits), key=lambda ended: ended.rank)),
        failed=tuple(adapter.failed for adapter in adapters if adapter.failed),
        versions=versions.found,
        head=scan.head,
        tail=scan.tail,
        lines=scan.lines,
        outline=outline,
        signs=() if _some_not_done(ranks) else _all_signs(signs, scan, prefix),
        prefix=prefix,
        line_index=scan.line_index,
    )


def _some_not_done(records: Records) -> bool:
    """Return whether ranks that report their ends are missing: nothing that others print shows success then."""
    size = max((hello.size for hello in records.hellos.values()), default=0)
    return size > 0 and len(records.done) < size


def _all_signs(signs: SuccessSigns, scan: Scan, prefix: re.Pattern[str] | None) -> tuple[Success, ...]:
    """Return the signs of success in the order of lines; in the last lines weaker ones count, too."""
    first = scan.lines - len(scan.tail) + 1
    last = [parse_line(text, number, prefix) for number, text in enumerate(scan.tail, first)]
    return (*(sign for sign in signs.found if sign.line < first and sign.proof is not Proof.WORDS), *signs_at_end(last))


def read_evidence(
    path: Path, *, proof: TransportLogReader | None = None, parsers: Sequence[LogParser] | None = None
) -> Evidence:
    """Scan the output in `path` for judges; `proof` is the transport's reader, `parsers` defaults to all.

    Reads as `scan_log` does.
    """
    from pytest_hetgpu.model.outcome import Evidence

    result = scan_log(path, proof=proof, parsers=parsers)
    told = result.records
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
        exits=result.exits,
        signatures=failures(path, result, result.matches),
        tail=result.tail,
        figures=told.figures,
        devices=told.devices,
        lacks=told.lacks,
        ended=told.ended,
        last_row=told.last_row,
    )


def failures(path: Path, result: ScanResult, matches: Sequence[FailureMatch]) -> tuple[Signature, ...]:
    """Return the failures among matches of the log in `path`, the most telling first.

    If the first is an abort, and the program printed its reason just before, that line is quoted.
    """
    read = result.reader(path)
    found = by_priority(explained(matches, course(path, result)), result.ranks, result.survived)
    if not (found and found[0].key.startswith(_GAVE_UP)):
        return found
    first = found[0]
    before = read(max(1, first.line - _BEFORE), first.line - 1)
    said = last_error(before, first.ranks[0] if len(first.ranks) == 1 else None)
    if said is None:
        return found
    return (replace(first, primary_line=said.quote, line=said.number), *found[1:])


def course(path: Path, result: ScanResult) -> Course:
    """Return the course of the run whose log in `path` gave `result`."""
    return Course(result.outline, result.signs, result.lines, result.reader(path))


def _connections(proof: TransportLogReader, carried: Iterable[str]) -> tuple[Connection, ...]:
    """Return connections from the log and from ranks that report their own.

    A reader without paths gives one connection of unknown path.
    """
    whole = (connection(UNKNOWN, proof.transports),) if proof.transports else ()
    found = getattr(proof, "connections", whole)
    return tuple(sorted({*found, *(connection(UNKNOWN, (name,)) for name in carried)}))


def _proof_subscription(reader: TransportLogReader) -> Subscription:
    def take(line: ScannedLine) -> None:
        reader.feed(line.text, line.number)

    return Subscription(reader.triggers, take, getattr(reader, "context", 0))


class _ParserAdapter:
    """Subscription of one parser; an exception in the parser costs its own matches only."""

    def __init__(self, parser: LogParser) -> None:
        self.parser = parser
        self.failed = ""
        self.matches: tuple[FailureMatch, ...] = ()
        self.exits: tuple[RankExit, ...] = ()

    def take(self, line: ScannedLine) -> None:
        if self.failed:
            return
        try:
            self.parser.feed(line.parsed)
        except Exception as error:  # noqa: BLE001 - a log must never be without an answer
            self._fail(error, line.number)

    def finish(self) -> None:
        try:
            self.matches = tuple(self.parser.finish())
            self.exits = tuple(self.parser.exits())
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error, 0)

    def _fail(self, error: Exception, number: int) -> None:
        where = f" in line {number}" if number else ""
        self.failed = f"{type(self.parser).__name__}{where}: {type(error).__name__}: {error}"

    @property
    def subscription(self) -> Subscription:
        return Subscription(self.parser.triggers, self.take, self.parser.context)


def _library_versions(hellos: Iterable[Hello]) -> dict[str, str]:
    """Return versions of the MPI libraries that ranks have loaded; several versions are joined by commas."""
    seen: dict[str, set[str]] = {}
    for hello in hellos:
        vendor, version = parse_mpi_version(hello.library)
        if version:
            seen.setdefault(fact_name(vendor), set()).add(version)
    return {vendor: ", ".join(sorted(versions)) for vendor, versions in seen.items()}
