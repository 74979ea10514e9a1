"""The sites of a merged run, for the summary and the page. Only reports of merged runs import this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_hetgpu.store.cells import RunRecord, format_utc
from pytest_hetgpu.store.events import MatrixFile, Merged, SessionStarted
from pytest_hetgpu.store.text import one_line

LONGEST_LINE = 1000
_DIGEST = 12


def site_lines(record: RunRecord, *, stacks: bool = True) -> Iterator[str]:
    """Yield a line per site: its run, its files, and its `stacks`. Then yield one per matrix with several versions."""
    sessions = {one.name: session for session in record.sessions for one in session.matrices}
    files = {one.name: one for session in record.sessions for one in session.matrices}
    for one in record.merged:
        loaded = _stacks(one, record) if stacks else ""
        yield one_line(f"{one.site}: {_run(one, sessions)}: {_matrices(one, files)}{loaded}", LONGEST_LINE)
    for name, versions in _versions(record.merged, files).items():
        if len(versions) > 1:
            different = "; ".join(f"{digest} at {', '.join(sites)}" for digest, sites in versions.items())
            line = f"{name} is not the same file at all sites, so that its cells may differ (SHA-256): {different}"
            yield one_line(line, LONGEST_LINE)


def _run(one: Merged, sessions: Mapping[str, SessionStarted]) -> str:
    starts = [sessions[name].started for name in one.matrices if name in sessions]
    started = f", started on {format_utc(max(starts))}" if starts else ""
    return f"run {one.run}{f' from the host {one.host}' if one.host else ''}{started}"


def _matrices(one: Merged, files: Mapping[str, MatrixFile]) -> str:
    named = (f"{name} ({files[here].file})" if here in files else name for here, name in one.matrices.items())
    return " and ".join(named) or "no matrix"


def _stacks(one: Merged, record: RunRecord) -> str:
    cells = (cell for cell in record.cells if cell.matrix in one.matrices)
    found = dict.fromkeys(cell.outcome.stack for cell in cells if cell.outcome.stack)
    return f", with {', '.join(found)}" if found else ""


def _versions(merged: Sequence[Merged], files: Mapping[str, MatrixFile]) -> Mapping[str, Mapping[str, list[str]]]:
    """Return the sites with each version of each matrix, by the beginning of its SHA-256."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in merged:
        for here, name in one.matrices.items():
            if here in files:
                found.setdefault(name, {}).setdefault(files[here].sha256[:_DIGEST], []).append(one.site)
    return found
