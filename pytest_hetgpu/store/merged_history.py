"""The history of several sites: the merged runs, and the earlier ones of the histories beside them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.errors import HistoryError
from pytest_hetgpu.store import database, history
from pytest_hetgpu.store.folder import HISTORY
from pytest_hetgpu.store.merge import SiteRun
from pytest_hetgpu.store.run_summary import RunSummary, summarise

MOST_RUNS = 10_000
"""Earlier runs of one history."""


class MergedHistory:
    """A new history of sites. `runs` counts its runs by site; `notes` are on histories that could not be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: Counter[str] = Counter()
        self.notes: list[str] = []
        self._started: dict[str, float] = {}

    def add(self, runs: Sequence[SiteRun]) -> None:
        """Store each run with its site, then the earlier runs. Raises HistoryError if that fails."""
        hosts: dict[Path, dict[str, str]] = {}
        for run in runs:
            summary = summarise(run.record, run.folder)
            self._put(replace(summary, site=run.site))
            beside = Path(summary.folder).parent / HISTORY
            hosts.setdefault(beside, {})[summary.machine or run.site] = run.site
        for path, sites in hosts.items():
            if path.is_file():
                self._add_earlier(path, sites)

    def _add_earlier(self, path: Path, sites: Mapping[str, str]) -> None:
        """Store the runs of a history. In one that several sites share, the host of a run gives its site."""
        names = set(sites.values())
        for run in self._read(path):
            site = sites.get(run.machine, run.machine) if len(names) > 1 else min(names)
            self._put(replace(run, site=run.site or site))

    def _read(self, path: Path) -> Iterator[RunSummary]:
        """Yield the runs in a copy of a history. Note why others are left out."""
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place, HISTORY)
            try:
                database.snapshot(path, copy)
                listed = history.list_runs(copy)
                if len(listed) > MOST_RUNS:
                    self.notes.append(f"{path}: only its newest {MOST_RUNS:,} runs of {len(listed):,} are taken")
                for one in listed[:MOST_RUNS]:
                    yield history.load_run(copy, one.id)
            except HistoryError as error:
                self.notes.append(f"earlier runs are left out: {error}".replace(str(copy), str(path)))

    def _put(self, run: RunSummary) -> None:
        """Store a run that the history lacks; another run of the same id gets its site as well."""
        if self._started.get(run.id, run.started) != run.started:
            run = replace(run, id=f"{run.id}@{run.site}")
        if run.id not in self._started:
            self._started[run.id] = run.started
            history.put(self.path, run)
            self.runs[run.site] += 1
