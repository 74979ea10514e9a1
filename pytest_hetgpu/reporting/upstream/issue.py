"""The text of an issue: the facts that a maintainer needs, in the order of the upstream's own form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pytest_hetgpu.analysis.boundary.summary import Summary
from pytest_hetgpu.analysis.boundary.words import where
from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.extensions.runtimes.lookup import restored
from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.facts import display
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.shell import script
from pytest_hetgpu.reporting import cell_text, markdown
from pytest_hetgpu.reporting.boundary_lines import support
from pytest_hetgpu.reporting.excerpt import excerpt
from pytest_hetgpu.reporting.upstream.description import describe_job, library_settings
from pytest_hetgpu.reporting.upstream.difference import find_nearest
from pytest_hetgpu.reporting.upstream.projects import NO_PROJECT, Project, find_project
from pytest_hetgpu.reporting.upstream.script import portable_job
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.environment import SUMMARY_FACTS, PlacementFacts
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.redaction.redact import redact, redact_argv
from pytest_hetgpu.store.text import escape_markdown, one_line

LONGEST = 60_000
"""Characters of an issue's text; GitHub takes 65,536."""
_MOST_CELLS = 30
_IMPACTS = {
    Kind.SLOW: "Lower performance than expected",
    Kind.WRONG_RESULT: "Data corruption",
    Kind.HANG: "Application hang",
    Kind.TIMEOUT: "Application hang",
}
"""The choices of NCCL's form; every other kind is an application crash."""
_INTERPRETER = re.compile(r"\]\s+\S*python3?[\d.]*[\[(]|/python3?[\d.]*\(")


# A greeting is a record whose `library` is the text of MPI_Get_library_version.
_PACKAGE = re.compile(r'"library":"Open MPI [^"]*package: ([^,"]+)')
_GREETINGS = 1 << 16
_WEB_ADDRESS = re.compile(r"https?://[^\s<>\"`|\\\[\]()*]+")


def render_issue(
    run: RunRecord,
    folder: RunFolder,
    cells: Sequence[CellRecord],
    placements: Iterable[PlacementFacts],
    condition: Summary | None = None,
) -> str:
    """Render the issue of all cells that share a signature; the first cell is the example.

    `condition` is the one under which they fail.
    """
    cell = cells[0]
    found = _template_values(run, folder, cells, {one.name: one for one in placements})
    if condition is not None:
        told = [f"Where it fails: {where(condition)}; {support(condition)}."]
        told += [f"Cure: {condition.cure}."] if condition.cure else []
        told += [f"Smallest job: {condition.smallest}."] if condition.smallest else []
        found["summary"] = escape_markdown(" ".join(told), 2000)
    made = Environment(  # noqa: S701 - Markdown: what is quoted is fenced or escaped, never markup of its own
        loader=PackageLoader("pytest_hetgpu.reporting.upstream", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"fenced": fenced, "code": code, "words": partial(escape_markdown, limit=2000)}
    text = made.get_template(f"{upstream_of(cell).template}.md.j2").render(found)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return (
        text
        if len(text) <= LONGEST
        else f"{text[:LONGEST].rpartition(chr(10))[0]}\n\n(The rest is in the attached files.)\n"
    )


def upstream_of(cell: CellRecord) -> Project:
    """Return the project whose tracker the issue belongs to."""
    signature = cell.outcome.signature
    return find_project(
        signature.library if signature else None, signature.key if signature else "", cell.outcome.stack
    )


def title(cell: CellRecord) -> str:
    """Format `SIGSEGV in uct_tcp_ep_am_short (libuct.so) under MPI_Send, UCX 1.20.1`."""
    signature, facts = cell.outcome.signature, cell.outcome.facts
    if signature is None:
        return one_line(f"{cell_text.display_kind(cell.outcome.kind)}: {cell.outcome.why}", 200)
    where = f" in {signature.function}" if signature.function else ""
    where += f" ({signature.library})" if signature.library else ""
    what = f"{signature.signal}{where}" if signature.signal else signature.key
    under = f" under {signature.entry_point}" if signature.entry_point else ""
    # A failure of the program itself is not one of these libraries.
    shown = _VERSION_NAMES if upstream_of(cell) is not NO_PROJECT else ()
    versions = [f"{name} {facts[key]}" for key, name in shown if key in facts]
    return one_line(", ".join((f"{what}{under}", *versions[:2])), 200)


_VERSION_NAMES = (
    ("ucx", "UCX"),
    ("ucc", "UCC"),
    ("nccl", "NCCL"),
    ("rccl", "RCCL"),
    ("openmpi", "Open MPI"),
    ("mpich", "MPICH"),
    ("torch", "PyTorch"),
    ("libfabric", "libfabric"),
)


def _template_values(
    run: RunRecord, folder: RunFolder, cells: Sequence[CellRecord], seen: Mapping[str, PlacementFacts]
) -> dict[str, Any]:
    cell = cells[0]
    outcome, signature = cell.outcome, cell.outcome.signature
    lines = excerpt(folder.log(cell.label), signature.line) if signature else []
    near = find_nearest(cell, run.cells)
    placement = seen.get(f"{cell.matrix}-{cell.axes.get('placement')}")
    job = reproducing_job(run, folder, cell)
    return {
        # The title is inside a comment, and must not end it.
        "title": re.sub(r"-(?=[->!])", "- ", title(cell)),
        "project": upstream_of(cell).name,
        "doing": describe_job(job) if job else "",
        "summary": _summary(run, cells),
        "settings": list(library_settings((*job.command.argv, *_variables(job)))) if job else [],
        "reason": escape_markdown(outcome.expectation.reason or "", 500) if outcome.expectation else "",
        "key": signature.key if signature else "",
        "what": escape_markdown(outcome.why, 1000),
        "excerpt": "\n".join(trim_interpreter_frames(text for _, text in lines))
        or (one_line(signature.primary_line, 1000) if signature else ""),
        "ranks": escape_markdown(rank_outcome.describe(outcome.rank_outcomes), 1000),
        "nodes": [escape_markdown(f"{name}: {node.hardware}") for name, node in placement.nodes.items()]
        if placement
        else [],
        "facts": list(_facts_table(placement, upstream_of(cell))) if placement else [],
        "versions": list(_versions(cell)),
        #: without the MPI, which `stack` names with its version
        "beside": [one for one in _versions(cell) if not escape_markdown(outcome.stack).startswith(one)],
        "stack": escape_markdown(outcome.stack),
        "package": _package(folder.log(cell.label)),
        "containers": (containers := list(_container_commands(job)) if job else []),
        "site_arguments": any(" --build-arg " in line for line in containers),
        "command": _portable_command(job) if job else cell_text.format_command(cell),
        "nearest": _nearest_values(near) if near else None,
        "others": [(escape_markdown(other.label), ", ".join(_versions(other))) for other in cells[1:][:_MOST_CELLS]],
        "more": max(0, len(cells) - 1 - _MOST_CELLS),
        "known": outcome.known,
        "links": list(
            map(
                _link, dict.fromkeys(filter(None, (cell.issue, *(ln for entry in outcome.known for ln in entry.links))))
            )
        ),
        "debug": escape_markdown(cell_text.describe_debug_rerun(outcome), 500),
        "has_script": job is not None,
        "impact": _IMPACTS.get(outcome.kind, "Application crash"),
    }


def _versions(cell: CellRecord) -> Iterator[str]:
    facts = cell.outcome.facts
    yield from (escape_markdown(f"{name} {facts[key]}") for key, name in _VERSION_NAMES if key in facts)


def _package(log: Path) -> str:
    """Return the package that an Open MPI names itself in the greeting of a rank, "" if there is none in the log."""
    try:
        with log.open("rb") as file:
            found = _PACKAGE.search(file.read(_GREETINGS).decode(errors="replace"))
    except OSError:
        return ""
    return escape_markdown(found[1].strip(), 200) if found else ""


def _variables(job: Job) -> list[str]:
    return redact_argv([f"{name}={value}" for name, value in sorted(job.command.env.items())])


def _summary(run: RunRecord, cells: Sequence[CellRecord]) -> str:
    ran = [one for one in run.cells if one.outcome.kind.value != "skipped"]
    works = sum(one.outcome.kind.value == "passed" for one in ran)
    many = f"{len(cells)} of {len(ran)} jobs" if len(cells) > 1 else f"One of {len(ran)} jobs"
    verb = "end" if len(cells) > 1 else "ends"
    return escape_markdown(
        f"{many} that were run over other nodes, transports and programs {verb} like this; {works} work.", 1000
    )


def _link(text: str) -> str:
    """Return a web address unchanged; escape any other text."""
    return text if _WEB_ADDRESS.fullmatch(text) else escape_markdown(text)


def _nearest_values(near: Any) -> dict[str, Any]:
    return {
        "label": one_line(near.cell.label),
        "axes": [(escape_markdown(axis), one_line(failing), one_line(working)) for axis, failing, working in near.axes],
        "failing": redact_argv(list(near.only_failing))[:20],
        "working": redact_argv(list(near.only_working))[:20],
    }


def _facts_table(placement: PlacementFacts, whose: Project) -> Iterator[list[str]]:
    differing = {row.fact: row.values for row in placement.skew}
    facts = [
        fact
        for fact in dict.fromkeys((*whose.facts, *SUMMARY_FACTS, *differing))
        if not fact.startswith(("clock", "env."))
    ]
    for fact in facts:
        values = [escape_markdown(display(node.environment.fact(fact)), 100) for node in placement.nodes.values()]
        if any(value not in ("-", "?") for value in values):
            yield [f"{'≠ ' if fact in differing else ''}{escape_markdown(fact)}", *values]


def _container_commands(job: Job) -> Iterator[str]:
    """Yield the commands that create the nodes: images, network, containers."""
    yield from map(redact, script.creation(portable_job(job)))


def reproducing_job(run: RunRecord, folder: RunFolder, cell: CellRecord) -> Job | None:
    """Return the smallest job that is known to fail like a cell, else the cell's own; None if it cannot be read."""
    key = cell.outcome.signature.key if cell.outcome.signature else ""
    labels = {(one.matrix, one.scenario): one.label for one in run.cells}
    for one in run.smallest:
        label = labels.get((one.matrix, one.scenario))
        if label and (one.matrix, one.key) == (cell.matrix, key) and one.same == one.runs:
            beside = folder.for_attempt(PurePath(one.log).parent.name)
            if job := _restored_job(beside.job(label)):
                return job
    return _restored_job(folder.job(cell.label))


def _restored_job(path: Path) -> Job | None:
    """Return a stored job; None if it is missing or cannot be read."""
    try:
        job = read_job(path)
        launcher = restored(job.launcher) if job.launcher else None
        return replace(job, nodes=tuple(map(restored, job.nodes)), launcher=launcher)
    except HetgpuError:
        return None


def _portable_command(job: Job) -> str:
    """Format the command as `reproduce.sh` starts it."""
    command = portable_job(job).command
    variables = _variables(job)
    return shlex.join([*(("env", *variables) if variables else ()), *redact_argv(list(command.argv))])


def trim_interpreter_frames(lines: Iterable[str]) -> Iterator[str]:
    """Replace the many frames of the Python interpreter in a backtrace by their number."""
    for inside, group in groupby(lines, key=lambda line: bool(_INTERPRETER.search(line))):
        kept = list(group)
        yield from (
            kept if not inside or len(kept) < 3 else (f"    ... {len(kept)} frames of the Python interpreter ...",)
        )


def fenced(text: str, language: str = "") -> str:
    """Format a text as a block of code, whatever backticks it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def code(text: str) -> str:
    """Format a text, in one line, as a code span."""
    return markdown.code(text, 1000)
