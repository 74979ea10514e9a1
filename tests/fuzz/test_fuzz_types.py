"""Events of wrong types: each costs itself, and everything that reads a run still works."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.execution.resume import previous_run
from pytest_hetgpu.session.signals import running
from pytest_hetgpu.session.terminal.running import RunningCells
from pytest_hetgpu.store import events, writer_lock
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.encode import to_json
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.fuzz.fuzzing import fuzz
from tests.reporting.report_samples import CHANGED, CRASHED, KNOWN, PASSED, run_cell, scenario

ODD: list[Any] = [
    *(None, True, False, 0, -1, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "\0", "\ud800", "judged", "passed", "crash", "[[", "../x"),
    *([], [[]], [None], ["a", 1], [{}], {}, {"": {}}, {"a": [1]}, [[["a"]]]),
]
VALUES = st.one_of(
    st.sampled_from(ODD),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
)


def keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value in a tree of JSON, parts and their wholes."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    return found + [key for name, part in parts for key in keys(part, (*path, name))]


def changed(event: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(event)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return made


@st.composite
def wrong(draw: st.DrawFn, good: list[Any]) -> tuple[int, Any]:
    """Return the place of an event, and that event with another value in one place, or with the key missing."""
    place = draw(st.integers(0, len(good) - 1))
    event = good[place]
    if draw(st.integers(0, 9)) == 0:
        return place, draw(VALUES)
    return place, changed(event, draw(st.sampled_from(keys(event))), draw(VALUES))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with every kind of event."""
    folder = RunFolder.create(tmp_path / "reports")
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"], basis={"a": "b"})
        for label, outcome in {"a-b-good": PASSED, "a-b-bad": CRASHED, "a-b-known": KNOWN, "a-b-hung": CHANGED}.items():
            run_cell(folder, journal, label, outcome)
        journal.skipped(scenario("a-b-skipped"), "never", issue="https://example.org/1", position=4)
        cell = ("aws", "a-b-bad")
        journal.sampled(events.Sampled("aws", "pairwise", "x", {"placement": ("a",)}, "", ""))
        journal.waiting(scenario("a-b-bad"), "waits for host h")
        journal.health(events.HealthReported(*cell, ("cpu on h",), came_up=True))
        journal.controlled(events.Controlled(*cell, "a-b-bad", 1, "key", "why", {"placement": "a"}, {"x": "y"}))
        journal.tried(events.Tried(*cell, "key", "A=1", "source", "cured"))
        journal.tried(events.Shrunk(*cell, "key", 2, 1, ("8",), (), 1, 2, 2, 2, "scenarios/a-b-bad/min-1/output.log"))
        journal.tried(events.Bisected("aws", "size", {"a": "b"}, "ok to 2K", "a-b-bad"))
        journal.accepted(scenario("a-b-good"))
    return folder


def command(*words: object) -> str:
    """Run a command: it ends with an exit code of its own, and with words."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    assert code in (0, 1, 4), (code, err.getvalue())
    return out.getvalue() + err.getvalue()


def resume(run: Path) -> None:
    with suppress(UsageError), closing(previous_run.resume(run, {"a": "b"}).journal):
        pass


def watched(run: Path) -> None:
    RunningCells(run, 0.0).now()
    running(run, 0)
    writer_lock.describe_writer(run / "journal" / "main.jsonl")


READERS: dict[str, Callable[[Path], object]] = {
    "report": lambda run: command("report", run, "--history", run.parent / "history.sqlite"),
    "compare": lambda run: command("compare", run, run),
    "boundary": lambda run: command("boundary", run),
    "comment": lambda run: command("comment", run),
    "issues": lambda run: command("issues", run),
    "history": lambda run: command("history", "--history", run.parent / "history.sqlite"),
    "resume": resume,
    "watch": watched,
}


@pytest.mark.parametrize("reader", READERS)
def test_an_event_of_wrong_types_costs_itself(run: RunFolder, reader: str) -> None:
    path = run.path / "journal" / "main.jsonl"
    lines = path.read_text(encoding="ascii").splitlines()
    good = [json.loads(line) for line in lines]
    sessions, cells = len(read_run(run.path).sessions), len(read_run(run.path).cells)

    def check(one: tuple[int, Any]) -> None:
        place, event = one
        for old in run.path.glob("journal/*.jsonl"):
            old.unlink()
        (run.path.parent / "history.sqlite").unlink(missing_ok=True)
        text = [*lines[:place], json.dumps(event), *lines[place:]]  # the good one is there, too
        path.write_text("\n".join(text) + "\n", encoding="ascii")
        record = read_run(run.path)
        assert len(record.sessions) >= sessions
        assert len(record.cells) >= cells
        READERS[reader](run.path)

    fuzz(wrong(good), check, examples=40 if reader != "watch" else 150)


def test_merge(run: RunFolder, tmp_path: Path) -> None:
    path = run.path / "journal" / "main.jsonl"
    lines = path.read_text(encoding="ascii").splitlines()
    good = [json.loads(line) for line in lines]
    other = RunFolder.create(tmp_path / "others")
    with closing(Journal(other.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        run_cell(other, journal, "a-b-good", PASSED)

    def check(one: tuple[int, Any]) -> None:
        place, event = one
        path.write_text("\n".join([*lines[:place], json.dumps(event), *lines[place:]]) + "\n", encoding="ascii")
        command("merge", f"one={run.path}", f"two={other.path}", "-o", tmp_path / "merged", "--force")

    fuzz(wrong(good), check, examples=40)


@pytest.mark.parametrize("schema", [0, 2, -1, 10**30, "1", None, [], {}, 1.0, True])
def test_a_wrong_schema_costs_its_line(run: RunFolder, schema: object) -> None:
    path = run.path / "journal" / "main.jsonl"
    before = read_run(run.path)
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps({**json.loads(path.read_text().splitlines()[-1]), "schema": schema}) + "\n")
    record = read_run(run.path)
    assert record.cells == before.cells
    assert sum(record.unread.values()) == 1


def test_repeated_events_change_nothing(run: RunFolder) -> None:
    path = run.path / "journal" / "main.jsonl"
    before = {(cell.matrix, cell.label): cell.outcome for cell in read_run(run.path).cells}
    lines = path.read_text(encoding="ascii").splitlines(keepends=True)
    path.write_text("".join(line * 2 for line in lines), encoding="ascii")
    record = read_run(run.path)
    assert {(cell.matrix, cell.label): cell.outcome for cell in record.cells} == before
    assert record.unread == {}


@pytest.mark.parametrize("event", [[], {}, None, 1, "", ["judged"]])
def test_an_event_without_a_name_is_damage(run: RunFolder, event: object) -> None:
    path = run.path / "journal" / "main.jsonl"
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps({"schema": 1, "event": event, "epoch": 1, "order": 1, "part": 0, "clock": 1}) + "\n")
    assert sum(read_run(run.path).unread.values()) == 1


def test_the_events_of_this_test_are_all_that_a_journal_may_hold(run: RunFolder) -> None:
    written = {json.loads(line)["event"] for line in (run.path / "journal" / "main.jsonl").read_text().splitlines()}
    assert set(events.EVENTS) - written == {"wire", "attempted", "merged"}
    assert to_json(events.Merged("s", "r", "h"))
