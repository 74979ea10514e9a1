"""From a log to evidence."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.analysis.judge import judge, judge_output
from pytest_hetgpu.analysis.logs import program_lines
from pytest_hetgpu.analysis.logs.parse import read_evidence, scan_log
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.transports.ob1 import Ob1
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Command, Hardware, Job, Node, Requirements, Stack
from pytest_hetgpu.model.outcome import Evidence, RunResult
from pytest_hetgpu.model.records import MessagePoint, RankExit
from pytest_hetgpu.model.verdict import Kind

LOGS = Path(__file__).parents[2] / "data" / "logs"
STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/stack", "/opt/stack/bin/mpirun", "/opt/stack/bin/python")


def job(transports: tuple[str, ...] = ("ob1/tcp",), sizes: tuple[int, ...] = (8, 1024), **demand: object) -> Job:
    points = tuple(MessagePoint(size, dtype) for size in sizes for dtype in ("float32", "float64"))
    asked = Requirements(2, STACK, "ob1", transports, points, "allreduce", **demand)  # type: ignore[arg-type]
    return Job(
        "smoke", "cell", "cell", {}, (Node(0, Hardware("cpu"), "localhost", 2),), Command(("mpirun",)), 60.0, asked
    )


def ended(log: Path, returncode: int = 0, **changes: object) -> RunResult:
    return RunResult(("mpirun",), returncode, str(log), 0.0, 2.0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("launcher", "ranks", "expected"),
    [
        ((), (RankExit(0, code=1), RankExit(1, signal=11)), (RankExit(0, code=1), RankExit(1, signal=11))),
        ((RankExit(1, code=3, aborted=True),), (RankExit(1, code=3),), (RankExit(1, code=3, aborted=True),)),
        ((RankExit(1, code=3),), (RankExit(0, code=1), RankExit(1, code=3)), (RankExit(1, code=3),)),
        ((RankExit(1, code=3),), (RankExit(0, signal=11),), (RankExit(0, signal=11), RankExit(1, code=3))),
    ],
)
def test_bad_ends_are_the_launchers_and_deaths_that_it_does_not_name(
    tmp_path: Path, launcher: tuple[RankExit, ...], ranks: tuple[RankExit, ...], expected: tuple[RankExit, ...]
) -> None:
    class Parser(LogParser):
        triggers = (b"none",)

        def feed(self, line: object) -> None:
            """Take nothing."""

        def finish(self) -> tuple[FailureMatch, ...]:
            return ()

        def exits(self) -> tuple[RankExit, ...]:
            return launcher

    log = tmp_path / "log"
    records = []
    for ended in ranks:
        how = {"code": ended.code} if ended.signal is None else {"signal": ended.signal}
        text = json.dumps({"t": "exit", "rank": ended.rank, **how})
        records.append(f"@hetgpu:{len(text):04d}:{zlib.crc32(text.encode()):08x}:{text}\n")
    log.write_text("".join(records))
    assert read_evidence(log, parsers=[Parser()]).exits == expected


class Proof:
    """A reader as transport families have them."""

    triggers = (b"-host:",)

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []

    def feed(self, line: str, number: int) -> None:
        self.lines.append((line, number))

    transports = ("ob1/tcp",)

    @property
    def versions(self) -> Mapping[str, str]:
        return {"ucx": "1.20.1"}


def test_a_real_log_of_a_good_run() -> None:
    proof = Proof()
    evidence = read_evidence(LOGS / "openmpi5-ob1-passed.log", proof=proof)
    assert sorted(evidence.hellos) == [0, 1]
    assert len(evidence.rows) == 4
    assert evidence.done == frozenset({0, 1})
    assert evidence.checks[1] == {
        MessagePoint(size, dtype): 0 for size in (8, 1024) for dtype in ("float32", "float64")
    }
    assert evidence.versions == {"openmpi": "5.0.11", "ucx": "1.20.1"}
    assert evidence.transports == ("ob1/tcp",)
    assert (evidence.signatures, evidence.exits, evidence.wrong) == ((), (), ())
    assert [number for _, number in proof.lines] == [8, 9]
    assert evidence.tail[-1].endswith('{"t":"done","rank":1}')


@pytest.mark.parametrize(
    ("name", "demand", "returncode", "kind", "key"),
    [
        ("openmpi5-ob1-passed", {}, 0, Kind.PASSED, None),
        ("openmpi5-ucx-passed", {"transports": ("ucx/tcp",)}, 0, Kind.PASSED, None),
        ("openmpi5-ucx-passed", {}, 0, Kind.TRANSPORT_UNAVAILABLE, None),
        ("openmpi5-ucx-passed", {"transports": ("ucx/tcp",)}, 1, Kind.ERROR, None),
        ("openmpi5-sm-passed", {"sizes": (8,)}, 0, Kind.TRANSPORT_UNAVAILABLE, None),
        ("openmpi5-ob1-passed", {"sizes": (8, 4096)}, 0, Kind.UNKNOWN, None),
        ("openmpi5-alone", {"sizes": (8,)}, 0, Kind.WRONG_RESULT, None),
        ("openmpi5-ob1-guarded", {"measured": False}, 14, Kind.ERROR, "Bad-address@mca_btl_tcp_frag_send"),
        (
            "openmpi5-ucx-guarded",
            {"transports": ("ucx/tcp",)},
            139,
            Kind.CRASH,
            "SIGSEGV@libuct.so!uct_tcp_ep_am_short",
        ),
        ("openmpi4-ucx-guarded", {}, 139, Kind.LAUNCH_FAILURE, None),
        ("openmpi5-ob1-segv", {}, 14, Kind.CRASH, "SIGSEGV@python"),
        ("openmpi5-ucx-kill", {}, 137, Kind.CRASH, "SIGKILL"),
        ("openmpi5-ob1-raise", {}, 1, Kind.ERROR, "ValueError@e.py"),
        ("openmpi5-no-module", {}, 1, Kind.MISSING_LIBRARY, "missing-module@torch_ucc_missing"),
        ("openmpi5-no-pml", {}, 1, Kind.TRANSPORT_UNAVAILABLE, "no-component@pml"),
        ("openmpi5-no-executable", {}, 183, Kind.LAUNCH_FAILURE, "no-program@heat3d"),
        ("openmpi5-memory", {}, 1, Kind.OUT_OF_MEMORY, "_ArrayMemoryError@mem.py"),
        ("openmpi5-stuck", {}, 1, Kind.LAUNCH_FAILURE, None),
    ],
)
def test_outcomes_of_real_logs(
    name: str, demand: dict[str, object], returncode: int, kind: Kind, key: str | None
) -> None:
    outcome = judge_output(job(**demand), ended(LOGS / f"{name}.log", returncode))  # type: ignore[arg-type]
    assert (outcome.kind, outcome.signature.key if outcome.signature else None) == (kind, key)


def test_a_hang_of_a_real_run() -> None:
    stuck = ended(LOGS / "openmpi5-stuck.log", -15, timed_out=True, quiet=2.0)
    assert judge_output(job(), stuck).kind is Kind.HANG


def test_missing_and_empty_output_is_empty_evidence(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    assert read_evidence(tmp_path / "none.log") == read_evidence(tmp_path / "empty.log") == Evidence()


def test_output_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    outcome = judge_output(job(), ended(tmp_path))
    assert outcome.kind is Kind.UNKNOWN
    assert "cannot be read" in outcome.why


def test_ranks_of_several_releases_give_all_versions(tmp_path: Path) -> None:
    four, five = ((LOGS / f"{name}.log").read_text() for name in ("openmpi4-ucx-guarded", "openmpi5-ob1-passed"))
    hellos = [next(line for line in five.splitlines() if '"rank":0' in line and "hello" in line)]
    hellos += [next(line for line in four.splitlines() if '"rank":1' in line and "hello" in line)]
    (tmp_path / "mixed.log").write_text("\n".join(hellos))
    assert read_evidence(tmp_path / "mixed.log").versions == {"openmpi": "4.1.8, 5.0.11"}


def record(**payload: object) -> bytes:
    text = json.dumps(payload, separators=(",", ":")).encode()
    return b"@hetgpu:%04d:%08x:%b\n" % (len(text), zlib.crc32(text), text)


def test_a_record_that_the_launcher_cut_is_found(tmp_path: Path) -> None:
    whole = record(t="done", rank=1)
    head, tail = whole[:30], whole[30:]
    foreign = b"UCX DEBUG foreign\n" * 3000
    (tmp_path / "cut.log").write_bytes(record(t="done", rank=0) + head + b"\n" + foreign + tail)
    assert read_evidence(tmp_path / "cut.log").done == frozenset({0, 1})


PIECES = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [
            line
            for path in sorted(LOGS.glob("*.log"))
            for line in path.read_bytes().splitlines(keepends=True)
            if len(line) < 300
        ]
    ),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(PIECES, max_size=60), st.sampled_from([0, 1, 14, 139, -9]))
def test_no_log_raises_and_none_passes_that_shows_too_little(
    tmp_path: Path, pieces: list[bytes], returncode: int
) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"".join(pieces))
    asked = job(sizes=(64,))
    evidence = read_evidence(path, proof=Ob1.parser())
    outcome = judge(asked, ended(path, returncode), evidence)
    assert outcome.kind is not Kind.PASSED
    assert "\n" not in outcome.why
    assert not any("failed: " in finding.why and finding.why.startswith("the judge") for finding in outcome.findings)


def test_many_failures_cost_one_look_at_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    log = tmp_path / "output.log"

    def is_programs(line: str) -> bool:
        looked.append(line)
        return True

    monkeypatch.setattr(program_lines, "is_program_line", is_programs)
    log.write_text("ERROR: no such mesh\n" * 500 + "step 2\n" * 100)
    heard = scan_log(log)
    matches = [FailureMatch(Signature(Kind.ERROR, "x@y", "", line), Priority.SYMPTOM) for line in range(1, 500)]
    assert all(map(heard.survived, matches))
    assert len(looked) == len(heard.tail)
