"""Cells in words: failure texts, plans, and the command that runs one cell again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.package_data import REMOTE
from pytest_hetgpu.model import rank_outcome
from pytest_hetgpu.model.job import Job, Node, Scenario
from pytest_hetgpu.planning.suite import Suite
from pytest_hetgpu.reporting.cell_text import debugged, knowing
from pytest_hetgpu.store.properties import before
from pytest_hetgpu.store.redaction.redact import redact, redact_argv
from pytest_hetgpu.store.text import clean, shown

if TYPE_CHECKING:
    from pytest_hetgpu.model.outcome import Finding, Outcome

PROGRAMS = REMOTE


def again(suite: Suite, matrix: str, label: str, options: Sequence[str] = ()) -> str:
    """The command that runs just this cell once more, with the options that it had."""
    try:
        scenario = suite.scenarios[suite.position(matrix, label)].id
    except KeyError:  # of a matrix that has changed since
        scenario = label
    file = suite.documents[matrix].file if matrix in suite.documents else "MATRIX"
    return shlex.join(rerun(file, scenario, options))


def rerun(file: str, scenario: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """The tokens of a command that runs one cell of a matrix file."""
    return (*runner(), "--hetgpu-matrix", file, *options, "--hetgpu-cell", scenario)


def runner() -> tuple[str, ...]:
    """How pytest is started in this environment: by its plain name only where that finds this environment's."""
    return _runner(sys.executable, os.environ.get("PATH", ""), Path.cwd())


@lru_cache(maxsize=8)
def _runner(python: str, path: str, _: Path) -> tuple[str, ...]:
    """A report asks for it once per cell, and looking along PATH takes its time."""
    beside = Path(python).with_name("pytest")
    found = shutil.which("pytest", path=path)
    if found and beside.exists() and Path(found).samefile(beside):
        return ("pytest",)
    return (shown(beside),) if beside.exists() else (python, "-m", "pytest")


def describe(job: Job, outcome: Outcome, log: str, once_more: str) -> str:
    """The text of a failing test: what, why, the line to quote, the command, the log, and how to run it again."""
    lines = [f"{outcome.kind.value} ({outcome.verdict.value}): {outcome.why}"]
    signature = outcome.signature
    if signature:
        lines += [f"  signature: {signature.key}", f"  line {signature.line}: {signature.primary_line}"]
    lines += [f"  {one.judge}: {one.why}" for one in outcome.findings if not _told(one, outcome)]
    lines += [f"  ranks: {told}" for told in filter(None, [rank_outcome.in_words(outcome.rank_outcomes)])]
    lines += [f"  {line}" for line in knowing(outcome.known)]
    lines += [f"  attempt {number}: {told}" for number, told in enumerate(before(outcome), 1)]
    lines += [f"  {told}" for told in filter(None, [debugged(outcome)])]
    lines += [f"  preflight: {concern}" for concern in outcome.concerns]
    lines += [f"  note: {note}" for note in outcome.notes]
    lines += [f"  command: {shlex.join(redact_argv(job.command.argv))}", f"  log:     {log}", f"  again:   {once_more}"]
    return redact("\n".join(map(clean, lines)))


def unreported(run: Path, error: Exception) -> str:
    """What to say where the reports of a run could not be written."""
    return (
        f"reports: not written ({error}); what was judged is in {shown(run / 'journal')}: "
        f"hetgpu report {shlex.quote(shown(run))} builds them, once there is room"
    )


def known_for(outcome: Outcome) -> str:
    """Why a failure was expected: its link, its reason, else what happened."""
    expected = outcome.expectation
    return (expected.issue or expected.reason if expected else None) or outcome.why


def _told(finding: Finding, outcome: Outcome) -> bool:
    """Whether the reason, or the signature and its line, say what a finding says."""
    shown = outcome.signature
    if shown and finding.signature == shown and finding.why.startswith(shown.key):
        return True
    return finding.why in outcome.why


def planned(
    suite: Suite, scenarios: Iterable[Scenario], change: Callable[[Scenario, Job], Job] = lambda _, job: job
) -> Iterator[str]:
    """Every job's nodes and exact command, as it could be pasted into a shell; how nodes are made, once a placement."""
    prepared: Job | None = None
    for scenario in scenarios:
        if scenario.excluded:
            yield from ("", scenario.label)
            yield f"  excluded: {scenario.excluded.reason} {scenario.excluded.issue or ''}".rstrip()
            continue
        try:
            job = change(scenario, suite.job(scenario, even_if_absent=True))
        except NotHere as error:
            yield from ("", scenario.label, f"  not run: {error}")
            continue
        if prepared and not _same_nodes(prepared, job):
            yield from _cleaned(prepared)
            prepared = None
        if job.joined and prepared is None:
            prepared = job
            yield from _prepared(job)
        yield from ("", scenario.label, *(f"  {line}" for line in _lines(job, suite)))
    if prepared:
        yield from _cleaned(prepared)


def _same_nodes(one: Job, other: Job) -> bool:
    from pytest_hetgpu.planning.shell import script  # a plan needs it, a run does not

    return other.joined and script.placement_name(one) == script.placement_name(other)


def _prepared(job: Job) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    yield ""
    yield f"# placement {job.axes['placement']}: its nodes, made and joined once (started from {job.starter.name})"
    yield from script.preparation(job, shown(PROGRAMS))


def _cleaned(job: Job) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    yield ""
    yield f"# placement {job.axes['placement']}: nothing left of it"
    yield from script.cleaning(job)


def _lines(job: Job, suite: Suite) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    for node in job.nodes:
        ranks = f"{node.ranks} rank{'s' * (node.ranks > 1)}"
        yield f"node {node.index}: {_described(node, job)}, {ranks}"
    yield from (f"interface  node{node.index}: {node.interface}" for node in job.nodes if node.interface)
    if job.launcher:
        yield f"started from: {_described(job.launcher, job)}, no ranks"
    for name in dict.fromkeys(n.stack.name for n in job.everybody if n.stack and n.hardware.runtime == "local"):
        stack = suite.stack(name)
        if isinstance(stack, NotHere):
            yield f"not here: {stack}"
    yield f"timeout: {job.timeout:g} s"
    environment = "".join(f"{shlex.quote(f'{name}={value}')} " for name, value in sorted(job.command.env.items()))
    yield f"$ {script.started(job, job.command) if job.joined else f'{environment}{shlex.join(job.command.argv)}'}"
    yield from script.alternatives(job)


def _described(node: Node, job: Job) -> str:
    where = f"{node.hardware.name} ({node.hardware.accelerator.platform}) on {node.host}"
    if not job.joined:
        return where
    image = f" in {node.image.reference}" if node.image else f" by runtime {node.hardware.runtime}"
    return f"{where} as {node.name}{image}"
