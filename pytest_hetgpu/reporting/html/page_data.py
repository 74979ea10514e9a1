"""The data of the page as JSON: all of it is cleaned, cut and redacted here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_hetgpu.analysis.baseline import Baseline
from pytest_hetgpu.model.bandwidth_text import describe_link
from pytest_hetgpu.model.facts import display
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.quantities import HIGHER, better, describe, telling
from pytest_hetgpu.model.records import Measurement
from pytest_hetgpu.model.sample import sample
from pytest_hetgpu.model.transport_classes import describe_carriers as carried_told
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting import cell_text
from pytest_hetgpu.reporting.excerpt import excerpt
from pytest_hetgpu.reporting.html.timeline import timeline_data
from pytest_hetgpu.store.cells import CellRecord, RunRecord, format_utc
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.environment import SUMMARY_FACTS, PlacementFacts
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.properties import attempt_lines, describe_flaky
from pytest_hetgpu.store.text import one_line

LONGEST_TEXT = 1000
_MOST_ITEMS = 40
_NO_VALUE = ("-", "?")
_NOT_FAILED = (Verdict.OK, Verdict.NOT_RUN)


def page_data(
    record: RunRecord,
    folder: RunFolder,
    rerun: cell_text.Rerun,
    placements: Iterable[PlacementFacts],
    earlier: Baseline | None,
) -> dict[str, Any]:
    """Convert a run to the data of its page; the scripts in `assets/` read it."""
    starts = [one.started for one in record.sessions[:1]] or [cell.started for cell in record.cells if cell.started]
    files = {matrix.name: matrix.file for session in record.sessions for matrix in session.matrices}
    matrices = dict.fromkeys(cell.matrix for cell in record.cells)
    return {
        "run": folder.path.resolve().name,
        "matrices": [[one_line(name), one_line(files.get(name, ""))] for name in matrices],
        "started": format_utc(min(starts)) if starts else "",
        "hosts": [one_line(host) for host in dict.fromkeys(session.host for session in record.sessions)],
        "samples": [
            one_line(f"Sample of {one.matrix} ({one.strategy}): {one.text}.") for one in record.samples.values()
        ],
        "sites": {one_line(matrix): one_line(site) for matrix, site in record.sites.items()},
        "site_lines": _sites(record),
        "scaling": _curves(record),
        "tests": _tests(record),
        "bisected": [one_line(one.line, LONGEST_TEXT) for one in record.bisected],
        "unread": dict(record.unread),
        "private": one_line(cell_text.describe_private_logs(folder), LONGEST_TEXT),
        "cells": [_cell(cell, folder, rerun) for cell in record.cells],
        "placements": [_placement(one) for one in placements],
        "changes": list(_changes(record, earlier)) if earlier else [],
        "baseline": one_line(earlier.name) if earlier else "",
    }


def _sites(record: RunRecord) -> list[str]:
    if not record.merged:
        return []
    from pytest_hetgpu.reporting.sites import site_lines

    return list(site_lines(record, stacks=False))


def _curves(record: RunRecord) -> list[dict[str, Any]]:
    if not record.may_scale:
        return []
    from pytest_hetgpu.reporting.scaling_table import curves_data

    return curves_data(record)


def _tests(record: RunRecord) -> list[list[object]]:
    if not any(cell.outcome.suite for cell in record.cells):
        return []
    from pytest_hetgpu.reporting.suites_table import tests_data

    return tests_data(record)


def _cell(cell: CellRecord, folder: RunFolder, rerun: cell_text.Rerun) -> dict[str, Any]:
    outcome = cell.outcome
    data: dict[str, Any] = {
        "id": one_line(cell.label, LONGEST_TEXT),
        "matrix": one_line(cell.matrix),
        "axes": {one_line(axis): one_line(value) for axis, value in cell.axes.items()},
        "verdict": outcome.verdict.value,
        "kind": outcome.kind.value,
        "headline": cell_text.headline(cell),
        "seconds": round(outcome.seconds, 3),
        "key": one_line(outcome.signature.key, LONGEST_TEXT) if outcome.signature else "",
        "started": format_utc(cell.started) if cell.started else "",
        "command": cell_text.format_command(cell),
        "again": cell_text.format_rerun(cell, rerun),
        "stack": one_line(outcome.stack),
        "tests": one_line(str(outcome.suite), LONGEST_TEXT) if outcome.suite else "",
        "transports": [one_line(name) for name in outcome.transports],
        "carried": one_line(carried_told(outcome.carried), LONGEST_TEXT),
        "facts": {one_line(name): one_line(value) for name, value in outcome.facts.items()},
        "notes": [one_line(note, LONGEST_TEXT) for note in (*outcome.concerns, *outcome.notes)],
        "issue": one_line(cell.issue or "", LONGEST_TEXT),
        "flaky": describe_flaky(outcome),
        "attempts": [one_line(line, LONGEST_TEXT) for line in attempt_lines(outcome)],
        "measured": [one_line(describe(one)) for one in telling(outcome.measurements)],
        "curve": _curve(outcome.measurements),
        "series": _series(outcome.measurements),
        "timeline": timeline_data(outcome),
    }
    log = folder.log(cell.label)
    if log.exists():
        data["log"] = log.relative_to(folder.path).as_posix()
    elif cell.result:
        data["lost"] = log.relative_to(folder.path).as_posix()
    if folder.trace(cell.label).exists():
        data["trace"] = folder.trace(cell.label).relative_to(folder.path).as_posix()
    if outcome.wire:
        data["wire"] = {"gbs": outcome.wire.gbs, "told": one_line(describe_link(outcome.wire))}
    if outcome.measurements:
        data["limits"] = _limits(folder.job(cell.label))
    if outcome.verdict not in _NOT_FAILED:
        data |= _failure(outcome, log)
    # Leave out empty values: a page may hold thousands of cells.
    return {name: value for name, value in data.items() if value not in ("", [], {}, None)}


def _failure(outcome: Outcome, log: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "why": one_line(outcome.why, LONGEST_TEXT),
        "expected": cell_text.describe_expectation(outcome.expectation) if outcome.expectation else "",
        "findings": [
            [one.judge, one.kind.value, one_line(one.why, LONGEST_TEXT)] for one in outcome.findings[:_MOST_ITEMS]
        ],
        "known": [_known(entry) for entry in outcome.known],
        "others": [[one_line(other.key), other.line] for other in outcome.others[:_MOST_ITEMS]],
        "ranks": [
            [one.rank, one_line(one.node), one_line(one.platform), one_line(one.status), one.own]
            for one in outcome.rank_outcomes[: _MOST_ITEMS * 10]
        ],
        "debug": one_line(cell_text.describe_debug_rerun(outcome), LONGEST_TEXT),
    }
    if outcome.signature:
        found["line"] = outcome.signature.line
        found["quote"] = one_line(outcome.signature.primary_line, LONGEST_TEXT)
        found["excerpt"] = excerpt(log, outcome.signature.line)
    return found


def _known(entry: KnownFailure) -> dict[str, Any]:
    return {
        "id": one_line(entry.id),
        "title": one_line(entry.title),
        "cause": one_line(entry.cause, LONGEST_TEXT),
        "fix": one_line(" ".join((entry.fix, *entry.typed)), LONGEST_TEXT),
        "links": [one_line(link, LONGEST_TEXT) for link in entry.links],
        "status": entry.certainty,
        "unproven": one_line(" and ".join(entry.unproven), LONGEST_TEXT),
    }


def _curve(measurements: Sequence[Measurement]) -> str:
    """Return the metric to draw over message size: the first rate above 0 with a size, "" for none."""
    rates = (one for one in measurements if better(one) == HIGHER and one.value > 0 and one.point.size > 0)
    return next((one_line(one.metric) for one in rates), "")


def _series(measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Return one series per metric, type and place: `[bytes, value, lowest, highest]` of each size."""
    found: dict[tuple[str, str, str, str], list[list[float]]] = {}
    for one in measurements:
        spread = sample(one.samples)
        low, high = (spread.low, spread.high) if spread else (one.value, one.value)
        key = (one_line(one.metric), one_line(one.point.dtype), one.point.place, one_line(one.unit))
        found.setdefault(key, []).append([one.point.size, *(float(f"{x:.5g}") for x in (one.value, low, high))])
    names = ("metric", "dtype", "place", "unit")
    return [{**dict(zip(names, key, strict=True)), "points": sorted(points)} for key, points in found.items()]


def _limits(path: Path) -> list[dict[str, Any]]:
    """Return the limits for a cell's numbers: per source and metric `[bytes, value]` of each size."""
    try:
        job = read_job(path)
    except RecordError:
        return []
    found: dict[tuple[str, str], list[list[float]]] = {}
    for point, limits in job.demand.limits.items():
        for limit in limits:
            if point.size > 0 and (middle := sample(limit.values)):
                value = float(f"{middle.middle:.5g}")
                found.setdefault((one_line(limit.source), one_line(limit.metric)), []).append([point.size, value])
    return [
        {"source": source, "metric": metric, "points": sorted(points)} for (source, metric), points in found.items()
    ]


def _placement(seen: PlacementFacts) -> dict[str, Any]:
    """Convert nodes and their facts; `rows` are `[fact, telling, differs, value of each node]`."""
    differing = {row.fact: row.values for row in seen.skew}
    facts = dict.fromkeys(fact for node in seen.nodes.values() for fact in node.environment.facts)
    rows: list[list[Any]] = []
    for fact in dict.fromkeys((*differing, *facts)):
        values = differing.get(fact) or tuple(display(node.environment.fact(fact)) for node in seen.nodes.values())
        telling = fact in differing or (fact in SUMMARY_FACTS and any(value not in _NO_VALUE for value in values))
        rows.append([one_line(fact), telling, fact in differing, *(one_line(value, 120) for value in values)])
    limit = seen.link.limit if seen.link else None
    return {
        "name": one_line(seen.name),
        "nodes": [f"{name}: {one_line(node.hardware)} on {one_line(node.host)}" for name, node in seen.nodes.items()],
        "rows": rows,
        "wire": {"gbs": limit.gbs, "told": one_line(describe_link(limit))} if limit else None,
    }


def _changes(record: RunRecord, earlier: Baseline) -> Iterator[Mapping[str, str]]:
    """Yield cells that differ from the baseline, and those that the baseline lacks."""
    was = {identity: cells[0] for identity, cells in earlier.side.cells.items()}
    for cell in record.cells:
        old = was.get((cell.matrix, cell.scenario))
        now = (cell.outcome.kind.value, cell.outcome.signature.key if cell.outcome.signature else "")
        if old is None:
            yield {"id": one_line(cell.label, LONGEST_TEXT), "was": "not there", "is": one_line(" ".join(now))}
        elif (old.kind.value, old.signature) != now:
            before = one_line(" ".join((old.kind.value, old.signature)))
            yield {"id": one_line(cell.label, LONGEST_TEXT), "was": before, "is": one_line(" ".join(now))}
