"""Every kind of secret in every place that a text can come from: none in what a CI publishes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reporting.test_fifty_secrets import KINDS

pytestmark = pytest.mark.usefixtures("stacks")

Run = Callable[..., pytest.RunResult]

TEXTS = [text for text, _ in KINDS.values()]
FILES = [text for text in TEXTS if not {"/", "\n"} & {*text}]
HOSTS = [text for text in TEXTS if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", text)]
OUTPUT = """\
import sys
for word in sys.argv: print(word)
raise SystemExit("ERROR: it cannot go on")
"""
SCENARIO = f"""\
def test_cell(run):
    run()


def test_a_file(scenario, tmp_path):
    for name in {FILES!r}:
        try:
            (tmp_path / name).touch()
            (tmp_path / name).mkdir()
        except OSError as error:
            print(error)
    print(*tmp_path.iterdir())
    (tmp_path / "none" / {FILES[0]!r}).open()


def test_the_environment(scenario):
    assert scenario is None, {chr(10).join(TEXTS)!r}
"""


def matrix(*argv: str, env: dict[str, str] | None = None, nodes: int = 1) -> str:
    program = {"kind": "command", "mpi": False, "check": False, "timeout": 30, "argv": ["prog", *argv]}
    return json.dumps(
        {
            "name": "demo",
            "hardware": {"cpu": {"platform": "cpu", "env": env or {}}},
            "axes": {
                "placement": {"all": ["cpu"] * nodes},
                "transport": {"ob1-tcp": {"family": "ob1"}},
                "workload": {"program": program},
                "how": {"shows": {"env": {f"OF_{name}": value for name, value in (env or {}).items()}}},
            },
        }
    )


PLACES = {
    "argv": matrix(*TEXTS),
    "environment": matrix(env={f"SETTING_{number}": text for number, text in enumerate(TEXTS)}),
    "file names": matrix(*(f"/data/{text}/x.bin" for text in FILES), *(f"--input={text}.txt" for text in FILES)),
    "host names": matrix(nodes=len(HOSTS)),
}


@pytest.fixture
def site(pytester: pytest.Pytester, stacks: Path) -> Path:
    """A stand-in for mpirun that prints its command line, and fails."""
    mpirun = stacks / "openmpi-5/bin/mpirun"
    mpirun.write_text(f"#!{sys.executable} -S\n{OUTPUT}")
    (pytester.path / "hosts.yaml").write_text(json.dumps({"hardware": {"cpu": HOSTS}}))
    (pytester.path / "test_secret.py").write_text(SCENARIO)
    return pytester.path


@pytest.mark.parametrize("place", PLACES)
def test_no_kind_is_published_from_anywhere(run_pytest: Run, site: Path, mode: tuple[str, ...], place: str) -> None:
    assert (len(TEXTS) >= 60, len(FILES) >= 45, len(HOSTS) >= 20) == (True, True, True)
    (site / "m.yaml").write_text(PLACES[place])
    more = ("--hetgpu-inventory", "hosts.yaml") if place == "host names" else ()
    given = ("--hetgpu-matrix", "m.yaml", "--junitxml", "own.xml", "-rA", "--hetgpu-debug-rerun", "test_secret.py")
    done = run_pytest(*given, *more, *mode)
    assert done.ret == 1, f"{done.stdout}\n{done.stderr}"
    assert "it cannot go on" in str(done.stdout)
    shown = {"terminal": f"{done.stdout}\n{done.stderr}".encode(), "own.xml": (site / "own.xml").read_bytes()}
    files = [path for path in (site / "reports").rglob("*") if path.is_file() and ".private" not in path.parts]
    assert {path.name for path in files} >= {"job.json", "output.log", "junit.xml", "summary.md", "index.html"}
    shown |= {str(path): path.read_bytes() for path in files}
    shown["names"] = "\n".join(map(str, files)).encode()
    found = [
        (kind, name) for name, data in shown.items() for kind, (_, secret) in KINDS.items() if secret.encode() in data
    ]
    assert not found, "\n".join(map(str, found))
