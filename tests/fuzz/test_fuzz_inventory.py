"""An inventory of any bytes: hosts that ssh takes for hosts, or complaints."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_hetgpu.config.inventory.file import read as read_inventory
from pytest_hetgpu.errors import InventoryError, ProvisionError
from pytest_hetgpu.extensions.runtimes._docker.address import address
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, harmless, told

FOLDER = Path(__file__).resolve().parents[2] / "matrices"
SAMPLES = [path.read_bytes() for path in sorted(FOLDER.glob("*.hosts.yaml"))] + [
    b"hardware:\n  a: [10.0.0.5, {address: 'fe80::1%eth0', user: u, port: 22, key: ~/.ssh/k, prefix: /opt/mpi}]\n"
    b"  b: [{address: h, engine: 'ssh://u@h:22', capabilities: [large-bar]}]\n"
    b"stacks: {openmpi-5: /opt/ompi}\nbuild: {'*': {args: {A: b}, network: host}}\n"
]
WORDS = [
    *(b"hardware", b"stacks", b"build", b"address", b"engine", b"user", b"port", b"key", b"prefix", b"capabilities"),
    *(b"ssh://", b"unix:///x", b"tcp://h:2375", b"http://h", b"-oProxyCommand=id", b"localhost", b"::1", b"[::1]:22"),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b": ",
        b"- ",
        b"&a",
        b"*a",
        b"<<: *a",
        b"!!python/name:os.system",
        b"~",
        b"'",
        b'"',
        b"$",
    ),
    *(b"`id`", b"$(id)", b";", b"99999999999999999999", b"-1", b"1e309", b"../../x", b"~root/x", b"%", b"@", b"\\"),
    *(b'"\\x1b[2J"', b'"\\0"', b'"\\n"', b'"\\u202e"', b"\xc2\x85"),
]


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        read = read_inventory(path)
    except InventoryError as error:
        told(error)
        return
    assert read_inventory(path) == read
    for host in (host for hosts in read.hardware.values() for host in hosts):
        for text in filter(None, (host.address, host.reach.user, host.prefix)):
            assert not text.startswith("-")
            assert not set(text) & set(" \t\n\r\0'\"`$;&|<>(){}\\!*?")
        try:
            assert address("node0", host.reach, {}).url.startswith(("ssh://", "unix://"))
        except ProvisionError as error:
            harmless(str(error))


def test_bytes(tmp_path: Path) -> None:
    fuzz(damaged(SAMPLES, WORDS), lambda data: check(tmp_path / "h.yaml", data))


@pytest.mark.parametrize("case", cases("inventory"), ids=lambda path: path.name)
def test_what_was_found(tmp_path: Path, case: Path) -> None:
    with bounded():
        check(tmp_path / "h.yaml", case.read_bytes())
