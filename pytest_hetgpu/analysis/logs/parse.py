"""From a run's output to Evidence: records, proof of transport, and signatures, in one streaming pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_hetgpu.analysis.logs.mpi_version import fact_name, parse_mpi_version
from pytest_hetgpu.analysis.logs.outline import Alarms, Attempts, progress_between
from pytest_hetgpu.analysis.logs.prefixes import prefix_of
from pytest_hetgpu.analysis.logs.records import RecordReader
from pytest_hetgpu.analysis.logs.scan import Scan, ScannedLine, Subscription
from pytest_hetgpu.analysis.logs.scan_result import ScanResult
from pytest_hetgpu.analysis.logs.success import SuccessSigns
from pytest_hetgpu.analysis.logs.versions import Incompatibilities, Versions
from pytest_hetgpu.analysis.run_model import explained
from pytest_hetgpu.extensions.registry import find, names
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser
from pytest_hetgpu.extensions.signatures.engine.last_error import last_error
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.extensions.signatures.engine.rules import without
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.records import Hello, RankExit
from pytest_hetgpu.model.transport_classes import UNKNOWN, Connection, connection
from pytest_hetgpu.model.verdict import Kind

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
_PEER_LOST = "peer-lost@"

_RETRIED = (Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY, Kind.NETWORK_FAILURE, Kind.MISSING_LIBRARY)
_OFTEN = 5
_NUMBER = lazy(r"0x[0-9a-f]+|\d+")
_MOST_NAMED = 5


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


def scan_log(
    path: Path,
    *,
    proof: TransportLogReader | None = None,
    parsers: Sequence[LogParser] | None = None,
    texts: Iterable[str] = (),
    labels: str = "",
) -> ScanResult:
    """Scan the log in `path` in one streaming pass. `texts` are those that will be searched for in its `parts`.

    `labels` names the form of the labels that the launcher puts before lines, which `proof` gets without them.

    A log that is missing, empty, cut off, binary or of 1 GB gives a result, too; memory does not grow with its size.
    Raise OSError for an existing file that cannot be read.
    """
    records, versions, attempts, alarms, signs = RecordReader(), Versions(), Attempts(), Alarms(), SuccessSigns()
    incompatible = Incompatibilities()
    adapters = [_ParserAdapter(parser) for parser in (log_parsers() if parsers is None else parsers)]
    subscriptions = [
        Subscription(_RECORDS, lambda line: records.feed(line.raw), _RECORD_CONTEXT),
        *(_parsed(collector) for collector in (versions, incompatible, attempts, alarms, signs)),
    ]
    subscriptions += [_proof_subscription(proof, labels)] if proof else []
    subscriptions += [adapter.subscription for adapter in adapters]
    prefix = prefix_of(path)
    scan = Scan(subscriptions, DEBUG_NOISE, prefix, whole=proof is not None, texts=map(str.encode, texts))
    scan.file(path)
    for adapter in adapters:
        adapter.finish()
    told = records.finish()
    return ScanResult(
        records=told,
        matches=tuple(match for adapter in adapters for match in adapter.matches),
        exits=_exits([ended for one in adapters for ended in one.exits], told.exits),
        failed=tuple(adapter.failed for adapter in adapters if adapter.failed),
        versions=versions.found,
        incompatible=incompatible.found,
        head=scan.head,
        tail=scan.tail,
        lines=scan.lines,
        attempts=attempts,
        alarms=alarms,
        early=signs,
        prefix=prefix,
        line_index=scan.line_index,
        parts=scan.parts,
    )


def _exits(of_launcher: Sequence[RankExit], of_ranks: Sequence[RankExit]) -> tuple[RankExit, ...]:
    """Return the bad ends of ranks, by rank: as the launcher reports them, else as the ranks do.

    A launcher reports the rank that failed first. Exit codes of other ranks are then consequences, signals are not.
    """
    named = {ended.rank for ended in of_launcher}
    own = (one for one in of_ranks if one.rank not in named and (one.signal is not None or not named))
    return tuple(sorted((*of_launcher, *own), key=lambda ended: ended.rank))


def read_evidence(
    path: Path,
    *,
    proof: TransportLogReader | None = None,
    parsers: Sequence[LogParser] | None = None,
    labels: str = "",
) -> Evidence:
    """Scan the output in `path` for judges; `proof` is the transport's reader, `parsers` defaults to all.

    Reads as `scan_log` does.
    """
    from pytest_hetgpu.model.outcome import Evidence

    result = scan_log(path, proof=proof, parsers=parsers, labels=labels)
    told = result.records
    signatures = failures(path, result, result.matches)
    first = next(iter(signatures), None)
    fatal = first is not None and any(one.fatal and one.signature.key == first.key for one in result.matches)
    return Evidence(
        hellos=told.hellos,
        rows=tuple(told.rows),
        checks=told.checks,
        wrong=tuple(told.wrong),
        done=frozenset(told.done),
        transports=tuple(sorted({*proof.transports, *told.carried})) if proof else (),
        connections=_connections(proof, told.carried) if proof else (),
        windows=tuple(sorted(getattr(proof, "windows", ()))),
        versions=_library_versions(told.hellos.values())
        | dict(told.versions)
        | (dict(proof.versions) if proof else {}),
        incompatible=result.incompatible,
        exits=result.exits,
        signatures=signatures,
        proven=first is not None
        and (_repeats(first, result.tail) or (fatal and not _went_on(result.reader(path), first, result.lines))),
        tail=result.tail,
        figures=told.figures,
        devices=told.devices,
        lacks=told.lacks,
        trace=told.trace,
        ended=told.ended,
        last_row=told.last_row,
    )


def _went_on(read: Callable[[int, int], Sequence[LogLine]], failure: Signature, lines: int) -> bool:
    """Return whether the program made progress after a failure. Lines of ranks that did not fail are skipped."""

    def of_failed(first: int, last: int) -> Sequence[LogLine]:
        among = failure.ranks
        return [line for line in read(first, last) if not among or line.rank is None or line.rank in among]

    return progress_between(of_failed, failure.line, lines + 1)


def _repeats(failure: Signature, tail: Sequence[str]) -> bool:
    """Return whether the output ends in reports of a failure, with other numbers: libraries may retry for ever."""
    shape = _NUMBER.sub("#", failure.primary_line)
    return failure.kind in _RETRIED and sum(_NUMBER.sub("#", line) == shape for line in tail) >= _OFTEN


def failures(path: Path, result: ScanResult, matches: Sequence[FailureMatch]) -> tuple[Signature, ...]:
    """Return the failures among matches of the log in `path`, the most telling first.

    If the first is an abort, and the program printed its reason just before, that line is quoted. The launcher's exit
    code counts if nothing else shows a failure.
    """
    found = by_priority(explained(matches, result.course(path)), result.ranks, result.survived) if matches else ()
    found = found or result.exit_status
    if found and (early := _left_early(found[0], result)):
        return (early, *found)
    if not (found and found[0].key.startswith(_GAVE_UP)):
        return found
    first, read = found[0], result.reader(path)
    before = read(max(1, first.line - _BEFORE), first.line - 1)
    said = last_error(before, first.ranks[0] if len(first.ranks) == 1 else None)
    if said is None:
        return found
    return (replace(first, primary_line=said.quote, line=said.number), *found[1:])


def _left_early(first: Signature, result: ScanResult) -> Signature | None:
    """Return that ranks ended with 0 while others waited for them, if a lost peer is the only failure."""
    lost = first.kind is Kind.NETWORK_FAILURE and first.key.startswith(_PEER_LOST)
    left = sorted(result.records.done - {*first.ranks})
    if not lost or not left or any(ended.signal for ended in result.exits):
        return None
    ranks = f"rank{'s' * (len(left) > 1)} {', '.join(map(str, left[:_MOST_NAMED]))}"
    detail = f"{ranks} ended with exit code 0 before the others, which lost the connection"
    return replace(first, kind=Kind.ERROR, key="rank-left-early@program", detail=detail, ranks=tuple(left), hosts=())


def _connections(proof: TransportLogReader, carried: Iterable[str]) -> tuple[Connection, ...]:
    """Return connections from the log and from ranks that report their own.

    A reader without paths gives one connection of unknown path.
    """
    whole = (connection(UNKNOWN, proof.transports),) if proof.transports else ()
    found = getattr(proof, "connections", whole)
    return tuple(sorted({*found, *(connection(UNKNOWN, (name,)) for name in carried)}))


def _proof_subscription(reader: TransportLogReader, labels: str) -> Subscription:
    def take(line: ScannedLine) -> None:
        reader.feed(line.text, line.number)

    def take_labelled(line: ScannedLine) -> None:
        from pytest_hetgpu.analysis.logs.output import without_labels

        reader.feed(without_labels(line.text, labels), line.number)

    return Subscription(reader.triggers, take_labelled if labels else take, getattr(reader, "context", 0))


class _Collector(Protocol):
    @property
    def triggers(self) -> Sequence[bytes]: ...

    @property
    def feed(self) -> Callable[[LogLine], None]: ...


def _parsed(collector: _Collector) -> Subscription:
    feed = collector.feed
    return Subscription(collector.triggers, lambda line: feed(line.parsed))


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
