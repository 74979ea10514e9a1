"""Builds a run's reports from its journal: what was written before the last `kill -9` is enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.anonymity import kept, without_names
from pytest_hetgpu.reporting.cells import RunRecord, read_run
from pytest_hetgpu.reporting.folder import RunFolder, write_atomically
from pytest_hetgpu.reporting.wording import Rerun


def build(run_folder: Path, rerun: Rerun) -> RunRecord:
    """Writes `junit.xml`, `summary.md`, `index.html` and `issues/` into the run's folder, each in full or not at all.

    Returns what it read.

    `rerun(matrix, label)` is the command that runs just that cell again; a text may stand for it, in which `{matrix}`
    and `{label}` are filled in. Raises UsageError where the folder holds no journal.
    """
    record = read_run(run_folder)
    folder = RunFolder(run_folder)
    with without_names(record, folder) if kept(run_folder) else nullcontext():
        _build(record, folder, rerun)
    return record


def _build(record: RunRecord, folder: RunFolder, rerun: Rerun) -> None:
    from pytest_hetgpu.reporting import junit

    run_folder = folder.path

    def log(label: str) -> str | None:
        path = folder.log(label)
        return str(path.relative_to(run_folder)) if path.exists() else None

    write_atomically(run_folder / "junit.xml", junit.render(record, folder, rerun))
    summary = markdown.render(record, log, rerun, _nodes(record, run_folder))
    write_atomically(run_folder / "summary.md", summary.encode("utf-8"))
    write_atomically(run_folder / "index.html", _page(record, folder, rerun).encode("utf-8"))


def _page(record: RunRecord, folder: RunFolder, rerun: Rerun) -> str:
    """The page, which knows of the issues that are written first."""
    from pytest_hetgpu.reporting import environment
    from pytest_hetgpu.reporting.html import facts, page
    from pytest_hetgpu.reporting.upstream import written
    from pytest_hetgpu.speed.baseline import kept_with

    try:
        before = kept_with(folder.path)
    except HetgpuError:
        before = None
    placements = environment.read_all(folder.path)
    issues = written.write(record, folder, placements)
    return page.render({**facts.page_facts(record, folder, rerun, placements, before), "issues": issues})


def _nodes(record: RunRecord, run_folder: Path) -> Iterator[str]:
    """What the nodes and the ways between them were found to be; what reads that is imported where there is any."""
    if (run_folder / "placements").is_dir():
        from pytest_hetgpu.reporting import environment, wires

        placements = environment.read_all(run_folder)
        yield from wires.lines(record.cells, placements)
        yield from environment.lines(placements)
