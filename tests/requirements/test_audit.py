"""What the audit says of what an index answers, and that no answer is never a pass."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.requirements.test_locks import program

AUDIT = program("audit")
FOUND = {
    "id": "PYSEC-2030-1",
    "aliases": ["CVE-2030-7"],
    "summary": "reads\x1b[2J what it \n should not",
    "fixed_in": ["2.1"],
}


class Index(HTTPServer):
    """Answers by package; what it does not have is not found."""

    answers: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.split("/")[2]
        Index.asked.append(self.path)
        data = Index.answers.get(name)
        self.send_response(200 if data is not None else 404)
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_: Any) -> None:
        """It stays silent."""


@pytest.fixture
def index() -> Iterator[str]:
    Index.answers, Index.asked = {}, []
    server = Index(("127.0.0.1", 0), Answers)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    serving.join()


def answers(*found: dict[str, Any]) -> bytes:
    return json.dumps({"info": {}, "vulnerabilities": list(found)}).encode()


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    (tmp_path / "project.txt").write_text("# x\n" + "".join(f"{n}==2.0 \\\n    --hash=sha256:0\n" for n in "abcde"))
    (tmp_path / "accepted.txt").write_text("# none\n")
    Index.answers = dict.fromkeys("abcde", answers())
    return tmp_path


def run(index: str, locks: Path) -> int:
    return int(AUDIT.main(["--index", index, "--locks", str(locks)]))


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_nothing_is_known(index: str, locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Index.answers = dict.fromkeys("abcde", answers())
    assert run(index, locks) == 0
    assert "5 of 5 locked packages audited, 0 advisories to act on" in capsys.readouterr().out
    assert Index.asked[0] == "/pypi/a/2.0/json"


def test_an_advisory_says_what_to_do(index: str, locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Index.answers = {**dict.fromkeys("abde", answers()), "c": answers(FOUND)}
    assert run(index, locks) == 1
    said = capsys.readouterr().out
    assert "ADVISORY: c 2.0: PYSEC-2030-1, CVE-2030-7: reads[2J what it should not" in said
    assert "fixed in 2.1: python3 requirements/lock.py; or accept it in requirements/accepted.txt" in said


@pytest.mark.parametrize(("until", "code"), [("2999-01-01", 0), ("2001-01-01", 1)])
def test_what_is_accepted_is_accepted_for_a_time(
    index: str, locks: Path, capsys: pytest.CaptureFixture[str], until: str, code: int
) -> None:
    Index.answers = {**dict.fromkeys("abde", answers()), "c": answers(FOUND)}
    (locks / "accepted.txt").write_text(f"CVE-2030-7 c {until} it is never called with such\n")
    assert run(index, locks) == code
    assert ("accepted: c 2.0" in capsys.readouterr().out) is (code == 0)


@pytest.mark.parametrize("line", ["CVE-1 c soon why", "CVE-1 c 2030-01-01", "CVE-1"])
def test_a_line_that_accepts_nothing_is_named(
    index: str, locks: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (locks / "accepted.txt").write_text(f"# x\n{line}\n")
    assert run(index, locks) == 4
    assert f"{locks}/accepted.txt:2: must be: ID PACKAGE YYYY-MM-DD WHY" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"vulnerabilities": null}'])
def test_no_answer_is_no_pass(index: str, locks: Path, capsys: pytest.CaptureFixture[str], answer: bytes) -> None:
    Index.answers = {**dict.fromkeys("abde", answers()), "c": answer}
    assert run(index, locks) == 75
    said = capsys.readouterr().out
    assert "NOT AUDITED: c 2.0" in said
    assert "4 of 5 locked packages audited" in said


def test_an_index_that_has_no_answers_is_not_asked_on_and_on(
    index: str, locks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Index.answers = {}
    assert run(index, locks) == 75
    assert len(Index.asked) == 3
    assert "NOT AUDITED: the other 2 packages" in capsys.readouterr().out


def test_an_index_out_of_reach(locks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", locks) == 75
    assert "NOT AUDITED: a 2.0" in capsys.readouterr().out
