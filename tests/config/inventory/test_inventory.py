"""Where the hardware of a matrix is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.config.inventory.file import read
from pytest_hetgpu.config.inventory.hosts import LOCAL, Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.errors import InventoryError, NotHere
from pytest_hetgpu.extensions.runtimes.batch.request import Batch
from pytest_hetgpu.extensions.runtimes.pods.request import Pods
from pytest_hetgpu.model.job import Accelerator, ConnectionInfo, Hardware

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
                Host("10.0.0.5", ConnectionInfo("ssh://10.0.0.5")),
                Host(
                    "10.0.0.6",
                    ConnectionInfo("ssh://ubuntu@10.0.0.6", "ubuntu", None, str(tmp_path / "site" / "keys" / "g4ad")),
                    capabilities=frozenset({"no-large-bar"}),
                ),
            ),
            "g4dn": (Host("10.0.0.7", ConnectionInfo("ssh://10.0.0.7")),),
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
            [
                "site/hosts.yaml:1: unknown key 'hardwar' "
                "(known: build, from, hardware, kubernetes, slurm, stacks; did you mean 'hardware'?)"
            ],
        ),
        ("hardware: [a]", ["site/hosts.yaml:1: hardware must be a map, not a list"]),
        ("hardware:\n  g4: host", ["site/hosts.yaml:2: hardware.g4 must be a list, not 'host'"]),
        ("hardware:\n  g4:\n    - {user: me}", ["site/hosts.yaml:3: hardware.g4 lacks the key 'address'"]),
        ("hardware:\n  g4: [null]", ["site/hosts.yaml:2: hardware.g4 must be a map, not nothing"]),
        ("hardware:\n  g4: ['']", ["site/hosts.yaml:2: hardware.g4: '' must be a host's name or address"]),
        (
            "hardware:\n  g4:\n    - {address: a, usr: me}",
            [
                "site/hosts.yaml:3: unknown key 'usr' in hardware.g4 "
                "(known: address, capabilities, engine, key, port, prefix, user; did you mean 'user'?)"
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
                "(known: mpich, mpich-system, openmpi-4, openmpi-5, openmpi-5-torch, openmpi-system, torch; "
                "did you mean 'openmpi-5'?)"
            ],
        ),
        ("stacks: {openmpi-5: [a]}", ["site/hosts.yaml:1: stacks.openmpi-5 must be a path, not a list"]),
        (
            "hardware:\n  g4: [-oProxyCommand=x]",
            ["site/hosts.yaml:2: hardware.g4: '-oProxyCommand=x' must be a host's name or address"],
        ),
        ("hardware:\n  g4: ['a,b']", ["site/hosts.yaml:2: hardware.g4: 'a,b' must be a host's name or address"]),
        (
            "hardware:\n  g4: [{address: a, engine: tcp://a:2375}]",
            ["site/hosts.yaml:2: hardware.g4.engine: 'tcp://a:2375' must be ssh://USER@HOST or unix:///PATH"],
        ),
        (
            "hardware:\n  g4: [{address: a, engine: ssh://-oProxyCommand=x}]",
            ["site/hosts.yaml:2: hardware.g4.engine: 'ssh://-oProxyCommand=x' must be ssh://USER@HOST or unix:///PATH"],
        ),
        (
            "hardware:\n  g4: [{address: a, user: a b}]",
            ["site/hosts.yaml:2: hardware.g4.user: 'a b' must be a user's name"],
        ),
        (
            "hardware:\n  g4: [{address: a, user: -l}]",
            ["site/hosts.yaml:2: hardware.g4.user: '-l' must be a user's name"],
        ),
        (
            "hardware:\n  g4: [{address: a, port: 0}]",
            ["site/hosts.yaml:2: hardware.g4.port must be at least 1, not '0'"],
        ),
        (
            "hardware:\n  g4: [{address: a, port: 65536}]",
            ["site/hosts.yaml:2: hardware.g4.port must be at most 65535, not '65536'"],
        ),
        (
            "hardware:\n  g4: [{address: a, prefix: opt}]",
            [
                "site/hosts.yaml:2: hardware.g4.prefix: 'opt' must be an absolute path of letters, digits "
                "and _ . / + @ = ~ -"
            ],
        ),
        ("build: [a]", ["site/hosts.yaml:1: build must be a map, not a list"]),
        (
            "build:\n  x: {arg: {}}",
            ["site/hosts.yaml:2: unknown key 'arg' in build.x (known: args, network; did you mean 'args'?)"],
        ),
        (
            "build:\n  x: {network: hots}",
            [
                "site/hosts.yaml:2: build.x.network: unknown value 'hots' "
                "(known: default, host, none; did you mean 'host'?)"
            ],
        ),
        (
            "a: &matrix b\nc: *matri",
            ["site/hosts.yaml:2: alias *matri has no anchor before it (known: matrix; did you mean 'matrix'?)"],
        ),
    ],
)
def test_what_is_wrong_with_an_inventory(write: Callable[[str], Path], text: str, told: list[str]) -> None:
    with pytest.raises(InventoryError) as caught:
        read(write(text))
    assert list(caught.value.errors) == told


def test_no_such_inventory(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="cannot be read: No such file or directory"):
        read(tmp_path / "nowhere.yaml")


CPU, GPU = Hardware("cpu"), Hardware("g4ad", Accelerator("rocm", "gfx1011"), runtime="docker")
HOSTS = {"cpu": (Host("a"), Host("b")), "g4ad": (Host("c"),)}


def test_without_an_inventory_local_nodes_are_this_machine() -> None:
    assert Inventory().bind((CPU, CPU)) == (LOCAL, LOCAL)


def test_without_an_inventory_hosts_by_ssh_are_not_here_and_this_machine_is_one_gpu_node() -> None:
    assert Inventory().bind((GPU, CPU)) == (LOCAL, LOCAL)
    needs = "needs hardware g4ad (platform=rocm arch=gfx1011): give --hetgpu-inventory"
    for wanted in ((GPU, GPU), (replace(GPU, runtime="ssh"),)):
        with pytest.raises(NotHere) as caught:
            Inventory().bind(wanted)
        assert str(caught.value) == needs


def test_containers_without_an_accelerator_may_share_a_host() -> None:
    cpu = replace(CPU, runtime="docker")
    assert [host.address for host in Inventory(True, "hosts.yaml", HOSTS).bind((cpu, cpu, cpu))] == ["a", "b", "a"]


def test_a_host_elsewhere_has_its_engine_behind_ssh(write: Callable[[str], Path]) -> None:
    entries = "[localhost, h, {address: i, user: me, port: 2200}, {address: j, engine: 'unix:///run/podman.sock'}]"
    hosts = read(write(f"hardware: {{g4: {entries}}}")).hardware["g4"]
    assert [host.reach.engine for host in hosts] == ["", "ssh://h", "ssh://me@i:2200", "unix:///run/podman.sock"]


def test_a_prefix_holds_nothing_that_a_shell_would_read(write: Callable[[str], Path]) -> None:
    with pytest.raises(InventoryError, match="must be an absolute path of letters, digits and"):
        read(write("hardware: {g4: [{address: h, prefix: '/opt/$(id)'}]}"))


def test_how_images_are_built_here(write: Callable[[str], Path]) -> None:
    inventory = read(write("build: {'*': {network: host, args: {A: 1}}, one: {args: {A: 2, BASE: b}}}"))
    assert inventory.build_of("one") == ({"A": "2", "BASE": "b"}, "host")
    assert inventory.build_of("other") == ({"A": "1"}, "host")


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


def test_a_sites_slurm_takes_the_place_of_what_the_matrix_says(write: Callable[[str], Path]) -> None:
    text = 'slurm: {"*": {account: p1, time: 20}, gpu: {partition: g, cpu_bind: [1-7, 9], prefix: /opt/mpi}}\n'
    inventory = read(write(text))
    kind = Hardware("gpu", runtime="slurm", settings=Batch(partition="any", gres="gpu:2", bind="cores"))
    batch = inventory.site(kind).settings
    assert batch == Batch(partition="g", account="p1", time="20", gres="gpu:2", binding=("1-7", "9"))
    other = inventory.site(replace(kind, name="other")).settings
    assert other == Batch(partition="any", account="p1", time="20", gres="gpu:2", bind="cores")
    # Slurm chooses the hosts; any number of them.
    assert inventory.bind((kind, kind)) == (Host("node0", prefix="/opt/mpi"), Host("node1", prefix="/opt/mpi"))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (
            "{cpu_bind: lumi-x}",
            "'lumi-x' (known: cores, ldoms, lumi-g, none, sockets, threads; did you mean 'lumi-g'?)",
        ),
        ("{cpu_bind: [1-x]}", "'1-x' is no list of CPUs such as 1-7 or 0,2"),
        ("{time: soon}", "minutes, H:MM:SS or D-H"),
        ("{partition: 'a b'}", "no spaces"),
        ("{partitoin: a}", "did you mean 'partition'?"),
    ],
)
def test_what_slurm_would_not_take_is_said_before(write: Callable[[str], Path], entry: str, says: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(write(f"slurm: {{gpu: {entry}}}\n"))
    assert says in str(caught.value)


def test_a_sites_kubernetes_goes_over_what_the_matrix_says(write: Callable[[str], Path]) -> None:
    text = (
        'kubernetes: {"*": {namespace: n, labels: {team: mpi}}, '
        "gpu: {image: 'r/own:2', labels: {a: b}, ttl: 600, prefix: /opt/mpi}}\n"
    )
    inventory = read(write(text))
    kind = Hardware("gpu", runtime="kubernetes", settings=Pods(image="r/x:1", labels={"team": "x", "c": "d"}))
    assert inventory.site(kind).settings == Pods(
        image="r/own:2", namespace="n", labels={"team": "mpi", "c": "d", "a": "b"}, ttl=600
    )
    other = inventory.site(replace(kind, name="other")).settings
    assert other == Pods(image="r/x:1", namespace="n", labels={"team": "mpi", "c": "d"})
    # The cluster chooses the hosts; any number of them.
    assert inventory.bind((kind, kind)) == (Host("node0", prefix="/opt/mpi"), Host("node1", prefix="/opt/mpi"))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{kind: jobs}", "hosts.yaml:1: kubernetes.gpu.kind: 'jobs' makes no pods (known: job, "),
        ("{image: containers/x}", "hosts.yaml:1: kubernetes.gpu.image: a cluster cannot build 'containers/x'"),
        ("{namespace: A}", "kubernetes.gpu.namespace: 'A' must be a name as Kubernetes takes it"),
    ],
)
def test_what_kubernetes_would_not_take_is_said_before(write: Callable[[str], Path], entry: str, says: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(write(f"kubernetes: {{gpu: {entry}}}\n"))
    assert says in str(caught.value)
