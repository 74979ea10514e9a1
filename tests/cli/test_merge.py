"""`hetgpu merge`: one report and one history of the runs of several sites."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.model.outcome import Attempt, DebugRun
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store import environment, history
from pytest_hetgpu.store.cells import CellState, read_run
from pytest_hetgpu.store.events import MatrixFile, Shrunk
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.past_runs import past_runs
from pytest_hetgpu.store.redaction.anonymity import mark_anonymous
from pytest_hetgpu.store.run_summary import summarise
from tests.cli.merge_runs import LABEL, OTHER, made_run, merged, two_sites
from tests.reporting.report_samples import CRASHED, KEY, PASSED, job, run_cell, scenario


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def two(here: Path) -> tuple[str, str]:
    return two_sites(here)


def test_the_same_cell_of_two_sites_is_two_cells(two: tuple[str, str]) -> None:
    record = read_run(merged(*two))
    assert [(cell.matrix, cell.label, cell.outcome.kind) for cell in record.cells] == [
        ("aws@amd", f"amd.{LABEL}", Kind.PASSED),
        ("aws@amd", f"amd.{OTHER}", Kind.CRASH),
        ("aws@nv", f"nv.{LABEL}", Kind.CRASH),
        ("aws@nv", f"nv.{OTHER}", Kind.PASSED),
    ]
    assert [cell.scenario for cell in record.cells] == [LABEL, OTHER] * 2
    assert record.sites == {"aws@amd": "amd", "aws@nv": "nv"}
    assert record.unread == {}
    assert summarise(record, Path("out")).id == "out"


def test_each_site_has_its_logs_jobs_and_nodes(two: tuple[str, str]) -> None:
    folder = RunFolder(merged(*two))
    for site in ("amd", "nv"):
        label = f"{site}.{LABEL}"
        assert folder.log(label).read_text() == "a line\n"
        assert folder.log(label).stat().st_ino != RunFolder(Path(site, "latest")).log(LABEL).stat().st_ino
        stored = read_job(folder.job(label))
        assert (stored.matrix, stored.label, stored.scenario) == (f"aws@{site}", label, LABEL)
    assert [one.name for one in environment.read_all(folder.path)] == ["aws@amd-mixed", "aws@nv-mixed"]


def test_the_summary_has_a_table_for_each_site_and_the_versions_of_the_file(two: tuple[str, str]) -> None:
    text = (merged(*two) / "summary.md").read_text()
    assert "Runs of 2 sites:" in text
    assert "### aws@amd" in text
    assert "### aws@nv" in text
    assert (
        "- aws is not the same file at all sites, so that its cells may differ (SHA-256): "
        f"{'0' * 12} at amd; {'f' * 12} at nv\n"
    ) in text
    assert "--hetgpu-matrix aws.yaml --hetgpu-timeout 60 --hetgpu-cell mixed-ucx-allreduce" in text
    assert "--hetgpu-matrix aws.yaml --hetgpu-cell mixed-ucx-send" in text


def test_equal_files_are_no_versions(here: Path) -> None:
    made_run(here / "a")
    made_run(here / "b")
    assert "not the same file" not in (merged("a=a/latest", "b=b/latest") / "summary.md").read_text()


def test_names_in_junit_are_unique(two: tuple[str, str]) -> None:
    root = ET.parse(merged(*two) / "junit.xml").getroot()
    cases = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(cases)) == len(cases) == 4
    assert [suite.get("name") for suite in root.iter("testsuite")] == ["aws@amd.mixed", "aws@nv.mixed"]


def test_the_page_has_the_sites(two: tuple[str, str]) -> None:
    page = (merged(*two) / "index.html").read_text()
    assert '"sites": {"aws@amd": "amd", "aws@nv": "nv"}' in page
    assert "<p>amd: run " in page


def test_a_report_of_judged_runs_changes_nothing(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for site in ("amd", "nv"):
        assert main(["report", f"{site}/latest"]) == 0
    folder = merged(*two)
    reports = ("summary.md", "junit.xml", "index.html", "boundary.json")
    before = {name: (folder / name).read_bytes() for name in reports}
    capsys.readouterr()
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == "0 verdicts changed; reports rebuilt in out\n"
    assert {name: (folder / name).read_bytes() for name in reports} == before


def test_three_runs_and_other_commands(here: Path, two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    made_run(here / "slurm", (CRASHED, CRASHED))
    folder = merged(*two, "slurm=slurm/latest")
    shutil.copytree(folder, "second")
    assert main(["compare", str(folder), "second"]) == 0
    assert main(["compare", "amd/latest", str(folder)]) == 4
    assert "another matrix (aws) than out (aws@amd, aws@nv, aws@slurm)" in capsys.readouterr().err
    ids = [Path(site, "latest").resolve().name for site in ("amd", "nv")]
    assert main(["compare", *ids, "--reports", str(folder)]) == 1
    assert main(["boundary", str(folder)]) == 0
    assert main(["bundle", str(folder), f"slurm.{LABEL}"]) == 0
    assert KEY in "".join(path.read_text() for path in (folder / "issues").iterdir())
    capsys.readouterr()
    assert main(["history", "--reports", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("3 runs, ")
    assert not (here / "history.sqlite").exists()


def test_a_killed_and_a_resumed_run_keep_the_states_and_the_words_of_their_cells(here: Path) -> None:
    killed, resumed = RunFolder.create(here / "killed"), Path(made_run(here / "resumed"))
    with closing(Journal(killed.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        journal.planned(job(LABEL), 0)
        journal.planned(job(OTHER), 1)
        journal.started(job(LABEL))
        journal.skipped(scenario(), "not here")
    with closing(Journal(resumed, "main", 1)) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        run_cell(RunFolder(resumed), journal, OTHER, PASSED)
    with closing(Journal(resumed, "gw0", 1)) as journal:
        journal.started(job("mixed-shm-late"))
    runs = [read_run(one) for one in (killed.path, resumed)]
    record = read_run(merged("a=killed/latest", "b=resumed/latest"))
    assert [(cell.scenario, cell.state, cell.outcome, cell.started) for cell in record.cells] == sorted(
        ((cell.scenario, cell.state, cell.outcome, cell.started) for one in runs for cell in one.cells),
        key=lambda found: [found[0] in ("mixed-nccl-ddp", "mixed-shm-late")],
    )
    late = next(cell for cell in record.cells if cell.scenario == "mixed-shm-late")
    assert (late.label, late.state) == ("b.mixed-shm-late", CellState.STARTED)  # its plan was lost
    assert "is gone: killed" in late.outcome.why
    assert [session.argv for session in record.sessions] == [("pytest",)] * 3
    assert record.part == 2


def test_a_run_that_is_still_going_is_merged_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_run(here / "a")
    running = RunFolder.create(here / "b")
    with closing(Journal(running.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        journal.started(job(LABEL))
        folder = merged("a=a/latest", "b=b/latest")
    assert "b: still running; 1 of its cells had begun: merge again after its end" in capsys.readouterr().out
    (cell,) = (cell for cell in read_run(folder).cells if cell.matrix == "aws@b")
    assert cell.outcome.why.endswith("which ran it, is still running")
    # The second merge replaces the first.
    assert main(["merge", "a=a/latest", "b=b/latest", "-o", "out", "--force"]) == 0
    (cell,) = (cell for cell in read_run(folder).cells if cell.matrix == "aws@b")
    assert "is gone" in cell.outcome.why
    assert sorted(path.name for path in here.iterdir()) == ["a", "b", "out"]


def test_paths_of_logs_lead_to_the_copies(here: Path, two: tuple[str, str]) -> None:
    run = made_run(here / "third", (PASSED,))
    log = f"scenarios/{LABEL}/attempt-1/output.log"
    attempt = Attempt(Kind.CRASH, KEY, "w", log, 1.0)
    debug = DebugRun(Kind.CRASH, KEY, f"scenarios/{LABEL}/debug/output.log", 1.0)
    with closing(Journal(run, "main")) as journal:
        journal.judged(job(LABEL), replace(PASSED, attempts=(attempt,), debug=debug))
        journal.tried(Shrunk("aws", LABEL, KEY, 2, 1, (), (), 0, 1, 1, 1, log))
    for name in ("attempt-1", "debug"):
        RunFolder(run, name).prepare(LABEL).write_text(name)
        RunFolder(run, name).write_job(job(LABEL))
    folder = merged(*two, "third=third/latest")
    record = read_run(folder)
    (cell,) = (cell for cell in record.cells if cell.matrix == "aws@third")
    assert cell.outcome.debug
    assert (folder / cell.outcome.debug.log).read_text() == "debug"
    assert (folder / cell.outcome.attempts[0].log).read_text() == "attempt-1"
    assert record.smallest[0].log == cell.outcome.attempts[0].log == f"scenarios/third.{LABEL}/attempt-1/output.log"
    assert read_job(RunFolder(folder, "debug").job(f"third.{LABEL}")).matrix == "aws@third"


def test_a_merge_of_an_anonymous_run_is_anonymous(here: Path, two: tuple[str, str]) -> None:
    mark_anonymous(here / "amd" / "latest")
    folder = merged("amd/latest", "nv/latest")
    assert (folder / "anonymous").exists()
    record = read_run(folder)
    assert [one.site for one in record.merged] == ["site-1", "site-2"]
    host = record.sessions[0].host
    for name in ("summary.md", "junit.xml", "index.html"):
        assert f"host {host}" not in (folder / name).read_text()
    assert "from the host host-" in (folder / "summary.md").read_text()


def test_raw_logs_are_not_copied(here: Path, two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder((here / "nv" / "latest").resolve())
    run.log(LABEL).unlink()
    run.start_log(LABEL).write_text("a secret")
    folder = merged(*two)
    assert "nv: left out as not redacted: 1 logs; first run hetgpu report nv/latest" in capsys.readouterr().out
    assert not RunFolder(folder).log(f"nv.{LABEL}").exists()
    assert run.raw(LABEL).read_text() == "a secret"
    assert not (here / ".private").exists()


def test_a_merged_run_is_not_resumed(two: tuple[str, str]) -> None:
    from pytest_hetgpu.errors import UsageError
    from pytest_hetgpu.execution.resume.previous_run import resume

    folder = merged(*two)
    with pytest.raises(UsageError, match="merged from runs of several sites"):
        resume(folder, {})


def test_the_history_has_each_run_with_its_site(two: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = merged(*two)
    listed = history.list_runs(folder / "history.sqlite")
    assert {history.load_run(folder / "history.sqlite", one.id).site for one in listed} == {"amd", "nv"}
    past = past_runs(folder / "history.sqlite", 60)
    assert {(cell.site, cell.matrix, cell.scenario) for cell in past.cells} == {
        (site, "aws", cell) for site in ("amd", "nv") for cell in (LABEL, OTHER)
    }
    assert "history: 2 runs, 1 of amd, 1 of nv: hetgpu history --reports out" in capsys.readouterr().out


def test_known_failures_are_those_of_the_site(here: Path, two: tuple[str, str]) -> None:
    Path("known.yaml").write_text("- {id: ours, title: t, cause: c, match: {signature: SIGSEGV@libx.so!f}}\n")
    made_run(here / "third", (CRASHED,), options=["--hetgpu-knowledge", "known.yaml"])
    for site in ("nv", "third"):
        log = RunFolder(here / site / "latest").log(LABEL)
        log.write_text("[vm:2] Signal: Segmentation fault (11)\n[vm:2] [ 0] /opt/libx.so(f+0xa7)[0x7f625d94e6f7]\n")
    folder = merged(*two, "third=third/latest")
    assert main(["report", str(folder)]) == 0
    found = {cell.label: [one.id for one in cell.outcome.known] for cell in read_run(folder).cells}
    assert found[f"third.{LABEL}"] == ["ours"]
    assert "ours" not in found[f"nv.{LABEL}"]
