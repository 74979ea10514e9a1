"""An explanation in JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_hetgpu.analysis.explain import Explanation, explain
from pytest_hetgpu.analysis.logs.success import Proof, Success
from pytest_hetgpu.cli.explain.format import as_json, as_text
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.model.verdict import Kind

LOGS = Path(__file__).parents[2] / "data" / "logs"
PROMISED = {
    *("file", "outcome", "signal", "detail", "library", "function", "entry_point", "hosts", "ranks", "primary_line"),
    *("line", "key", "versions", "known", "others"),
}


def test_the_fields_that_are_promised() -> None:
    found = json.loads(as_json("a.log", explain(LOGS / "openmpi5-ucx-guarded.log", known_failures())))
    assert found.keys() >= PROMISED
    assert (found["outcome"], found["signal"]) == ("crash", "SIGSEGV")
    assert found["key"] == "SIGSEGV@libuct.so!uct_tcp_ep_am_short"
    assert (found["function"], found["entry_point"]) == ("uct_tcp_ep_am_short", "MPI_Send")
    assert found["known"][0].keys() >= {"id", "cause", "fix", "url"}
    assert found["known"][0]["id"] == "ucx-gpu-pointer-taken-for-host"
    assert (found["known"][0]["status"], found["known"][0]["certainty"]) == ("established", "possible")
    assert found["known"][0]["unproven"] == ["its buffers are in GPU memory (memory: device)"]


def test_of_a_good_run_all_fields_are_there_and_none_is_filled() -> None:
    found = json.loads(as_json("a.log", explain(LOGS / "openmpi5-ob1-passed.log", known_failures())))
    assert found.keys() >= PROMISED
    assert found["outcome"] == "passed"
    assert {found[name] for name in ("signal", "detail", "library", "function", "primary_line", "line", "key")} == {
        None
    }
    assert found["known"] == found["others"] == found["hosts"] == found["ranks"] == []


def test_the_words_for_a_person() -> None:
    text = as_text("a.log", explain(LOGS / "openmpi5-ucx-guarded.log", known_failures()))
    first, *rest = text.split("\n")
    assert first == "a.log: crash SIGSEGV@libuct.so!uct_tcp_ep_am_short"
    assert rest[0].startswith("  line ")
    assert "  possible: a GPU buffer is sent by a transport for host memory" in text
    assert "    proven if its buffers are in GPU memory (memory: device)" in text
    assert "https://github.com/openucx/ucx/issues/3776" in text
    assert max(map(len, rest[1:])) <= 120


def test_a_good_run_in_words() -> None:
    success = Success(Proof.STATUS, 7, "exit code: 0")
    passed = Explanation(Kind.PASSED, lines=7, success=success)
    assert as_text("a.log", passed) == "a.log: passed, by its exit status 0\n  line 7: exit code: 0"
    unknown = Explanation(Kind.UNKNOWN, lines=7, missing="none is of a run that could be recognised")
    assert as_text("a.log", unknown) == "a.log: unknown: of its 7 lines none is of a run that could be recognised"


def test_a_hostile_log_does_not_reach_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(
        b'Traceback (most recent call last):\n  File "a.py", line 1, in x\n'
        b"ValueError: \x1b]0;own\x07\x1b[2Jno\xe2\x80\xae\n"
    )
    text = as_text("a.log", explain(log, known_failures()))
    assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_a_mistake_of_ours_is_said() -> None:
    text = as_text("a.log", Explanation(Kind.PASSED, failed=("Ucx in line 3: ValueError: x",)))
    assert "please report it" in text
