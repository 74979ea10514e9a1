"""Stand-ins for machines and people: everywhere, always the same, and nothing else is touched."""

from __future__ import annotations

import re
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.cli.report import rejudge
from pytest_hetgpu.model.job import ConnectionInfo
from pytest_hetgpu.reporting import report
from pytest_hetgpu.reporting.upstream.bundle import bundle
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction import anonymity
from pytest_hetgpu.store.redaction.anonymity import Names
from pytest_hetgpu.store.redaction.redact import redact, standing_in
from tests.reporting.report_samples import CRASHED, KEY, PASSED, SIGNATURE, job, run_cell

HOSTS = ("gpu7.cluster.example.org", "ip-10-0-0-5", "10.0.0.6", "localhost", "node0", "mixed")


def names() -> Names:
    return Names(HOSTS, ("alice", "root"), spared=("mixed",))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[gpu7:123] died", "[host-A:123] died"),
        ("ssh gpu7.cluster.example.org", "ssh host-A"),
        ("gpu7 and ip-10-0-0-5 and gpu7.local", "host-A and host-B and host-A"),
        ("gpu70 gpu7-x my-gpu7 x.gpu7", "gpu70 gpu7-x my-gpu7 x.gpu7"),
        ("at 10.0.0.6:22, then 10.0.0.7, then 10.0.0.6", "at address-1:22, then address-2, then address-1"),
        ("127.0.0.1 0.0.0.0 ::1 localhost node0 mixed", "127.0.0.1 0.0.0.0 ::1 localhost node0 mixed"),
        ("fe80::1ff:fe23:4567:890a", "address-1"),
        ("gid fe80:0000:0000:0000:0202:c9ff:fe00:0001", "gid address-1"),
        ("mac 02:42:ac:11:00:02 up", "mac address-1 up"),
        ("12:30:01 1:2:3 a::b()", "12:30:01 1:2:3 a::b()"),
        ("/home/alice/x /home/bob/y /Users/alice", "/home/user-A/x /home/user-B/y /Users/user-A"),
        ("alice@gpu7 by root", "user-A@host-A by root"),
        ("UCX 1.18.0, Open MPI 5.0.11, driver 535.104.05", "UCX 1.18.0, Open MPI 5.0.11, driver 535.104.05"),
    ],
)
def test_names_go_and_all_else_stays(text: str, shown: str) -> None:
    assert names()(text) == shown


def test_a_name_keeps_its_stand_in() -> None:
    made = names()
    # By the alphabet, not by who is met first: another report may meet them otherwise.
    assert made("ip-10-0-0-5") == "host-B"
    assert made("gpu7") == "host-A"
    assert made("ip-10-0-0-5.ec2.internal") == "host-B"


@given(st.text())
def test_any_text_goes_through(text: str) -> None:
    made = names()
    once = made(text)
    assert made(once) == once


def test_letters_do_not_run_out() -> None:
    made = Names([f"h{number:02}x" for number in range(60)], ())
    given_out = [made(f"h{number:02}x") for number in range(60)]
    assert (given_out[0], given_out[25], given_out[26], given_out[59]) == ("host-A", "host-Z", "host-AA", "host-BH")


def test_only_meanwhile() -> None:
    with standing_in(names()):
        assert redact("on gpu7 with token=abcdef") == "on host-A with token=[redacted]"
    assert redact("on gpu7") == "on gpu7"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose machines and user are named wherever they can be."""
    folder = RunFolder.create(tmp_path / "reports")
    said = "gpu7.corp said 10.1.2.3 to alice in /home/alice/lab"
    log = b'@hetgpu:0030:00000000:{"t":"hello","rank":0,"host":"gpu8"}\n' + f"[gpu8:1] {said}\n".encode() * 5
    with closing(Journal(folder.path, "main")) as journal:
        journal.run([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"])
        for label, outcome in {
            "mixed-ucx-send": PASSED,
            "mixed-ucx-allreduce": replace(CRASHED, why=said, signature=replace(SIGNATURE, primary_line=said, line=3)),
        }.items():
            made = job(label)
            nodes = tuple(
                replace(node, host=host, reach=ConnectionInfo("ssh://alice@gpu7.corp:22/x"))
                for node, host in zip(made.nodes, ("gpu7.corp", "10.1.2.3"), strict=True)
            )
            run_cell(folder, journal, label, outcome, log)
            folder.write_job(replace(made, nodes=nodes))
    return folder


def texts(folder: RunFolder, place: Path) -> dict[str, str]:
    found = {name: (folder.path / name).read_text() for name in ("junit.xml", "summary.md")}
    page = (folder.path / "index.html").read_text()
    found["index.html"] = page[page.index('id="facts"') : page.index('id="charts"')]
    found |= {path.name: path.read_text() for path in (folder.path / "issues").iterdir()}
    with tarfile.open(bundle(folder.path, KEY, place / "b.tar.gz").files[0]) as archive:
        for entry in archive:
            opened = archive.extractfile(entry)
            if opened and "/programs/" not in entry.name:
                found[entry.name] = opened.read().decode()
    return found


def test_no_report_issue_or_bundle_names_anybody(run: RunFolder, tmp_path: Path) -> None:
    report.build(run.path, "again {label}")
    assert any("gpu7" in text for text in texts(run, tmp_path).values())
    list(rejudge(run.path, anonymous=True))
    anonymous = texts(run, tmp_path)
    assert [
        (name, word)
        for name, text in anonymous.items()
        for word in ("gpu7", "gpu8", "10.1.2.3", "alice", "corp")
        if word in text
    ] == []
    assert sum("host-A" in text for text in anonymous.values()) > 2
    # Whoever builds the reports again later does not have to remember.
    report.build(run.path, "again {label}")
    assert "gpu7" not in (run.path / "junit.xml").read_text()
    assert anonymity.kept(run.path)


def test_a_host_is_called_the_same_in_every_report(run: RunFolder, tmp_path: Path) -> None:
    anonymity.keep(run.path)
    report.build(run.path, "again {label}")
    found = {name: set(re.findall(r"\[(host-[A-Z]+):1\]", text)) for name, text in texts(run, tmp_path).items()}
    said = {name: hosts for name, hosts in found.items() if hosts}
    # In all of them it is the one whose rank greeted, whichever name each of them met first.
    assert {"junit.xml", "index.html", "SIGSEGV-libuct-rocm.so-uct-rocm-copy-ep-put-short.md"} <= said.keys()
    assert any(name.endswith("/output.log") for name in said)
    assert len(set.union(*said.values())) == 1
