"""Stack, launcher and fabric of a job, and forbidden combinations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import Job, Node
from tests.planning.plan_cases import ALL, FOUR, STACK, TEXT, Plans, Reads, plans, site

__all__ = ["plans"]

LED = """\
name: led
hardware:
  worker: {}
  control: {image: launcher, env: {ONLY: control}, mca: {pml_base_verbose: 1}}
axes:
  placement:
    led: {nodes: [worker, worker], launch_from: control, ranks_per_node: 2}
  transport: {shm: {}}
  workload: {allreduce: {}}
"""


def test_a_job_may_be_started_from_a_node_without_ranks(plans: Plans, reads: Reads) -> None:
    job = plans("led-shm-allreduce", LED)
    assert job.launcher == Node(
        2, reads(LED).hardware["control"], "localhost", 0, "localhost", STACK, interface=InterfaceChoice()
    )
    assert ([node.ranks for node in job.nodes], job.demand.ranks) == ([2, 2], 4)
    # What its hardware sets is for ranks, and it has none.
    assert not {"ONLY=control", "pml_base_verbose"} & set(job.command.argv)
    assert plans("two-ob1-pairs").launcher is None


def test_the_node_that_starts_has_a_stack_and_a_host_of_its_own(plans: Plans) -> None:
    text = LED.replace("image: launcher", "mpi: {stack: openmpi-system}")
    hosts = {"worker": (Host("b"), Host("c")), "control": (Host("a"),)}
    job = plans("led-shm-allreduce", text, replace(ALL, inventory=Inventory(True, "hosts.yaml", hosts)))
    assert job.command.argv[0] == "/usr/bin/mpirun"
    assert "/s/bin/python" in job.command.argv
    assert job.command.argv[job.command.argv.index("-H") + 1] == "b:2,c:2"
    assert job.demand.stack == STACK
    assert sorted(node.host for node in job.all_nodes) == ["a", "b", "c"]


@pytest.mark.parametrize(("stack", "found"), [("openmpi-4", "Open MPI 4.1.8"), ("mpich", "MPICH 5.0.2")])
def test_the_node_that_starts_speaks_the_others_language(plans: Plans, stack: str, found: str) -> None:
    with pytest.raises(NotHere) as caught:
        plans("led-shm-allreduce", LED.replace("image: launcher", f"mpi: {{stack: {stack}}}"), ALL)
    assert str(caught.value) == (
        f"control cannot start this job: it has {found} (stack {stack}), the nodes have Open MPI 5.0.11 "
        "(stack openmpi-5), and their major versions must be one"
    )


def test_an_axis_of_stacks_is_for_the_node_that_starts_too(plans: Plans) -> None:
    job = plans("led-shm-allreduce-openmpi-4", LED + "  stack: [openmpi-4]\n", ALL)
    assert (job.command.argv[0], job.demand.stack) == ("/four/bin/mpirun", FOUR)


def test_hardware_that_is_to_start_must_be_in_the_matrix_and_in_the_inventory(
    plans: Plans, matrix_errors: Callable[..., list[str]]
) -> None:
    assert matrix_errors(LED.replace("launch_from: control", "launch_from: contrl")) == [
        "m.yaml:7: axes.placement.led.launch_from: unknown hardware 'contrl' "
        "(known: control, worker; did you mean 'control'?)"
    ]
    with pytest.raises(NotHere, match="needs hardware control, which the inventory hosts.yaml lacks"):
        plans("led-shm-allreduce", LED, site({"worker": (Host("b"),)}))


def test_a_transport_that_the_stack_has_not_is_not_run(plans: Plans) -> None:
    text = TEXT + "  stack: [mpich]\n"
    with pytest.raises(NotHere) as caught:
        plans("two-ob1-pairs-mpich", text, ALL)
    assert str(caught.value) == "MPICH has no ob1 (known: auto, ofi, shm, ucc, ucx)"
    job = plans("two-ucx-tcp-pairs-mpich", text, ALL)
    assert job.command.argv[:6] == ("/m/bin/mpirun", "-np", "2", "env", "BOTH=axis", "MPIR_CVAR_CH4_NETMOD=ucx")
    assert "--mca" not in job.command.argv
    assert job.demand.facts == {"mpich": "5.0.2", "stack": "mpich", "memory": "host"}


def test_an_mpi4py_of_another_mpi_runs_no_program_that_uses_it(plans: Plans) -> None:
    facts = ALL
    foreign = {name: replace(stack, foreign_mpi4py="libmpi.so.12") for name, stack in facts.stacks.items()}
    with pytest.raises(NotHere) as caught:
        plans("two-ob1-pairs", TEXT, replace(facts, stacks=foreign))
    assert "pairs needs an mpi4py of its MPI: the mpi4py of " in str(caught.value)
    assert str(caught.value).endswith("pip install --no-binary mpi4py mpi4py")
    text = TEXT.replace("  workload:\n", "  workload:\n    own: {kind: command, argv: [/opt/app], check: false}\n")
    assert "/opt/app" in plans("two-ob1-own", text, replace(facts, stacks=foreign)).command.argv


@pytest.mark.parametrize(("cell", "names"), [("two", "pml"), ("mixed", "pml, pml_base_verbose")])
def test_mca_parameters_are_not_dropped_in_silence(plans: Plans, cell: str, names: str) -> None:
    text = TEXT + "  stack: [mpich]\n  tuning: {a: {mca: {pml: ucx}}}\n"
    with pytest.raises(NotHere) as caught:
        plans(f"{cell}-ucx-tcp-pairs-mpich-a", text, ALL)
    assert str(caught.value) == f"mpirun of MPICH takes no MCA parameters; this cell sets {names}"


def test_other_hosts_are_given_with_their_slots(plans: Plans) -> None:
    text = TEXT + "  ranks_per_node: [2]\n"
    hosts = {"cpu": (Host("b"), Host("a")), "lo2": (Host("c"),)}
    uniform = plans("two-ob1-pairs-ranks_per_node2", text, site(hosts)).command.argv
    assert " -np 4 -H b:2,a:2 " in " ".join(uniform)
    mixed = plans("mixed-ob1-pairs-ranks_per_node2", text, site(hosts, cores=1)).command.argv
    assert [mixed[place + 1] for place, token in enumerate(mixed) if token == "-H"] == ["b:2", "c:2"]
    assert "--map-by" not in mixed


ELSEWHERE = """\
name: elsewhere
hardware: {here: {}, there: {runtime: ssh, mpi: {prefix: /opt/mpi}}}
axes:
  placement: {two: [here, there]}
  transport: {ob1: {}}
  workload: {allreduce: {sizes: 8}}
"""


def test_daemons_on_other_hosts_are_started_from_their_own_prefix(plans: Plans) -> None:
    hosts = {"here": (Host("10.0.0.1"),), "there": (Host("10.0.0.2"),)}
    words = " ".join(plans("two-ob1-allreduce", ELSEWHERE, site(hosts)).command.argv)
    assert " --prefix /opt/mpi " in words


WIRED = """\
name: wired
hardware:
  rail: {fabric: {kind: roce, netdev: ens5f0, hca: mlx5_0, gid_index: 3}, env: {NCCL_SOCKET_NTHREADS: 1}}
  plain: {fabric: {netdev: ens5}}
axes:
  placement: {rails: [rail, rail], half: [rail, plain]}
  transport: {auto: {}, ucx-rc: {family: ucx, tls: [rc, self]}, ucx-tcp: {family: ucx}}
  workload: {allreduce: {sizes: 8}}
"""


def variables(job: Job, context: int = 0) -> dict[str, str]:
    """Return the variables that `env` sets in one context of a job."""
    tokens = " ".join(job.command.argv).split(" : ")[context].split(" env ")[1].split()
    return dict(token.split("=", 1) for token in tokens if re.match(r"[A-Z_]+=", token))


def test_the_fabric_is_the_lowest_layer_of_the_environment(plans: Plans) -> None:
    fabric = {
        "NCCL_IB_HCA": "mlx5_0",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_SOCKET_IFNAME": "ens5f0",
        "NCCL_SOCKET_NTHREADS": "1",
        "NCCL_NSOCKS_PERTHREAD": "8",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_IB_GID_INDEX": "3",
    }
    assert variables(plans("rails-auto-allreduce", WIRED)) == fabric
    ucx = {"UCX_LOG_LEVEL": "info", "UCX_TLS": "rc,self"}
    assert variables(plans("rails-ucx-rc-allreduce", WIRED)) == fabric | ucx
    tcp = {"UCX_LOG_LEVEL": "info", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "ens5f0"}
    assert variables(plans("rails-ucx-tcp-allreduce", WIRED)) == fabric | tcp
    given = WIRED + "  tuning: {a: {env: {NCCL_IB_HCA: mlx5, NCCL_SOCKET_NTHREADS: 2}}}\n"
    both = {"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_NTHREADS": "2"}
    assert variables(plans("rails-auto-allreduce-a", given)) == fabric | both


def test_each_node_has_its_own_fabric(plans: Plans) -> None:
    job = plans("half-ucx-tcp-allreduce", WIRED)
    assert variables(job)["NCCL_IB_HCA"] == "mlx5_0"
    assert variables(job, 1) == {"UCX_LOG_LEVEL": "info", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "ens5"}


def test_rdma_is_asked_for_where_every_node_can(plans: Plans) -> None:
    assert plans("rails-ucx-rc-allreduce", WIRED).demand.rdma
    assert not plans("half-ucx-rc-allreduce", WIRED).demand.rdma
    assert not plans("two-ob1-pairs").demand.rdma
