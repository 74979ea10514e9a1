"""What cannot be run ends with exit 4, one clear message that names the file, nothing started, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("stacks")

Patch = pytest.MonkeyPatch
Run = Callable[..., pytest.RunResult]

TEXTS: dict[str, tuple[str | bytes, str]] = {
    "malformed": ("axes: [", "not YAML"),
    "unknown key": ("hardwar: {}", "unknown key 'hardwar'"),
    "empty": ("", "is empty"),
    "a list": ("- a\n- b\n", "a matrix is a map"),
    "tag": ("name: !!python/object:os.system x\n", "explicit tag"),
    "duplicate key": ("name: a\nname: b\n", "key 'name' is there twice (first in line 1)"),
    "brackets": ("a: " + "[" * 5000, "nested more than"),
    "binary": (b"\x7fELF\x02\x01\x00\xff\xfe", "not a text file"),
    "50 MB": (b"#" + b"x" * 50_000_000, "is 50.0 MB"),
}


def usage_error(done: pytest.RunResult, *words: str) -> None:
    text = done.stderr.str() + done.stdout.str()
    assert done.ret == 4, text
    for word in words:
        assert word in done.stderr.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text


@pytest.mark.parametrize("case", TEXTS)
def test_bad_file(run_pytest: Run, pytester: pytest.Pytester, case: str) -> None:
    text, words = TEXTS[case]
    path = pytester.path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    usage_error(run_pytest("--hetgpu-matrix", "bad.yaml"), "bad.yaml", words)
    assert not (pytester.path / "reports").exists()


def test_malformed_file_however_pytest_runs(run_pytest: Run, pytester: pytest.Pytester, mode: tuple[str, ...]) -> None:
    (pytester.path / "bad.yaml").write_text("axes: [")
    usage_error(run_pytest("--hetgpu-matrix", "bad.yaml", *mode), "bad.yaml", "not YAML")


def test_directory(run_pytest: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "folder.yaml").mkdir()
    usage_error(run_pytest("--hetgpu-matrix", "folder.yaml"), "folder.yaml", "is a directory")


def test_no_such_file(run_pytest: Run) -> None:
    usage_error(run_pytest("--hetgpu-matrix", "nowhere.yaml"), "nowhere.yaml", "no such matrix file")


def test_reports_folder_in_the_way(run_pytest: Run, matrix: Callable[..., Path], pytester: pytest.Pytester) -> None:
    matrix(["good"])
    (pytester.path / "taken").write_text("a file")
    usage_error(run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-reports", "taken"), "reports folder", "taken")


def test_unwritable_reports_folder(run_pytest: Run, matrix: Callable[..., Path]) -> None:
    matrix(["good"])
    usage_error(
        run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-reports", "/proc/reports"), "reports folder /proc/reports"
    )


def test_bad_inventory(run_pytest: Run, matrix: Callable[..., Path], pytester: pytest.Pytester) -> None:
    matrix(["good"])
    (pytester.path / "hosts.yaml").write_text("hardwar: {}\n")
    usage_error(
        run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-inventory", "hosts.yaml"), "hosts.yaml:1", "hardwar"
    )


def test_all_complaints_at_once(run_pytest: Run, matrix: Callable[..., Path]) -> None:
    path = matrix(["good"])
    path.write_text(path.read_text().replace("platform: cpu", "platfrom: cpu").replace("family: ob1", "family: obi"))
    usage_error(
        run_pytest("--hetgpu-matrix", "demo.yaml"),
        "demo.yaml:3: unknown key 'platfrom'",
        "demo.yaml:6: unknown transport family 'obi'",
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HETGPU_LEASE_TIMEOUT", "soon", "HETGPU_LEASE_TIMEOUT=soon is no number of seconds"),
        ("HETGPU_LEASES", "/dev/null", "/dev/null cannot hold leases: "),
    ],
)
def test_leases_that_cannot_be_taken(
    run_pytest: Run, matrix: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    path = matrix()
    monkeypatch.setenv(name, value)
    usage_error(run_pytest("--hetgpu-matrix", path.name), said)
    assert not (path.parent / "reports").exists()


@pytest.mark.parametrize("option", ["matrix", "inventory", "knowledge", "signatures", "baseline"])
def test_a_pipe_without_a_writer(
    run_pytest: Run, matrix: Callable[..., Path], pytester: pytest.Pytester, option: str
) -> None:
    matrix(["good"])
    os.mkfifo(pytester.path / "pipe")
    given = () if option == "matrix" else ("--hetgpu-matrix", "demo.yaml")
    usage_error(
        run_pytest(*given, f"--hetgpu-{option}", "pipe"), "pipe: cannot be read: it is a named pipe, not a file"
    )


def test_more_cells_than_the_limit(
    run_pytest: Run, matrix: Callable[..., Path], mode: tuple[str, ...], pytester: pytest.Pytester, monkeypatch: Patch
) -> None:
    matrix(["good", "exit3", "hang"])
    said = "demo.yaml: its axes make 3 cells; at most 2 are allowed here"
    usage_error(run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-max-cells", "2", *mode), said)
    monkeypatch.setenv("HETGPU_MAX_CELLS", "2")
    usage_error(run_pytest("--hetgpu-matrix", "demo.yaml", "--collect-only", *mode), said)
    monkeypatch.delenv("HETGPU_MAX_CELLS")
    pytester.makeini("[pytest]\nhetgpu_max_cells = 2\n")
    usage_error(run_pytest("--hetgpu-matrix", "demo.yaml", *mode), said)
    for more in ("3", "off"):
        done = run_pytest("--hetgpu-matrix", "demo.yaml", "--hetgpu-max-cells", more, "--hetgpu-plan", *mode)
        assert done.ret == 0


def test_the_limit_is_for_all_matrices_together(run_pytest: Run, matrix: Callable[..., Path]) -> None:
    matrix(["good", "exit3"])
    matrix(["good", "exit3"], name="second")
    both = ("--hetgpu-matrix", "demo.yaml", "--hetgpu-matrix", "second.yaml", "--hetgpu-plan")
    assert run_pytest(*both, "--hetgpu-max-cells", "4").ret == 0
    said = "second.yaml: its axes make 2 cells; at most 1 are allowed here"
    usage_error(run_pytest(*both, "--hetgpu-max-cells", "3"), said)
