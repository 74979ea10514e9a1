"""Cells over a real RoCE network, and the lab itself: its guests leave nothing, whatever ends them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.lab import lab as roce
from tests.lab.conftest import ROOT, Cells

REMOTE = ROOT / "pytest_hetgpu" / "remote"

pytestmark = [pytest.mark.real, pytest.mark.nightly]

# "Determine the correct GID index for RDMA" of the EPFL's document, for its device.
ONE_LINER = """\
cd {0}/class/infiniband/rxe0/ports/1; grep 'RoCE v2' $(grep '0000:0000:0000:0000:0000:ffff' gids/* | cut -d ':' -f 1 |
sed 's/gids/gid_attrs\\/types/') /dev/null 2>/dev/null | sed -e 's/.*\\/\\([0-9]*\\):.*/\\1/'"""


def test_data_goes_over_verbs_and_the_counters_of_the_device_prove_it(cells: Cells, pytester: pytest.Pytester) -> None:
    names = "two-rc-allreduce or two-ud-send_recv or two-tcp-allreduce"
    found = cells(ROOT / "matrices" / "roce-lab.yaml", "-k", names)
    seen = {name: (cell["outcome"], cell["carried_by[off-host]"]) for name, cell in found.items()}
    assert seen == {
        "two-rc-allreduce": ("passed", "ucx/rc_verbs"),
        "two-ud-send_recv": ("passed", "ucx/ud_verbs"),
        "two-tcp-allreduce": ("passed", "ucx/tcp"),
    }
    lines = [
        line for path in pytester.path.glob("reports/2*/journal/*.jsonl") for line in path.read_text().splitlines()
    ]
    ended = {one["scenario"]: one["result"]["hca_traffic"] for one in map(json.loads, lines) if "result" in one}
    assert {name: [count > 0 for count in counts.values()] for name, counts in ended.items()} == {
        "two-rc-allreduce": [True, True],
        "two-ud-send_recv": [True, True],
        "two-tcp-allreduce": [False, False],
    }


def test_the_gid_index_is_that_of_the_documents_command(guests: roce.Lab, tmp_path: Path) -> None:
    """On the table of a guest that has a VLAN as well, and with a row of RoCE v1, which Soft-RoCE does not make."""
    guest = guests.guests[0]
    guest.run("ip link add link eth0 name eth0.7 up type vlan id 7 && ip addr add 10.99.7.1/24 dev eth0.7")
    try:
        copy = "cd /sys/class/infiniband/rxe0/ports/1; grep -r . gids gid_attrs state link_layer 2>/dev/null"
        rows = [line.partition(":")[::2] for line in guest.run(f"{copy}; true").splitlines()]
    finally:
        guest.run("ip link del eth0.7")
    folder = tmp_path / "class/infiniband/rxe0/ports/1"
    for name, text in (*rows, ("gids/200", "::ffff:10.0.0.9"), ("gid_attrs/types/200", "IB/RoCE v1")):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert {text for name, text in rows if name.startswith("gid_attrs/ndevs")} == {"eth0", "eth0.7"}
    theirs = subprocess.run(("sh", "-c", ONE_LINER.format(tmp_path)), capture_output=True, text=True, check=True).stdout
    ours = "import gid_index, sys; gid_index.main(['rxe0', sys.argv[1]], sys.argv[2])"
    program = (sys.executable, "-c", ours)
    found = [
        subprocess.check_output((*program, netdev, tmp_path / "class/infiniband"), cwd=REMOTE, text=True).strip()
        for netdev in ("eth0", "eth0.7")
    ]
    assert found == theirs.split()


def test_a_guest_that_does_not_boot_is_named_and_leaves_nothing(lacking: Callable[[str, str], None]) -> None:
    if lack := roce.lacks():
        lacking("lab", lack)
    before = _running()
    named = re.compile(r"guest vm1 .*; its console ends:", re.DOTALL)
    with pytest.raises(RuntimeError, match=named), roce.running(1, memory=40, seconds=60):
        pass
    assert _running() == before


def test_guests_end_with_a_lab_that_is_killed(lacking: Callable[[str, str], None], tmp_path: Path) -> None:
    if lack := roce.lacks():
        lacking("lab", lack)
    before = _running()
    command = (sys.executable, "-u", ROOT / "tests/lab/lab.py", "up", "--nodes", "1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert "vm1: up" in lab.stdout.readline()
        guests = [one for one in psutil.Process(lab.pid).children(recursive=True) if "qemu" in one.name()]
        lab.send_signal(signal.SIGKILL)
    assert guests
    psutil.wait_procs(guests, 10)
    roce.remove_dead()
    assert _running() == before


def _running() -> set[str]:
    """The networks, folders and guests of all labs of this machine."""
    names = subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True).stdout.split()
    names += [path.name for path in Path(tempfile.gettempdir()).glob("hetgpu-lab-*")]
    found = {name for name in names if name.startswith("hetgpu-lab-")}
    return found | {str(one.pid) for one in psutil.process_iter(["name"]) if "qemu" in one.name()}
