"""Client configurations of OpenSSH."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.extensions.inventories.base import UNKNOWN_PLATFORM, ListedHost, MalformedInventory
from pytest_hetgpu.extensions.inventories.ssh_config import SshConfigSource

TEXT = """\
User everybody
Host gpu1 gpu2
    HostName %h.cluster.example
    Port = 2222
Host far
    HostName 10.0.0.9
    ProxyJump bastion
Host odd
    HostName %L.example
Host "quoted"
    IdentityFile "~/my keys/id"
Include conf.d/*
Match host gpu1
    User nobody
Match all
    IdentityFile %d/.ssh/all
Host gpu* !gpu2
    User late
    IdentityFile none
"""


def test_hosts_with_what_holds_for_them() -> None:
    # As `ssh -G` says: the first value that is obtained wins.
    found = {one.name: one for one in SshConfigSource.read(TEXT).hosts}
    assert {one.platform for one in found.values()} == {UNKNOWN_PLATFORM}
    assert {name: replace(one, platform="") for name, one in found.items()} == {
        "gpu1": ListedHost("gpu1.cluster.example", "gpu1", 2, user="everybody", port="2222", key="~/.ssh/all"),
        "gpu2": ListedHost("gpu2.cluster.example", "gpu2", 2, user="everybody", port="2222", key="~/.ssh/all"),
        "quoted": ListedHost("quoted", "quoted", 10, user="everybody", key="~/my keys/id"),
    }


def test_what_only_ssh_can_reach_or_decide_is_left_out() -> None:
    left = {one.name: (one.why, one.line) for one in SshConfigSource.read(TEXT).skipped}
    assert left["far"] == (
        "is behind a ProxyJump: name it in a YAML inventory, by its alias in your own ssh configuration",
        5,
    )
    assert left["odd"] == ("has a HostName that only ssh can write out ('%L.example')", 8)
    assert left["Include conf.d/*"] == ("is not followed; give that file instead", 12)
    assert left["Match host gpu1"] == ("cannot be decided without ssh; its settings are not used", 13)


def test_negated_patterns_and_wildcards() -> None:
    found = SshConfigSource.read("Host a1 a2 b\nHost a? !a2\n  User me\n").hosts
    assert {one.name: one.user for one in found} == {"a1": "me", "a2": None, "b": None}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("Host\n", 1, "Host names nothing"),
        ('Host a\n  User "me\n', 2, "has a quotation mark that is not closed"),
        ("Host a\n  - x\n", 2, "'- x' is no keyword with a value"),
        ("Host a\n\n  Port\n", 3, "Port has no value"),
    ],
)
def test_what_is_wrong(text: str, line: int, told: str) -> None:
    with pytest.raises(MalformedInventory) as caught:
        SshConfigSource.read(text)
    assert told in str(caught.value)
    assert caught.value.line == line


PLAIN = """\
Host a a-?
  User me
Host a b
  HostName %h.example
  User late
  Port 2200
Host * !b
  Port 22
  IdentityFile ~/.ssh/id
Host a-1
  HostName 10.0.0.1
"""


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")
def test_ssh_itself_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(PLAIN)
    found = SshConfigSource.read(PLAIN).hosts
    assert [one.name for one in found] == ["a", "b", "a-1"]
    for one in found:
        command = ("ssh", "-F", str(tmp_path / "config"), "-G", one.name)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said: dict[str, str] = {}
        for row in done.stdout.splitlines():
            said.setdefault(*row.split(" ", 1))
        assert (said["hostname"], said["port"]) == (one.address, one.port or "22")
        assert one.user is None or said["user"] == one.user
        assert one.key is None or said["identityfile"] == one.key
