"""Lines about cells that wait for a host."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from pytest_hetgpu.session.terminal.plain import TOLD_AFTER, Plain
from pytest_hetgpu.session.terminal.running import RunningCells
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import job

ADA = "waits for host gpu1: ada@node7 holds it for cell x of run y since 12:00, process 4711"
EVE = "waits for host gpu1: eve@node8 holds it for cell z of run y since 12:01, process 4712"


def test_a_wait_is_told_once_and_again_when_somebody_else_has_the_host(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    plain = Plain(SimpleNamespace(width_of_current_line=0), os.dup(1), RunningCells(folder.path, time.time()))
    with closing(Journal(folder.path, "gw0")) as journal:
        journal.waiting(job("send"), ADA)
        assert plain.lines(0.0) == []
        assert plain.lines(TOLD_AFTER) == [f"waiting  send  {ADA}; for 5 s so far"]
        assert plain.lines(100.0) == []
        journal.waiting(job("send"), EVE)
        assert plain.lines(110.0) == []
        assert plain.lines(120.0) == [f"waiting  send  {EVE}; for 10 s so far"]
        journal.waiting(job("send"), "")
        journal.waiting(job("other"), ADA)
        assert plain.lines(121.0) == []
    plain.pytest_sessionfinish()


def test_a_wait_for_an_engine_or_a_base_is_told_at_once(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    plain = Plain(SimpleNamespace(width_of_current_line=0), os.dup(1), RunningCells(folder.path, time.time()))
    with closing(Journal(folder.path, "gw0")) as journal:
        for why in (
            "waits for the container engine at unix:///e: it does not answer (up to 30 s)",
            "makes the base image hetgpu-base:bookworm from Debian's packages",
            "builds the image hetgpu/x:1 from containers/x",
        ):
            journal.waiting(job("send"), why)
            assert plain.lines(0.0) == [f"waiting  send  {why}"]
            assert plain.lines(1.0) == []
    plain.pytest_sessionfinish()


def test_what_it_says_comes_on_a_line_of_its_own(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    reading, writing = os.pipe()
    plain = Plain(SimpleNamespace(width_of_current_line=3), writing, RunningCells(folder.path, time.time()))
    with closing(Journal(folder.path, "main")) as journal:
        journal.waiting(job("send"), ADA)
        plain.lines(time.monotonic() - TOLD_AFTER)
        plain.pytest_sessionstart()
        assert os.read(reading, 1000).decode().startswith(f"\nwaiting  send  {ADA}; for ")
    plain.pytest_sessionfinish()
    os.close(reading)
