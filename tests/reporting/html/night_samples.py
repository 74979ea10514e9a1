"""A history of made-up nights at two sites. Some cells break, some are mended, one is hostile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_hetgpu.cli.history import HistoryOptions
from pytest_hetgpu.cli.history import run as history_command
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import history
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary
from tests.reporting.html.browser_samples import EVIL, written
from tests.reporting.report_samples import CRASHED, PASSED

ALONE, NIGHTS = 33, 45
"""In the first nights the site `aws` has one cell only, whose speed is measured; then `lab` runs as well."""
STEP, BROKE, MENDED, KEPT = 20, 40, 41, 43
FLAKY = (35, 38, 42)
NIGHT, FIRST = 86_400.0, 1.76e9
ISSUE = "https://github.com/openucx/ucx/issues/1"
CRASH = "SIGSEGV@libuct.so"
RUNS = NIGHTS + NIGHTS - ALONE


def place(night: int, site: str = "aws") -> int:
    """Return the place of a run among all."""
    return night if night < ALONE else ALONE + 2 * (night - ALONE) + (site == "lab")


def sample(label: str, hosts: str = "n1 | n2") -> CellSummary:
    axes = dict(zip(("placement", "transport", "workload"), label.split("-"), strict=True))
    facts = {"ucx": "1.18.0", "wire": "2.9 GB/s (pump)"}
    return CellSummary("aws", label, Kind.PASSED, Verdict.OK, axes, facts=facts, nodes={"hosts": hosts})


def crashed(one: CellSummary, key: str = CRASH, issue: str = "") -> CellSummary:
    return replace(one, kind=Kind.CRASH, verdict=Verdict.NEW, signature=key, issue=issue)


def measured_cell(night: int, random_: random.Random) -> CellSummary:
    factor = (1.2 if night >= STEP else 1.0) * random_.gauss(1.0, 0.01)
    latency = Measurement("latency", 11 * factor, "us", MessagePoint(8, "float32"), 2)
    busbw = Measurement("busbw", 2 / factor, "GB/s", MessagePoint(1 << 20, "float32"), 2)
    one = replace(sample("near-ucx-put"), measurements=(latency, busbw))
    return replace(one, nodes={**one.nodes, "kernel": "6.8" if night >= STEP else "6.1"})


def cells(night: int) -> Iterator[CellSummary]:
    """Yield the cells of `aws` in a night, but the measured one."""
    broken = sample("far-ucx-send")
    newer = {**broken.facts, "ucx": "1.20.0"}
    yield crashed(replace(broken, facts=newer), issue=ISSUE) if night >= BROKE else broken
    mended = sample("far-ob1-send")
    yield mended if night >= MENDED else crashed(mended, "SIGBUS@libfabric.so")
    flaky = sample("far-ob1-reduce")
    yield crashed(flaky, "SIGABRT@libc.so") if night in FLAKY else flaky
    yield sample("far-ofi-send")
    yield crashed(sample("solo-ofi-send", "n3"), "SIGILL@libofi.so")
    yield replace(crashed(sample("far-shm-send"), "SIGFPE@libm.so"), verdict=Verdict.KNOWN)
    yield replace(sample("gpu-nccl-send"), kind=Kind.SKIPPED, verdict=Verdict.NOT_RUN, nodes={})
    if night % 2:
        yield sample("near-ofi-gather")
    for workload in ("send", "reduce", "bcast", "alltoall"):
        yield sample(f"near-ob1-{workload}")
        yield sample(f"near-shm-{workload}")
    evil = replace(sample("far-ucx-put"), scenario=EVIL, axes={"placement": EVIL, "transport": EVIL, "workload": EVIL})
    yield crashed(replace(evil, facts={EVIL: f"{EVIL}{night > BROKE}"}), EVIL, EVIL) if night > BROKE else evil


def summary(night: int, site: str, found: tuple[CellSummary, ...], folder: Path) -> RunSummary:
    started = FIRST + NIGHT * night + 3600 * (site == "lab")
    matrices = (MatrixFile("aws", "aws.yaml", "0" * 64),)
    version = "0.2" if night >= MENDED else "0.1"
    return RunSummary(f"{site}{night}", str(folder), started, f"ci-{site}", version, matrices, found, site)


def nights_page(folder: Path) -> Path:
    """Write the page of the nights below a folder; the page of one run is kept."""
    kept = RunFolder.create(folder / "reports")
    written(kept, {"far-ucx-send": CRASHED, "far-ob1-send": PASSED}, b"a line\n")
    random_ = random.Random(4)
    for night in range(NIGHTS):
        place_ = kept.path if night == KEPT else folder / "reports" / f"aws{night}"
        others = tuple(cells(night)) if night >= ALONE else ()
        one = summary(night, "aws", (measured_cell(night, random_), *others), place_)
        history.put(folder / "history.sqlite", one)
        if night >= ALONE:
            there = (sample("rack-ob1-send", "l1"), sample("rack-ob1-reduce", "l1"))
            history.put(folder / "history.sqlite", summary(night, "lab", there, folder / "gone"))
    page = folder / "pages" / "nights.html"
    page.parent.mkdir()
    history_command(folder / "history.sqlite", HistoryOptions(RUNS, page), lambda _: None)
    return page
