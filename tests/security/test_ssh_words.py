"""What ssh is called with: hosts are hosts, and nothing of the user's goes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.errors import InventoryError
from pytest_hetgpu.extensions.runtimes._docker.address import address
from pytest_hetgpu.extensions.runtimes.process.ssh import ssh_command
from pytest_hetgpu.model.job import ConnectionInfo

HOSTILE = (
    "-oProxyCommand=touch x",
    "-oProxyCommand=x",
    "a b",
    "$(id)",
    "a;id",
    "a\nb",
    "'a'",
    "a/../b",
    "a,b",
    "@h",
    "",
)


@pytest.fixture(autouse=True)
def _ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("key", ["address", "user", "engine"])
def test_an_inventory_names_hosts_not_options(tmp_path: Path, key: str, hostile: str) -> None:
    file = tmp_path / "hosts.yaml"
    given = {"address": "h", key: f"ssh://{hostile}" if key == "engine" else hostile}
    file.write_text("hardware: {a: [{" + ", ".join(f"{name}: {text!r}" for name, text in given.items()) + "}]}\n")
    with pytest.raises(InventoryError):
        read_inventory(file)


def test_a_host_is_behind_the_options_whatever_it_is_called() -> None:
    """DOCKER_HOST is the user's own, and is not looked at like an inventory."""
    at = address("node0", ConnectionInfo(), {"DOCKER_HOST": "ssh://-oProxyCommand=x"})
    assert at.reach
    argv = ssh_command(at.host, at.reach, ("true",))
    assert argv[argv.index("--") + 1 :] == ("-oproxycommand=x", "true")


def test_words_for_the_other_side_are_quoted() -> None:
    *_, last = ssh_command("h", ConnectionInfo(), ("python3", "-c", "a; b", "$(id)"))
    assert last == "python3 -c 'a; b' '$(id)'"


def test_nothing_of_yours_goes_along() -> None:
    argv = ssh_command("h", ConnectionInfo(key="/k"), ("true",))
    for option in ("ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no", "BatchMode=yes", "IdentitiesOnly=yes"):
        assert argv[argv.index(option) - 1] == "-o"
