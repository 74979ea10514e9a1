"""An inventory out of what a site has: which hosts a placement gets of it, and what is said where it is of no use."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.cli.main import main
from pytest_hetgpu.config.inventory.file import read
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.inventory.sources import Spec, spec_of
from pytest_hetgpu.errors import InventoryError, NotHere, UsageError
from pytest_hetgpu.model.job import Accelerator, Hardware

CPU = Hardware("cpu", runtime="ssh")
G4DN = Hardware("g4dn", Accelerator("cuda", "sm_75"), runtime="ssh")
G4AD = Hardware("g4ad", Accelerator("rocm", "gfx1011"), runtime="ssh")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def put(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("_yaml", ".yaml").replace("_json", ".json")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    return put


def hosts(inventory: Inventory, *nodes: Hardware) -> list[str]:
    return [host.address for host in inventory.bind(nodes)]


def slurm(**nodes: str) -> str:
    return json.dumps({"nodes": [{"name": name, "gres": gres, "state": "idle"} for name, gres in nodes.items()]})


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("slurm:nodes.json", Spec("slurm", "nodes.json")),
        ("slurm:", Spec("slurm", None)),
        ("slurm:-", Spec("slurm", "-")),
        ("hosts.yaml", None),
        ("/some/where:else/hosts.yaml", None),
    ],
)
def test_what_a_text_means(text: str, spec: Spec | None) -> None:
    assert spec_of(text) == spec


def test_an_unknown_kind_and_a_file_that_looks_like_one(write: Write) -> None:
    with pytest.raises(UsageError, match=r"hostfil:a: unknown kind of inventory 'hostfil' \(known: .*'hostfile'"):
        spec_of("hostfil:a")
    write(**{"odd:name": "hardware: {}"})
    assert spec_of("odd:name") is None


def test_hosts_of_a_hostfile_are_for_cpus_and_for_what_they_are_said_to_be(write: Write) -> None:
    write(hosts="a\nb\nme@c:2200 # hardware=g4dn\n")
    inventory = read("hostfile:hosts")
    assert hosts(inventory, CPU, CPU) == ["a", "b"]
    with pytest.raises(NotHere):
        inventory.bind((CPU, CPU, CPU))
    (host,) = inventory.bind((G4DN,))
    assert (host.address, host.reach.user, host.reach.port, host.reach.engine) == ("c", "me", 2200, "ssh://me@c:2200")
    with pytest.raises(NotHere) as caught:
        inventory.bind((G4AD,))
    assert str(caught.value) == (
        "needs hardware g4ad (platform=rocm arch=gfx1011): the inventory hostfile:hosts has 0 of them, the placement "
        "needs 1 (`hetgpu doctor --list --inventory hostfile:hosts` lists its hosts)"
    )


def test_platform_and_arch_decide_where_nothing_is_said(write: Write) -> None:
    write(nodes=slurm(a="gpu:t4:1", b="gpu:a100:4", c="gpu:v520:1", d="gpu:nvidia:1", e="gpu:2", f=""))
    inventory = read("slurm:nodes")
    assert hosts(inventory, G4DN, G4AD, G4DN, CPU) == ["a", "c", "d", "f"]
    assert hosts(inventory, Hardware("any", Accelerator("cuda"), runtime="ssh")) == ["a"]
    with pytest.raises(NotHere, match="has 1 of them, the placement needs 2"):
        inventory.bind((CPU, CPU))


def test_a_host_is_one_node_of_a_placement_also_for_two_kinds(write: Write) -> None:
    write(hosts="a\nb\nc\n")
    other = Hardware("other", runtime="ssh")
    inventory = read("hostfile:hosts")
    assert hosts(inventory, CPU, other, CPU) == ["a", "b", "c"]
    with pytest.raises(NotHere, match="has 3 of them, other nodes have one of these, the placement needs 2"):
        inventory.bind((CPU, CPU, other, other))
    containers = Hardware("boxes", runtime="docker")
    assert hosts(inventory, containers, containers, containers, containers) == ["a", "b", "c", "a"]


def test_spares_are_not_used_and_the_choice_is_always_the_same(write: Write) -> None:
    write(hosts="b\na\nc\n")
    inventory = read("hostfile:hosts")
    assert {tuple(hosts(inventory, CPU, CPU)) for _ in range(3)} == {("b", "a")}


def test_names_and_groups_say_what_a_host_is(write: Write) -> None:
    write(config="Host g4dn-1 g4dn2 g4dnx g4ad\n  User me\n")
    inventory = read("ssh_config:config")
    assert [host.address for host in inventory.known(G4DN)] == ["g4dn-1", "g4dn2"]
    assert [host.address for host in inventory.known(G4AD)] == ["g4ad"]


def test_a_bastion_or_a_database_is_no_node(write: Write) -> None:
    outputs = {"bastion_ip": {"value": "203.0.113.1"}, "db_host": {"value": "db"}, "cpu_ips": {"value": ["10.0.0.1"]}}
    write(config="Host forge.example bastion\n", out_json=json.dumps(outputs))
    with pytest.raises(NotHere):
        read("ssh_config:config").bind((CPU,))
    assert [host.address for host in read("terraform:out.json").known(CPU)] == ["10.0.0.1"]


def test_an_entry_of_yaml_without_a_file_asks_this_machine(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(hosts_yaml="from:\n  - {slurm: , hardware: g4dn}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "scontrol", f"echo '{slurm(a='gpu:2')}'")
    assert hosts(read("hosts.yaml"), G4DN) == ["a"]


MIXED = """\
hardware:
  g4ad: [10.0.0.9]
from:
  - {hostfile: site/hosts, hardware: g4dn, user: ubuntu, key: keys/id, prefix: /opt/mpi, capabilities: large-bar}
  - terraform: site/out.json
    hardware: {g4ad: [amd_*, 'x'], g4dn: nvidia_ips}
"""


def test_a_site_mixes_sources_in_yaml(write: Write, tmp_path: Path) -> None:
    outputs = {"amd_ips": {"value": ["10.0.0.1"]}, "nvidia_ips": {"value": ["10.0.0.2"]}, "ips": {"value": "10.0.0.3"}}
    write(hosts_yaml=MIXED, **{"site/hosts": "a\nyou@b\n", "site/out_json": json.dumps(outputs)})
    inventory = read("hosts.yaml")
    assert [host.address for host in inventory.known(G4AD)] == ["10.0.0.9", "10.0.0.1"]
    first, second, third = inventory.known(G4DN)
    assert [first.address, second.address, third.address] == ["a", "b", "10.0.0.2"]
    assert (first.reach.user, second.reach.user, third.reach.user) == ("ubuntu", "you", None)
    assert (first.reach.key, first.prefix) == (str(tmp_path / "keys/id"), "/opt/mpi")
    assert first.capabilities == {"large-bar"}
    # What matches no pattern is no hardware at all.
    with pytest.raises(NotHere):
        inventory.bind((CPU,))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from: a", "hosts.yaml:1: from must be a list, not 'a'"),
        (
            "from: {hardware: g4}",
            "hosts.yaml:1: from: names no source; one of hostfile, kubernetes, slurm, ssh_config, ",
        ),
        ("from:\n- {hostfile: a, slurm: b}", "hosts.yaml:2: from: names hostfile and slurm; one of "),
        ("from:\n- {hostfile: a, user: -x}", "hosts.yaml:2: from.user: '-x' must be a user's name"),
        ("from:\n- {hostfil: a}", "hosts.yaml:2: unknown key 'hostfil' in from (known: "),
        ("from:\n- {hostfile: nope}", "nope: cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_in_yaml(write: Write, text: str, told: str) -> None:
    write(hosts_yaml=text)
    with pytest.raises(InventoryError) as caught:
        read("hosts.yaml")
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("spec", "text", "told"),
    [
        (
            "hostfile:f",
            "a\n-oProxyCommand=x\n",
            "f:2: '-oProxyCommand=x': its address '-oProxyCommand=x' must be a host's",
        ),
        ("hostfile:f", "a\n$(id)@b\n", "f:2: 'b': its user '$(id)' must be a user's name"),
        ("hostfile:f", "me@b:99999\n", "f:1: 'b': its port must be a number from 1 to 65535, not '99999'"),
        ("hostfile:f", " \n\n", "f: is empty"),
        ("hostfile:f", "a slots=x\n", "f:1: slots of a must be a number, not 'x'"),
        ("terraform:f", "[]", "f:1: the file must be a map of outputs"),
        ("hostfile:nope", "", "nope: cannot be read: No such file or directory"),
        ("hostfile:", "", "hostfile: hostfile of Open MPI, MPICH or ssh: its file is missing; write hostfile:PATH"),
        ("hosts", "", "hosts: cannot be read: "),
    ],
)
def test_what_is_wrong_in_a_source(write: Write, spec: str, text: str, told: str) -> None:
    write(f=text)
    with pytest.raises(InventoryError) as caught:
        read(spec)
    assert str(caught.value).startswith(told)


def test_a_hostfile_without_its_kind_is_told_how_to_say_it(write: Write) -> None:
    write(hosts="# hosts\ngpu1 slots=4\n- x\n")
    with pytest.raises(
        InventoryError, match=r"hosts:2: the file must be a map; of another kind\? hostfile, kubernetes, .*: KIND:PATH"
    ):
        read("hosts")


def test_text_of_powershell(write: Write, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_bytes(json.dumps({"g4dn_ips": {"value": ["10.0.0.1"]}}).encode("utf-16"))
    write()
    assert hosts(read("terraform:out.json"), G4DN) == ["10.0.0.1"]


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_source_without_a_path_asks_this_machine(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InventoryError) as caught:
        read("kubernetes:")
    assert str(caught.value) == (
        "kubernetes: no access to nodes of Kubernetes: `kubectl get nodes -o json --request-timeout=15s` "
        "cannot be started: No such file or directory"
    )
    # An older scontrol has no JSON for nodes; sinfo has.
    program(tmp_path, "scontrol", "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1")
    program(tmp_path, "sinfo", f"echo '{slurm(a='gpu:t4:1')}'")
    assert hosts(read("slurm:"), G4DN) == ["a"]
    program(tmp_path, "sinfo", "echo no route >&2; exit 1")
    with pytest.raises(
        InventoryError, match="`sinfo --json` ended with 1: no route; `scontrol show nodes` ended with 1"
    ):
        read("slurm:")


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["doctor", "--list", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_doctor_says_what_a_source_gives(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    nodes: list[dict[str, Any]] = json.loads(slurm(a="gpu:t4:1", b="gpu:t4:1", c="gpu:2", d="", e="gpu:t4:1"))["nodes"]
    nodes[4] |= {"state": "drained", "reason": "fan \x1b[31m"}
    write(nodes=json.dumps({"nodes": nodes}, indent=1), hosts="me@h:2200\n")
    code, said = doctor(capsys, "--inventory", "slurm:nodes")
    assert code == 0
    assert said.splitlines() == [
        "slurm:nodes (nodes of Slurm) gives 4 hosts",
        "  cuda sm_75: 2 hosts",
        "    a, 1 GPU, groups t4",
        "    b, 1 GPU, groups t4",
        "  GPUs of unknown kind: 1 host",
        "    c, 2 GPUs",
        "  cpu: 1 host",
        "    d",
        "  left out:",
        "    e is drained (fan ), line 23",
        "",
    ]
    assert doctor(capsys, "--inventory", "hostfile:hosts")[1].splitlines()[1:3] == [
        "  cpu (no GPUs listed): 1 host",
        "    h, user me, port 2200",
    ]
    code, said = doctor(capsys, "--json", "--inventory", "slurm:nodes")
    (source,) = json.loads(said)["inventory"]
    assert [host["address"] for host in source["hosts"]] == ["a", "b", "c", "d"]
    assert source["left"] == [{"name": "e", "why": "is drained (fan \x1b[31m)", "line": 23}]
    assert doctor(capsys) == (4, "ERROR: --list needs --inventory FILE\n")


def test_doctor_reads_standard_input(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    assert "gives 1 host" in doctor(capsys, "--inventory", "hostfile:-")[1]


def test_many_hosts_of_one_kind_are_counted(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(hosts="".join(f"n{number}\n" for number in range(30)))
    said = doctor(capsys, "--inventory", "hostfile:hosts")[1].splitlines()
    assert said[-2:] == ["    ... and 10 more", ""]
