"""The text of an issue: what a maintainer needs, in the order of the upstream's own form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pytest_hetgpu.errors import HetgpuError
from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.facts import display
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.shell import script
from pytest_hetgpu.reporting import cell_text, markdown
from pytest_hetgpu.reporting.excerpt import excerpt
from pytest_hetgpu.reporting.upstream.difference import nearest
from pytest_hetgpu.reporting.upstream.doing import doing, settings
from pytest_hetgpu.reporting.upstream.projects import Project, project
from pytest_hetgpu.reporting.upstream.script import PROGRAMS, portable
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.environment import TELLING, SeenPlacement
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.redaction.redact import redact, redact_argv
from pytest_hetgpu.store.text import escape, one_line

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
_MAKES = re.compile(r"^docker(?: -H \S+)? (?:build|run|network create) ")
_INTERPRETER = re.compile(r"\]\s+\S*python3?[\d.]*[\[(]|/python3?[\d.]*\(")


_WEB = re.compile(r"https?://[^\s<>\"`|\\\[\]()*]+")


def issue(run: RunRecord, folder: RunFolder, cells: Sequence[CellRecord], placements: Iterable[SeenPlacement]) -> str:
    """The issue of all cells that share a signature, told by the first of them."""
    cell = cells[0]
    found = _facts(run, folder, cells, {one.name: one for one in placements})
    made = Environment(  # noqa: S701 - Markdown: what is quoted is fenced or escaped, never markup of its own
        loader=PackageLoader("pytest_hetgpu.reporting.upstream", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"fenced": fenced, "code": code, "words": partial(escape, limit=2000)}
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
        return one_line(f"{cell_text.words(cell.outcome.kind)}: {cell.outcome.why}", 200)
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
        # It stands in a comment, which it may not end.
        "title": title(cell).replace("-->", "-- >"),
        "project": upstream(cell).name,
        "doing": doing(job) if job else "",
        "summary": _summary(run, cells),
        "settings": list(settings((*job.command.argv, *_variables(job)))) if job else [],
        "reason": escape(outcome.expectation.reason or "", 500) if outcome.expectation else "",
        "key": signature.key if signature else "",
        "what": escape(outcome.why, 1000),
        "excerpt": "\n".join(trimmed(text for _, text in lines))
        or (one_line(signature.primary_line, 1000) if signature else ""),
        "ranks": escape(rank_outcome.describe(outcome.fates), 1000),
        "nodes": [escape(f"{name}: {node.hardware}") for name, node in placement.nodes.items()] if placement else [],
        "facts": list(_table(placement, upstream(cell))) if placement else [],
        "versions": list(_versions(cell)),
        "stack": escape(outcome.stack),
        "containers": (containers := list(_containers(job)) if job else []),
        "site_arguments": any(" --build-arg " in line for line in containers),
        "command": _command(job) if job else cell_text.command_of(cell),
        "nearest": _nearest(near) if near else None,
        "others": [(escape(other.label), ", ".join(_versions(other))) for other in cells[1:][:_MOST_CELLS]],
        "more": max(0, len(cells) - 1 - _MOST_CELLS),
        "known": outcome.known,
        "links": list(
            map(
                _link, dict.fromkeys(filter(None, (cell.issue, *(ln for entry in outcome.known for ln in entry.links))))
            )
        ),
        "debug": escape(cell_text.debugged(outcome), 500),
        "has_script": job is not None,
        "impact": _IMPACTS.get(outcome.kind, "Application crash"),
    }


def _versions(cell: CellRecord) -> Iterator[str]:
    facts = cell.outcome.facts
    yield from (escape(f"{name} {facts[key]}") for key, name in _NAMED if key in facts)


def _variables(job: Job) -> list[str]:
    return redact_argv([f"{name}={value}" for name, value in sorted(job.command.env.items())])


def _summary(run: RunRecord, cells: Sequence[CellRecord]) -> str:
    ran = [one for one in run.cells if one.outcome.kind.value != "skipped"]
    works = sum(one.outcome.kind.value == "passed" for one in ran)
    many = f"{len(cells)} of {len(ran)} jobs" if len(cells) > 1 else f"One of {len(ran)} jobs"
    verb = "end" if len(cells) > 1 else "ends"
    return escape(
        f"{many} that were run over other nodes, transports and programs {verb} like this; {works} work.", 1000
    )


def _link(text: str) -> str:
    """An address of the web as it is; anything else as words."""
    return text if _WEB.fullmatch(text) else escape(text)


def _nearest(near: Any) -> dict[str, Any]:
    return {
        "label": one_line(near.cell.label),
        "axes": [(escape(axis), one_line(failing), one_line(working)) for axis, failing, working in near.axes],
        "failing": redact_argv(list(near.only_failing))[:20],
        "working": redact_argv(list(near.only_working))[:20],
    }


def _table(placement: SeenPlacement, whose: Project) -> Iterator[list[str]]:
    differing = {row.fact: row.values for row in placement.skew}
    told = [
        fact for fact in dict.fromkeys((*whose.facts, *TELLING, *differing)) if not fact.startswith(("clock", "env."))
    ]
    for fact in told:
        values = [escape(display(node.environment.fact(fact)), 100) for node in placement.nodes.values()]
        if any(value not in ("-", "?") for value in values):
            yield [f"{'≠ ' if fact in differing else ''}{escape(fact)}", *values]


def _containers(job: Job) -> Iterator[str]:
    """How the nodes are made: images, their network, themselves."""
    made = script.preparation(portable(job), PROGRAMS)
    yield from (redact(line) for line in made if _MAKES.search(line))


def job_of(folder: RunFolder, cell: CellRecord) -> Job | None:
    """What was started for a cell; None where that was not kept, or cannot be read."""
    try:
        return read_job(folder.job(cell.label))
    except HetgpuError:
        return None


def _command(job: Job) -> str:
    """As `reproduce.sh` starts it."""
    command = portable(job).command
    variables = _variables(job)
    return shlex.join([*(("env", *variables) if variables else ()), *redact_argv(list(command.argv))])


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
    return markdown.code(text, 1000)
