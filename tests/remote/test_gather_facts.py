"""The program that gathers facts of a node, run for real."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "pytest_hetgpu" / "remote" / "gather_facts.py"


def look(request: dict[str, Any], stdin: bool = False, **env: str) -> dict[str, Any]:
    text = json.dumps(request)
    argv = [sys.executable, str(PROGRAM)] + ([] if stdin else [text])
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, check=True, env={**os.environ, **env}, timeout=30
    )
    assert done.stdout.count("\n") == 1
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_it_is_written_for_the_oldest_python_of_a_cluster() -> None:
    ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("stdin", [False, True])
def test_files_below_a_root_by_globs(tmp_path: Path, stdin: bool) -> None:
    for name in ("b10", "b9", "a"):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text(f"I am {name}\n")
    answer = look({"files": ["/etc/b*", "/etc/b9", "/none"], "root": str(tmp_path)}, stdin)
    assert list(answer["files"].items()) == [("/etc/b9", "I am b9\n"), ("/etc/b10", "I am b10\n")]


def test_a_binary_file_is_text_all_the_same_and_cut(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"\xff\x00x" * 100_000)
    answer = look({"files": ["/long", ["/long", 3]], "root": str(tmp_path)})
    assert len(answer["files"]["/long"]) == 64 * 1024
    short = look({"files": [["/long", 3]], "root": str(tmp_path)})
    assert short["files"]["/long"] == "\ufffd\nx"


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    answer = look({"files": ["/folder", "/gone"], "root": str(tmp_path)})
    assert answer["files"] == {}
    assert answer["unread"]["/folder"] == "Is a directory"


def test_texts_that_are_not_worth_telling(tmp_path: Path) -> None:
    (tmp_path / "zero").write_text("0000\n")
    (tmp_path / "one").write_text("0001\n")
    assert look({"files": ["/*"], "skip": ["0000"], "root": str(tmp_path)})["files"] == {"/one": "0001\n"}


def test_a_path_says_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "libx.so.1.2").touch()
    (tmp_path / "libx.so").symlink_to("libx.so.1.2")
    found = look({"paths": ["/libx.so", "/none"], "root": str(tmp_path)})["paths"]
    assert found == {"/libx.so": {"real": str((tmp_path / "libx.so.1.2").resolve()), "may": "rw"}}


def test_commands_answer_are_missing_fail_or_take_too_long() -> None:
    python = ["{python}", "-c"]
    commands = {
        "good": [*python, "import sys; print('out'); print('err', file=sys.stderr)"],
        "bad": [*python, "raise SystemExit(3)"],
        "none": ["no-such-program-here"],
        "slow": [*python, "import signal; signal.pause()"],
        "literal": [*python, "import sys; print(sys.argv[1])", "$(id); *"],
    }
    started = time.monotonic()
    answer = look({"commands": commands, "timeout": 1})["commands"]
    assert time.monotonic() - started < 10
    assert answer["good"] == {"rc": 0, "out": "out\n", "err": "err\n"}
    assert answer["bad"]["rc"] == 3
    assert answer["none"] == {"missing": True}
    assert answer["slow"] == {"timeout": True}
    assert answer["literal"]["out"] == "$(id); *\n"


def test_what_a_slow_command_started_goes_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    inner = f"import subprocess, sys; subprocess.run(['sleep', '60'], stdout=open({str(fifo)!r}, 'w'))"
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    assert look({"commands": {"slow": ["{python}", "-c", inner]}, "timeout": 1})["commands"]["slow"] == {
        "timeout": True
    }
    assert os.read(reader, 1) == b""  # the last that held its other end is gone
    os.close(reader)


def test_a_command_for_each_file_of_a_prefix_before_the_usual_places(tmp_path: Path) -> None:
    for part in ("one/lib", "two/lib"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "libhetgpu.so.1").write_text(part)
    (tmp_path / "two/lib/libother.so.1").touch()
    (tmp_path / "two/lib/libsame.so.1").symlink_to("libother.so.1")
    say = {"say": {"argv": ["{python}", "-c", "import sys; print(open(sys.argv[1]).read())"]}}
    say["say"]["paths"] = ["{lib}/libhetgpu.so.1", "{lib}/libother.so.1", "{lib}/libsame.so.1"]
    answer = look({"each": say, "prefixes": [str(tmp_path / "one"), str(tmp_path / "two")]})["commands"]
    # The one of that name that a loader would take, and a file once however many names it has.
    assert list(answer) == [f"say {tmp_path}/one/lib/libhetgpu.so.1", f"say {tmp_path}/two/lib/libother.so.1"]
    assert answer[f"say {tmp_path}/one/lib/libhetgpu.so.1"]["out"] == "one/lib\n"
    assert look({"each": {"say": {**say["say"], "paths": ["{lib}/libnone*"]}}})["commands"] == {}


def test_variables_of_the_job_hold_for_everything(tmp_path: Path) -> None:
    (tmp_path / "libhetgpu.so.1").touch()
    asked = {"each": {"say": {"argv": ["echo"], "paths": ["{lib}/libhetgpu.so.1"]}}, "env": ["LD_LIBRARY_PATH", "NONE"]}
    given = tmp_path / "given"
    given.write_text(json.dumps({"LD_LIBRARY_PATH": str(tmp_path)}))
    answer = look({**asked, "environ": str(given)})
    assert list(answer["commands"]) == [f"say {tmp_path}/libhetgpu.so.1"]
    assert answer["env"] == {"LD_LIBRARY_PATH": str(tmp_path)}


def test_texts_that_a_binary_holds(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libhetgpu.so.1").write_bytes(b"\x00mca_pml_ucx_component\x00mca_pml_ucx_component\x00x\x00mca_no")
    asked = {"paths": ["{lib}/libhetgpu.so.1"], "pattern": r"(?<=\x00)mca_\w+_component(?=\x00)"}
    found = look({"strings": {"mca": asked}, "prefixes": [str(tmp_path)]})["strings"]
    assert found == {"mca": {f"{tmp_path}/lib/libhetgpu.so.1": ["mca_pml_ucx_component"]}}


def test_the_loader_tells_what_it_does_not_find() -> None:
    listed = {"ldd": {"argv": ["{ldd}"], "paths": [sys.executable]}}
    ran = look({"each": listed})["commands"][f"ldd {sys.executable}"]
    assert ran["rc"] == 0
    assert "libc.so" in ran["out"] or "ld-musl" in ran["out"]


def test_room_and_the_system() -> None:
    answer = look({"space": ["/", "/no/such/folder"]})
    assert set(answer["space"]) == {"/"}
    assert answer["space"]["/"]["size"] >= answer["space"]["/"]["free"] > 0
    assert answer["system"]["kernel"] == os.uname().release
