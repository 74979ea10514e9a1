"""Where the hardware of a matrix is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.errors import InventoryError, NotHere
from pytest_hetgpu.inventory import LOCAL, Host, Inventory, read
from pytest_hetgpu.model import Accelerator, Hardware

GOOD = """\
hardware:
  g4ad:
    - 10.0.0.5
    - {address: 10.0.0.6, user: ubuntu, key: keys/g4ad, engine: "ssh://ubuntu@10.0.0.6", capabilities: no-large-bar}
  g4dn: [10.0.0.7]
stacks:
  openmpi-5: stacks/openmpi
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def write_text(text: str) -> Path:
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / "hosts.yaml").write_text(text)
        monkeypatch.chdir(tmp_path)
        return Path("site/hosts.yaml")

    return write_text


def test_hosts_are_addresses_or_maps_and_paths_start_at_the_file(write: Callable[[str], Path], tmp_path: Path) -> None:
    inventory = read(write(GOOD))
    assert inventory == Inventory(
        True,
        "site/hosts.yaml",
        {
            "g4ad": (
                Host("10.0.0.5"),
                Host(
                    "10.0.0.6",
                    "ssh://ubuntu@10.0.0.6",
                    "ubuntu",
                    tmp_path / "site" / "keys" / "g4ad",
                    frozenset({"no-large-bar"}),
                ),
            ),
            "g4dn": (Host("10.0.0.7"),),
        },
        {"openmpi-5": tmp_path / "site" / "stacks" / "openmpi"},
    )


def test_a_home_folder_is_written_out(write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert read(write("stacks: {openmpi-5: ~/openmpi}")).stacks == {"openmpi-5": Path("/home/me/openmpi")}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["site/hosts.yaml: is empty"]),
        ("- a", ["site/hosts.yaml:1: the file must be a map, not a list"]),
        (
            "hardwar: {}",
            ["site/hosts.yaml:1: unknown key 'hardwar' (known: hardware, stacks; did you mean 'hardware'?)"],
        ),
        ("hardware: [a]", ["site/hosts.yaml:1: hardware must be a map, not a list"]),
        ("hardware:\n  g4: host", ["site/hosts.yaml:2: hardware.g4 must be a list, not 'host'"]),
        ("hardware:\n  g4:\n    - {user: me}", ["site/hosts.yaml:3: hardware.g4 lacks the key 'address'"]),
        ("hardware:\n  g4: [null]", ["site/hosts.yaml:2: hardware.g4 must be a map, not nothing"]),
        ("hardware:\n  g4: ['']", ["site/hosts.yaml:2: hardware.g4 must not be empty"]),
        (
            "hardware:\n  g4:\n    - {address: a, usr: me}",
            [
                "site/hosts.yaml:3: unknown key 'usr' in hardware.g4 "
                "(known: address, capabilities, engine, key, user; did you mean 'user'?)"
            ],
        ),
        (
            "hardware: {g 4: [a]}",
            [
                "site/hosts.yaml:1: hardware: 'g 4' must have only letters, digits and _ . + - "
                "(at most 80, the first a letter, digit or _)"
            ],
        ),
        (
            "stacks:\n  openmpi5: /opt",
            [
                "site/hosts.yaml:2: stacks: unknown stack 'openmpi5' "
                "(known: mpich, mpich-system, openmpi-4, openmpi-5, openmpi-system; did you mean 'openmpi-5'?)"
            ],
        ),
        ("stacks: {openmpi-5: [a]}", ["site/hosts.yaml:1: stacks.openmpi-5 must be a path, not a list"]),
        (
            "a: &matrix b\nc: *matri",
            ["site/hosts.yaml:2: alias *matri has no anchor before it (known: matrix; did you mean 'matrix'?)"],
        ),
    ],
)
def test_what_is_wrong_with_an_inventory(write: Callable[[str], Path], text: str, told: list[str]) -> None:
    with pytest.raises(InventoryError) as caught:
        read(write(text))
    assert list(caught.value.complaints) == told


def test_no_such_inventory(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="cannot be read: No such file or directory"):
        read(tmp_path / "nowhere.yaml")


CPU, GPU = Hardware("cpu"), Hardware("g4ad", Accelerator("rocm", "gfx1011"), runtime="docker")
HOSTS = {"cpu": (Host("a"), Host("b")), "g4ad": (Host("c"),)}


def test_without_an_inventory_local_nodes_are_this_machine() -> None:
    assert Inventory().bind((CPU, CPU)) == (LOCAL, LOCAL)


def test_without_an_inventory_other_nodes_are_not_here() -> None:
    with pytest.raises(NotHere) as caught:
        Inventory().bind((GPU,))
    assert str(caught.value) == "needs hardware g4ad (platform=rocm arch=gfx1011): give --hetgpu-inventory"


def test_local_nodes_take_their_hosts_in_turn() -> None:
    inventory = Inventory(True, "hosts.yaml", HOSTS)
    assert [host.address for host in inventory.bind((CPU, GPU, CPU, CPU))] == ["a", "c", "b", "a"]


def test_other_nodes_need_a_host_each() -> None:
    with pytest.raises(NotHere) as caught:
        Inventory(True, "hosts.yaml", HOSTS).bind((GPU, GPU))
    assert str(caught.value) == (
        "needs hardware g4ad (platform=rocm arch=gfx1011): "
        "the inventory hosts.yaml has 1 of them, the placement needs 2"
    )


@pytest.mark.parametrize("hardware", [CPU, GPU])
def test_hardware_that_the_inventory_lacks(hardware: Hardware) -> None:
    with pytest.raises(NotHere, match=f"needs hardware {hardware.name}.*inventory hosts.yaml"):
        Inventory(True, "hosts.yaml").bind((hardware,))
