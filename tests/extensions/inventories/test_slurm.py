"""Nodes of Slurm, in every form that its tools print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_hetgpu.extensions.inventories.base import UNKNOWN_PLATFORM, MalformedInventory
from pytest_hetgpu.extensions.inventories.slurm import SlurmSource

# As `scontrol show nodes` of 22.05 prints nodes, cut to what matters.
SCONTROL = """\
NodeName=c1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=4.30
   AvailableFeatures=(null)
   Gres=gpu:h200:2(S:0-1)
   NodeAddr=10.0.0.11 NodeHostName=c1 Version=22.05.8
   OS=Linux 6.1 #1 SMP a=b
   State=MIXED ThreadsPerCore=1 TmpDisk=0
   Partitions=cuda,urgent

NodeName=r1 Arch=x86_64
   Gres=gpu:mi250x:2
   NodeAddr=r1 NodeHostName=r1
   State=IDLE
   Partitions=rocm

NodeName=down1
   State=DOWN*+DRAIN ThreadsPerCore=1
   Partitions=cuda
   Reason=kill task failed [root@2026-01-01T00:00:00]

NodeName=plain
   Gres=(null)
   State=ALLOCATED
"""


def summary(text: str) -> dict[str, tuple[str, str, str, int | None]]:
    return {one.name: (one.address, one.platform, one.arch, one.gpus) for one in SlurmSource.read(text).hosts}


def left(text: str) -> dict[str, str]:
    return {one.name: one.why for one in SlurmSource.read(text).skipped}


def test_blocks_of_scontrol_and_one_line_each() -> None:
    expected = {
        "c1": ("10.0.0.11", "cuda", "sm_90", 2),
        "r1": ("r1", "rocm", "gfx90a", 2),
        "plain": ("plain", "", "", 0),
    }
    lines = "\n".join(" ".join(block.split()) for block in SCONTROL.split("\n\n"))
    for text in (SCONTROL, lines):
        assert summary(text) == expected
        assert left(text) == {"down1": "is down (kill task failed [root@2026-01-01T00:00:00])"}
    assert [one.line for one in SlurmSource.read(SCONTROL).hosts] == [1, 10, 21]
    assert SlurmSource.read(SCONTROL).hosts[0].groups == ("cuda", "urgent", "h200")


NODE: dict[str, Any] = {
    "name": "n1",
    "address": "10.0.0.1",
    "hostname": "n1",
    "gres": "gpu:a100:4,shard:8",
    "features": "",
    "partitions": ["gpu"],
    "state": "idle",
    "state_flags": [],
    "port": 6818,
}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"state": ["IDLE"]}, None),
        ({"state": "allocated"}, None),
        ({"state": ["IDLE", "DRAIN"], "reason": "fan"}, "is drain (fan)"),
        ({"state_flags": ["NOT_RESPONDING"]}, "is not responding"),
        ({"gres": "gpu:a100:1,gpu:mi100:1"}, "has GPUs of several kinds ('gpu:a100:1,gpu:mi100:1'): a host is of one"),
    ],
)
def test_json_of_scontrol(changes: dict[str, Any], why: str | None) -> None:
    text = json.dumps({"meta": {}, "nodes": [{**NODE, **changes}]})
    if why is None:
        assert summary(text) == {"n1": ("10.0.0.1", "cuda", "sm_80", 4)}
    else:
        assert left(text) == {"n1": why}


def test_json_of_sinfo_is_by_partition() -> None:
    def row(partition: str) -> dict[str, Any]:
        return {
            "node": {"state": ["IDLE"]},
            "nodes": {"nodes": ["n1", "n2"], "addresses": ["10.0.0.1", "10.0.0.2"]},
            "gres": {"total": "gpu:mi300a:4", "used": ""},
            "features": {"total": "fast", "active": ""},
            "partition": {"name": partition},
            "reason": {"description": ""},
        }

    found = SlurmSource.read(json.dumps({"sinfo": [row("a"), row("b")]})).hosts
    assert [(one.address, one.platform, one.arch, one.gpus) for one in found] == [
        ("10.0.0.1", "rocm", "gfx942", 4),
        ("10.0.0.2", "rocm", "gfx942", 4),
    ]
    assert set(found[0].groups) == {"a", "b", "fast", "mi300a"}


def test_tables_of_sinfo() -> None:
    table = "NODELIST PARTITION GRES STATE\nn[01-03,7],login cuda* gpu:v100:2 idle\nn07 cuda* gpu:v100:2 down*\n"
    assert list(summary(table)) == ["n01", "n02", "n03", "n7", "login"]
    assert left(table) == {"n07": "is down"}
    usual = (
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\nrocm* up 1:00:00 2 mix r[1-2]\nrocm* up 1:00:00 1 idle~ r3\n"
    )
    assert [(one.name, one.gpus, one.groups) for one in SlurmSource.read(usual).hosts] == [
        ("r1", None, ("rocm",)),
        ("r2", None, ("rocm",)),
    ]
    assert left(usual) == {"r3": "is powered off"}
    assert list(summary(usual + "empty up infinite 0 n/a\n")) == ["r1", "r2"]
    dated = f"Thu Jan 25 15:43:52 2018\n{table}"
    assert list(summary(dated)) == list(summary(table))


@pytest.mark.parametrize(
    ("gres", "features", "platform", "arch"),
    [
        ("gpu", [], UNKNOWN_PLATFORM, ""),
        ("gpu:2", ["amd"], "rocm", ""),
        ("gpu:2", ["ib", "a100_80gb"], "cuda", "sm_80"),
        ("gpu:nvidia_h100_80gb_hbm3:8", [], "cuda", "sm_90"),
        ("gpu:gfx942:8", [], "rocm", "gfx942"),
        ("gpu:tesla:1", [], "cuda", ""),
        ("gpu:2080ti:8(S:0-1)", [], "cuda", "sm_75"),
        ("craynetwork:4", ["mi250x"], "", ""),
        ("mygpu:4", [], "", ""),
    ],
)
def test_which_gpu_gres_and_features_mean(gres: str, features: list[str], platform: str, arch: str) -> None:
    (found,) = SlurmSource.read(json.dumps({"nodes": [{**NODE, "gres": gres, "features": features}]})).hosts
    assert (found.platform, found.arch) == (platform, arch)


@pytest.mark.parametrize(
    ("gres", "groups", "gpus"),
    [
        ("gpu:4", (), 4),
        ("gpu:4(S:0-1)", (), 4),
        ("gpu:1080ti:4", ("1080ti",), 4),
        ("gpu:3090:8", ("3090",), 8),
        ("gpu:3g.20gb:2", ("3g.20gb",), 2),
        ("gpu:a100:4(S:0,2),shard:8", ("a100",), 4),
    ],
)
def test_types_and_numbers_of_gpus_are_told_apart(gres: str, groups: tuple[str, ...], gpus: int) -> None:
    (found,) = SlurmSource.read(json.dumps({"nodes": [{**NODE, "gres": gres, "features": [], "partitions": []}]})).hosts
    assert (found.groups, found.gpus) == (groups, gpus)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("{}", 1, "has neither nodes nor sinfo: give what `scontrol show nodes --json` or `sinfo --json` prints"),
        ('{"nodes":\n {"n1": 1}}', 2, "nodes must be a list, not a map"),
        ('{"nodes": [\n{"name": "a"},\n{"name": 7}]}', 3, "nodes[1].name must be a node's name, not 7"),
        ("hello", 1, "is neither what `scontrol show nodes` prints nor a table of sinfo with a column NODELIST"),
        ("NODELIST GRES\nn1 a\nn2", 3, "has 1 columns, its heading in line 1 has 2"),
        ("NODELIST\nn[1-", 2, "'n[1-' is no list of hosts like n[1-4,7]"),
        ("NODELIST\nn[4-1]", 2, "'[4-1]' is no range of numbers like [1-4,7]"),
        ("NODELIST\nn[1-999999999]", 2, "names more than 200,000 hosts"),
        ("NODELIST\nn[1-9999][1-9999]", 2, "names more than 200,000 hosts"),
    ],
)
def test_what_is_wrong(text: str, line: int, told: str) -> None:
    with pytest.raises(MalformedInventory) as caught:
        SlurmSource.read(text)
    assert (str(caught.value), caught.value.line) == (told, line)
