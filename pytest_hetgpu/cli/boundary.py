"""`hetgpu boundary`: the conditions of the failures of stored runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_hetgpu.analysis.boundary.jobs import StoredJobs
from pytest_hetgpu.analysis.boundary.of_run import with_left_out
from pytest_hetgpu.reporting.boundary import boundaries
from pytest_hetgpu.reporting.boundary_lines import boundary_lines
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.files import refuse_links
from pytest_hetgpu.store.folder import RunFolder

_NAME = 11


def boundary(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that the command prints. Raise UsageError for a folder of no run."""
    for folder in folders:
        refuse_links(folder)
    records = {folder: read_run(folder) for folder in folders}
    runs = {folder: with_left_out(record) for folder, record in records.items()}
    trials = [one for record in records.values() for one in record.tried]
    jobs = StoredJobs((RunFolder(folder), cells) for folder, cells in runs.items())
    cells = [cell for several in runs.values() for cell in several]
    for matrix, found in boundaries(cells, jobs, trials):
        if not found:
            yield f"{matrix}: no cell failed in a way that is known"
        for one in found:
            (key, state), *facts = boundary_lines(one)
            yield f"{key}   {state}"
            yield from (f"  {name:{_NAME}} {text}" for name, text in facts)
            yield ""
