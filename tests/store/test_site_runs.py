"""The names of cells and matrices of several sites, and journals of any content."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.event_log import LONGEST_LINE
from pytest_hetgpu.store.events import EVENTS, MatrixFile, journal_schema
from pytest_hetgpu.store.folder import LONGEST_NAME, RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.merge import SiteRun, copy_runs, is_merged
from tests.reporting.report_samples import PASSED, job, run_cell


def site_run(reports: Path, site: str, *labels: str) -> SiteRun:
    folder = RunFolder.create(reports)
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        for place, label in enumerate(labels):
            journal.planned(job(label), place)
            run_cell(folder, journal, label, PASSED, log=label.encode("utf-8", "replace"))
    return SiteRun(site, folder.path, read_run(folder.path))


def test_long_labels_stay_different(tmp_path: Path) -> None:
    labels = [f"{'x' * 195}{name}" for name in "ab"]
    made = site_run(tmp_path / "a", "amd", *labels)
    names = [made.label(label) for label in labels]
    assert len(set(names)) == 2
    assert all(len(name) == LONGEST_NAME for name in names)
    copy_runs([made], tmp_path)
    for label, name in zip(labels, names, strict=True):
        assert RunFolder(tmp_path).log(name).read_text() == label
    assert [cell.label for cell in read_run(tmp_path).cells] == names


def test_the_sites_of_one_matrix_follow_each_other(tmp_path: Path) -> None:
    def with_matrix(run: SiteRun, name: str) -> SiteRun:
        path = run.folder / "journal" / "main.jsonl"
        path.write_text(path.read_text().replace('"matrix":"aws"', f'"matrix":"{name}"'))
        return SiteRun(run.site, run.folder, read_run(run.folder))

    runs = [
        site_run(tmp_path / "a", "one", "p-t-a", "p-t-b"),
        with_matrix(site_run(tmp_path / "b", "two", "p-t-a"), "lab"),
        site_run(tmp_path / "c", "three", "p-t-a"),
    ]
    copy_runs(runs, tmp_path)
    assert [cell.label for cell in read_run(tmp_path).cells] == ["one.p-t-a", "one.p-t-b", "three.p-t-a", "two.p-t-a"]


def test_names_that_meet_in_one_folder_are_refused(tmp_path: Path) -> None:
    runs = [site_run(tmp_path / "a", "a", "b.c"), site_run(tmp_path / "b", "a.b", "c")]
    with pytest.raises(UsageError, match=r"two runs would share the folder a\.b\.c"):
        copy_runs(runs, tmp_path)


LINES = {
    b"half a li": "damaged",
    b"[]": "damaged",
    b'{"schema": 9, "event": "x", "part": 7}': "newer",
    b'{"schema": 1, "event": "judged", "matrix": 5, "label": [], "part": true, "position": "x"}': "damaged",
    b'{"schema": 1, "event": "run", "matrices": [3, {"name": 4}, {}], "part": -3}': "damaged",
    b'{"schema": 1, "event": "judged", "outcome": {"log": "scenarios/../../x", "debug": {"log": 4}}}': "damaged",
    b"[" * 100_000: "damaged",
    b"\xff\xfe": "damaged",
    b"x" * (LONGEST_LINE + 5): "damaged",
}


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_bad_line_stays_bad(tmp_path: Path, line: bytes) -> None:
    made = site_run(tmp_path / "a", "amd", "p-t-w")
    with (made.folder / "journal" / "gw0.jsonl").open("wb") as file:
        file.write(line)
    found = SiteRun("amd", made.folder, read_run(made.folder))
    copy_runs([found], tmp_path)
    record = read_run(tmp_path)
    assert record.unread == found.record.unread == {LINES[line]: 1}
    assert [cell.label for cell in record.cells] == ["amd.p-t-w"]


def test_a_job_that_cannot_be_read_is_copied_as_it_is(tmp_path: Path) -> None:
    made = site_run(tmp_path / "a", "amd", "p-t-w", "p-t-x", "p-t-y")
    texts = {"p-t-w": "{", "p-t-x": "[]", "p-t-y": '{"job": {"matrix": 3}}'}
    for label, text in texts.items():
        RunFolder(made.folder).job(label).write_text(text)
    copy_runs([made], tmp_path)
    found = [RunFolder(tmp_path).job(f"amd.{label}").read_text() for label in texts]
    assert found[:2] == ["{", "[]"]
    assert json.loads(found[2]) == {"job": {"matrix": 3}}


def test_every_line_fits_the_published_schema(tmp_path: Path) -> None:
    copy_runs([site_run(tmp_path / name, name, "p-t-w") for name in ("amd", "nv")], tmp_path)
    validator = jsonschema.Draft202012Validator(journal_schema())
    found = {
        path.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in (tmp_path / "journal").iterdir()
    }
    assert found.keys() == {"main@amd.jsonl", "main@nv.jsonl", "merge.jsonl"}
    for events in found.values():
        for event in events:
            validator.validate(event)
    assert [(event["event"], event["site"], event["part"]) for event in found["merge.jsonl"]] == [
        ("merged", "amd", 0),
        ("merged", "nv", 1),
    ]


def test_an_earlier_version_would_read_all_but_the_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_runs([site_run(tmp_path / name, name, "p-t-w") for name in ("amd", "nv")], tmp_path)
    cells = read_run(tmp_path).cells
    known = {name: kind for name, kind in EVENTS.items() if name != "merged"}
    monkeypatch.setattr("pytest_hetgpu.store.event_log.EVENTS", known)
    record = read_run(tmp_path)
    assert (record.cells, record.unread, record.merged) == (cells, {"newer": 2}, ())


def test_only_a_merge_is_one(tmp_path: Path) -> None:
    made = site_run(tmp_path / "a", "amd", "p-t-w")
    assert not is_merged(made.folder)
    assert not is_merged(tmp_path / "gone")
    copy_runs([made], tmp_path)
    assert is_merged(tmp_path)
