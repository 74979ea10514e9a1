"""Cells in words: failure texts, plans, and the command that runs one cell again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.evidence import Outcome
from pytest_hetgpu.model import Job, Scenario
from pytest_hetgpu.suite import Suite


def again(suite: Suite, matrix: str, label: str) -> str:
    """The command that runs just this cell once more."""
    scenario = next((s.id for s in suite.scenarios if s.label == label and s.matrix == matrix), label)
    file = suite.documents[matrix].file if matrix in suite.documents else "MATRIX"
    return shlex.join(["pytest", "--hetgpu-matrix", file, "--hetgpu-cell", scenario])


def describe(job: Job, outcome: Outcome, log: str, rerun: str) -> str:
    """The text of a failing test: what, why, the line to quote, the command, the log, and how to run it again."""
    lines = [f"{outcome.kind.value} ({outcome.verdict.value}): {outcome.why}"]
    signature = outcome.signature
    if signature:
        lines += [f"  signature: {signature.key}", f"  line {signature.line}: {signature.primary_line}"]
    lines += [f"  {finding.judge}: {finding.why}" for finding in outcome.findings if finding.why not in outcome.why]
    lines += [f"  command: {shlex.join(job.command.argv)}", f"  log:     {log}", f"  again:   {rerun}"]
    return "\n".join(lines)


def planned(suite: Suite, scenarios: Iterable[Scenario]) -> Iterator[str]:
    """Every job's nodes and exact command, as it could be pasted into a shell."""
    for scenario in scenarios:
        yield ""
        yield scenario.label
        if scenario.excluded:
            yield f"  excluded: {scenario.excluded.reason} {scenario.excluded.issue or ''}".rstrip()
            continue
        try:
            job = suite.job(scenario, even_if_absent=True)
        except NotHere as error:
            yield f"  not run: {error}"
            continue
        yield from (f"  {line}" for line in _lines(job, suite))


def _lines(job: Job, suite: Suite) -> Iterator[str]:
    for node in job.nodes:
        ranks = f"{node.ranks} rank{'s' * (node.ranks > 1)}"
        yield f"node {node.index}: {node.hardware.name} ({node.hardware.accelerator.platform}) on {node.host}, {ranks}"
    stack = suite.stack(job.demand.stack.name)
    if isinstance(stack, NotHere):
        yield f"not here: {stack}"
    yield f"timeout: {job.timeout:g} s"
    environment = "".join(f"{shlex.quote(f'{name}={value}')} " for name, value in sorted(job.command.env.items()))
    yield f"$ {environment}{shlex.join(job.command.argv)}"
