"""Texts about cells for the terminal: failure texts, plans, and the command that runs one cell again."""

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
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.reporting.cell_text import describe_debug_rerun, known_failure_lines
from pytest_hetgpu.store.properties import attempt_lines
from pytest_hetgpu.store.redaction.redact import redact, redact_argv
from pytest_hetgpu.store.text import clean, display_path, without_commands

if TYPE_CHECKING:
    from pytest_hetgpu.model.outcome import Finding, Outcome

PROGRAMS = REMOTE


def rerun_command(suite: MatrixSet, matrix: str, label: str, options: Sequence[str] = ()) -> str:
    """Format the command that runs just this cell again, with the options that it had."""
    try:
        scenario = suite.scenarios[suite.position(matrix, label)].id
    except KeyError:  # of a matrix that has changed since
        scenario = label
    file = suite.matrices[matrix].file if matrix in suite.matrices else "MATRIX"
    return shlex.join(rerun_argv(file, scenario, options))


def rerun_argv(file: str, scenario: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tokens of a command that runs one cell of a matrix file."""
    return (*pytest_argv(), "--hetgpu-matrix", file, *options, "--hetgpu-cell", scenario)


def pytest_argv() -> tuple[str, ...]:
    """Return the command that starts pytest in this environment.

    Use the plain name only if PATH leads to the pytest of this environment.
    """
    return _pytest_argv(sys.executable, os.environ.get("PATH", ""), Path.cwd())


@lru_cache(maxsize=8)
def _pytest_argv(python: str, path: str, _: Path) -> tuple[str, ...]:
    """Search PATH once for all cells of a report: a search takes time."""
    beside = Path(python).with_name("pytest")
    found = shutil.which("pytest", path=path)
    if found and beside.exists() and Path(found).samefile(beside):
        return ("pytest",)
    return (display_path(beside),) if beside.exists() else (python, "-m", "pytest")


def failure_text(job: Job, outcome: Outcome, log: str, once_more: str) -> str:
    """Build the text of a failing test: outcome, reason, quoted line, command, log, and rerun command."""
    lines = [f"{outcome.kind.value} ({outcome.verdict.value}): {outcome.why}"]
    signature = outcome.signature
    if signature:
        lines += [f"  signature: {signature.key}", f"  line {signature.line}: {signature.primary_line}"]
    lines += [f"  {one.judge}: {one.why}" for one in outcome.findings if not _is_redundant(one, outcome)]
    lines += [f"  ranks: {line}" for line in filter(None, [rank_outcome.describe(outcome.rank_outcomes)])]
    lines += [f"  {line}" for line in known_failure_lines(outcome.known)]
    lines += [f"  attempt {number}: {line}" for number, line in enumerate(attempt_lines(outcome), 1)]
    lines += [f"  {line}" for line in filter(None, [describe_debug_rerun(outcome)])]
    lines += [f"  preflight: {concern}" for concern in outcome.concerns]
    lines += [f"  note: {note}" for note in outcome.notes]
    lines += [f"  command: {shlex.join(redact_argv(job.command.argv))}", f"  log:     {log}", f"  again:   {once_more}"]
    # A line of a log may hold carriage returns, which begin a line here.
    return without_commands(redact("\n".join(clean(line).replace("\n", "\n  ") for line in lines)))


def describe_unwritten_reports(run: Path, error: Exception) -> str:
    """Format the message for reports that could not be written."""
    return (
        f"reports: not written ({error}); what was judged is in {display_path(run / 'journal')}: "
        f"hetgpu report {shlex.quote(display_path(run))} builds them, once there is room"
    )


def expected_reason(outcome: Outcome) -> str:
    """Return the reason for an expected failure: its link, its reason, else that of the outcome."""
    expected = outcome.expectation
    return (expected.issue or expected.reason if expected else None) or outcome.why


def _is_redundant(finding: Finding, outcome: Outcome) -> bool:
    """Return whether the reason of the outcome, or its signature, already contains a finding."""
    quoted = outcome.signature
    if quoted and finding.signature == quoted and finding.why.startswith(quoted.key):
        return True
    return finding.why in outcome.why


def plan_lines(
    suite: MatrixSet, scenarios: Iterable[Scenario], change: Callable[[Scenario, Job], Job] = lambda _, job: job
) -> Iterator[str]:
    """Yield the nodes and the exact command of every job, ready to paste into a shell.

    The preparation of nodes appears once per placement. `change` has each cell's job changed, as hooks do.
    """
    prepared: Job | None = None
    connected = False
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
            yield from _cleanup_lines(prepared)
            prepared = None
        if job.is_multi_host and prepared is None:
            prepared, connected = job, job.needs_ssh
            yield from _preparation_lines(job)
        elif job.is_multi_host and job.needs_ssh and not connected:
            connected = True
            yield from _connection_lines(job)
        yield from ("", scenario.label, *(f"  {line}" for line in _job_lines(job, suite)))
    if prepared:
        yield from _cleanup_lines(prepared)


def _same_nodes(one: Job, other: Job) -> bool:
    from pytest_hetgpu.planning.shell import script  # a plan needs it, a run does not

    return other.is_multi_host and script.placement_name(one) == script.placement_name(other)


def _preparation_lines(job: Job) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    yield ""
    made = "made and joined" if job.needs_ssh else "made"
    yield f"# placement {job.axes['placement']}: its nodes, {made} once (started from {job.launch_node.name})"
    yield from script.preparation(job, display_path(PROGRAMS))


def _connection_lines(job: Job) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    yield ""
    yield f"# placement {job.axes['placement']}: its nodes, joined once"
    yield from script.connect(job)


def _cleanup_lines(job: Job) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    yield ""
    yield f"# placement {job.axes['placement']}: nothing left of it"
    yield from script.cleaning(job)


def _job_lines(job: Job, suite: MatrixSet) -> Iterator[str]:
    from pytest_hetgpu.planning.shell import script

    for node in job.nodes:
        ranks = f"{node.ranks} rank{'s' * (node.ranks > 1)}"
        yield f"node {node.index}: {_describe_node(node, job)}, {ranks}"
    yield from (f"interface  node{node.index}: {node.interface}" for node in job.nodes if node.interface)
    if job.launcher:
        yield f"started from: {_describe_node(job.launcher, job)}, no ranks"
    for name in dict.fromkeys(n.stack.name for n in job.all_nodes if n.stack and n.hardware.runtime == "local"):
        stack = suite.stack(name)
        if isinstance(stack, NotHere):
            yield f"not here: {stack}"
    yield f"timeout: {job.timeout:g} s"
    environment = "".join(f"{shlex.quote(f'{name}={value}')} " for name, value in sorted(job.command.env.items()))
    local = f"{environment}{shlex.join(job.command.argv)}"
    yield f"$ {script.started(job, job.command) if job.is_multi_host else local}"
    yield from script.alternatives(job)


def _describe_node(node: Node, job: Job) -> str:
    where = f"{node.hardware.name} ({node.hardware.accelerator.platform}) on {node.host}"
    if not job.is_multi_host:
        return where
    image = f" in {node.image.reference}" if node.image else f" by runtime {node.hardware.runtime}"
    return f"{where} as {node.name}{image}"
