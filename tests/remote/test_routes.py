"""The routes of a node to hosts, as `remote/routes.py` prints them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

import pytest_hetgpu
from pytest_hetgpu.cluster import routes

PROGRAM = Path(pytest_hetgpu.__file__).parent / "remote" / routes.ROUTES_PROGRAM


def run(*hosts: str) -> bytes:
    """Return the output of the program here."""
    return subprocess.run((sys.executable, str(PROGRAM), *hosts), capture_output=True, check=True, timeout=30).stdout


def addresses() -> dict[str, set[str]]:
    """Return the addresses of each interface that has any."""
    families = ("AF_INET", "AF_INET6")
    found = {
        name: {one.address.partition("%")[0] for one in each if one.family.name in families}
        for name, each in psutil.net_if_addrs().items()
    }
    return {name: each for name, each in found.items() if each}


def test_the_addresses_of_every_interface() -> None:
    before = addresses()
    held: dict[str, Any] = json.loads(run())["addresses"]
    after = addresses()
    # Those of containers that start or end meanwhile come and go.
    steady = {name: each for name, each in before.items() if after.get(name) == each}
    assert "lo" in steady
    assert {name: {*held[name]} for name in steady} == steady


def test_hosts_as_the_node_resolves_them() -> None:
    found = routes.read(run("127.0.1.1", "localhost", "no-such-host.invalid", "a..b"))
    assert found.hosts["127.0.1.1"] == (("127.0.1.1", "127.0.0.1"),)
    assert ("127.0.0.1", "127.0.0.1") in found.hosts["localhost"]
    assert found.hosts["no-such-host.invalid"] == found.hosts["a..b"] == ()


def test_an_address_of_this_machine_belongs_to_its_interface() -> None:
    own = routes.read(run()).addresses
    for name, each in own.items():
        for address in each:
            if name != "lo" and not address.startswith("fe80:"):
                chosen = routes.carrying(routes.read(run(address)), address)
                assert chosen
                assert chosen.name == name
