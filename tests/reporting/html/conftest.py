"""A run as a page, opened in Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_hetgpu.store.folder import RunFolder
from tests.reporting.html.browser_samples import EVIL, OUTCOMES, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Request

Lacking = Callable[[str, str], None]


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    lacking: Lacking = request.getfixturevalue("lacking")
    found = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        found = None
    if found is None:
        lacking("browser", "needs Chromium and Playwright: apt-get install chromium; pip install playwright")
    with sync_playwright() as started:
        made = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = b"".join(b"[node0:%d] a line %s\n" % (number, EVIL.encode()) for number in range(90))
    return written(RunFolder.create(tmp_path_factory.mktemp("run")), OUTCOMES, log)


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page, opened from disk; it must not fetch, throw or prompt."""
    made = browser.new_page(viewport={"width": 1300, "height": 900})
    trouble: list[str] = []

    def asked(dialog: Dialog) -> None:
        trouble.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def fetched(one: Request) -> None:
        if not one.url.startswith(("file:", "data:", "blob:")):
            trouble.append(one.url)

    made.on("pageerror", lambda error: trouble.append(str(error)))
    made.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
    made.on("dialog", asked)
    made.on("request", fetched)
    made.goto(file.as_uri())
    yield made
    assert trouble == []
    made.close()
