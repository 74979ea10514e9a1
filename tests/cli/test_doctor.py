"""`hetgpu doctor`: its report on a machine, and its exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli import doctor
from pytest_hetgpu.cli.doctor import Diagnosis, HostConnection, connection_to, examine, render, to_json
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.cluster.preflight.warning import PreflightWarning
from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.extensions.runtimes.process import query
from pytest_hetgpu.model.facts import Environment, absent, found, unknown
from pytest_hetgpu.model.job import ConnectionInfo, Stack
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs

pytestmark = pytest.mark.usefixtures("testinfra")

FACTS = {
    "shm": found(str(64 << 20)),
    "ucx": found("1.20.1", "as libucp says"),
    "ucx.modules": unknown("no folder"),
    "torch": absent("not here"),
}
FIVE = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/mpi", "/opt/mpi/bin/mpirun", "/opt/mpi/bin/python")
SYSTEM = Stack("openmpi-system", "Open MPI", "4.1.4", "/usr", "/usr/bin/mpirun", "/usr/bin/python3")
BAD = PreflightWarning(Kind.MISSING_LIBRARY, "this machine", "libmpi.so.40 needs libpmix.so.2", "install it")
FEARED = PreflightWarning(Kind.CRASH, "this machine", "32 MiB of shared memory", "give it more", certain=False)


def suite(folder: Path, inventory: str | None = None) -> MatrixSet:
    file = folder / "hosts.yaml"
    if inventory is not None:
        file.write_text(inventory)
    given = file if inventory is not None else None
    return MatrixSet.load((), folder, timeout=1.0, environ={}, inputs=RunInputs(given))


def test_a_machine_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python3"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(query, "_SECONDS", 0.2)
    found = doctor.diagnose("this machine", HostConnection(), lambda _: doctor._ThisMachine())
    assert found.trouble == "the node could not be looked at: `python3` did not end within 0.2 s"


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
    asked: list[HostConnection] = []

    class Gone:
        def run(self, command: str, *args: str) -> Any:
            raise RuntimeError("ssh: connect to host 10.0.0.6 port 22: Connection refused")

    def reach(way: HostConnection) -> Any:
        asked.append(way)
        return Gone() if way.address else doctor.connect(way)

    told = examine(suite(tmp_path, "hardware: {here: [localhost], g4ad: [{address: 10.0.0.6, user: ubuntu}]}"), reach)
    assert [one.name for one in told] == ["here on localhost", "g4ad on 10.0.0.6"]
    assert set(asked) == {HostConnection(), HostConnection("10.0.0.6", "ubuntu")}
    assert told[0].trouble == ""
    assert told[0].environment.text("kernel")
    assert not told[1].fine
    assert told[1].trouble.endswith("Connection refused")
    assert list(render(told[1:])) == ["g4ad on 10.0.0.6", f"  ! {told[1].trouble}", ""]


@pytest.mark.parametrize(
    ("way", "spec"),
    [
        (HostConnection(), "local://"),
        (HostConnection("10.0.0.6"), "ssh://10.0.0.6?timeout=10&controlpersist=0"),
        (HostConnection("fe80::1", port=22), "ssh://[fe80::1]:22?timeout=10&controlpersist=0"),
        (
            HostConnection("10.0.0.6", "ubuntu", 2222, "/keys/a b"),
            "ssh://ubuntu@10.0.0.6:2222?timeout=10&controlpersist=0&ssh_identity_file=/keys/a%20b",
        ),
    ],
)
def test_how_a_host_is_reached(way: HostConnection, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "testinfra_host", lambda asked, **_: asked)
    assert doctor.connect(way) == spec


@pytest.mark.parametrize(
    ("host", "way"),
    [
        (Host("localhost"), HostConnection()),
        (Host("127.0.0.1", ConnectionInfo("", "me", 2222, "/k")), HostConnection("127.0.0.1", "me", 2222, "/k")),
        (Host("localhost", ConnectionInfo("ssh://me@localhost:2222")), HostConnection("localhost", "me", 2222)),
        (Host("10.0.0.6", ConnectionInfo("unix:///run/d.sock")), HostConnection()),
        (
            Host("10.0.0.6", ConnectionInfo("ssh://u@203.0.113.6:2200", "other", 22, "/k")),
            HostConnection("203.0.113.6", "u", 2200, "/k"),
        ),
        (Host("10.0.0.6", ConnectionInfo("ssh://203.0.113.6", "u", 22)), HostConnection("203.0.113.6", "u", 22)),
        (Host("Login1", ConnectionInfo("ssh://Login1")), HostConnection("Login1")),
        (Host("[fe80::1]", ConnectionInfo("ssh://[fe80::1]:22")), HostConnection("fe80::1", None, 22)),
        (Host("fe80::1", ConnectionInfo("ssh://u@fe80::1", "u")), HostConnection("fe80::1", "u")),
    ],
)
def test_a_host_is_looked_at_where_its_engine_is(host: Host, way: HostConnection) -> None:
    assert connection_to(host) == way


def test_a_host_of_several_kinds_is_one_page(tmp_path: Path) -> None:
    asked: list[HostConnection] = []
    searched: list[str] = []

    class Gone:
        def run(self, command: str, *args: str) -> Any:
            searched.extend(json.loads(args[1])["prefixes"])
            raise RuntimeError("gone")

    def reach(way: HostConnection) -> Any:
        asked.append(way)
        return Gone()

    engine = 'engine: "ssh://u@203.0.113.6"'
    inventory = f"hardware: {{a: [{{address: 10.0.0.6, {engine}, prefix: /mpi/a}}], b: [{{address: 10.0.0.6, {engine}, "
    (told,) = examine(suite(tmp_path, inventory + "prefix: /mpi/b}]}"), reach)
    assert asked == [HostConnection("203.0.113.6", "u")]
    assert searched == ["/mpi/a", "/mpi/b"]
    assert told.name == "a, b on 10.0.0.6 (by way of u@203.0.113.6)"
    assert told.kinds == ("a", "b")
    assert json.loads(to_json([told]))["hosts"][0]["kinds"] == ["a", "b"]
    asked.clear()
    (here,) = examine(suite(tmp_path, "hardware: {a: [localhost, localhost], b: [127.0.0.1]}"), connect=doctor.connect)
    assert here.name == "a, b on localhost, 127.0.0.1"


def test_a_key_that_is_not_there_is_said_before_ssh_is_started(tmp_path: Path) -> None:
    def reach(way: HostConnection) -> Any:
        raise AssertionError(way)

    (told,) = examine(suite(tmp_path, "hardware: {a: [{address: 10.0.0.6, key: aws.pem}]}"), reach)
    assert told.trouble == f"key {tmp_path}/aws.pem of the inventory: no such file"
    assert not told.fine


def test_a_report_says_what_is_found_what_is_not_and_what_is_the_matter() -> None:
    told = Diagnosis("this machine", Environment(FACTS), (BAD, FEARED), (FIVE, SYSTEM))
    text = "\n".join(render([told], width=200))
    assert "  stacks found: openmpi-5 (Open MPI 5.0.11) in /opt/mpi\n" in text
    assert "                openmpi-system (Open MPI 4.1.4) in /usr\n" in text
    assert json.loads(to_json([told]))["hosts"][0]["stacks"] == {"openmpi-5": "/opt/mpi", "openmpi-system": "/usr"}
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


def test_without_testinfra_it_looks_at_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "testinfra", None)
    assert main(["doctor"]) in (0, 1)
    assert "    kernel  " in capsys.readouterr().out


def test_without_testinfra_it_names_the_package_that_other_hosts_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "testinfra", None)
    (tmp_path / "hosts.yaml").write_text("hardware: {node: [192.0.2.7]}\n")
    assert main(["doctor", "--inventory", str(tmp_path / "hosts.yaml")]) == 4
    assert "pip install pytest-testinfra" in capsys.readouterr().err
