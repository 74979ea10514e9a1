"""The text of an issue: the facts that a maintainer needs, in the upstream's own form, and nothing private."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from pytest_hetgpu.cluster.pool import rank_programs
from pytest_hetgpu.model.facts import Environment, found
from pytest_hetgpu.model.failure import KnownFailure
from pytest_hetgpu.model.job import Command, ContainerOptions, Expectation, Hardware, Node
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.upstream.description import describe_job, program_description
from pytest_hetgpu.reporting.upstream.difference import find_nearest
from pytest_hetgpu.reporting.upstream.issue import LONGEST, fenced, render_issue, title, trim_interpreter_frames
from pytest_hetgpu.store.cells import CellRecord, RunRecord, read_run
from pytest_hetgpu.store.environment import NodeFacts, PlacementFacts
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import CRASHED, ISSUE, KNOWN, PASSED, RERUN, SIGNATURE, cell, job, result, run_cell

SECRET = "ghp_" + "s3cr3t12" * 5
SIGNED = replace(SIGNATURE, function="uct_rocm_copy_ep_put_short", entry_point="MPI_Send")
FAILED = replace(CRASHED, signature=SIGNED, facts={"ucx": "1.18.0", "openmpi": "5.0.11"})
CAUSE = KnownFailure(
    "large-bar", "no Large BAR", "The CPU copies.", "Set a threshold.", links=(ISSUE,), status="established"
)
PLACEMENT = PlacementFacts(
    "aws-mixed",
    {
        "node0": NodeFacts("g4ad", "10.0.0.1", Environment({"ucx": found("1.18.0"), "kernel": found("6.1")})),
        "node1": NodeFacts("g4dn", "10.0.0.2", Environment({"ucx": found("1.20.1"), "kernel": found("6.1")})),
    },
)


def told(tmp_path: Path, *cells: CellRecord, **changes: Any) -> str:
    record = RunRecord(cells)
    failing = [one for one in cells if one.outcome.signature]
    return render_issue(record, RunFolder(tmp_path), failing, changes.get("placements", ()))


def test_a_title_says_what_where_and_of_which_version() -> None:
    made = title(cell("mixed-ucx-allreduce", FAILED))
    assert made == (
        "SIGSEGV in uct_rocm_copy_ep_put_short (libuct_rocm.so) under MPI_Send, UCX 1.18.0, Open MPI 5.0.11"
    )
    unsigned = cell("a-b-c", Outcome(CRASHED.kind, CRASHED.verdict, "rank 1 is gone"))
    assert title(unsigned) == "crash: rank 1 is gone"


def test_it_has_the_sections_of_the_upstreams_form(tmp_path: Path) -> None:
    text = told(tmp_path, cell("mixed-ucx-allreduce", FAILED))
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert headings == [
        "### Describe the bug",
        "### Steps to Reproduce",
        "### Setup and versions",
        "### Additional information (depending on the issue)",
    ]


@pytest.mark.parametrize(
    ("library", "heading"),
    [
        ("libnccl.so", "### NCCL Version"),
        ("librccl.so", "### ROCm Component"),
        ("libtorch.so", "### 🐛 Describe the bug"),
        ("libmpi.so", "### What version of Open MPI are you using?"),
        ("libfabric.so", "## What happens"),
        ("libucc.so", "### Setup and versions"),
    ],
)
def test_each_upstream_has_its_own(tmp_path: Path, library: str, heading: str) -> None:
    other = replace(FAILED, signature=replace(SIGNED, library=library))
    assert f"\n{heading}\n" in told(tmp_path, cell("mixed-ucx-allreduce", other))


def test_versions_of_the_nodes_side_by_side(tmp_path: Path) -> None:
    text = told(tmp_path, cell("mixed-ucx-allreduce", FAILED), placements=(PLACEMENT,))
    assert "| | node0: g4ad | node1: g4dn |\n|---|---|---|\n| ≠ ucx | 1.18.0 | 1.20.1 |" in text
    assert "10.0.0.1" not in text
    assert "<table>" in MarkdownIt().enable("table").render(text)


def test_the_smallest_difference_to_what_works(tmp_path: Path) -> None:
    failing = cell("mixed-ucx-allreduce", FAILED)
    argv = ("/opt/ompi/bin/mpirun", "-np", "2", "--mca", "pml", "ob1", "prog")
    works = cell("mixed-ob1-allreduce", PASSED, result=replace(result(), argv=argv))
    text = told(tmp_path, failing, works, cell("cpu-ob1-send", PASSED))
    assert "(`mixed-ob1-allreduce`)" in text
    assert "- transport: `ucx` fails, `ob1` works" in text
    assert "- only in the command that works: `--mca pml ob1`" in text
    assert find_nearest(failing, [failing]) is None


def test_another_program_of_the_user_is_no_difference(tmp_path: Path) -> None:
    def of(label: str, *program: str, outcome: Outcome = PASSED) -> CellRecord:
        argv = ("mpirun", "-np", "2", "python3", "/tmp/x/programs/run_external.py", "--mpi4py", "--", *program)
        return cell(label, outcome, result=replace(result(), argv=argv))

    failing = of("cpu-ob1-lost", "lmp", "-in", "in.lost", outcome=FAILED)
    shell, same = of("cpu-ob1-ulimit", "/bin/sh", "-c", "x"), of("cpu-ob1-melt", "/opt/bin/lmp", "-in", "in.melt")
    assert find_nearest(failing, [failing, shell]) is None
    near = find_nearest(failing, [failing, shell, same])
    assert near
    assert near.cell is same


@pytest.mark.parametrize(
    ("hosts", "container", "words"),
    [
        (("vm", "vm"), None, "2 processes on one host "),
        (("vm", "vm"), ContainerOptions(), "2 processes on 2 containers of one host "),
        (("a", "b"), None, "2 processes on 2 nodes "),
        (("vm",), None, "1 process on one node "),
    ],
)
def test_nodes_of_one_host_are_no_two_machines(
    hosts: tuple[str, ...], container: ContainerOptions | None, words: str
) -> None:
    nodes = tuple(Node(index, Hardware("kind"), host, 1, container=container) for index, host in enumerate(hosts))
    assert describe_job(replace(job("mixed-ucx-allreduce"), nodes=nodes)).startswith(words)


def test_the_package_of_open_mpi_is_how_it_was_installed(tmp_path: Path) -> None:
    of_mpi = cell("mixed-ucx-allreduce", replace(FAILED, signature=replace(SIGNED, library="libmpi.so")))
    assert "It is the library named above.\n" in told(tmp_path, of_mpi)
    folder = RunFolder(tmp_path)
    folder.prepare(of_mpi.label)
    greeting = '{"t":"hello","library":"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"}'
    folder.log(of_mpi.label).write_text(f"@hetgpu:0080:00000000:{greeting}\n")
    assert "It is the library named above, of the package Debian OpenMPI.\n" in told(tmp_path, of_mpi)


def test_a_failure_of_the_program_is_told_without_the_form_of_a_library(tmp_path: Path) -> None:
    signed = replace(SIGNED, key="ERROR-Lost-atoms@program", library=None, function=None, signal=None)
    facts = {"openmpi": "4.1.4", "ucx": "1.13.1"}
    failed = cell(
        "mixed-ucx-allreduce",
        replace(FAILED, signature=signed, stack="Open MPI 4.1.4 (/usr/lib/libmpi.so.40)", facts=facts),
    )
    text = told(tmp_path, failed)
    assert title(failed).startswith("ERROR-Lost-atoms@program")
    assert "Open MPI" not in title(failed)
    assert "## What happens" in text
    assert "What version of Open MPI" not in text
    assert text.count("Open MPI 4.1.4") == 1
    of_mpi = told(
        tmp_path, replace(failed, outcome=replace(failed.outcome, signature=replace(SIGNED, library="libmpi.so")))
    )
    assert "Open MPI 4.1.4 (/usr/lib/libmpi.so.40) with UCX 1.13.1\n" in of_mpi


def test_other_cells_known_causes_and_links(tmp_path: Path) -> None:
    first = cell("mixed-ucx-allreduce", replace(KNOWN, known=(CAUSE,), signature=SIGNED))
    others = [cell(f"mixed-ucx-w{number}", replace(KNOWN, signature=SIGNED)) for number in range(40)]
    text = told(tmp_path, first, *others)
    assert "41 of 41 jobs that were run over other nodes, transports and programs end like this; 0 work." in text
    assert "The others: `mixed-ucx-w0`, `mixed-ucx-w1`" in text
    assert "and 10 more." in text
    assert "What is known of it (established): no Large BAR. The CPU copies. Set a threshold." in text
    assert text.count(ISSUE) == 1


def test_a_possible_cause_names_what_would_prove_it(tmp_path: Path) -> None:
    open_one = replace(CAUSE, unproven=("its buffers are in GPU memory (memory: device)",))
    text = told(tmp_path, cell("mixed-ucx-allreduce", replace(KNOWN, known=(open_one,), signature=SIGNED)))
    assert "A possible cause, proven if its buffers are in GPU memory (memory: device): no Large BAR. The CPU" in text
    assert "What is known of it" not in text


def test_it_says_what_the_job_does_to_somebody_who_knows_nothing_of_us(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    argv = ("mpirun", "env", "UCX_TLS=tcp", "python3", "/tmp/hetgpu-0a1b2c3d/programs/guarded_send.py", "--sizes", "64")
    made = replace(job("mixed-ucx-allreduce"), command=Command(argv, {"UCX_LOG_LEVEL": "info", "HF_TOKEN": SECRET}))
    folder.write_job(made)
    known = replace(KNOWN, signature=SIGNED, expectation=Expectation((CRASHED.kind,), reason="UCX copies with the CPU"))
    old = cell("old-ucx-allreduce", replace(known, facts={"ucx": "1.13.1"}))
    text = told(tmp_path, cell("mixed-ucx-allreduce", known), old)
    assert (
        "2 processes on 2 nodes run `guarded_send.py`. What it does: Sends from memory that the sender's host" in text
    )
    assert "Why, as far as we know: UCX copies with the CPU." in text
    assert "The others: `old-ucx-allreduce` (UCX 1.13.1)." in text
    assert "Settings: `UCX_TLS=tcp UCX_LOG_LEVEL=info`" in text
    assert "s3cr3t" not in text
    assert "/tmp/hetgpu-0a1b2c3d" not in text


def test_every_program_of_ours_is_described() -> None:
    names = [Path(name).name for name in rank_programs()]
    assert len(names) > 10
    assert [name for name in names if not program_description(name)] == []
    assert "--fault" not in program_description("fault.py")
    assert program_description("osu_latency") == program_description("../cli.py") == program_description("") == ""


def test_what_is_quoted_cannot_leave_its_block(tmp_path: Path) -> None:
    evil = "``` \n# heading\n<script>alert(1)</script>"
    assert fenced(evil).startswith("````\n")
    assert "<h1>" not in MarkdownIt().render(fenced(evil))
    wicked = replace(FAILED, signature=replace(SIGNED, primary_line=evil))
    assert "<script>" not in MarkdownIt("commonmark", {"html": False}).render(
        told(tmp_path, cell("mixed-ucx-allreduce", wicked))
    )


def test_secrets_stay_out_and_it_is_never_too_long(tmp_path: Path) -> None:
    argv = ("mpirun", f"TOKEN={SECRET}", *(f"--word{number}" for number in range(20_000)))
    noisy = cell("mixed-ucx-allreduce", replace(FAILED, why=SECRET), result=replace(result(), argv=argv))
    text = told(tmp_path, noisy)
    assert "s3cr3t" not in text
    assert len(text) <= LONGEST + 100


def test_frames_of_the_interpreter_are_counted() -> None:
    lines = [
        "[n:1] [ 6] libmpi.so(MPI_Send+0x1)[0x1]",
        *(f"[n:1] [{n:2}] python3(Py_X+0x1)[0x2]" for n in range(9)),
        "end",
    ]
    assert list(trim_interpreter_frames(lines)) == [lines[0], "    ... 9 frames of the Python interpreter ...", "end"]
    assert list(trim_interpreter_frames(lines[:3])) == lines[:3]


def test_a_run_has_an_issue_for_each_signature(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    with closing(Journal(folder.path, "main")) as journal:
        run_cell(folder, journal, "mixed-ucx-send", PASSED)
        run_cell(folder, journal, "mixed-ucx-allreduce", FAILED)
        run_cell(folder, journal, "mixed-ucx-gather", replace(FAILED, signature=replace(SIGNED, key="exit@11")))
    report.build(folder.path, RERUN)
    names = sorted(path.name for path in (folder.path / "issues").iterdir())
    assert names == ["SIGSEGV-libuct-rocm.so-uct-rocm-copy-ep-put-short.md", "exit-11.md"]
    with closing(Journal(folder.path, "again")) as journal:
        journal.judged(read_job_of(folder), PASSED)
    report.build(folder.path, RERUN)
    assert [path.name for path in (folder.path / "issues").iterdir()] == [names[0]]
    assert read_run(folder.path).cells


def read_job_of(folder: RunFolder) -> Any:
    from pytest_hetgpu.store.folder import read_job

    return read_job(folder.job("mixed-ucx-gather"))
