"""The HCA and GID index of a RoCE job, from sysfs trees in the form that the program sees."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.inspect import FactRequest, program, request
from pytest_hetgpu.extensions.probes.base import RawFacts
from pytest_hetgpu.extensions.probes.rdma import GidChoice, RdmaProbe, choose, gids, table
from pytest_hetgpu.model.facts import Environment

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe6b:2c10"
IPV4 = "0000:0000:0000:0000:0000:ffff:ac13:040b"  # 172.19.4.11
V1, V2 = "IB/RoCE v1", "RoCE v2"


@dataclass(frozen=True)
class Port:
    """A port of an HCA with its GIDs by index: (gid, type, netdev). The type "" is an unreadable file."""

    hca: str = "mlx5_0"
    number: int = 1
    state: str = "4: ACTIVE"
    link_layer: str = "Ethernet"
    gids: dict[int, tuple[str, str, str]] = field(default_factory=dict)


def look(root: Path, *ports: Port) -> RawFacts:
    """Return the real program's answer for a tree like /sys/class/infiniband."""
    for port in ports:
        folder = root / "sys/class/infiniband" / port.hca / "ports" / str(port.number)
        files = {"state": port.state, "link_layer": port.link_layer, "rate": "100 Gb/sec (4X EDR)"}
        for index in range(16):
            gid, kind, netdev = port.gids.get(index, (ZERO, "", ""))
            files |= {f"gids/{index}": gid}
            files |= {f"gid_attrs/types/{index}": kind} if kind else {}
            files |= {f"gid_attrs/ndevs/{index}": netdev} if netdev else {}
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
    asked = {**request(FactRequest(root=str(root))), "commands": {}, "each": {}, "strings": {}}
    done = subprocess.run(
        [sys.executable, "-c", program(), json.dumps(asked)], capture_output=True, text=True, check=True
    )
    return RawFacts.of(json.loads(done.stdout))


GOOD = {0: (LINK_LOCAL, V1, "net1"), 1: (LINK_LOCAL, V2, "net1"), 8: (IPV4, V1, "net1"), 9: (IPV4, V2, "net1")}


def test_the_documents_own_case(tmp_path: Path) -> None:
    seen = look(tmp_path, Port("mlx5_bond_0", gids=GOOD))
    assert choose(gids(seen)) == GidChoice("mlx5_bond_0", 1, 9, "net1", "the only one")
    facts = RdmaProbe().read(seen)
    assert facts["rdma.roce"].value == "mlx5_bond_0:1 gid 9 (net1)"
    assert facts["rdma.mlx5_bond_0:1.gids"].items[-1] == "9 172.19.4.11 net1 RoCE v2"


def test_empty_rows_are_left_out(tmp_path: Path) -> None:
    assert [row.row for row in gids(look(tmp_path, Port(gids=GOOD)))] == [0, 1, 8, 9]


def test_the_choice_can_be_made_again_from_facts(tmp_path: Path) -> None:
    seen = look(tmp_path, Port("mlx5_0", gids=GOOD), Port("mlx5_1", state="1: DOWN", gids={3: (IPV4, V2, "net2")}))
    assert table(Environment(RdmaProbe().read(seen)).facts) == tuple(
        row._replace(gid=f"::ffff:{row.ipv4}") if row.ipv4 else row for row in gids(seen)
    )
    assert choose(table(RdmaProbe().read(seen))) == choose(gids(seen))


@pytest.mark.parametrize(
    ("port", "why"),
    [
        (
            Port(gids={0: (LINK_LOCAL, V1, "net1"), 8: (IPV4, V1, "net1")}),
            "no GID is of type RoCE v2 (found: IB/RoCE v1)",
        ),
        (Port(gids={1: (LINK_LOCAL, V2, "net1"), 8: (IPV4, V1, "net1")}), "no RoCE v2 GID maps an IPv4 address"),
        (Port(gids={9: (IPV4, "", "net1")}), "no GID is of type RoCE v2 (found: unknown)"),
        (Port(state="1: DOWN", gids=GOOD), "no port is active"),
        (Port(gids={}), "there is no GID"),
    ],
)
def test_what_no_row_has_is_said(tmp_path: Path, port: Port, why: str) -> None:
    found = choose(gids(look(tmp_path, port)))
    assert isinstance(found, str)
    assert found.startswith(why)


def test_a_wanted_interface_narrows_the_choice(tmp_path: Path) -> None:
    ports = (Port("mlx5_0", gids={3: (IPV4, V2, "net1")}), Port("mlx5_1", gids={5: (IPV4, V2, "net2")}))
    rows = gids(look(tmp_path, *ports))
    assert choose(rows, "net2") == GidChoice("mlx5_1", 1, 5, "net2", "the only one")
    assert choose(rows, hca="mlx5_1") == choose(rows, hca="mlx5_1:1") == choose(rows, "net2")
    assert choose(rows, hca="mlx5_1:2") == ("no GID of mlx5_1:2 (HCAs: mlx5_0, mlx5_1; their interfaces: net1, net2)")
    assert choose(rows, "eth7") == "no GID on eth7 (HCAs: mlx5_0, mlx5_1; their interfaces: net1, net2)"


def test_of_several_the_first_is_taken_and_link_local_addresses_last(tmp_path: Path) -> None:
    apipa = "0000:0000:0000:0000:0000:ffff:a9fe:0102"  # 169.254.1.2
    ports = (
        Port("mlx5_1", gids={2: (IPV4, V2, "net2"), 11: (IPV4, V2, "net2")}),
        Port("mlx5_0", gids={3: (apipa, V2, "net1")}),
    )
    found = choose(gids(look(tmp_path, *ports)))
    assert found == GidChoice("mlx5_1", 1, 2, "net2", "the first of 3 by HCA, port and index")


def test_infiniband_is_not_roce(tmp_path: Path) -> None:
    facts = RdmaProbe().read(look(tmp_path, Port(link_layer="InfiniBand", gids={0: (LINK_LOCAL, V1, "")})))
    assert facts["rdma.roce"].why == "no port is Ethernet"
    assert facts["rdma.mlx5_0:1.link_layer"].value == "InfiniBand"
