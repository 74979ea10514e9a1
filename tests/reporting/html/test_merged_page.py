"""The page of runs of several sites in a real browser."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_hetgpu.reporting import report
from pytest_hetgpu.store.cells import read_run
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.merge import SiteRun, copy_runs
from tests.reporting.report_samples import CRASHED, PASSED, RERUN, run_cell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.real, pytest.mark.beside]


def merged_page(place: Path) -> Path:
    """The page of two runs of the same two cells."""
    runs = []
    for site, outcomes in (("amd", (PASSED, CRASHED)), ("nv", (PASSED, PASSED))):
        folder = RunFolder.create(place / site)
        with closing(Journal(folder.path, "main")) as journal:
            journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
            for label, outcome in zip(("mixed-ucx-send", "mixed-ucx-reduce"), outcomes, strict=True):
                run_cell(folder, journal, label, outcome)
        runs.append(SiteRun(site, folder.path, read_run(folder.path)))
    copy_runs(runs, place)
    report.build(place, RERUN)
    return place / "index.html"


def test_the_page_has_a_table_for_each_site_and_a_filter(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(merged_page(tmp_path).as_uri())
    assert page.locator("#matrix h3").all_text_contents() == ["aws@amd", "aws@nv"]
    assert "".join(page.locator("#matrix a[data-cell]").all_text_contents()) == ".N.."
    page.select_option('select[name="site"]', "amd")
    assert "".join(page.locator("#matrix a[data-cell]:not(.out)").all_text_contents()) == ".N"
    page.click('a[data-cell="amd.mixed-ucx-reduce"]')
    assert page.locator("#cell h2").inner_text().startswith("amd.mixed-ucx-reduce")
    assert "scenarios/amd.mixed-ucx-reduce/output.log" in page.locator("#cell").inner_text()
    assert errors == []
