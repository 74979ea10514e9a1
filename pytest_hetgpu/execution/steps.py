"""The run of one cell as a tuple of steps. Each takes the run and the cell's state, and returns the new state.

The `cluster` fixture runs `plan` to `preflight`, the `run` fixture `launch` to `record`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pytest_hetgpu.cluster import cluster as clusters
from pytest_hetgpu.cluster.cluster import Cluster
from pytest_hetgpu.cluster.leases.hold import lease_hosts
from pytest_hetgpu.errors import HetgpuError, NotHere, ProvisionError
from pytest_hetgpu.execution.context import CellRun, RunContext
from pytest_hetgpu.execution.execute import execute, never_started
from pytest_hetgpu.execution.remeasure import add_thresholds, repeat_until_conclusive
from pytest_hetgpu.execution.retry.debug_rerun import rerun_with_debug_output, wants_debug_rerun
from pytest_hetgpu.execution.retry.policy import taints
from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.planning.prepare import with_facts
from pytest_hetgpu.planning.references import can_measure_link

Step = Callable[[RunContext, CellRun], CellRun]


def plan(_: RunContext, cell: CellRun) -> CellRun:
    """Plan the job of the cell. Raise NotHere if its stack or hardware is missing."""
    return replace(cell, job=cell.suite.job(cell.scenario, verbose=cell.verbose), placement=None)


def acquire(run: RunContext, cell: CellRun) -> CellRun:
    """Get the job's nodes from the pool, which makes them if needed; nothing for processes of this machine.

    Their hosts are leased meanwhile. Raise NotHere if a node is quarantined or its engine is away, ProvisionError if
    the nodes cannot be made.
    """
    job = cell.job
    if not job.is_multi_host:
        return cell
    why = run.health.why_quarantined(job)
    if not (why or run.pool.is_ready(job)):
        why = run.engines.why_absent(job, met=run.health.met(job))
    if why:
        raise NotHere(why)
    make, reset = partial(run.pool.acquire, job), partial(run.pool.reset_failures, job)
    with lease_hosts(job, run.journal.waiting):
        return replace(cell, placement=run.health.make(job, partial(run.engines.make, job, make, reset), reset))


def provision(run: RunContext, cell: CellRun) -> CellRun:
    """Make the cluster of the nodes. The job is planned again for nodes that were not known before they ran."""
    nodes = cell.placement
    if nodes is None:
        return cell.on(clusters.local(run.change_job(cell.scenario, cell.job), run.runtimes))
    planned = cell.suite.job(cell.scenario, nodes.discovered, verbose=cell.verbose)
    members = {handle.node.index: handle.member for handle in nodes.handles}
    environments = dict(enumerate(nodes.environments))
    return cell.on(clusters.of_members(run.change_job(cell.scenario, planned), members, environments))


def inspect(run: RunContext, cell: CellRun) -> CellRun:
    """Gather the facts of the nodes, unless preflight is off, and add what they have in common to the job."""
    if run.options.preflight == "off":
        return cell
    hold, meanwhile = partial(lease_hosts, cell.job, run.journal.waiting), partial(run.meanwhile, cell.job)
    environments = run.facts.gather(cell.cluster, hold, meanwhile)
    cluster = cell.cluster.with_environments(environments)
    return cell.on(replace(cluster, job=with_facts(cell.job, environments)))


def preflight(run: RunContext, cell: CellRun) -> CellRun:
    """Compare the facts with the needs of the job. The cluster has the warnings, the certain and worst first."""
    if run.options.preflight == "off":
        return cell
    from pytest_hetgpu.cluster.preflight.check import check

    found = check(cell.job, cell.cluster.environments)
    job = replace(cell.job, demand=replace(cell.job.demand, strict=run.options.preflight == "strict"))
    return cell.on(replace(cell.cluster, job=job, concerns=(*found, *run.facts.drift(cell.cluster))))


def launch(run: RunContext, cell: CellRun) -> CellRun:
    """Start the command and wait for its end. Output and result are on disk and in the journal afterwards.

    If preflight is strict and certain that the job will fail, that is recorded and nothing is started.
    """
    if run.options.preflight == "strict":
        from pytest_hetgpu.cluster.preflight.check import deciding_warning

        if certain := deciding_warning(cell.cluster.concerns):
            result = never_started(cell.job, run.folder, run.journal, [f"hetgpu: preflight: {certain}"])
            return replace(cell, result=result, launched=False, further=())
    cell = cell.on(add_thresholds(run, _with_link(run, cell.cluster), partial(connected, run)))
    result = execute(cell.cluster, run.folder, run.journal, run.options)
    if cell.job.demand.trace:
        from pytest_hetgpu.execution.trace import save_trace

        save_trace(run.folder, cell.job.label)
    return replace(cell, result=result, launched=True)


def remeasure(run: RunContext, cell: CellRun) -> CellRun:
    """Launch a cell that seems slow again, until it is certain whether it is."""
    if not cell.launched:
        return cell
    further = repeat_until_conclusive(run, cell.cluster, cell.result)
    stopped = next((one.interrupted for one in further if one.interrupted), cell.result.interrupted)
    return replace(cell, further=further, result=replace(cell.result, interrupted=stopped))


def judge(run: RunContext, cell: CellRun) -> CellRun:
    """Judge the recorded output. A cell that is inconclusive at the end of the run's time is recorded as cut short."""
    job, result, concerns = cell.job, cell.result, cell.cluster.concerns
    outcome = run.judge(job, result, cell.further, concerns)
    if not cell.launched:
        return replace(cell, outcome=outcome)
    if outcome.inconclusive and run.options.budget.spent:
        result = replace(result, spent=run.options.budget.why)
        run.folder.write_job(job, result)
        run.journal.finished(job, result)
        outcome = run.judge(job, result, cell.further, concerns)
    if job.is_multi_host and taints(outcome, result):
        run.pool.taint(job)
    run.health.ran(job, outcome, result)
    return replace(cell, result=result, outcome=outcome)


def retry(run: RunContext, cell: CellRun) -> CellRun:
    """Run the cell again while its failure may be the environment's. Each failed attempt is kept."""
    while cell.retry.should_retry(cell.outcome, cell.job):
        cell.retry.save(cell.job, cell.outcome)
        run.release()
        cell = attempt(run, cell, plan, judge)
    return cell


def record(run: RunContext, cell: CellRun) -> CellRun:
    """Write the outcome to the journal. A failure then runs once more with debug output, if the user asked for it."""
    cell = write_outcome(run, cell)
    if not wants_debug_rerun(run.options, cell.outcome, cell.result):
        return cell
    run.release()
    rerun = rerun_with_debug_output(run, cell.job, lambda: connected(run, cell.scenario, verbose=True))
    if rerun is None:
        return cell
    if cell.job.is_multi_host:
        run.pool.taint(cell.job)
    return _write(run, replace(cell, outcome=replace(cell.outcome, debug=rerun)))


#: The run of one cell.
STEPS: tuple[Step, ...] = (plan, acquire, provision, inspect, preflight, launch, remeasure, judge, retry, record)


def through(run: RunContext, cell: CellRun, first: Step, last: Step) -> CellRun:
    """Run the steps from `first` to `last`."""
    for step in STEPS[STEPS.index(first) : STEPS.index(last) + 1]:
        cell = step(run, cell)
    return cell


def attempt(run: RunContext, cell: CellRun, first: Step, last: Step) -> CellRun:
    """Run the steps as one attempt at the cell, which fails if its nodes cannot be made or held.

    Raise NotHere at the first attempt: such a cell is skipped.
    """
    try:
        return through(run, cell, first, last)
    except (NotHere, ProvisionError) as error:
        if isinstance(error, NotHere) and not cell.retry.has_failed:
            raise
        return not_ready(run, cell, error)


def not_ready(run: RunContext, cell: CellRun, error: HetgpuError) -> CellRun:
    """Record and judge a planned cell whose nodes are not ready, like one whose command did not start."""
    cell.retry.begin(cell.job)
    run.journal.planned(cell.job, position=run.position(cell.job))
    # One line of ours, and what shows more behind a mark: a compiler's words are not for those who read failures.
    why = " ".join(str(error).split())
    log = error.log if isinstance(error, ProvisionError) else ()
    lines = [f"hetgpu: not ready: {why}", *(f"| {line}" for line in log)]
    result = never_started(cell.job, run.folder, run.journal, lines)
    return replace(cell, result=result, outcome=run.judge(cell.job, result), launched=False, further=())


def connected(run: RunContext, scenario: Scenario, *, verbose: bool = False) -> Cluster:
    """Return the nodes of a cell for a launch that is not the cell's own run."""
    return through(run, run.cell(scenario, verbose=verbose), plan, provision).cluster


def write_outcome(run: RunContext, cell: CellRun) -> CellRun:
    """Write the outcome, with the attempts before it, to the journal."""
    return _write(run, replace(cell, outcome=cell.retry.finish(cell.outcome)))


def _write(run: RunContext, cell: CellRun) -> CellRun:
    run.journal.judged(cell.job, cell.outcome)
    run.outcomes[cell.job.matrix, cell.job.label] = cell.outcome
    return cell


def _with_link(run: RunContext, cluster: Cluster) -> Cluster:
    """Return the cluster with the bandwidth of the link between its nodes, if its job measures one over it."""
    if run.options.link_seconds is None or not can_measure_link(cluster.job):
        return cluster
    return replace(cluster, link=run.links.of(cluster))
