"""The text of an issue: what a maintainer needs, in the order of the upstream's own form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pytest_hetgpu import fates, pasting
from pytest_hetgpu.accounting import shown
from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.model import Job, Kind
from pytest_hetgpu.paste import run_command
from pytest_hetgpu.reporting import wording
from pytest_hetgpu.reporting.cells import CellRecord, RunRecord
from pytest_hetgpu.reporting.environment import TELLING, SeenPlacement
from pytest_hetgpu.reporting.excerpt import excerpt
from pytest_hetgpu.reporting.folder import RunFolder, read_job
from pytest_hetgpu.reporting.redaction import redact, redact_argv
from pytest_hetgpu.reporting.text import one_line
from pytest_hetgpu.reporting.upstream.difference import nearest
from pytest_hetgpu.reporting.upstream.projects import Project, project
from pytest_hetgpu.reporting.upstream.script import portable

LONGEST = 60_000
"""Characters of an issue's text; GitHub takes 65,536."""
_MOST_CELLS = 30
_IMPACTS = {
    Kind.SLOW: "Lower performance than expected",
    Kind.WRONG_RESULT: "Data corruption",
    Kind.HANG: "Application hang",
    Kind.TIMEOUT: "Application hang",
}
"""What NCCL's form lets one choose from; all else ends the application."""
_INTERPRETER = re.compile(r"\]\s+\S*python3?[\d.]*[\[(]|/python3?[\d.]*\(")


def issue(run: RunRecord, folder: RunFolder, cells: Sequence[CellRecord], placements: Iterable[SeenPlacement]) -> str:
    """The issue of all cells that share a signature, told by the first of them."""
    cell = cells[0]
    found = _facts(run, folder, cells, {one.name: one for one in placements})
    made = Environment(  # noqa: S701 - Markdown: what is quoted is fenced, never markup of its own
        loader=PackageLoader("pytest_hetgpu.reporting.upstream", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"fenced": fenced, "code": code}
    text = made.get_template(f"{upstream(cell).template}.md.j2").render(found)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return (
        text
        if len(text) <= LONGEST
        else f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n(The rest is in the attached files.)\n"
    )


def upstream(cell: CellRecord) -> Project:
    """Whose tracker it goes to."""
    signature = cell.outcome.signature
    return project(signature.library if signature else None, signature.key if signature else "", cell.outcome.stack)


def title(cell: CellRecord) -> str:
    """`SIGSEGV in uct_tcp_ep_am_short (libuct.so) under MPI_Send, UCX 1.20.1`."""
    signature, facts = cell.outcome.signature, cell.outcome.facts
    if signature is None:
        return one_line(f"{wording.words(cell.outcome.kind)}: {cell.outcome.why}", 200)
    where = f" in {signature.function}" if signature.function else ""
    where += f" ({signature.library})" if signature.library else ""
    what = f"{signature.signal}{where}" if signature.signal else signature.key
    under = f" under {signature.entry_point}" if signature.entry_point else ""
    versions = [f"{name} {facts[key]}" for key, name in _NAMED if key in facts]
    return one_line(", ".join((f"{what}{under}", *versions[:2])), 200)


_NAMED = (
    ("ucx", "UCX"),
    ("ucc", "UCC"),
    ("nccl", "NCCL"),
    ("rccl", "RCCL"),
    ("openmpi", "Open MPI"),
    ("mpich", "MPICH"),
    ("torch", "PyTorch"),
    ("libfabric", "libfabric"),
)


def _facts(
    run: RunRecord, folder: RunFolder, cells: Sequence[CellRecord], seen: Mapping[str, SeenPlacement]
) -> dict[str, Any]:
    cell = cells[0]
    outcome, signature = cell.outcome, cell.outcome.signature
    lines = excerpt(folder.log(cell.label), signature.line) if signature else []
    near = nearest(cell, run.cells)
    placement = seen.get(f"{cell.matrix}-{cell.axes.get('placement')}")
    job = job_of(folder, cell)
    return {
        "title": title(cell),
        "project": upstream(cell).name,
        "summary": _summary(run, cells),
        "key": signature.key if signature else "",
        "what": one_line(outcome.why, 1000),
        "excerpt": "\n".join(trimmed(text for _, text in lines))
        or (one_line(signature.primary_line, 1000) if signature else ""),
        "ranks": one_line(fates.in_words(outcome.fates), 1000),
        "nodes": [f"{name}: {one_line(node.hardware)}" for name, node in placement.nodes.items()] if placement else [],
        "facts": list(_table(placement, upstream(cell))) if placement else [],
        "versions": [f"{name} {one_line(outcome.facts[key])}" for key, name in _NAMED if key in outcome.facts],
        "stack": one_line(outcome.stack),
        "containers": list(_containers(job)) if job else [],
        "command": _command(job) if job else wording.command_of(cell),
        "nearest": _nearest(near) if near else None,
        "others": [one_line(other.label) for other in cells[1:][:_MOST_CELLS]],
        "more": max(0, len(cells) - 1 - _MOST_CELLS),
        "known": outcome.known,
        "links": list(
            dict.fromkeys(filter(None, (cell.issue, *(link for entry in outcome.known for link in entry.links))))
        ),
        "debug": one_line(wording.debugged(outcome), 500),
        "has_script": job is not None,
        "impact": _IMPACTS.get(outcome.kind, "Application crash"),
    }


def _summary(run: RunRecord, cells: Sequence[CellRecord]) -> str:
    cell = cells[0]
    ran = [one for one in run.cells if one.outcome.kind.value != "skipped"]
    works = sum(one.outcome.kind.value == "passed" for one in ran)
    axes = ", ".join(f"{axis} {value}" for axis, value in cell.axes.items())
    many = f"{len(cells)} of the {len(ran)} jobs" if len(cells) > 1 else f"one of the {len(ran)} jobs"
    return one_line(
        f"In {many} of a compatibility matrix this ends in the same way ({works} of them work). Here: {axes}.", 1000
    )


def _nearest(near: Any) -> dict[str, Any]:
    return {
        "label": one_line(near.cell.label),
        "axes": [tuple(map(one_line, axis)) for axis in near.axes],
        "failing": redact_argv(list(near.only_failing))[:20],
        "working": redact_argv(list(near.only_working))[:20],
    }


def _table(placement: SeenPlacement, whose: Project) -> Iterator[list[str]]:
    differing = {row.fact: row.values for row in placement.skew}
    told = [
        fact for fact in dict.fromkeys((*whose.facts, *TELLING, *differing)) if not fact.startswith(("clock", "env."))
    ]
    for fact in told:
        values = [one_line(shown(node.environment.fact(fact)), 100) for node in placement.nodes.values()]
        if any(value not in ("-", "?") for value in values):
            yield [f"{'≠ ' if fact in differing else ''}{fact}", *values]


def _containers(job: Job) -> Iterator[str]:
    for node in job.everybody:
        if node.container and node.image:
            yield redact(shlex.join(run_command(node, pasting.placement_name(job))))


def job_of(folder: RunFolder, cell: CellRecord) -> Job | None:
    """What was started for a cell; None where that was not kept, or cannot be read."""
    try:
        return read_job(folder.job(cell.label))
    except HetgpuError:
        return None


def _command(job: Job) -> str:
    """As `reproduce.sh` starts it."""
    command = portable(job).command
    variables = [f"{name}={value}" for name, value in sorted(command.env.items())]
    return shlex.join(redact_argv([*(("env", *variables) if variables else ()), *command.argv]))


def trimmed(lines: Iterable[str]) -> Iterator[str]:
    """A backtrace without the interpreter's own frames, of which there are dozens: their number stands for them."""
    for inside, group in groupby(lines, key=lambda line: bool(_INTERPRETER.search(line))):
        kept = list(group)
        yield from (
            kept if not inside or len(kept) < 3 else (f"    ... {len(kept)} frames of the Python interpreter ...",)
        )


def fenced(text: str, language: str = "") -> str:
    """Text as a block of code, whatever backticks it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def code(text: str) -> str:
    """Text in one line as a code span."""
    from pytest_hetgpu.reporting.markdown import code as span

    return span(text, 1000)
