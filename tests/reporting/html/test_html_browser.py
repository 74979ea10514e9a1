"""The page in a real browser: views, clicks and typed filters."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_hetgpu.model.outcome import Span, Timeline
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.html.page import render
from pytest_hetgpu.reporting.html.page_data import page_data
from pytest_hetgpu.store.cells import RunRecord
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.html.browser_samples import BROKE_OFF, CURVE, EVIL, FATES, WHOLE, written
from tests.reporting.report_samples import CRASHED, KEY, PASSED, RERUN, cell, job, result

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

pytestmark = [pytest.mark.real, pytest.mark.beside]

SAMPLE = Path(__file__).resolve().parents[3] / "reports" / "sample"


def letters(page: Page, more: str = "") -> str:
    return "".join(page.locator(f"#matrix a[data-cell]{more}").all_text_contents())


def hash_of(page: Page) -> str:
    return str(page.evaluate("location.hash"))


def test_the_matrix_is_a_square_a_cell_and_says_why(page: Page) -> None:
    assert letters(page) == ".N.k-FC.N"
    crashed = page.locator('a[data-cell="mixed-ucx-allreduce"]')
    assert KEY in str(crashed.get_attribute("title"))
    assert page.locator("#matrix thead th").all_text_contents() == ["", "ucx", "ob1", "nccl"]
    assert page.locator("#totals").inner_text().replace("\n", " ").startswith("3 works")


def test_filters_narrow_everything_and_live_in_the_address(page: Page) -> None:
    page.select_option('select[name="placement"]', "mixed")
    page.select_option('select[name="outcome"]', "crash")
    assert hash_of(page) == "#placement=mixed&outcome=crash"
    assert letters(page, ":not(.out)") == "Nk"
    assert "2 of 9 cells" in page.locator("#totals").inner_text()
    page.reload()
    assert letters(page, ":not(.out)") == "Nk"
    assert page.locator('select[name="placement"]').input_value() == "mixed"
    page.fill('input[name="text"]', "allreduce ob1")
    assert letters(page, ":not(.out)") == "k"
    page.click("text=all cells")
    assert letters(page, ":not(.out)") == ".N.k-FC.N"


def test_a_cell_has_its_line_in_its_log_its_ranks_and_its_command(page: Page) -> None:
    page.click('a[data-cell="mixed-ucx-allreduce"]')
    cell = page.locator("#cell")
    cell.wait_for()
    assert hash_of(page) == "#cell=mixed-ucx-allreduce"
    marked = cell.locator("pre.excerpt mark").inner_text()
    assert marked.split()[0] == "66"
    assert EVIL in marked
    assert EVIL in cell.inner_text()
    assert page.locator("img").count() == 0
    assert cell.locator("a.log").get_attribute("href") == "scenarios/mixed-ucx-allreduce/output.log"
    assert "crashed (SIGSEGV)" in cell.inner_text()
    assert cell.locator("dt").all_text_contents() == [
        "signature",
        "why",
        "for upstream",
        "took",
        "MPI",
        "note",
        "note",
        "log",
    ]
    assert cell.locator("pre.command").inner_text() == "/opt/ompi/bin/mpirun -np 2 prog"
    page.keyboard.press("Escape")
    cell.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.dataset.cell") == "mixed-ucx-allreduce"


def test_the_log_opens(page: Page) -> None:
    page.click('a[data-cell="mixed-ucx-allreduce"]')
    page.click("a.log")
    page.locator("body", has_text="a line").wait_for()
    page.go_back()
    page.locator("#cell").wait_for()


def test_a_signature_leads_to_all_its_cells(page: Page) -> None:
    row = page.locator("#groups tbody tr").first
    assert row.locator("td").nth(0).inner_text().strip() == "3"
    row.locator("a").first.click()
    assert letters(page, ":not(.out)") == "NkN"
    assert page.locator('select[name="signature"]').input_value() == KEY


def test_a_condition_leaves_its_cells_in_the_matrix(page: Page) -> None:
    row = page.locator("#conditions tbody tr").first
    assert "any failure" in row.inner_text()
    link = row.locator("a")
    assert link.inner_text() == "workload=allreduce"
    link.click()
    # The page follows its address a moment later.
    page.locator("#conditions tr.chosen").wait_for()
    assert hash_of(page) == "#where=0"
    assert letters(page, ":not(.out)") == "NkCN"
    page.locator("#conditions tr.chosen a").click()
    page.locator("#conditions tr.chosen").wait_for(state="detached")
    assert letters(page, ".out") == ""


def test_bandwidth_is_drawn_with_the_other_transports_and_the_wire(page: Page) -> None:
    page.click('a[data-cell="mixed-ucx-send"]')
    page.wait_for_selector("#cell .main-svg", timeout=20_000)
    legend = page.locator("#cell .legendtext").all_text_contents()
    assert legend == ["ucx", "ob1", "wire, 1.17 GB/s"]
    assert "8" in page.locator("#cell .xtick").all_text_contents()
    page.locator("#bandwidth").scroll_into_view_if_needed()
    page.wait_for_selector("#bandwidth .main-svg", timeout=20_000)
    assert page.locator("#curves option").count() > 1


def drawn_times(page: Page, label: str) -> Any:
    """The chart of a cell's ranks, as plotly has it."""
    page.click(f'a[data-cell="{label}"]')
    page.locator("#cell h2", has_text=label).wait_for()
    page.wait_for_selector("#cell .bars .main-svg", timeout=20_000)
    return page.evaluate(
        """() => {
          const {data, layout} = document.querySelector("#cell .bars .chart");
          const notes = layout.annotations.map((one) => one.text);
          return {traces: data.map(({name, base, x, y}) => ({name, base, x, y})), notes, range: layout.xaxis.range};
        }"""
    )


def test_ranks_of_a_crash_are_bars_to_the_end_of_the_job(page: Page) -> None:
    drawn = drawn_times(page, "mixed-ucx-allreduce")
    assert [(one["name"], one["base"], one["x"]) for one in drawn["traces"]] == [
        ("crashed or failed", [0.25], [1.75]),
        ("stopped", [-7], [9]),
    ]
    assert drawn["notes"] == ["job's end, 2.000 s"]  # the limit is far beyond it
    assert drawn["range"][0] > -1  # one clock that is off does not squeeze the others
    times = page.locator("#cell .times")
    assert "the clock of <img" in times.inner_text()
    assert "Hatched: when it ended is not known" in times.inner_text()
    assert EVIL[:20] in "".join(times.locator(".ytick").all_text_contents())
    assert times.locator("img").count() == 0
    times.locator("summary").click()
    cells = times.locator("tbody tr").first.locator("td").all_text_contents()
    assert cells == ["0", "node0", "0.250 s", "not known", "crashed (SIGSEGV)"]
    assert "its time limit was 60.0 s" in times.inner_text()


def test_ranks_of_a_cell_that_works_are_bars_to_their_own_end(page: Page) -> None:
    drawn = drawn_times(page, "cpu-ob1-send")
    assert [(one["name"], one["base"], one["x"]) for one in drawn["traces"]] == [
        ("finished", [0.25, 0.3], [1.5, 1.5]),
        ("last time reported", None, [1.5]),
    ]
    assert drawn["notes"] == ["job's end, 2.000 s", "time limit, 2.5 s"]
    assert "Hatched" not in page.locator("#cell .times").inner_text()
    label = page.locator("#cell .bars .chart").get_attribute("aria-label")
    assert "the table below has the numbers" in (label or "")
    page.click('a[data-cell="cpu-ucx-send"]')
    page.locator("#cell h2", has_text="cpu-ucx-send").wait_for()
    assert page.locator("#cell .times").count() == 0


def test_of_a_thousand_ranks_some_stand_for_all(browser: Browser, tmp_path: Path) -> None:
    spans = tuple(Span(rank, rank // 4, 0.25, 1.75) for rank in range(32))
    many = Timeline(spans, tuple(f"node{i}" for i in range(250)), 1000, 2.0, rest=(0.2, 1.9))
    file = written(RunFolder.create(tmp_path / "reports"), {"a-b-c": replace(PASSED, timeline=many)}, b"a line\n")
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(file.as_uri())
    drawn = drawn_times(page, "a-b-c")
    assert [len(one["y"]) for one in drawn["traces"]] == [32, 1]
    assert "Of 1000 ranks these 32 are kept" in page.locator("#cell .times").inner_text()
    assert page.locator("#cell .bars .ytick").count() == 33
    page.close()


def test_hostile_names_are_shown_and_never_obeyed(browser: Browser, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    file = written(folder, {"mixed-ucx-send": PASSED}, b"a line\n")
    with closing(Journal(folder.path, "other")) as journal:
        one = replace(
            job("a-b-c"), scenario=EVIL, label=EVIL, axes={"placement": EVIL, "transport": EVIL, "workload": EVIL}
        )
        folder.prepare(EVIL).write_bytes(b"\x1b[31m" + EVIL.encode() + b"\x1b]0;owned\x07\n" * 66)
        journal.planned(one)
        journal.started(one)
        journal.finished(one, result())
        journal.judged(one, replace(CRASHED, why=EVIL))
    report.build(folder.path, RERUN)
    page, said = browser.new_page(), list[str]()

    def asked(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", asked)
    page.goto(file.as_uri())
    page.locator("#matrix a[data-cell]").last.click()
    assert EVIL in page.locator("#cell h2").inner_text()
    page.click("#cell a.log")
    page.locator("body", has_text=EVIL).wait_for()
    assert said == []
    page.close()


def test_the_sample_from_its_matrix_to_a_log_and_a_curve(browser: Browser) -> None:
    """Follow a reader through the sample report."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto((SAMPLE / "index.html").as_uri())
    page.select_option('select[name="placement"]', "same")
    page.select_option('select[name="outcome"]', "crash")
    assert letters(page, ":not(.out)") == "kk"
    page.click('a[data-cell="same-ucx-guarded_send"]')
    cell = page.locator("#cell")
    assert "Signal: Segmentation fault (11)" in cell.locator("pre.excerpt mark").inner_text()
    assert "uct_tcp_ep_am_short" in cell.locator("pre.excerpt").inner_text()
    cell.locator("details.environment summary").first.click()
    assert "1.20.1" in cell.locator("details.environment").inner_text()
    page.click("#cell a.log")
    page.locator("body", has_text="*** Process received signal ***").wait_for()
    page.go_back()
    assert "#placement=same&outcome=crash&cell=same-ucx-guarded_send" in hash_of(page)
    page.click("#cell a.upstream")
    page.locator("body", has_text="Title: SIGSEGV in uct_tcp_ep_am_short").wait_for()
    page.goto(f"{(SAMPLE / 'index.html').as_uri()}#cell=same-ucx-allreduce")
    page.reload()
    page.wait_for_selector("#cell .curve .main-svg", timeout=20_000)
    assert {"ucx", "ob1", "ofi"} <= set(page.locator("#cell .curve .legendtext").all_text_contents())
    for label, ends in (("same-ucx-allreduce", "finished"), ("same-ucx-guarded_send", "crashed or failed")):
        assert ends in [one["name"] for one in drawn_times(page, label)["traces"]]
    page.close()


def test_everything_goes_by_keyboard(page: Page) -> None:
    page.focus('a[data-cell="mixed-ucx-send"]')
    for key, to in (
        ("ArrowRight", "mixed-ucx-allreduce"),
        ("ArrowDown", "cpu-ucx-allreduce"),
        ("ArrowLeft", "cpu-ucx-send"),
        ("ArrowUp", "mixed-ucx-send"),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.cell") == to
    page.keyboard.press("Enter")
    page.locator("#cell").wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"


def test_dark_and_printed(browser: Browser, file: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        made = browser.new_page(color_scheme=scheme)
        made.goto(file.as_uri())
        colours.append(made.evaluate("getComputedStyle(document.body).backgroundColor"))
        made.emulate_media(media="print")
        assert not made.locator("#filters").is_visible()
        assert made.locator("#matrix").is_visible()
        made.close()
    assert colours[0] != colours[1]


def test_an_address_of_a_cell_that_is_not_there_says_so(browser: Browser, file: Path) -> None:
    made = browser.new_page()
    made.goto(f"{file.as_uri()}#cell=gone%3Cb%3E")
    assert made.locator("#cell").inner_text() == "There is no cell gone<b> in this run."
    made.close()


def test_five_thousand_cells_open_in_two_seconds(browser: Browser, tmp_path: Path) -> None:
    failed = replace(CRASHED, rank_outcomes=FATES, timeline=BROKE_OFF)
    measured = replace(PASSED, measurements=CURVE * 2, timeline=WHOLE)
    outcomes = (measured if i % 5 else failed for i in range(5000))
    cells = tuple(cell(f"p{i % 50}-t{i // 50 % 10}-w{i // 500}", outcome) for i, outcome in enumerate(outcomes))
    facts = page_data(RunRecord(cells), RunFolder(tmp_path), RERUN, (), None)
    (tmp_path / "index.html").write_text(render(facts), encoding="utf-8")
    page = browser.new_page()
    took = []
    for _ in range(3):
        page.goto((tmp_path / "index.html").as_uri())
        took.append(page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart"))
    assert page.locator("#matrix a[data-cell]").count() == 5000
    page.close()
    load = os.getloadavg()[0]
    print(f"5,000 cells open in {min(took)} ms (of {took}; load {load:.1f}, {os.cpu_count()} cores)")
    assert min(took) < 2000, (took, load)


def test_scaling_is_a_plot_with_logarithmic_axes(browser: Browser, tmp_path: Path) -> None:
    point = MessagePoint(8, "float32")
    figures = {
        f"n{ranks}-gloo-train": replace(PASSED, measurements=(Measurement("samples", rate, "1/s", point, ranks),))
        for ranks, rate in ((2, 100.0), (4, 160.0), (8, 170.0))
    }
    file = written(RunFolder.create(tmp_path / "reports"), figures, b"a line\n")
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(file.as_uri())
    section = page.locator("#scaling")
    section.scroll_into_view_if_needed()
    page.wait_for_selector("#scaling .main-svg", timeout=20_000)
    drawn = page.evaluate(
        """() => {
          const {data, layout} = document.querySelector("#scaling .chart");
          return {traces: data.map(({name, x, y}) => [name, x, y]), types: [layout.xaxis.type, layout.yaxis.type]};
        }"""
    )
    assert drawn["types"] == ["log", "log"]
    assert drawn["traces"] == [["gloo train (weak)", [2, 4, 8], [1, 1.6, 1.7]], ["perfect", [2, 8], [1, 4]]]
    assert "scales to 4 ranks (efficiency 80%); 42% at 8 ranks" in section.inner_text()
    assert section.locator("tbody tr").count() == 3
