"""The GID index of a RoCE job, found on the node and handed to the ranks' program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import pytest_hetgpu
from pytest_hetgpu.extensions.probes.rdma import GidChoice, choose, gids
from tests.extensions.probes.test_rdma_choice import GOOD, IPV4, LINK_LOCAL, V1, V2, Port, look

PROGRAMS = Path(pytest_hetgpu.__file__).parent / "remote"
OTHER = "0000:0000:0000:0000:0000:ffff:ac13:040c"
LOCAL_IPV4 = "0000:0000:0000:0000:0000:ffff:a9fe:0001"
TELL = ("-c", "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if 'IB_' in k or 'UCX' in k}))")


def run(root: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The program on a tree like /sys/class/infiniband."""
    call = f"import sys, gid_index; sys.exit(gid_index.main(sys.argv[1:], {str(root / 'sys/class/infiniband')!r}))"
    return subprocess.run(
        [sys.executable, "-c", call, *argv],
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


TWO = (Port("mlx5_0", gids=GOOD), Port("mlx5_1", gids={3: (OTHER, V2, "net2"), 2: (OTHER, V1, "net2")}))
CASES: tuple[tuple[tuple[Port, ...], str, str], ...] = (
    ((Port("mlx5_bond_0", gids=GOOD),), "mlx5_bond_0", "net1"),
    (TWO, "mlx5_1", "-"),
    (TWO, "-", "net2"),
    (TWO, "-", "-"),
    (TWO, "mlx5_1:1", "net2"),
    (TWO, "mlx5_1", "net1"),
    (TWO, "mlx5_7", "-"),
    ((Port(number=2, gids=GOOD), Port(number=1, state="1: DOWN", gids=GOOD)), "mlx5_0", "-"),
    ((Port(gids={0: (LINK_LOCAL, V2, "net1"), 1: (IPV4, V1, "net1"), 2: (IPV4, "", "net1")}),), "-", "-"),
    ((Port(gids={0: (LOCAL_IPV4, V2, "net1"), 11: (IPV4, V2, "net1")}),), "-", "-"),
    ((Port(gids={0: (LOCAL_IPV4, V2, "net1")}),), "-", "-"),
    ((), "-", "-"),
)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_it_is_the_index_that_a_run_finds(tmp_path: Path, case: int) -> None:
    ports, hca, netdev = CASES[case]
    chosen = choose(gids(look(tmp_path, *ports)), *("" if word == "-" else word for word in (netdev, hca)))
    done = run(tmp_path, hca, netdev)
    if isinstance(chosen, GidChoice):
        assert (done.returncode, done.stdout) == (0, f"{chosen.gid_index}\n")
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "is of type RoCE v2 and maps an IPv4 address" in done.stderr


def test_infiniband_has_no_such_index(tmp_path: Path) -> None:
    look(tmp_path, Port(link_layer="InfiniBand", gids=GOOD))
    assert run(tmp_path, "mlx5_0", "-").returncode == 1


def program(*argv: str) -> Sequence[str]:
    return (*argv, sys.executable, *TELL)


def test_a_program_gets_the_index(tmp_path: Path) -> None:
    look(tmp_path, *TWO)
    assert told(run(tmp_path, *program("mlx5_0", "net1"))) == {"NCCL_IB_GID_INDEX": "9", "UCX_IB_GID_INDEX": "9"}


def test_an_adapter_that_nobody_named_is_named_too(tmp_path: Path) -> None:
    look(tmp_path, *TWO)
    assert told(run(tmp_path, *program("-", "net2"))) == {
        "NCCL_IB_GID_INDEX": "3",
        "UCX_IB_GID_INDEX": "3",
        "NCCL_IB_HCA": "mlx5_1",
        "UCX_NET_DEVICES": "mlx5_1:1",
    }


def test_what_is_set_already_stays(tmp_path: Path) -> None:
    look(tmp_path, *TWO)
    found = told(run(tmp_path, *program("mlx5_0", "net1"), NCCL_IB_GID_INDEX="1"))
    assert found == {"NCCL_IB_GID_INDEX": "1", "UCX_IB_GID_INDEX": "9"}


def test_without_an_index_the_program_runs_and_the_reason_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, *program("mlx5_0", "net1"))
    assert told(done) == {}
    assert "gid_index.py: no GID of mlx5_0 on net1 in " in done.stderr


def test_its_status_is_the_program_s(tmp_path: Path) -> None:
    assert run(tmp_path, "-", "-", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert run(tmp_path, "-").returncode == 2
