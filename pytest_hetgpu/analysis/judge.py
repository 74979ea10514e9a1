"""From evidence to an Outcome: every judge is heard, the strongest finding decides, expectations give the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.analysis.judges import expectation, speed
from pytest_hetgpu.analysis.judges.base import Case, Force, Judge, Opinion, away
from pytest_hetgpu.analysis.judges.completeness import Completeness
from pytest_hetgpu.analysis.judges.data import Data
from pytest_hetgpu.analysis.judges.devices import Devices
from pytest_hetgpu.analysis.judges.rdma import Rdma
from pytest_hetgpu.analysis.judges.signature import SignatureJudge
from pytest_hetgpu.analysis.judges.speed import Speed
from pytest_hetgpu.analysis.judges.tool import Tool
from pytest_hetgpu.analysis.judges.transport import Transport as TransportJudge
from pytest_hetgpu.analysis.judges.world import World
from pytest_hetgpu.analysis.logs.banner import mpi_banner
from pytest_hetgpu.analysis.logs.passages import passages
from pytest_hetgpu.analysis.logs.transcript import read
from pytest_hetgpu.analysis.program_output import interpreted
from pytest_hetgpu.analysis.rank_outcomes import fates
from pytest_hetgpu.analysis.rank_timeline import timeline
from pytest_hetgpu.config.known_failures.entries import KnownFailures
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.transports.base import Transport
from pytest_hetgpu.model.data_paths import with_paths
from pytest_hetgpu.model.failure import KnownFailure, Signature
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.metrics import measurements
from pytest_hetgpu.model.outcome import Evidence, Finding, Outcome, RunResult
from pytest_hetgpu.model.transport_classes import by_path
from pytest_hetgpu.model.verdict import Kind, Verdict

JUDGES: tuple[type[Judge], ...] = (
    *(World, Completeness, TransportJudge, Rdma, Devices, Data, Tool, SignatureJudge, Speed),
)
SCENARIO = "scenario"
"""Names the finding of a test that failed for a reason of its own: no log tells that."""
LONGEST_WHY = 400
_MOST_OTHERS = 20
_GIB = 1 << 30
_FINE = (Kind.PASSED, Kind.SKIPPED)


def judge_output(
    job: Job, result: RunResult, knowledge: KnownFailures | None = None, further: Sequence[RunResult] = ()
) -> Outcome:
    """The outcome of a job whose output is in the file `result.output`. A file that cannot be read is `unknown`.

    `knowledge` is what is looked up about a failure; None: the shipped entries. `further` launches of the job tell
    whether it is slow.
    """
    try:
        evidence, *again = (_read(job, one) for one in (result, *further))
    except OSError as error:
        finding = Finding("transcript", Kind.UNKNOWN, f"the output cannot be read: {error}")
        return Outcome(finding.kind, Verdict.NEW, finding.why, findings=(finding,), seconds=result.seconds)

    def knowing(signature: Signature) -> tuple[KnownFailure, ...]:
        return _known(job, evidence, signature, Path(result.output), knowledge)

    launches = (Case(job, *one) for one in zip(further, again, strict=True))
    return judge_case(Case(job, result, evidence, tuple(launches)), JUDGES, knowing)


def _read(job: Job, result: RunResult) -> Evidence:
    proof = find("transports", job.demand.transport_family, Transport).parser()  # type: ignore[type-abstract]
    return interpreted(job.demand, result, read(Path(result.output), proof=proof))


def _known(
    job: Job, evidence: Evidence, signature: Signature, output: Path, knowledge: KnownFailures | None
) -> tuple[KnownFailure, ...]:
    """What is established about a signature."""
    if knowledge is None:
        from pytest_hetgpu.config.known_failures.load import known_failures as shipped

        knowledge = shipped()
    present = passages(output, knowledge.texts)
    facts = {**job.demand.facts, **evidence.facts}
    others = _others(evidence, signature)
    return knowledge.known_causes(signature, present, facts, job.demand.capabilities, others)


def judge(
    job: Job,
    result: RunResult,
    evidence: Evidence,
    judges: Sequence[type[Judge]] = JUDGES,
    knowing: Callable[[Signature], tuple[KnownFailure, ...]] = lambda _: (),
) -> Outcome:
    """The outcome of a run, from what was asked, how it ended and what its output said. Pure. As `judge_case`."""
    return judge_case(Case(job, result, evidence), judges, knowing)


def overruled(before: Outcome | None, why: str) -> Outcome:
    """The outcome of a cell whose test failed for a reason of its own, whatever the run had shown `before`."""
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


def judge_case(
    case: Case, judges: Sequence[type[Judge]], knowing: Callable[[Signature], tuple[KnownFailure, ...]]
) -> Outcome:
    """The outcome of a run as it lies before the judges. Pure. `knowing` gives what is established about a signature.

    Findings are ordered by what they decide: first those that make everything else meaningless (the run was cut short,
    another MPI was loaded), then facts, the worst kind first, last what says only that something is wrong (an exit
    code, missing records), in the judges' order. So an exit code yields to the text that explains it, and slowness to
    everything.
    """
    job, result, evidence = case.job, case.result, case.evidence
    findings = _ordered(opinion for kind in judges for opinion in _heard(kind, case))
    kind, signature, why = (
        (findings[0].kind, findings[0].signature, findings[0].why) if findings else (Kind.PASSED, None, "")
    )
    known = knowing(signature) if signature else ()
    ruling = expectation.rule(case, kind, signature, [entry.id for entry in known])
    notes = _told_once(ruling.note, why, signature) if ruling.expectation else (why, ruling.note)
    ends = fates(case, findings) if kind is not Kind.SKIPPED else ()
    of_speed, unsettled = _of_speed(case, findings)
    return Outcome(
        kind=kind,
        verdict=ruling.verdict,
        why=_one_line(": ".join(filter(None, notes))),
        signature=signature,
        expectation=ruling.expectation,
        findings=findings,
        measurements=evidence.program_output.measurements
        if evidence.program_output
        else (*measurements(evidence.rows), *evidence.figures),
        transports=evidence.transports,
        carried=by_path(with_paths(evidence.connections, job.nodes)),
        stack=_stack(evidence),
        seconds=result.seconds,
        known=known,
        others=_others(evidence, signature) if kind not in _FINE else (),
        fates=ends,
        timeline=timeline(case, ends) if kind is not Kind.SKIPPED else None,
        facts={**job.demand.facts, **evidence.facts, **_devices(evidence)},
        wire=result.wire,
        notes=tuple(map(_one_line, (*_beside(case), *of_speed))),
        unsettled=unsettled,
        away=away(case, signature),
    )


def _devices(evidence: Evidence) -> dict[str, str]:
    """The accelerators that ranks used: `devices` names them, and the most that each rank held of its memory."""
    told = [
        f"rank {one.rank}: {one.name} ({one.arch}), {one.peak / _GIB:.2f} of {one.memory / _GIB:.1f} GiB at most"
        for one in evidence.devices
    ]
    return {"devices": "; ".join(told)} if told else {}


def _of_speed(case: Case, findings: Sequence[Finding]) -> tuple[tuple[str, ...], bool]:
    """What is to be said of its speed, and whether another launch must tell; nothing where that judge tripped."""
    try:
        unsettled = bool(findings) and findings[0].judge == Speed.name and speed.unsettled(case)
        return tuple(speed.notes(case)), unsettled
    except Exception:  # noqa: BLE001 - it has been heard, and its trouble is a finding
        return (), False


def _beside(case: Case) -> Iterator[str]:
    """What was not as it should be around the run: output that was not kept, hosts that others were not kept off."""
    if case.result.left_out:
        yield f"{case.result.left_out} bytes from the middle of its output were not kept (--hetgpu-output)"
    for host, why in case.result.leased_here.items():
        yield f"{host} was leased on this machine only, so that jobs started elsewhere were not kept off it ({why})"


def _told_once(note: str, why: str, signature: Signature | None) -> tuple[str, str]:
    """The note and the reason, but for a reason that only says again what failed where."""
    again = note and signature and why.startswith(signature.key)
    return note, "" if again else why


def _others(evidence: Evidence, signature: Signature | None) -> tuple[Signature, ...]:
    """The further failures in the log, the most telling first."""
    return tuple(other for other in evidence.signatures if other != signature)[:_MOST_OTHERS]


def _heard(kind: type[Judge], case: Case) -> Iterator[Opinion]:
    """A judge's opinions; one that fails has found something that nobody can judge."""
    try:
        yield from list(kind().opinions(case))
    except Exception as error:  # noqa: BLE001 - whatever a judge trips over, the run must not pass
        why = f"the judge {kind.name!r} failed: {type(error).__name__}: {error}"
        yield Opinion(Finding(kind.name, Kind.UNKNOWN, _one_line(why)), Force.FINAL)


def _ordered(opinions: Iterator[Opinion]) -> tuple[Finding, ...]:
    """Findings, the decisive one first; of equals the one that has a signature."""

    def place(opinion: Opinion) -> tuple[int, int, bool]:
        finding = opinion.finding
        if opinion.force >= Force.VAGUE:
            return opinion.force, 0, False
        return opinion.force, -finding.kind.severity, finding.signature is None

    return tuple(dict.fromkeys(opinion.finding for opinion in sorted(opinions, key=place)))


def _stack(evidence: Evidence) -> str:
    """`Open MPI 5.0.11 (/opt/mpi/lib/libmpi.so.40)`, as the ranks report it; ranks that differ are all named."""
    loaded: dict[str, None] = {}
    for _, hello in sorted(evidence.hellos.items()):
        name = " ".join(filter(None, mpi_banner(hello.library))) or hello.library
        loaded[f"{name} ({hello.libmpi})" if hello.libmpi else name] = None
    return _one_line("; ".join(loaded))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_WHY else f"{line[: LONGEST_WHY - 3]}..."
