"""Output of an external program as evidence: rows, checks, wrong results, and the meaning of its exit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pytest_hetgpu.analysis.logs.output import LONGEST_SEARCHED, OutputLines, StartedProgram
from pytest_hetgpu.analysis.logs.parse import DEBUG_NOISE
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.readers.base import OutputParser, ParseRequest, measurements
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Requirements
from pytest_hetgpu.model.outcome import Evidence, ProgramOutput, RunResult
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, ExitMeaning
from pytest_hetgpu.model.records import Measurement, MessagePoint, Row
from pytest_hetgpu.model.verdict import Kind

# Spreads and single iterations help in the log, but scatter too much to be compared between runs.
_SPREAD = re.compile(r"deviation|iteration_\w+|\w+_(?:min|max|p[\d.]+)")
_MOST_LOOKED = 12


def with_program_output(demand: Requirements, result: RunResult, evidence: Evidence) -> Evidence:
    """Return the evidence with the parsed output of the external program. Raise OSError if it cannot be read."""
    foreign = demand.external
    if foreign is None:
        return evidence
    kind = find("readers", foreign.reader, OutputParser)  # type: ignore[type-abstract]
    output = OutputLines(Path(result.output), DEBUG_NOISE, foreign.labels, LONGEST_SEARCHED)
    reading = _read(kind, foreign, demand, output)
    reading = replace(reading, refuted=reading.refuted or result.refuted)
    reading = replace(reading, unsearched=_unsearched(reading, foreign, result, output.divided))
    evidence = _with_ends(demand, result, evidence, output.starts.values())
    exited = _exited(kind, reading, result, evidence)
    versions = _versions(foreign, reading, output.starts, evidence)
    told = ProgramOutput(
        benchmark=reading,
        tool=_tool(foreign, reading, versions.get(_fact(reading.tool), "")),
        memory=reading.memory or foreign.memory,
        exit_meaning=exited,
        absent=_absent(output.starts) or _unsupported(reading, result, versions),
        measurements=tuple(_kept(measurements(reading))),
    )
    ours, connections = evidence.transports, evidence.connections
    if foreign.layer:
        ours = tuple(name for name in ours if name.startswith(f"{foreign.layer}/"))
        connections = tuple(one for one in connections if {*one.components} <= {*ours})
    return replace(
        evidence,
        rows=tuple(_rows(reading, foreign)),
        wrong=tuple(_wrong(reading, exited)),
        transports=ours,
        connections=connections,
        versions={**evidence.versions, **versions},
        program=told,
    )


def _with_ends(
    demand: Requirements, result: RunResult, evidence: Evidence, starts: Iterable[StartedProgram]
) -> Evidence:
    """Return the evidence with the ranks whose program ended with 0, as they report it.

    If the launcher and all ranks did, a launcher's report of another end is text that a program printed. Ranks of older
    logs report no ends: there the launcher's exit code counts.
    """
    ranks = frozenset(range(demand.ranks))
    if result.returncode == 0 and not any(start.exits for start in starts):
        return replace(evidence, done=ranks)
    return replace(evidence, exits=()) if result.returncode == 0 and evidence.done >= ranks else evidence


def _read(
    kind: type[OutputParser], foreign: ExternalProgram, demand: Requirements, output: OutputLines
) -> BenchmarkResult:
    """Parse the output; if the parser cannot be made (no RE2 here), return a result with that complaint."""
    asked = ParseRequest(
        foreign.argv, foreign.reader, demand.points, foreign.ranks, foreign.operation, world=demand.ranks
    )
    try:
        reader = kind(asked, kind.Settings.model_validate_json(foreign.settings))
    except (NotHere, ValueError) as error:
        return BenchmarkResult(kind.tool, warnings=(f"the output cannot be read here: {error}",))
    for line in output.lines():
        reader.read(line)
    return reader.finish()


def _unsearched(reading: BenchmarkResult, foreign: ExternalProgram, result: RunResult, divided: int) -> str:
    """Return which part of the output may hold a failure, or the missing success, and was not searched."""
    settings = json.loads(foreign.settings)
    if divided and settings.get("failure"):
        return f"line {divided} is too long to be searched for the pattern `failure`"
    lacking = reading.missing_success or (reading.proof and not {"json_success", "tests"}.isdisjoint(settings))
    if result.left_out and lacking:
        what = reading.missing_success or f"success was shown by {reading.proof}"
        return f"{what}; {result.left_out} bytes of the output were not kept (--hetgpu-output)"
    return ""


def _exited(
    kind: type[OutputParser], reading: BenchmarkResult, result: RunResult, evidence: Evidence
) -> ExitMeaning | None:
    """Return the meaning of the exit code of the first failed rank, else of the launcher; None if the run was stopped.

    If no rank greeted, the code is the launcher's own.
    """
    returned = result.returncode
    if result.timed_out or result.interrupted is not None or returned is None or returned < 0:
        return kind.meaning_of_stop(reading)
    if not evidence.hellos:
        return kind.meaning_of_stop(reading) if returned else kind.meaning_of_exit(0, reading)
    code = next((ended.code for ended in evidence.exits if ended.code), returned)
    found = kind.meaning_of_exit(code, reading)
    if found and found.why == reading.missing_success and reading.unsearched:
        return None
    if found and found.why == reading.missing_success and result.lost:
        # mpirun may exit with 0 although a node is gone, with the output that its ranks would have printed.
        return ExitMeaning(Kind.ERROR, found.why)
    return found


def _wrong(reading: BenchmarkResult, exited: ExitMeaning | None) -> Iterator[str]:
    """Yield wrong results as text: the program's own message first, then each wrong point."""
    if exited is None or exited.kind is not Kind.WRONG_RESULT:
        return
    yield exited.why
    for row in reading.wrong:
        yield f"{row.wrong} wrong element{'s' * ((row.wrong or 0) > 1)} or more at {row.point}"


def _rows(reading: BenchmarkResult, foreign: ExternalProgram) -> Iterator[Row]:
    """Yield rows as records: time of one operation, or of one message if several were in flight."""
    for row in reading.rows:
        seconds = row.seconds or _per_message(row)
        if seconds:
            iterations = row.iterations or foreign.iterations
            yield Row(row.operation, row.point, row.ranks or 0, iterations, seconds)


def _per_message(row: BenchmarkRow) -> float:
    bandwidth = row.figures.get("bandwidth")
    return row.point.size / (bandwidth.value * 1e9) if bandwidth and bandwidth.value > 0 else 0.0


def _kept(found: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield measurements for reports; names and types lose characters that property names do not allow."""
    for one in found:
        if not _SPREAD.fullmatch(one.metric):
            point = MessagePoint(one.point.size, _plain(one.point.dtype) or "none", one.point.place)
            yield replace(one, metric=_plain(one.metric), point=point)


def _plain(text: str) -> str:
    return re.sub(r"\W+", "_", text)[:80]


def _tool(foreign: ExternalProgram, reading: BenchmarkResult, version: str) -> str:
    """Return program and release, which must be equal in a comparison: `nccl-tests all_reduce_perf 2.19.6`."""
    program = PurePosixPath(foreign.argv[0]).name if foreign.argv else ""
    named = foreign.reader == "command" or program.startswith(reading.tool.partition("-")[0])
    words = (program,) if named else (reading.tool, "" if program.startswith("{") else program)
    return " ".join(filter(None, (*words, version)))


def _fact(tool: str) -> str:
    """Return the name of a tool's version among facts."""
    return {"mpi4py.bench": "mpi4py", "ucx_perftest": "ucx", "ucc_perftest": "ucc"}.get(tool, tool)


def _versions(
    foreign: ExternalProgram, reading: BenchmarkResult, starts: Mapping[int, StartedProgram], evidence: Evidence
) -> dict[str, str]:
    """Return versions of the program and its libraries; a part of a library has the library's version."""
    found = {name: version for start in starts.values() for name, version in start.versions.items() if version}
    found |= dict(reading.versions)
    fact = _fact(reading.tool)
    version = reading.version or found.get(fact) or evidence.versions.get(fact, "")
    return {**found, **({fact: version} if version and foreign.reader != "command" else {})}


def _unsupported(reading: BenchmarkResult, result: RunResult, versions: Mapping[str, str]) -> str:
    """Return what the program's version lacks, `mpi4py 3.1.4 has no pingpong`; "" if it ran."""
    if not reading.unsupported or reading.rows or result.returncode == 0:
        return ""
    fact = _fact(reading.tool)
    return f"{' '.join(filter(None, (fact, versions.get(fact, ''))))} has no {reading.unsupported}"


def _absent(starts: Mapping[int, StartedProgram]) -> str:
    """Return which nodes lack the program, and the paths tried; "" if all have it."""
    lacking = [start for _, start in sorted(starts.items()) if not start.path]
    if not lacking:
        return ""
    hosts = ", ".join(dict.fromkeys(start.host for start in lacking))
    first = lacking[0]
    if "/" in first.name:
        cure = "install it there, or name its interpreter before it"
        return f"there is no executable file {first.name} on {hosts}: {cure}"
    looked = ", ".join(first.looked[:_MOST_LOOKED])
    return f"there is no {first.name} on {hosts} (looked for in {looked}): install it there, or set `folders`"
