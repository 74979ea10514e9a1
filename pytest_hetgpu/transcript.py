"""From a run's output to Evidence: records, proof of transport, and signatures, in one streaming pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pytest_hetgpu.banner import fact_name, mpi_banner
from pytest_hetgpu.evidence import Evidence, Hello, RankExit
from pytest_hetgpu.records import RecordReader
from pytest_hetgpu.registry import find, names
from pytest_hetgpu.scan import Ear, Line, Scan
from pytest_hetgpu.signatures._order import ranked
from pytest_hetgpu.signatures.base import Dialect

# A launcher cuts records, and what is missing ends one of the lines that follow (`frames`).
_RECORDS = (b"@hetgpu:", b'{"t":"')
_RECORD_CONTEXT = 10_000


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


def dialects() -> tuple[Dialect, ...]:
    """A fresh reader of every dialect there is."""
    return tuple(find("signatures", name, Dialect)() for name in names("signatures"))  # type: ignore[type-abstract]


def read(path: Path, *, proof: ProofReader | None = None, spoken: Sequence[Dialect] | None = None) -> Evidence:
    """All that judges need of the output in `path`: `proof` is the transport family's reader, `spoken` defaults to all.

    A log that is missing, empty, broken off, binary or of 1 GB gives evidence too; memory does not grow with it.
    Raises OSError for a file that is there and cannot be read.
    """
    records = RecordReader()
    understood = dialects() if spoken is None else spoken
    ears = [Ear(_RECORDS, lambda line: records.feed(line.raw), _RECORD_CONTEXT)]
    ears += [_ear(reader) for reader in (proof, *understood) if reader is not None]
    scan = Scan(ears)
    scan.file(path)
    told = records.finish()
    greeted = {(hello.host.split(".")[0], hello.pid): rank for rank, hello in told.hellos.items()}
    return Evidence(
        hellos=told.hellos,
        rows=tuple(told.rows),
        checks=told.checks,
        wrong=tuple(told.wrong),
        done=frozenset(told.done),
        transports=tuple(proof.transports) if proof else (),
        versions=_library_versions(told.hellos.values()) | (dict(proof.versions) if proof else {}),
        exits=_exits(understood),
        signatures=ranked((reading for dialect in understood for reading in dialect.finish()), greeted),
        tail=scan.tail,
    )


def _ear(reader: LogReader) -> Ear:
    def take(line: Line) -> None:
        reader.feed(line.text, line.number)

    return Ear(reader.triggers, take, getattr(reader, "context", 0))


def _exits(understood: Iterable[Dialect]) -> tuple[RankExit, ...]:
    return tuple(sorted((ended for dialect in understood for ended in dialect.exits()), key=lambda ended: ended.rank))


def _library_versions(hellos: Iterable[Hello]) -> dict[str, str]:
    """Versions of the MPI libraries that ranks have loaded; ranks of several versions give them all, with commas."""
    seen: dict[str, set[str]] = {}
    for hello in hellos:
        vendor, version = mpi_banner(hello.library)
        if version:
            seen.setdefault(fact_name(vendor), set()).add(version)
    return {vendor: ", ".join(sorted(versions)) for vendor, versions in seen.items()}
