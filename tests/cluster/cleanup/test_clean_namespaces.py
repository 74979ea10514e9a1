"""What `hetgpu clean` does about namespaces: every one of the ledgers is looked at, nothing goes unasked."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.cluster.cleanup.ledger import ENDING, FOLDER_VARIABLE, head, opened
from pytest_hetgpu.cluster.cleanup.owner import Owner, myself
from pytest_hetgpu.extensions.runtimes._kubernetes.leftovers import namespace_spot

# Objects are files beside the configuration, of which a slow one only says that it goes; a cluster that is "down"
# answers from the second question on.
KUBECTL = f"""#!{sys.executable} -I
import json, os, sys
from pathlib import Path
there = Path(os.environ["KUBECONFIG"] + ".objects")
verb, *rest = [word for word in sys.argv[1:] if not word.startswith("-")]
if (there / "down").exists():
    (there / "down").unlink()
    sys.exit("The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?")
if verb == "get":
    print(json.dumps({{"items": [json.loads(file.read_text()) for file in sorted(there.glob(rest[0] + "/*"))]}}))
for name in rest if verb == "delete" else ():
    file = there / name
    if "slow" in name:
        known = json.loads(file.read_text())
        known["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        file.write_text(json.dumps(known))
    else:
        file.unlink(missing_ok=True)
"""
RUN = f"run-{secrets.token_hex(4)}"
DEAD = replace(myself(RUN), start="1")
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Writes a dead run's ledger of a namespace, always of one name, and what is there; gives where that is."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "ledgers"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "ledgers").mkdir(mode=0o700)

    def write(config: str, kinds: tuple[str, ...], *objects: str, owner: Owner = DEAD) -> Path:
        spot = namespace_spot("default", "default", str(tmp_path / config), kinds)
        ledger = tmp_path / "ledgers" / f"{config}-{kinds[0]}{ENDING}"
        ledger.write_text(head(owner) + opened(0, spot))
        there = tmp_path / f"{config}.objects"
        for kind, name in (one.split("/") for one in objects):
            (there / kind).mkdir(parents=True, exist_ok=True)
            meta = {"name": name, "annotations": {"hetgpu.label": owner.text}}
            (there / kind / name).write_text(json.dumps({"kind": kind.title().removesuffix("s"), "metadata": meta}))
        return there

    return write


def clean(*options: str) -> int:
    return main(["clean", "--run", RUN, *options])


def test_clusters_of_one_name_are_all_looked_at(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [made(config, ("pods",), "pods/one") / "pods" / "one" for config in ("a", "b")]
    made("c", ("pods",))
    assert clean() == 1
    shown = capsys.readouterr().out.splitlines()
    for config, row in zip("ab", shown[1:3], strict=True):
        assert row.split()[:2] == ["pod", "one"]
        assert f"namespace default of Kubernetes at default ({tmp_path}/{config})" in row
    assert all(pod.exists() for pod in pods)
    assert clean("--yes") == 0
    assert "removed 2 pods" in capsys.readouterr().out
    assert not [pod for pod in pods if pod.exists()]
    assert list((tmp_path / "ledgers").iterdir()) == []


def test_kinds_that_only_one_ledger_names_are_looked_at_and_removed(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made("a", ("services", "pods"), "services/one", "pods/one")
    there = made("a", ("jobs.batch", "pods"), "jobs.batch/one")
    assert clean() == 1
    rows = [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:-1]]
    assert sorted(rows) == ["jobs.batch", "pod", "service"]
    assert clean("--yes") == 0
    assert not [path for path in there.rglob("*") if path.is_file()]


def test_a_pod_that_takes_its_time_to_end_is_removed_and_said_to_be_on_its_way(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = made("a", ("pods",), "pods/slow") / "pods" / "slow"
    assert clean("--yes") == 0
    assert "removed 1 pod" in capsys.readouterr().out
    assert pod.exists()
    assert list((tmp_path / "ledgers").iterdir()) == []
    made("a", ("pods",))
    assert clean() == 0
    where = f"namespace default of Kubernetes at default ({tmp_path}/a)"
    assert f"1 pod left alone: on the way out of {where} already" in capsys.readouterr().out


def test_what_was_not_looked_at_is_not_removed_unasked(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = made("a", ("pods",), "pods/one")
    (there / "down").touch()
    assert clean() == 1
    assert "was not looked at" in capsys.readouterr().err
    assert (there / "pods" / "one").exists()
    assert len(list((tmp_path / "ledgers").iterdir())) == 1
    (there / "down").touch()
    assert clean("--yes") == 1
    assert not (there / "pods" / "one").exists()
