"""The page of nights in a real browser: its grid, its keys, the history of a cell, and its tables."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.reporting.html.browser_samples import EVIL
from tests.reporting.html.night_samples import ALONE, BROKE, CRASH, ISSUE, KEPT, RUNS, STEP, nights_page, place

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.real, pytest.mark.beside]

BROKEN, SPEED = "far-ucx-send", "near-ucx-put"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 57 runs of 20 cells."""
    return nights_page(tmp_path_factory.mktemp("nights"))


def until(page: Page, expression: str) -> None:
    """Wait until an expression is true: `wait_for_function` needs `eval`, which the page forbids."""
    end = time.monotonic() + 20
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def settle(page: Page) -> None:
    """Let the page follow its address, which it does a moment later."""
    page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 20))")


def row(page: Page, cell: str, site: str = "aws") -> Locator:
    return page.locator(f'#grid canvas[aria-label^="{site}: {cell}:"]')


def rows(page: Page) -> list[str]:
    """Return the cells of the visible rows, without their sites."""
    settle(page)
    labels = page.locator("#grid canvas:visible").evaluate_all("all => all.map((one) => one.dataset.cell)")
    return [str(label).partition(": ")[2] for label in labels]


def beside(page: Page, cell: str) -> str:
    text: str = row(page, cell).evaluate("(one) => one.closest('tr').innerText")
    return text


def hash_of(page: Page) -> str:
    settle(page)
    return str(page.evaluate("new URLSearchParams(location.hash.slice(1)).toString()"))


def focused(page: Page) -> str:
    settle(page)
    return str(page.evaluate("document.activeElement.dataset.cell || document.activeElement.id"))


def click_run(page: Page, cell: str, at: int, **more: Any) -> None:
    canvas = row(page, cell)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    canvas.click(position={"x": (at + 0.5) * box["width"] / RUNS, "y": 8}, **more)


def letters(page: Page) -> str:
    page.locator("#cell summary", has_text="One letter").click()
    return page.locator("#cell pre.letters").inner_text()


def table(page: Page, section: str) -> list[list[str]]:
    settle(page)
    found = page.locator(f"#{section} tbody tr").evaluate_all(
        "all => all.map((tr) => [...tr.cells].map((td) => td.innerText))"
    )
    return [[str(text) for text in cells] for cells in found]


def test_cells_are_grouped_and_those_that_never_change_are_folded(page: Page) -> None:
    assert page.locator("h1").inner_text() == "57 runs of aws"
    groups = page.locator("#grid > .group h3").all_text_contents()
    assert groups[:3] == ["aws / near / ucx", "aws / far / ucx", "aws / far / ob1"]
    assert rows(page) == [SPEED, BROKEN, "far-ob1-send", "far-ob1-reduce", EVIL]
    folded = page.locator("#grid > details")
    assert "8 groups of cells without a change: 15 cells" in folded.locator("summary").inner_text()
    folded.locator("summary").click()
    assert {"gpu-nccl-send", "near-ofi-gather", "rack-ob1-send", "solo-ofi-send"} < set(rows(page))
    assert len(rows(page)) == 20
    assert page.locator("#totals").inner_text().split("\n")[0].startswith("15 steady")


def test_a_row_has_its_state_and_its_newest_run_as_names(page: Page) -> None:
    broken = row(page, BROKEN)
    label = str(broken.get_attribute("aria-label"))
    assert label.startswith(f"aws: {BROKEN}: crash {CRASH} since 2025-")
    until(page, "document.querySelector('#grid canvas').hasAttribute('aria-valuetext')")
    # The newest of all runs is one of the lab, which has no such cell.
    assert str(broken.get_attribute("aria-valuetext")).endswith(f"new failure (crash {CRASH})")
    assert broken.get_attribute("aria-valuenow") == str(RUNS - 1)
    assert "was ok for 7 runs" in beside(page, BROKEN)
    assert "speed changed" in beside(page, SPEED)
    page.goto(f"{page.url}#cell=aws: {BROKEN}")
    assert letters(page) == " " * ALONE + ". . . . . . . N N N N N "
    box = broken.bounding_box()
    assert box
    assert box["width"] == 16 * RUNS


def pixel(page: Page, cell: str, at: int) -> list[int]:
    found: list[int] = row(page, cell).evaluate(
        "(one, at) => [...one.getContext('2d').getImageData(at * STEP + 6, 8, 1, 1).data]", at
    )
    return found


def test_squares_have_the_colours_of_verdicts(page: Page) -> None:
    row(page, BROKEN).scroll_into_view_if_needed()
    until(page, "PAINTED.size > 0")
    good, bad, none = (pixel(page, BROKEN, place(night)) for night in (BROKE - 1, BROKE, 3))
    assert bad == [198, 40, 40, 255]
    assert good[1] > good[0]
    assert none[3] == 0


def test_filters_of_nights_narrow_everything_and_live_in_the_address(page: Page) -> None:
    page.select_option('select[name="history"]', "broken")
    assert hash_of(page) == "history=broken"
    assert set(rows(page)) == {BROKEN, EVIL}
    assert [one[1].split()[0] for one in table(page, "failures")] == ["open", "open"]
    assert table(page, "speeds") == []
    page.fill('input[name="text"]', "libuct")
    assert rows(page) == [BROKEN]
    assert "1 of 20 cells" in page.locator("#totals").inner_text()
    page.reload()
    assert rows(page) == [BROKEN]
    assert page.locator('input[name="text"]').input_value() == "libuct"
    assert page.locator('select[name="history"]').input_value() == "broken"
    page.fill('input[name="text"]', "nothing like this")
    assert "No cell matches the filters." in page.locator("#grid").inner_text()
    page.click("text=all cells")
    assert len(rows(page)) == 5
    page.select_option('select[name="site"]', "lab")
    # All that is left is steady, so it is not hidden in a fold.
    assert rows(page) == ["rack-ob1-send", "rack-ob1-reduce"]
    assert table(page, "failures") == []
    assert [one[0].partition(",")[0] for one in table(page, "between")] == ["lab"]


def test_a_click_on_a_run_shows_what_changed_before_it(page: Page) -> None:
    click_run(page, BROKEN, place(BROKE))
    assert f"run={place(BROKE)}" in hash_of(page)
    cell = page.locator("#cell")
    assert focused(page) == f"aws: {BROKEN}"
    assert cell.locator(".run h3").inner_text().startswith("Run of 2025-11-")
    changed = cell.locator(".run dd li").all_text_contents()
    assert changed == ["ucx 1.18.0 became 1.20.0"]
    assert "its page is not kept" in cell.inner_text()
    # It is below the group of its row, so that both are seen.
    assert page.evaluate("document.querySelector('#cell').previousElementSibling.querySelector('h3').textContent") == (
        "aws / far / ucx"
    )
    page.click("#cell a.turn >> text=later")
    cell.locator("h3", has_text="Run of 2025-11-19").wait_for()
    page.goto(f"{page.url.partition('run=')[0]}run={place(BROKE, 'lab')}")
    assert "This run has no such cell." in cell.inner_text()
    row(page, BROKEN).focus()
    page.keyboard.press("Escape")
    cell.wait_for(state="hidden")
    assert focused(page) == f"aws: {BROKEN}"


def test_a_click_on_a_kept_run_opens_its_page_at_the_cell(page: Page) -> None:
    click_run(page, BROKEN, place(KEPT))
    page.wait_for_url("**/index.html#cell=far-ucx-send")
    assert "far-ucx-send" in page.locator("#cell h2").inner_text()
    page.go_back()
    page.locator("#cell .run a.page").wait_for()
    assert f"run={place(KEPT)}" in hash_of(page)
    assert page.locator("#cell .run a.page").get_attribute("href") == page.evaluate(
        f"pageOf(BY_ID.get('aws: {BROKEN}'), {place(KEPT)})"
    )
    with page.context.expect_page() as opened:
        click_run(page, BROKEN, place(KEPT), modifiers=["Control"])
    opened.value.wait_for_url("**/index.html#cell=far-ucx-send")
    opened.value.close()
    page.goto(f"{page.url.partition('#')[0]}#cell=aws: {BROKEN}&run={place(KEPT)}")
    row(page, BROKEN).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html#cell=far-ucx-send")


def test_nights_go_by_keyboard(page: Page) -> None:
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert focused(page) == f"aws: {SPEED}"
    page.keyboard.press("ArrowDown")
    assert focused(page) == f"aws: {BROKEN}"
    for key, at in (("End", RUNS - 1), ("ArrowLeft", RUNS - 2), ("ArrowLeft", RUNS - 3), ("ArrowRight", RUNS - 2)):
        page.keyboard.press(key)
        until(page, f"asked().get('run') === '{at}'")
        assert focused(page) == f"aws: {BROKEN}"
    page.keyboard.press("ArrowUp")
    until(page, f"asked().get('cell') === 'aws: {SPEED}' && asked().get('run') === '{RUNS - 2}'")
    page.keyboard.press("Home")
    until(page, "document.querySelector('#cell .run h3').textContent.startsWith('Run of 2025-10-09')")
    page.keyboard.press("Enter")
    assert focused(page) == f"aws: {SPEED}"
    assert page.evaluate("document.activeElement.id") == "cell"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("/")
    assert page.locator('input[name="text"]').input_value() == "/"


def test_speeds_are_drawn_with_their_step_and_the_wire(page: Page) -> None:
    page.locator("#speeds a").first.click()
    assert f"run={STEP}" in hash_of(page)
    cell = page.locator("#cell")
    assert focused(page) == f"aws: {SPEED}"
    until(page, "document.querySelectorAll('#cell .main-svg').length >= 4")
    drawn = page.evaluate(
        """() => [...document.querySelectorAll("#cell .chart")].map(({data, layout}) => ({
          names: data.map((one) => one.name), values: data[0].y, wire: data[1].y,
          at: layout.shapes.map(({x0}) => RUNS.findIndex((run) => run.started * 1000 === Date.parse(x0))),
        }))"""
    )
    latency, busbw = drawn
    assert latency["names"] == ["latency at 8 float32", "level", "level"]
    assert busbw["names"] == ["busbw at 1M float32", "wire between the nodes", "level", "level"]
    assert [abs(one["at"][0] - STEP) <= 1 for one in drawn] == [True, True]
    assert len(latency["values"]) == RUNS
    assert latency["values"][place(ALONE, "lab")] is None
    assert set(busbw["wire"]) == {2.9, None}
    assert "kernel 6.1 became 6.8" in cell.inner_text()
    assert re.search("(19|20|21) % more than 1[01]", cell.inner_text())
    assert any("kernel 6.1 became 6.8" in text for line in table(page, "speeds") for text in line)
    cell.locator(".speed summary").last.click()
    assert cell.locator(".speed").last.locator("tbody tr").count() == 45
    assert "2.9 GB/s" in cell.locator(".speed").last.locator("tbody tr").first.inner_text()


def test_failures_hosts_and_changes_between_runs(page: Page) -> None:
    failures = {line[0]: line for line in table(page, "failures")}
    broken = failures[f"crash {CRASH}"]
    assert broken[1].startswith("open since 2025-")
    assert broken[4:] == ["5", f"aws: {BROKEN}", "n1, n2", ISSUE]
    assert page.locator(f'#failures a[href="{ISSUE}"]').count() == 1
    assert failures["crash SIGBUS@libfabric.so"][1].startswith("fixed since 2025-")
    assert failures["crash SIGABRT@libc.so"][1] == "comes and goes"
    assert table(page, "hosts") == [["n3", "crash SIGILL@libofi.so"]]
    page.locator("#hosts summary").click()
    assert "l1, n1, n2" in page.locator("#hosts").inner_text()
    changes = table(page, "between")
    assert [line[0].partition(",")[0] for line in changes] == ["lab", "aws"]
    assert {line[1] for line in changes} == {"pytest-hetgpu 0.1 became 0.2"}
    page.locator("#failures a", has_text=BROKEN).click()
    assert page.locator("#cell h2").inner_text().startswith(f"aws: {BROKEN}")


def test_hostile_texts_of_nights_are_shown_and_never_obeyed(page: Page) -> None:
    page.evaluate(
        "ask({ cell: CELLS.find((one) => one.scenario.startsWith('<img')).id, run: String(RUNS.length - 2) })"
    )
    cell = page.locator("#cell")
    cell.wait_for()
    assert EVIL in cell.locator("h2").inner_text()
    cell.locator("summary", has_text="Versions").click()
    assert cell.locator(".run details dt", has_text=EVIL).count() == 1
    assert f"{EVIL}True" in cell.locator(".run details").inner_text()
    # An issue that is no address of the web is text.
    line = page.locator("#failures tr", has_text=EVIL)
    assert line.locator("td").last.inner_text() == EVIL
    assert line.locator("td").last.locator("a").count() == 0
    assert page.locator("img").count() == 0
    page.goto(f"{page.url.partition('#')[0]}#cell=gone%3Cb%3E")
    assert page.locator("#cell").inner_text() == "There is no cell gone<b> in these runs."
    page.goto(f"{page.url.partition('#')[0]}#cell=aws: {SPEED}&run=99999")
    assert page.locator("#cell .run h3").inner_text().startswith("Newest run of")


def test_nights_dark_printed_and_narrow(browser: Browser, file: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        made = browser.new_page(color_scheme=scheme, viewport={"width": 400, "height": 800})
        made.goto(f"{file.as_uri()}#cell=aws: {SPEED}")
        made.wait_for_selector("#cell .main-svg", timeout=20_000)
        until(made, "PAINTED.size > 0")
        assert made.evaluate("document.documentElement.scrollWidth") <= 400
        # The newest runs are seen first, and the names stay beside them.
        assert made.evaluate("[...document.querySelectorAll('#grid .scroll')].some((one) => one.scrollLeft > 0)")
        colours.append(
            (made.evaluate("getComputedStyle(document.body).backgroundColor"), pixel(made, BROKEN, place(BROKE)))
        )
        made.emulate_media(media="print")
        made.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert made.evaluate("[...document.querySelectorAll('#grid canvas')].every((one) => PAINTED.has(one))")
        assert not made.locator("#filters").is_visible()
        assert made.locator("#grid").is_visible()
        made.set_viewport_size({"width": 720, "height": 1000})
        assert made.evaluate("document.documentElement.scrollWidth") <= 720
        made.close()
    assert colours[0][0] != colours[1][0]
    assert colours[0][1] != colours[1][1]


def test_nights_without_scripts(browser: Browser, file: Path) -> None:
    made = browser.new_page(java_script_enabled=False)
    made.goto(file.as_uri())
    assert "This page needs JavaScript" in made.locator("body").inner_text()
    assert made.locator("h1").inner_text() == "57 runs of aws"
    made.close()
