"""`hetgpu comment` and `hetgpu issues` against a real HTTP server: once, again, and with all that can be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.journal import Journal
from pytest_hetgpu.store.redaction.redact import clear_secrets
from tests.cli.publish.forge_server import TOKEN, ForgeServer, serving
from tests.reporting.report_samples import CHANGED, CRASHED, FIXED, KEY, KNOWN, PASSED, SIGNATURE, run_cell

SECRET = "ghp_" + "s3cr3t12" * 5
OTHER = "SIGBUS@libmpi.so"
VARIABLES = ("GITHUB_", "GITLAB_", "CI_", "BUILD_", "CHANGE_")


def stored(place: Path, **cells: Any) -> Path:
    """A run with these outcomes by the last part of the cells' names."""
    folder = RunFolder.create(place)
    with closing(Journal(folder.path, "main")) as journal:
        journal.session_started([MatrixFile("aws", "aws.yaml", "0" * 64)], ["pytest"], [])
        for name, outcome in cells.items():
            run_cell(folder, journal, f"mixed-ucx-{name}", outcome, f"token {SECRET}\n@all\n".encode())
    return folder.path


def second(outcome: Any) -> Any:
    """The outcome with another signature."""
    return replace(outcome, signature=replace(SIGNATURE, key=OTHER, library="libmpi.so", signal="SIGBUS"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return stored(tmp_path / "reports", a=CRASHED, b=CRASHED, c=second(CRASHED), d=PASSED, e=KNOWN, f=FIXED, g=CHANGED)


@pytest.fixture(params=["github", "gitlab"])
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    """A server, and the variables of a CI job that it has started."""
    import os

    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        monkeypatch.delenv(name)
    with serving(request.param) as made:
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made
    clear_secrets()


def test_without_send_nothing_is_sent(forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comment", str(run)]) == 0
    assert main(["issues", str(run)]) == 0
    assert forge.requests == []
    out = capsys.readouterr().out
    assert out.count("dry run: nothing was sent") == 2
    assert f"to: pull request 7 of o/r at {forge.address}" in out
    assert "2 new" not in out.partition("### pytest-hetgpu: ")[0]
    assert "### pytest-hetgpu: 3 new, 1 changed, 1 fixed" in out


def test_a_comment_is_added_once_and_replaced_after(forge: ForgeServer, run: Path, tmp_path: Path) -> None:
    forge.request_comments.extend(forge.post(f"comment {number}", author="human") for number in range(120))
    assert main(["comment", str(run), "--send"]) == 0
    assert len(forge.request_comments) == 121
    own = forge.request_comments[-1]
    assert own["body"].startswith("<!-- hetgpu comment ")
    assert f"| ❌ new | mixed-ucx-a | crash: rank 0 died of SIGSEGV | `{KEY}` |" in own["body"]
    assert "mixed-ucx-d" not in own["body"]
    assert main(["comment", str(stored(tmp_path / "later", a=PASSED)), "--send"]) == 0
    assert len(forge.request_comments) == 121
    assert "### pytest-hetgpu: nothing new" in own["body"]


def test_jobs_side_by_side_have_a_comment_each(forge: ForgeServer, run: Path) -> None:
    for name in ("cuda", "rocm", "cuda"):
        assert main(["comment", str(run), "--send", "--name", name]) == 0
    titles = [post["body"].split("\n")[1] for post in forge.request_comments]
    assert titles == [f"### pytest-hetgpu: {name}: 3 new, 1 changed, 1 fixed" for name in ("cuda", "rocm")]


def test_no_comment_is_added_if_nothing_is_new(
    forge: ForgeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["comment", str(stored(tmp_path, a=PASSED, b=KNOWN)), "--send"]) == 0
    assert forge.request_comments == []
    assert "nothing was sent" in capsys.readouterr().out


def test_a_copied_marker_is_not_taken_for_an_own_comment(forge: ForgeServer, run: Path) -> None:
    assert main(["comment", str(run), "--send"]) == 0
    copied = forge.post(forge.request_comments.pop()["body"], author="stranger")
    forge.request_comments.append(copied)
    assert main(["comment", str(run), "--send"]) == 0
    assert len(forge.request_comments) == 2


def test_an_issue_per_signature_is_opened_once(forge: ForgeServer, run: Path, tmp_path: Path) -> None:
    if forge.kind == "github":
        forge.issues.append(forge.post("a pull request", pull_request={}))
    assert main(["issues", str(run), "--send"]) == 0
    assert main(["issues", str(run), "--send"]) == 0
    opened = [issue for issue in forge.issues if "title" in issue]
    assert [issue["title"] for issue in opened] == ["SIGSEGV (libuct_rocm.so)", "SIGBUS (libmpi.so)"]
    first = opened[0]["body"]
    assert first.startswith("<!-- hetgpu signature ")
    assert "Describe the bug" in first
    assert str(tmp_path) not in first
    assert f"Signature, equal for equal failures: `{KEY}`" in first
    # The same run again changes nothing; another run adds one comment.
    assert [len(forge.comments.get(f"issues/{issue['number']}", [])) for issue in opened] == [0, 0]
    later = stored(tmp_path / "later", a=CRASHED)
    for _ in range(2):
        assert main(["issues", str(later), "--send"]) == 0
    assert len([issue for issue in forge.issues if "title" in issue]) == 2
    (again,) = forge.comments[f"issues/{opened[0]['number']}"]
    assert "Seen again. Run `" in again["body"]
    assert "- `mixed-ucx-a`: rank 0 died of SIGSEGV" in again["body"]
    assert forge.comments.get(f"issues/{opened[1]['number']}", []) == []


def test_no_more_issues_are_opened_than_are_asked_for(
    forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["issues", str(run), "--send", "--most", "1"]) == 0
    assert len(forge.issues) == 1
    assert "not opened, as --most is 1: SIGBUS (libmpi.so)" in capsys.readouterr().out
    assert main(["issues", str(run), "--most", "0"]) == 4


def test_no_secret_and_no_token_is_sent_or_printed(
    forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = f"it printed {TOKEN} and {SECRET}"
    leaking = stored(run.parent / "leaking", a=replace(CRASHED, why=why))
    for command in ("comment", "issues"):
        assert main([command, str(leaking)]) == 0
        assert main([command, str(leaking), "--send"]) == 0
    forge.instead = 401, f'{{"message": "bad token {TOKEN}"}}', {}
    assert main(["comment", str(leaking), "--send"]) == 4
    told = capsys.readouterr()
    posts = [*forge.issues, *forge.request_comments]
    assert len(posts) == 2
    for text in (told.out, told.err, *(post["body"] for post in posts)):
        assert TOKEN not in text
        assert SECRET not in text
    sent = {"github": f"Bearer {TOKEN}", "gitlab": TOKEN}[forge.kind]
    name = {"github": "authorization", "gitlab": "private-token"}[forge.kind]
    assert {headers.get(name) for headers in forge.headers} == {sent}


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (500, "<html>oops", "500 Internal Server Error"),
        (403, '{"message": "Resource not accessible by integration"}', "Resource not accessible"),
        (422, '{"message": {"base": ["is too long"]}}', "is too long"),
        (200, "no JSON", "Expecting value"),
        (200, '{"a": 1}', "the answer"),
        (200, '[{"a": 1}]', "the answer"),
    ],
)
def test_a_server_that_refuses_is_an_error_in_plain_words(
    forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str], status: int, text: str, said: str
) -> None:
    forge.instead = status, text, {}
    for command in ("comment", "issues"):
        assert main([command, str(run), "--send"]) == 4
        error = capsys.readouterr().err
        assert error.startswith("ERROR: ")
        assert "Traceback" not in error
        assert said in error


def test_a_token_follows_no_redirection(forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(forge.kind) as elsewhere:
        forge.instead = 302, "", {"Location": f"{elsewhere.address}/user"}
        assert main(["comment", str(run), "--send"]) == 4
        assert elsewhere.headers == []
    assert "which is not followed" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_named(
    forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "GITHUB_API_URL" if forge.kind == "github" else "CI_API_V4_URL"
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert main(["comment", str(run), "--send"]) == 4
    assert "http://127.0.0.1:9/" in capsys.readouterr().err
    for unsafe in ("http://forge.example", "https://user@forge.example", "ftp://forge.example", "file:///etc/passwd"):
        monkeypatch.setenv(name, unsafe)
        assert main(["comment", str(run), "--send"]) == 4
        assert "only sent to an https address" in capsys.readouterr().err
    for odd in ("https://forge.exam\nple", "https://forge.example\t/api", " https://forge.example", "https://f\x01.e"):
        monkeypatch.setenv(name, odd)
        assert main(["comment", str(run), "--send"]) == 4
        assert "no blanks and no control characters" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["comment", "issues"])
def test_what_sending_needs_is_named(
    forge: ForgeServer,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    token = f"{forge.kind.upper()}_TOKEN"
    monkeypatch.setenv(token, "")
    assert main([command, str(run), "--send"]) == 4
    assert f"in the variable {token}, which is not set" in capsys.readouterr().err
    monkeypatch.setenv(token, "two\nlines")
    assert main([command, str(run), "--send"]) == 4
    assert f"{token} is no token" in capsys.readouterr().err
    monkeypatch.setenv(token, TOKEN)
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.delenv("CI_PROJECT_PATH", raising=False)
    assert main([command, str(run), "--send", "--forge", forge.kind]) == 4
    assert "--repository OWNER/NAME" in capsys.readouterr().err
    for hostile in ("../../user", "o", "o/r?x", "o/r#", "o/r/../x", "o r/x"):
        assert main([command, str(run), "--repository", hostile]) == 4
    assert main([command, str(run), "--link", "javascript:alert(1)"]) == 4
    assert main([command, str(run), "--token", TOKEN]) == 4
    assert forge.requests == []


def test_a_comment_needs_a_pull_request(
    forge: ForgeServer, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REF", raising=False)
    monkeypatch.delenv("CI_MERGE_REQUEST_IID", raising=False)
    assert main(["comment", str(run), "--send"]) == 4
    assert "--pull-request N" in capsys.readouterr().err
    monkeypatch.setenv("CHANGE_ID", "7")
    assert main(["comment", str(run), "--send"]) == 0
    assert len(forge.request_comments) == 1


def test_the_token_of_github_actions_may_not_ask_for_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("github") as forge:
        for name, value in forge.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("GITLAB_CI", raising=False)
        forge.user_status = 403
        forge.request_comments.append(forge.post("hello", author="github-actions[bot]"))
        assert main(["comment", str(run), "--send"]) == 0
        forge.request_comments[-1]["user"]["login"] = "github-actions[bot]"
        assert main(["comment", str(run), "--send"]) == 0
        assert len(forge.request_comments) == 2
    clear_secrets()


def test_a_folder_of_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comment", str(tmp_path)]) == 4
    assert "not the folder of a run" in capsys.readouterr().err
