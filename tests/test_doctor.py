"""`hetgpu doctor`: what it says of a machine, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu import doctor
from pytest_hetgpu.accounting import Environment
from pytest_hetgpu.cli import main
from pytest_hetgpu.doctor import Diagnosis, examine, render, to_json
from pytest_hetgpu.inventory import Host
from pytest_hetgpu.model import Kind, Reach
from pytest_hetgpu.preflight.concern import Concern
from pytest_hetgpu.probes.base import absent, found, unknown
from pytest_hetgpu.suite import Suite

pytest.importorskip("testinfra")

FACTS = {
    "shm": found(str(64 << 20)),
    "ucx": found("1.20.1", "as libucp says"),
    "ucx.modules": unknown("no folder"),
    "torch": absent("not here"),
}
BAD = Concern(Kind.MISSING_LIBRARY, "this machine", "libmpi.so.40 needs libpmix.so.2", "install it")
FEARED = Concern(Kind.CRASH, "this machine", "32 MiB of shared memory", "give it more", certain=False)


def suite(folder: Path, inventory: str | None = None) -> Suite:
    file = folder / "hosts.yaml"
    if inventory is not None:
        file.write_text(inventory)
    given = file if inventory is not None else None
    return Suite.load((), folder, inventory_file=given, timeout=1.0, environ={})


def test_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["doctor"])
    out = capsys.readouterr().out
    assert code in (0, 1)
    assert out.startswith("this machine\n")
    assert "\n  System\n    os " in out
    assert ("  ! " in out) == (code == 1)


def test_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    host = data["hosts"][0]
    assert data["schema"] == 1
    assert host["facts"]["kernel"]["state"] == "found"
    assert host["fine"] == (code == 0)


def test_every_host_of_an_inventory_by_its_own_reach(tmp_path: Path) -> None:
    asked: list[Host] = []

    class Gone:
        def run(self, command: str, *args: str) -> Any:
            raise RuntimeError("ssh: connect to host 10.0.0.6 port 22: Connection refused")

    def reach(host: Host) -> Any:
        asked.append(host)
        return doctor.reach(host) if host.address == "localhost" else Gone()

    told = examine(suite(tmp_path, "hardware: {here: [localhost], g4ad: [{address: 10.0.0.6, user: ubuntu}]}"), reach)
    assert [one.name for one in told] == ["here on localhost", "g4ad on 10.0.0.6"]
    assert {host.address for host in asked} == {"localhost", "10.0.0.6"}
    assert told[0].trouble == ""
    assert told[0].environment.text("kernel")
    assert not told[1].fine
    assert told[1].trouble.endswith("Connection refused")
    assert list(render(told[1:])) == ["g4ad on 10.0.0.6", f"  ! {told[1].trouble}", ""]


@pytest.mark.parametrize(
    ("host", "spec"),
    [
        (Host("localhost"), "local://"),
        (Host("10.0.0.6"), "ssh://10.0.0.6?timeout=10&controlpersist=0"),
        (
            Host("10.0.0.6", Reach(user="ubuntu", port=2222, key="/keys/a b")),
            "ssh://ubuntu@10.0.0.6:2222?timeout=10&controlpersist=0&ssh_identity_file=/keys/a%20b",
        ),
    ],
)
def test_how_a_host_is_reached(host: Host, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "testinfra_host", lambda asked, **_: asked)
    assert doctor.reach(host) == spec


def test_a_report_says_what_is_found_what_is_not_and_what_is_the_matter() -> None:
    told = Diagnosis("this machine", Environment(FACTS), (BAD, FEARED), {"openmpi-5": "/opt/mpi", "openmpi-system": ""})
    text = "\n".join(render([told], width=200))
    assert "  stack openmpi-5: /opt/mpi\n" in text
    assert "  stack openmpi-system: of the system\n" in text
    assert "    shm                    64 MiB\n" in text
    assert "    ucx                    1.20.1 (as libucp says)\n" in text
    assert "    ucx.modules            ? (no folder)\n" in text
    assert "  PyTorch: - (not here)\n" in text
    assert "  ! libmpi.so.40 needs libpmix.so.2: install it\n" in text
    assert "  ~ 32 MiB of shared memory: give it more\n" in text


def test_long_values_are_wrapped() -> None:
    told = Diagnosis("a", Environment({"ucx": found(("word",) * 100)}))
    assert max(map(len, render([told], width=80))) <= 80


def test_only_what_is_certain_makes_it_fail() -> None:
    assert Diagnosis("a", Environment(FACTS), (FEARED,)).fine
    assert not Diagnosis("a", Environment(FACTS), (FEARED, BAD)).fine
    assert json.loads(to_json([Diagnosis("a", Environment(FACTS), (BAD,))]))["hosts"][0]["concerns"] == [
        {"kind": "missing_library", "why": BAD.why, "cure": "install it", "certain": True}
    ]


def test_a_bad_inventory_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts.yaml").write_text("hardwear: {}\n")
    assert main(["doctor", "--inventory", str(tmp_path / "hosts.yaml")]) == 4
    assert "hosts.yaml:1" in capsys.readouterr().err


def test_without_testinfra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "testinfra", None)
    assert main(["doctor"]) == 4
    assert "pip install pytest-testinfra" in capsys.readouterr().err
