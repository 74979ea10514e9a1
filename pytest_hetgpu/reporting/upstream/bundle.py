"""`hetgpu bundle RUN CELL|KEY`: all files that an upstream issue needs, as archives that its tracker accepts."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.analysis.boundary.jobs import StoredJobs
from pytest_hetgpu.analysis.boundary.of_run import with_left_out
from pytest_hetgpu.analysis.boundary.summary import Summary
from pytest_hetgpu.cluster.pool import rank_programs
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.runtimes.containers.build_context import PRIVATE, context
from pytest_hetgpu.model.messages import known
from pytest_hetgpu.reporting.boundary import boundaries, of_cell
from pytest_hetgpu.reporting.upstream.issue import render_issue, reproducing_job, title, upstream_of
from pytest_hetgpu.reporting.upstream.projects import Project, slug
from pytest_hetgpu.reporting.upstream.script import PROGRAMS, image_folders, render_script
from pytest_hetgpu.store import environment
from pytest_hetgpu.store.cells import CellRecord, RunRecord, read_run
from pytest_hetgpu.store.files import refuse_links, write_atomically
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction.anonymity import anonymised, is_anonymous
from pytest_hetgpu.store.redaction.redact import redact_bytes, redact_json

LIMIT = 24 << 20
"""Bytes of an archive; GitHub takes 25 MB."""
_CHUNK = 1 << 20
_MOST_LOGS = 5
_HEADER_BYTES = 64 << 10  # an estimate for all headers


@dataclass(frozen=True, slots=True)
class Bundle:
    """The written archives, the first of which holds all but long logs; the issue's title and its project."""

    files: tuple[Path, ...]
    title: str
    project: Project


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    data: bytes
    mode: int = 0o644


def write_bundle(run: Path, wanted: str, out: Path | None = None, limit: int = LIMIT) -> Bundle:
    """Write the archives of a cell, by its label, or of all cells with a signature key.

    `out` is the path of the first archive. Raises UsageError if the run, the cell or the key does not exist, or an
    archive cannot be written.
    """
    refuse_links(run)
    record, folder = read_run(run), RunFolder(run)
    cells = _find_cells(record, wanted)
    name = slug(wanted)
    first = out or Path(f"{name}.tar.gz")
    with anonymised(record, folder) if is_anonymous(run) else nullcontext():
        small, logs = list(_main_files(record, folder, cells)), list(_log_files(folder, cells))
    whole = sum(len(one.data) for one in (*small, *logs)) + _HEADER_BYTES <= limit
    parts = [[*small, *logs]] if whole else [small, *_split(logs, limit - _HEADER_BYTES)]
    paths = [first, *(first.with_name(f"{_stem(first)}-logs-{number}.tar.gz") for number in range(1, len(parts)))]
    try:
        for path, files in zip(paths, parts, strict=True):
            write_atomically(path, _pack(name, files))
    except OSError as error:
        raise UsageError(f"{error.filename or first}: cannot be written ({error.strerror})") from None
    return Bundle(tuple(paths), title(cells[0]), upstream_of(cells[0]))


def _find_cells(record: RunRecord, wanted: str) -> list[CellRecord]:
    found = [cell for cell in record.cells if wanted in (cell.label, cell.scenario)]
    found = found or [cell for cell in record.cells if cell.outcome.signature and cell.outcome.signature.key == wanted]
    if not found:
        keys = {cell.outcome.signature.key for cell in record.cells if cell.outcome.signature}
        names = {*(cell.label for cell in record.cells), *keys}
        raise UsageError(f"no cell and no signature {wanted!r} in this run {known(wanted, names)}")
    return found


def _main_files(record: RunRecord, folder: RunFolder, cells: Sequence[CellRecord]) -> Iterator[_File]:
    """Yield the issue, the script with the files that it needs, and the stored jobs of the cells."""
    cell = cells[0]
    issue = render_issue(record, folder, cells, environment.read_all(folder.path), _condition(record, folder, cell))
    yield _File("issue.md", issue.encode())
    job = reproducing_job(record, folder, cell)
    if job:
        key = cell.outcome.signature.key if cell.outcome.signature else ""
        yield _File("reproduce.sh", render_script(job, key).encode(), 0o755)
        for name, data in sorted(rank_programs().items()):
            yield _File(f"{PROGRAMS}/{Path(name).name}", data)
        for name, place in image_folders(job).items():
            yield from _image_files(name, Path(place))
    for one in cells[:_MOST_LOGS]:
        for path in (folder.job(one.label), folder.stacks(one.label)):
            if path.is_file():
                yield _File(f"cells/{path.parent.name}/{path.name}", _read_redacted(path))
    for path in {environment.path_of(folder.path, f"{one.matrix}-{one.axes.get('placement')}") for one in cells}:
        if path.is_file():
            yield _File(f"placements/{path.parent.name}.json", _read_redacted(path))


def _condition(record: RunRecord, folder: RunFolder, cell: CellRecord) -> Summary | None:
    """Return the condition of the failure of a cell."""
    return of_cell(dict(boundaries(with_left_out(record), StoredJobs([(folder, record.cells)]), record.tried)), cell)


def _image_files(name: str, place: Path) -> Iterator[_File]:
    """Yield the build context of an image without secrets.

    Text is redacted, and files of kinds that hold secrets are left out.
    """
    left = []
    for entry in context(str(place)):
        if not stat.S_ISREG(entry.mode):
            continue
        if PRIVATE.search(f"/{entry.path}"):
            left.append(entry.path)
            continue
        data = Path(place, entry.path).read_bytes()
        if b"\0" not in data:
            data = redact_bytes(data)
        yield _File(f"{name}/{entry.path}", data, 0o755 if entry.mode & 1 else 0o644)
    if left:
        lines = ["Left out, as such files hold secrets:", *(path for path in left if not path.startswith(".git/"))]
        yield _File(f"{name}.left-out.txt", redact_bytes("\n".join((*lines, "")).encode("utf-8", "surrogateescape")))


def _log_files(folder: RunFolder, cells: Sequence[CellRecord]) -> Iterator[_File]:
    """Yield the output of the first cells and of their debug reruns."""
    for cell in cells[:_MOST_LOGS]:
        logs = {"output.log": folder.log(cell.label)}
        if cell.outcome.debug:
            logs["debug.log"] = folder.path / cell.outcome.debug.log
        for name, path in logs.items():
            if path.is_file() and path.resolve().is_relative_to(folder.path.resolve()):
                yield _File(f"cells/{folder.scenario(cell.label).name}/{name}", _read_redacted(path))


def _read_redacted(path: Path) -> bytes:
    """Read a file without secrets, some lines at a time. A key that lies across them is recognised from both sides."""
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError):
            return json.dumps(redact_json(json.loads(path.read_bytes())), indent=1).encode()
    found = io.BytesIO()
    with path.open("rb") as file:
        while lines := file.readlines(_CHUNK):
            found.write(redact_bytes(b"".join(lines)))
    return found.getvalue()


def _split(logs: Sequence[_File], limit: int) -> Iterator[list[_File]]:
    """Split logs into parts that fit even if they cannot be compressed, at line ends."""
    part: list[_File] = []
    room = limit
    for log in logs:
        rest, number = log.data, 1
        while rest:
            taken = rest if len(rest) <= room else rest[: rest.rfind(b"\n", 0, room) + 1] or rest[:room]
            rest = rest[len(taken) :]
            whole = number == 1 and not rest
            part.append(_File(log.name if whole else f"{log.name}.{number}", taken))
            room, number = room - len(taken), number + 1
            if rest or room <= 0:
                yield part
                part, room = [], limit
    if part:
        yield part


def _pack(name: str, files: Sequence[_File]) -> bytes:
    """Build a tar of files below a folder, without the name of its author or a date."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=6) as archive:
        for one in files:
            entry = tarfile.TarInfo(f"{name}/{one.name}")
            entry.size, entry.mode = len(one.data), one.mode
            archive.addfile(entry, io.BytesIO(one.data))
    return made.getvalue()


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
