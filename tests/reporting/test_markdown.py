"""The contents of `summary.md`, and that all quoted text stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.reporting import markdown
from pytest_hetgpu.reporting.markdown import CellTexts
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.events import MatrixFile, SessionStarted
from tests.reporting.report_samples import (
    CHANGED,
    CRASHED,
    FIXED,
    ISSUE,
    KEY,
    KNOWN,
    NOT_RUN,
    PASSED,
    UNREAD,
    cell,
)

RERUN = "pytest --hetgpu-matrix {matrix}.yaml --hetgpu-cell {label}"
SESSION = SessionStarted("0.1.0", (MatrixFile("aws", "matrices/aws.yaml", "0"),), ("pytest",), "login1", 1.7e9)
HOSTILE = "**bold** _it_ [x](javascript:1) <script>alert(1)</script> `tick` | pipe ~~gone~~ &lt; $x$ \\ ![i](u)\n# head"


def render(*cells: CellRecord, **changes: Any) -> str:
    record = replace(RunRecord(cells, (SESSION,)), **changes)
    return markdown.render(record, CellTexts(lambda label: f"scenarios/{label}/output.log", RERUN))


def section(text: str, title: str) -> str:
    [found] = [part for part in re.split(r"(?m)^(?=##? )", text) if part.split("\n")[0].endswith(title)]
    return found


ALL = (
    *(cell("mixed-ucx-send", PASSED), cell("mixed-ucx-ddp", CRASHED), cell("mixed-ob1-send", KNOWN)),
    *(cell("mixed-ob1-ddp", CHANGED), cell("cpu-ucx-send", FIXED), cell("cpu-ucx-ddp", UNREAD)),
    *(cell("cpu-ob1-send", NOT_RUN), cell("cpu-ob1-ddp", PASSED)),
)


def test_it_opens_with_what_was_run_and_what_came_of_it() -> None:
    title, sentence, totals = render(*ALL).split("\n\n")[:3]
    assert title == "# Compatibility of aws"
    assert sentence == (
        "The matrix aws (`matrices/aws.yaml`) was run on 2023-11-14 22:13:20 UTC from the host login1, "
        "with Open MPI v5.0.11."
    )
    assert totals == (
        "**Of 8 cells, 2 work, 2 are new failures, 1 fails, but not as expected, 1 works, but was expected to fail, "
        "1 is a known failure, 1 was not run.**"
    )


def test_the_table_says_what_works_and_what_does_not() -> None:
    table = section(render(*ALL), "What works, and what does not").split("\n\n")[1]
    assert table.strip().split("\n") == [
        "| placement | ucx | ob1 |",
        "|---|---|---|",
        "| mixed | ✅ send<br>❌ ddp: crash (new) | 🟡 send: crash (known)<br>🟠 ddp: hang (not as expected) |",
        "| cpu | 🔧 send: works, but was expected to fail<br>❌ ddp: unknown (new) | ⚪ send: not run<br>✅ ddp |",
    ]


def test_a_new_failure_can_be_acted_on() -> None:
    text = section(render(*ALL), "New failure: 2")
    first = text.split("### ")[1]
    assert first.strip().split("\n") == [
        "mixed-ucx-ddp",
        "",
        "- crash: rank 0 died of SIGSEGV",
        f"- signature: `{KEY}`",
        "- line 66 of its log: `Caught signal 11 (Segmentation fault)`",
        "- run just this cell again: `pytest --hetgpu-matrix aws.yaml --hetgpu-cell mixed-ucx-ddp`",
        "- log: [output.log](scenarios/mixed-ucx-ddp/output.log)",
    ]


@pytest.mark.parametrize("title", ["Fails, but not as expected: 1", "Works, but was expected to fail: 1"])
def test_a_broken_expectation_is_shown_beside_what_was_found(title: str) -> None:
    text = section(render(*ALL), title)
    assert f"- expected: `crash {KEY}`" in text
    assert f"- issue: <{ISSUE}>" in text


def test_a_known_failure_has_its_link() -> None:
    assert f"- issue: <{ISSUE}>" in section(render(*ALL), "Known failure: 1")


def test_a_possible_cause_names_what_would_prove_it() -> None:
    sure = KnownFailure("sure", "no Large BAR", "The CPU copies.")
    maybe = replace(sure, id="maybe", unproven=("memory: device", "large_bar: no"))
    text = render(cell("a-b-c", replace(CRASHED, known=(sure, maybe))))
    assert "- known, `sure`: no Large BAR. The CPU copies." in text
    assert "- possible, `maybe`: no Large BAR. The CPU copies." in text
    assert text.count("  - proven if memory: device and large") == 1


def test_skips_are_grouped_by_reason() -> None:
    skips = [cell(f"a-b-w{i}", NOT_RUN) for i in range(30)]
    other = cell("a-b-x", replace(NOT_RUN, why="NCCL and RCCL do not talk"), skip_issue=ISSUE)
    lines = section(render(*skips, other), "Not run: 31").strip().split("\n")[2:]
    assert len(lines) == 2
    assert lines[0].startswith("- needs platform=rocm (give --hetgpu-inventory): a-b-w0, a-b-w1,")
    assert lines[0].endswith("a-b-w19 and 10 more")
    assert lines[1] == f"- NCCL and RCCL do not talk (<{ISSUE}>): a-b-x"


def test_a_good_run_has_nothing_to_act_on() -> None:
    text = render(cell("mixed-ucx-send", PASSED))
    assert "**Of 1 cell, 1 works.**" in text
    assert [line for line in text.split("\n") if line.startswith("## ")] == [
        "## What works, and what does not",
        "## What was measured",
        "## How to read this",
    ]


def test_a_run_without_anything_is_said() -> None:
    text = markdown.render(RunRecord(()), CellTexts(lambda label: label, RERUN))
    assert "No cell was recorded" in text
    assert "no rank reported which MPI it loaded" in text


def test_several_matrices_have_a_table_each() -> None:
    text = render(cell("mixed-ucx-send", PASSED), cell("c-ob1-ddp", PASSED, matrix="lumi"))
    assert text.startswith("# Compatibility of aws, lumi\n")
    assert [line for line in text.split("\n") if line.startswith("### ")] == ["### aws", "### lumi"]


def test_further_axes_are_rows() -> None:
    axes = {"placement": "mixed", "transport": "ucx", "workload": "send", "tuning": "zcopy"}
    text = render(cell("x", PASSED, axes=axes))
    assert "| placement / tuning | ucx |" in text
    assert "| mixed / zcopy | ✅ send |" in text


def test_many_workloads_that_work_are_counted() -> None:
    cells = [cell(f"mixed-ucx-w{i}", PASSED) for i in range(20)]
    assert "| mixed | ✅ 20 of 21 work<br>❌ bad: crash (new) |" in render(*cells, cell("mixed-ucx-bad", CRASHED))


def test_lines_that_could_not_be_read_are_confessed() -> None:
    assert "could not be read: 2 damaged, 1 newer." in render(*ALL, unread={"newer": 1, "damaged": 2})


def test_no_log_no_link() -> None:
    text = markdown.render(RunRecord((cell("a-b-c", CRASHED),)), CellTexts(lambda _: None, RERUN))
    assert "output.log" not in text


def test_the_command_can_be_asked_for() -> None:
    text = markdown.render(
        RunRecord((cell("a-b-c", CRASHED),)), CellTexts(lambda _: None, lambda m, c: f"again {m}:{c}")
    )
    assert "`again aws:a-b-c`" in text


def hostile() -> str:
    signature = replace(CRASHED.signature, key=HOSTILE, primary_line=HOSTILE)  # type: ignore[type-var]
    outcome = replace(CRASHED, why=HOSTILE, signature=signature, stack=HOSTILE)
    axes = {"placement": HOSTILE, "transport": HOSTILE, "workload": HOSTILE}
    skipped = cell("a-b-d", replace(NOT_RUN, why=HOSTILE), skip_issue="javascript:alert(1)")
    return render(cell("a-b-c", outcome, axes=axes, matrix=HOSTILE), skipped)


def test_hostile_text_stays_text() -> None:
    markdown_it = pytest.importorskip("markdown_it")
    tokens = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(hostile())
    flat = [inner for token in tokens for inner in (token, *(token.children or []))]
    kinds = {token.type for token in flat}
    assert not kinds & {"image", "s_open", "fence", "html_block", "code_block"}
    assert {token.content for token in flat if token.type == "html_inline"} <= {"<br>"}
    assert {token.attrGet("href") for token in flat if token.type == "link_open"} == {"scenarios/a-b-c/output.log"}
    whole = "".join(token.content for token in flat if token.type in ("text", "code_inline"))
    assert whole.count("<script>alert(1)</script> `tick` | pipe ~~gone~~ &lt; $x$ \\ ![i](u) # head") >= 6
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in ("td_open", "th_open")]
    assert len(cells) == 2 * len(rows)


def test_hostile_lines_are_cut() -> None:
    text = render(cell("a-b-c", replace(CRASHED, why="x" * 1_000_000)))
    assert len(text) < 5_000


def test_secrets_do_not_reach_it() -> None:
    signature = replace(CRASHED.signature, primary_line="HF_TOKEN=s3cr3t")  # type: ignore[type-var]
    text = render(cell("a-b-c", replace(CRASHED, why="password=s3cr3t", signature=signature)))
    assert "s3cr3t" not in text


@pytest.mark.parametrize("outcome", [PASSED, KNOWN])
@pytest.mark.parametrize("shape", [(10, 10, 100), (100, 10, 10), (1, 10_000, 1), (10_000, 1, 1), (1, 1, 10_000)])
def test_ten_thousand_cells_stay_below_a_megabyte(outcome: Outcome, shape: tuple[int, int, int]) -> None:
    placements, transports, workloads = shape
    long = replace(outcome, why="y" * 300)
    cells = [
        cell(
            f"placement-number-{p}-transport-number-{t}-workload-number-{w}",
            replace(long, stack=f"{p}.{t}.{w}"),
            axes={"placement": f"placement-number-{p}", "transport": f"transport-number-{t}", "workload": f"work{w}"},
        )
        for p in range(placements)
        for t in range(transports)
        for w in range(workloads)
    ]
    text = render(*cells)
    assert len(text.encode()) < 1_000_000
    assert "10000" in text.split("\n\n")[2]


def test_ten_thousand_reasons_stay_below_a_megabyte() -> None:
    cells = [cell(f"a-b-w{i}", replace(NOT_RUN, why=f"reason {i} {'z' * 250}")) for i in range(10_000)]
    text = render(*cells)
    assert len(text.encode()) < 1_000_000
    assert re.search(r"\d+ more reasons are left out", text)


def test_what_carried_the_data_is_told_of_each_transport_and_of_a_failure() -> None:
    axes = {"placement": "two", "transport": "rc", "workload": "allreduce"}
    text = render(cell("two-rc", replace(CRASHED, carried={"off-host": ("ucx/tcp",)}), axes=axes))
    assert "The data was carried by:\n\n- rc: ucx/tcp (off-host)\n" in text
    assert "\n- data carried by: ucx/tcp (off-host)\n" in text
