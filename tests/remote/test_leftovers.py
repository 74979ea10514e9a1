"""The program that finds and removes labelled processes and folders, run alone as on any machine."""

from __future__ import annotations

import ast
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cluster.cleanup.owner import Owner, myself
from pytest_hetgpu.cluster.cleanup.targets import program

PROGRAM = Path(__file__).parents[2] / "pytest_hetgpu" / "remote" / "leftovers.py"


@pytest.fixture
def owner() -> Owner:
    return myself(f"test-{secrets.token_hex(4)}")


@pytest.fixture
def folder(owner: Owner) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hetgpu-", ignore_cleanup_errors=True) as made:
        (Path(made) / ".owner").write_text(owner.text)
        (Path(made) / "key").write_text("secret")
        yield Path(made)


@pytest.fixture
def process(owner: Owner) -> Iterator[subprocess.Popen[str]]:
    """A labelled process with a child that has its own session and an empty environment."""
    child = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], env={{}})"
    env = {**os.environ, "HETGPU_OWNER": owner.text}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as started:
        yield started
        started.kill()


def swept(*remove: Owner) -> list[dict[str, Any]]:
    request = json.dumps({"remove": [one.text for one in remove], "patience": 20})
    argv = [sys.executable, "-I", "-", request]
    done = subprocess.run(argv, input=program(), capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    things: list[dict[str, Any]] = json.loads(done.stdout)["things"]
    return things


def of(things: list[dict[str, Any]], owner: Owner) -> list[tuple[str, object]]:
    return sorted((thing["kind"], thing["ident"]) for thing in things if thing["owner"] == owner.text)


def test_it_runs_on_the_oldest_python_that_a_node_may_have() -> None:
    for path in (PROGRAM, PROGRAM.with_name("segments.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_what_carries_a_label_is_found_and_nothing_is_touched(
    owner: Owner, folder: Path, process: subprocess.Popen[str]
) -> None:
    assert process.stdout
    process.stdout.readline()
    assert of(swept(), owner) == [("folder", str(folder)), ("process", process.pid)]
    assert (folder / "key").exists()
    assert process.poll() is None


def test_what_is_to_go_goes_with_all_below_it_and_what_is_anothers_stays(
    owner: Owner, folder: Path, process: subprocess.Popen[str]
) -> None:
    assert process.stdout
    child = int(process.stdout.readline())
    assert of(swept(myself("other")), owner)
    assert of(swept(owner), owner) == []
    assert not folder.exists()
    assert process.wait(20) != 0
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_folder_that_is_a_link_is_not_followed(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / ".owner").write_text(owner.text)
    link = Path(tempfile.gettempdir(), f"hetgpu-{secrets.token_hex(4)}")
    link.symlink_to(tmp_path)
    try:
        assert of(swept(owner), owner) == []
        assert (tmp_path / ".owner").exists()
    finally:
        link.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_folder_that_another_user_has_signed_is_passed_over(owner: Owner, folder: Path) -> None:
    os.chown(folder / ".owner", 12345, -1)
    assert of(swept(owner), owner) == []
    assert folder.exists()
