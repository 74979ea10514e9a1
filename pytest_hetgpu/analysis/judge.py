"""From evidence to an Outcome: judges evaluate a run, the strongest finding decides, expectations set the verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.analysis.judges import expectation, speed
from pytest_hetgpu.analysis.judges.base import (
    LOST_INTERFACE,
    FinishedRun,
    Judge,
    Precedence,
    RatedFinding,
    unavailable,
)
from pytest_hetgpu.analysis.judges.communicator import CommunicatorJudge
from pytest_hetgpu.analysis.judges.completeness import CompletenessJudge, outlasting_launchers
from pytest_hetgpu.analysis.judges.data import DataJudge
from pytest_hetgpu.analysis.judges.devices import DevicesJudge
from pytest_hetgpu.analysis.judges.rdma import RdmaJudge
from pytest_hetgpu.analysis.judges.signature import SignatureJudge
from pytest_hetgpu.analysis.judges.speed import SpeedJudge
from pytest_hetgpu.analysis.judges.tool import SoftwareJudge, ToolJudge
from pytest_hetgpu.analysis.judges.transport import TransportJudge, window_notes
from pytest_hetgpu.analysis.logs.mpi_version import parse_mpi_version
from pytest_hetgpu.analysis.logs.parse import TransportLogReader, log_parsers, read_evidence, scan_log
from pytest_hetgpu.analysis.rank_outcomes import rank_outcomes
from pytest_hetgpu.analysis.rank_timeline import timeline
from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.engine.match_rule import MatchRule
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.metrics import numbers
from pytest_hetgpu.model.outcome import Evidence, Finding, Outcome, RunResult
from pytest_hetgpu.model.transport_classes import by_path
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.data_paths import with_paths

JUDGES: tuple[type[Judge], ...] = (
    *(
        CommunicatorJudge,
        CompletenessJudge,
        TransportJudge,
        RdmaJudge,
        DevicesJudge,
        DataJudge,
        ToolJudge,
        SoftwareJudge,
        SignatureJudge,
        SpeedJudge,
    ),
)
SCENARIO = "scenario"
"""Judge name in the finding of a test that failed for its own reason, which no log shows."""
LONGEST_WHY = 400
_MOST_OTHERS = 20
_GIB = 1 << 30
_FINE = (Kind.PASSED, Kind.SKIPPED)


def judge_output(
    job: Job,
    result: RunResult,
    knowledge: KnownFailures | None = None,
    further: Sequence[RunResult] = (),
    own: Sequence[MatchRule] = (),
) -> Outcome:
    """Judge a job whose output is in the file `result.output`. Return `unknown` if the file cannot be read.

    `knowledge` holds the known failures; None means the shipped entries. `further` launches of the job decide
    whether it is slow. `own` are rules of the user.
    """
    try:
        evidence, *again = (_read(job, one, own) for one in (result, *further))
    except OSError as error:
        finding = Finding("transcript", Kind.UNKNOWN, f"the output cannot be read: {error}")
        return Outcome(finding.kind, Verdict.NEW, finding.why, findings=(finding,), seconds=result.seconds)

    def look_up(signature: Signature) -> tuple[KnownFailure, ...]:
        return _known(job, evidence, signature, Path(result.output), knowledge)

    launches = (FinishedRun(job, *one) for one in zip(further, again, strict=True))
    return judge_run(FinishedRun(job, result, evidence, tuple(launches)), JUDGES, look_up)


def get_ready(job: Job) -> None:
    """Load what judging the job's output needs. An error here comes again, and is reported, when there is output."""
    with suppress(Exception):
        scan_log(Path(os.devnull), proof=_proof(job))


def _proof(job: Job) -> TransportLogReader:
    return find("transports", job.demand.transport_family, Transport).parser()  # type: ignore[type-abstract]


def _read(job: Job, result: RunResult, own: Sequence[MatchRule]) -> Evidence:
    labels = job.demand.external.labels if job.demand.external else ""
    evidence = read_evidence(Path(result.output), proof=_proof(job), parsers=log_parsers(own), labels=labels)
    if job.demand.external is None:
        return evidence
    from pytest_hetgpu.analysis.program_output import with_program_output

    return with_program_output(job.demand, result, evidence)


def _known(
    job: Job, evidence: Evidence, signature: Signature, output: Path, knowledge: KnownFailures | None
) -> tuple[KnownFailure, ...]:
    """Return the known failures that match a signature."""
    if knowledge is None:
        from pytest_hetgpu.config.known_failures.load import known_failures as shipped

        knowledge = shipped()
    from pytest_hetgpu.analysis.cell_facts import cell_facts
    from pytest_hetgpu.analysis.logs.text_search import find_texts

    present = find_texts(output, knowledge.texts)
    others = _others(evidence, signature)
    wanted = knowledge.facts_in_question(signature, present, others)
    facts = cell_facts(job, evidence, output, wanted) if wanted else {}
    return knowledge.known_causes(signature, present, facts, job.demand.capabilities, others)


def judge(
    job: Job,
    result: RunResult,
    evidence: Evidence,
    judges: Sequence[type[Judge]] = JUDGES,
    look_up: Callable[[Signature], tuple[KnownFailure, ...]] = lambda _: (),
) -> Outcome:
    """Judge a run by its request, its end and its output. Pure; as `judge_run`."""
    return judge_run(FinishedRun(job, result, evidence), judges, look_up)


def outcome_of_failed_test(before: Outcome | None, why: str) -> Outcome:
    """Return the outcome of a cell whose test failed for its own reason, whatever `before` was."""
    finding = Finding(SCENARIO, Kind.ERROR, f"its test failed: {why}")
    outcome = before or Outcome(Kind.ERROR, Verdict.NEW)
    return replace(
        outcome,
        kind=Kind.ERROR,
        verdict=Verdict.NEW,
        why=finding.why,
        signature=None,
        expectation=None,
        findings=(finding, *outcome.findings),
    )


def judge_run(
    run: FinishedRun, judges: Sequence[type[Judge]], look_up: Callable[[Signature], tuple[KnownFailure, ...]]
) -> Outcome:
    """Judge a finished run. Pure. `look_up` returns the known failures of a signature.

    Findings are sorted by precedence. Overriding findings come first: the run was cut short, or another MPI was loaded.
    Facts follow, the worst kind first. Indirect findings come last: an exit code, missing records. Findings of equal
    rank keep the order of the judges. So a message that explains an exit code precedes it, and slowness decides only if
    nothing else does.
    """
    job, result, evidence = run.job, run.result, run.evidence
    rated = _by_precedence(rated for kind in judges for rated in _evaluate(kind, run))
    findings = tuple(dict.fromkeys(one.finding for one in rated))
    facts = tuple(one.finding for place, one in enumerate(rated) if not place or one.precedence < Precedence.INDIRECT)
    kind, signature, why = (
        (findings[0].kind, findings[0].signature, findings[0].why) if findings else (Kind.PASSED, None, "")
    )
    known = look_up(signature) if signature else ()
    ruling = expectation.apply_expectations(run, facts, [entry.id for entry in known])
    notes = _drop_repeated_reason(ruling.note, why, signature) if ruling.expectation else (why, ruling.note)
    ends = rank_outcomes(run, findings) if kind is not Kind.SKIPPED else ()
    of_speed, inconclusive = _speed_notes(run, findings)
    # A library also logs the connections that windows would use.
    windows = evidence.windows if job.demand.one_sided else ()
    return Outcome(
        kind=kind,
        verdict=ruling.verdict,
        why=_one_line("; ".join((": ".join(filter(None, notes)), *_full(result, signature, why)))),
        signature=signature,
        expectation=ruling.expectation,
        findings=findings,
        measurements=numbers(evidence),
        transports=tuple(sorted({*evidence.transports, *(name for one in windows for name in one.components)})),
        carried=by_path(with_paths((*evidence.connections, *windows), job.nodes)),
        stack=_stack(evidence),
        seconds=result.seconds,
        concerns=evidence.incompatible,
        known=known,
        others=_others(evidence, signature) if kind not in _FINE else (),
        rank_outcomes=ends,
        timeline=timeline(run, ends) if kind is not Kind.SKIPPED else None,
        facts={**job.demand.facts, **evidence.facts, **_devices(evidence)},
        wire=result.wire,
        notes=tuple(map(_one_line, (*_run_notes(run, ruling, signature, findings), *of_speed))),
        inconclusive=inconclusive,
        away=unavailable(run, signature),
        suite=evidence.program.benchmark.suite if evidence.program else None,
    )


def _devices(evidence: Evidence) -> dict[str, str]:
    """Return `devices`: the accelerators of the ranks, with the peak of memory that each rank allocated."""
    told = [
        f"rank {one.rank}: {one.name} ({one.arch}), {one.peak / _GIB:.2f} of {one.memory / _GIB:.1f} GiB at most"
        for one in evidence.devices
    ]
    return {"devices": "; ".join(told)} if told else {}


def _speed_notes(run: FinishedRun, findings: Sequence[Finding]) -> tuple[tuple[str, ...], bool]:
    """Return notes on speed, and whether another launch is needed; nothing if the speed judge raised an exception."""
    try:
        inconclusive = bool(findings) and findings[0].judge == SpeedJudge.name and speed.inconclusive(run)
        return tuple(speed.notes(run)), inconclusive
    except Exception:  # noqa: BLE001 - `_evaluate` has made its exception a finding
        return (), False


def _run_notes(
    run: FinishedRun, ruling: expectation.Ruling, signature: Signature | None, findings: Sequence[Finding]
) -> Iterator[str]:
    """Yield irregularities around the run: dropped output, hosts leased on this machine only, a missing frame."""
    program = run.evidence.program
    if program and program.benchmark.proof and not findings:
        yield f"success was shown by {program.benchmark.proof}"
    if (
        ruling.verdict is Verdict.KNOWN
        and ruling.expectation
        and run.result.frameless
        and expectation.lacks_frame(ruling.expectation, signature)
    ):
        yield f"expected {expectation.describe(ruling.expectation)}, and no frame could be read: {run.result.frameless}"
    yield from window_notes(run)
    got, parts = run.evidence.trace
    if run.job.demand.trace and (got < parts or not parts):
        yield f"no trace.json: {got} of {parts or 'unknown'} parts of the trace arrived"
    if run.result.left_out:
        yield f"{run.result.left_out} bytes from the middle of its output were not kept (--hetgpu-output)"
    if run.result.unplugged and (signature is None or signature.key != LOST_INTERFACE):
        yield f"the network was removed under the job: {', '.join(run.result.unplugged)}"
    launchers = () if run.result.timed_out or run.result.interrupted else outlasting_launchers(run)
    if launchers:
        yield f"processes of the launcher outlived it and were stopped: {', '.join(launchers[:5])}"
    for host, why in run.result.leased_here.items():
        yield f"{host} was leased on this machine only, so that jobs started elsewhere were not kept off it ({why})"


def _full(result: RunResult, signature: Signature | None, why: str) -> tuple[str, ...]:
    """Return the full file systems that explain a SIGBUS, whose memory was mapped from a file, or a lack of space."""
    no_space = signature is not None and signature.key.startswith("no-space@")
    return result.full if no_space or "SIGBUS" in why else ()


def _drop_repeated_reason(note: str, why: str, signature: Signature | None) -> tuple[str, str]:
    """Return the note and the reason; drop a reason that repeats the signature's key."""
    again = note and signature and why.startswith(signature.key)
    return note, "" if again else why


def _others(evidence: Evidence, signature: Signature | None) -> tuple[Signature, ...]:
    """Return further failures in the log, the most telling first."""
    return tuple(other for other in evidence.signatures if other != signature)[:_MOST_OTHERS]


def _evaluate(kind: type[Judge], run: FinishedRun) -> Iterator[RatedFinding]:
    """Run one judge and yield its findings; an exception becomes an overriding `unknown`."""
    try:
        yield from list(kind().evaluate(run))
    except Exception as error:  # noqa: BLE001 - whatever a judge trips over, the run must not pass
        why = f"the judge {kind.name!r} failed: {type(error).__name__}: {error}"
        yield RatedFinding(Finding(kind.name, Kind.UNKNOWN, _one_line(why)), Precedence.OVERRIDING)


def _by_precedence(evaluate: Iterator[RatedFinding]) -> list[RatedFinding]:
    """Sort findings, the decisive one first; among equals one with a signature comes first."""

    def place(rated: RatedFinding) -> tuple[int, int, bool]:
        finding = rated.finding
        if rated.precedence >= Precedence.INDIRECT:
            return rated.precedence, 0, False
        return rated.precedence, -finding.kind.severity, finding.signature is None

    return sorted(evaluate, key=place)


def _stack(evidence: Evidence) -> str:
    """Return the loaded MPI as ranks report it, each variant once: `Open MPI 5.0.11 (/opt/mpi/lib/libmpi.so.40)`."""
    loaded: dict[str, None] = {}
    for _, hello in sorted(evidence.hellos.items()):
        name = " ".join(filter(None, parse_mpi_version(hello.library))) or hello.library
        loaded[f"{name} ({hello.libmpi})" if hello.libmpi else name] = None
    return _one_line("; ".join(loaded))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_WHY else f"{line[: LONGEST_WHY - 3]}..."
