"""Host, name and stack of each node of a placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_hetgpu.cluster.leases.hold import lease_requests
from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.config.inventory.inventory import Inventory
from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.runtimes.pods.shape import PodsSite
from pytest_hetgpu.model.interfaces import InterfaceChoice
from pytest_hetgpu.model.job import ConnectionInfo, Image, Job, Stack
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import DiscoveredNode, SiteFacts
from pytest_hetgpu.planning.plan import plan

Reads = Callable[..., Matrix]
Plans = Callable[..., Job]

LOCAL = Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python")
IMAGES = {"one": Image("one:1"), "two": Image("two:1"), "gpu": Image("gpu:1")}
SITE = SiteFacts({"openmpi-5": LOCAL}, "/p", images=IMAGES)
TEXT = """\
name: demo
hardware:
  one: {runtime: docker, image: one}
  two: {runtime: docker, image: two, mpi: {stack: openmpi-4, prefix: /opt/four}}
  gpu: {runtime: docker, image: gpu, platform: rocm, arch: gfx1011, fabric: {netdev: ens5}, container: {shm: 1G}}
  there: {runtime: ssh, mpi: {prefix: /opt/mpi}}
  here: {}
axes:
  placement:
    pair: [one, two]
    wide: [one, gpu]
    hosts: [there, there]
    both: [here, one]
    led: {nodes: [one, one], launch_from: two}
  transport: {ob1: {}, ucx: {}}
  workload: {allreduce: {sizes: 8}}
"""
AWS = Inventory(
    True,
    "hosts.yaml",
    {
        "one": (Host("192.0.2.1", ConnectionInfo("ssh://192.0.2.1")),),
        "gpu": (Host("192.0.2.2", ConnectionInfo("ssh://me@192.0.2.2")),),
        "there": (Host("h1", ConnectionInfo("ssh://h1", "me", 22, "/k")), Host("192.0.2.4", prefix="/usr/local")),
        "here": (Host("localhost"),),
    },
)


@pytest.fixture
def plans(reads: Reads) -> Plans:
    def plan_cell(cell: str, site: SiteFacts = SITE, text: str = TEXT) -> Job:
        document = reads(text)
        (scenario,) = (scenario for scenario in expand(document) if scenario.id == cell)
        return plan(document, scenario, site)

    return plan_cell


def test_containers_of_one_engine_share_a_network_and_are_called_by_their_place(plans: Plans) -> None:
    job = plans("pair-ob1-allreduce")
    assert [(node.name, node.host, node.container and node.container.network) for node in job.nodes] == [
        ("node0", "localhost", "user"),
        ("node1", "localhost", "user"),
    ]
    assert [node.image for node in job.nodes] == [Image("one:1"), Image("two:1")]
    assert (job.is_multi_host, {node.host for node in job.nodes}, job.launch_node.name) == (
        True,
        {"localhost"},
        "node0",
    )


def test_each_node_has_its_own_mpi(plans: Plans) -> None:
    job = plans("pair-ob1-allreduce")
    assert [node.stack for node in job.nodes] == [
        Stack("openmpi-5", "Open MPI", "5", "", "mpirun", "python3", torch=True),
        Stack("openmpi-4", "Open MPI", "4", "/opt/four", "/opt/four/bin/mpirun", "/opt/four/bin/python3", torch=True),
    ]
    line = " ".join(job.command.argv)
    assert "-np 1 -H node0:1 env OMPI_MCA_ompi_display_comm=mpi_init python3 -m mpi4py /tmp/hetgpu/programs/" in line
    assert " : -np 1 -H node1:1 env " in line
    assert " /opt/four/bin/python3 -m mpi4py /tmp/hetgpu/programs/allreduce.py" in line
    # Release 5 shows its transports by a parameter that release 4 has not: it must not be given to both.
    assert "--mca ompi_display_comm" not in line


def test_the_interface_of_a_containers_own_network_is_pinned(plans: Plans) -> None:
    line = " ".join(plans("pair-ob1-allreduce").command.argv)
    assert "--mca btl_tcp_if_include eth0" in line
    assert "UCX_NET_DEVICES=eth0" in " ".join(plans("pair-ucx-allreduce").command.argv)


def test_engines_apart_mean_the_network_of_the_hosts(plans: Plans) -> None:
    job = plans("wide-ob1-allreduce", replace(SITE, inventory=AWS))
    assert [node.container and node.container.network for node in job.nodes] == ["host", "host"]
    assert [(node.name, node.host) for node in job.nodes] == [("node0", "192.0.2.1"), ("node1", "192.0.2.2")]
    assert job.nodes[1].container
    assert job.nodes[1].container.devices == ("/dev/kfd", "/dev/dri")
    assert job.nodes[1].container.shm == 1 << 30


def test_what_was_seen_fills_in_what_the_matrix_leaves_open(plans: Plans) -> None:
    seen = {0: DiscoveredNode("/tmp/hetgpu-a", root=False, netdev="ens6"), 1: DiscoveredNode("/tmp/hetgpu-b")}
    job = plans("wide-ob1-allreduce", replace(SITE, inventory=AWS, discovered=seen))
    line = " ".join(job.command.argv)
    assert "--allow-run-as-root" not in line
    assert "env OMPI_MCA_btl_tcp_if_include=ens6 " in line
    assert "env OMPI_MCA_btl_tcp_if_include=ens5 " in line
    assert "ssh -F /tmp/hetgpu-a/ssh_config" in line
    assert "/tmp/hetgpu-b/programs/allreduce.py" in line


def test_the_launcher_and_its_release_are_those_of_the_node(plans: Plans) -> None:
    text = TEXT.replace(
        "one: {runtime: docker, image: one}", "one: {runtime: docker, image: one, mpi: {stack: openmpi-system}}"
    )
    debian = DiscoveredNode(launcher="mpirun.openmpi", version="4.1.4")
    job = plans("pair-ob1-allreduce", replace(SITE, discovered={0: debian, 1: DiscoveredNode()}), text)
    assert job.command.argv[0] == "mpirun.openmpi"
    assert "plm_rsh_agent" in job.command.argv
    assert "--prtemca" not in job.command.argv
    assert job.nodes[0].stack
    # Later cells of the placement are planned before the node is known: the same nodes serve them.
    assert (job.nodes[0].stack.launcher, job.nodes[0].stack.version) == ("mpirun", "4")
    unseen = plans("pair-ob1-allreduce", SITE, text)
    assert (unseen.command.argv[0], "--prtemca" in unseen.command.argv) == ("mpirun", True)


def test_tcp_between_hosts_that_nobody_has_seen_is_pinned_to_nothing(plans: Plans) -> None:
    """Loopback leads to no other host."""
    unseen = replace(SITE, inventory=AWS)
    job = plans("hosts-ob1-allreduce", unseen)
    assert "btl_tcp_if_include" not in " ".join(job.command.argv)
    assert str(job.nodes[0].interface) == "none is pinned (a run chooses it once the node is there)"
    # The node was seen, and nothing is known that leads to the others.
    job = plans("hosts-ob1-allreduce", replace(unseen, discovered={0: DiscoveredNode(), 1: DiscoveredNode()}))
    assert "btl_tcp_if_include" not in " ".join(job.command.argv)
    assert str(job.nodes[0].interface) == "none is pinned (nothing is known of the interfaces)"


def test_a_bridge_that_was_seen_is_known_as_one_also_where_the_fabric_names_it(plans: Plans) -> None:
    text = TEXT.replace("fabric: {netdev: ens5}", "fabric: {netdev: br0}")
    seen = {
        0: DiscoveredNode(interface=InterfaceChoice("vmbr0", "carries its address 192.0.2.1"), bridges=("vmbr0",)),
        1: DiscoveredNode(bridges=("docker0", "br0")),
    }
    line = " ".join(plans("wide-ucx-allreduce", replace(SITE, inventory=AWS, discovered=seen), text).command.argv)
    assert line.count("UCX_TCP_BRIDGE_ENABLE=y") == 2
    assert "UCX_NET_DEVICES=vmbr0" in line
    assert "UCX_NET_DEVICES=br0" in line


def test_hosts_by_ssh_are_called_by_their_address_and_the_first_by_localhost(plans: Plans) -> None:
    job = plans("hosts-ob1-allreduce", replace(SITE, inventory=AWS))
    assert [node.name for node in job.nodes] == ["localhost", "192.0.2.4"]
    assert [node.stack and node.stack.prefix for node in job.nodes] == ["/opt/mpi", "/usr/local"]
    assert job.nodes[0].reach == ConnectionInfo("ssh://h1", "me", 22, "/k")


def test_runtimes_mix_in_one_placement(plans: Plans) -> None:
    job = plans("both-ob1-allreduce")
    assert [(node.name, node.container and node.container.network) for node in job.nodes] == [
        ("localhost", None),
        ("node1", "host"),
    ]
    assert job.nodes[0].stack == LOCAL


def test_a_launcher_without_ranks_is_a_node_of_its_own(plans: Plans) -> None:
    job = plans("led-ob1-allreduce")
    assert job.launcher
    assert (job.launcher.name, job.launcher.ranks, job.launch_node) == ("node2", 0, job.launcher)
    assert job.command.argv[0] == "/opt/four/bin/mpirun"
    assert "node2" not in " ".join(job.command.argv)


def test_a_network_of_its_own_needs_one_engine(plans: Plans) -> None:
    text = TEXT.replace("image: one}", "image: one, container: {network: user}}")
    with pytest.raises(NotHere, match="container network user needs all nodes of a placement to be containers of one"):
        plans("wide-ob1-allreduce", replace(SITE, inventory=AWS), text)


def test_an_image_has_the_stack_it_has(plans: Plans) -> None:
    with pytest.raises(NotHere) as caught:
        plans("pair-ob1-allreduce-openmpi-4", text=TEXT + "  stack: [openmpi-4]\n")
    assert str(caught.value) == "hardware one has the stack openmpi-5, the cell asks for openmpi-4"


def test_without_an_inventory_one_gpu_of_a_kind_is_here(plans: Plans) -> None:
    assert plans("wide-ob1-allreduce").nodes[1].host == "localhost"
    text = TEXT.replace("wide: [one, gpu]", "wide: [gpu, gpu]")
    with pytest.raises(NotHere, match=r"needs hardware gpu \(platform=rocm arch=gfx1011\): give --hetgpu-inventory"):
        plans("wide-ob1-allreduce", text=text)


PODS = """\
name: pods
hardware:
  one: {runtime: kubernetes, image: "r/one:1"}
  two: {runtime: kubernetes, image: "r/two:1", kubernetes: {host_network: true}, mpi: {prefix: /opt/two}}
axes:
  placement: {mixed: [one, two]}
  transport: {ob1: {}}
  workload: {allreduce: {sizes: 8}}
"""


def test_pods_are_called_by_their_place_until_they_are_there(plans: Plans) -> None:
    job = plans("mixed-ob1-allreduce", text=PODS)
    assert [(node.host, node.name, node.stack and node.stack.prefix) for node in job.nodes] == [
        ("node0", "localhost", ""),
        ("node1", "node1", "/opt/two"),
    ]
    assert [node.hardware.fabric.netdev for node in job.nodes] == ["eth0", None]
    # Nobody else has them, so that no lease is taken.
    assert lease_requests(job.all_nodes) == ()
    seen = {0: DiscoveredNode(host="10.244.0.5"), 1: DiscoveredNode(host="10.244.0.6")}
    there = plans("mixed-ob1-allreduce", replace(SITE, discovered=seen), PODS)
    assert [node.host for node in there.nodes] == ["10.244.0.5", "10.244.0.6"]


def test_a_site_may_not_ask_for_what_no_pods_of_one_placement_can_be(plans: Plans) -> None:
    site = Inventory(True, "hosts.yaml", sites={"kubernetes": {"*": PodsSite(kind="mpijob")}})
    with pytest.raises(NotHere, match="an MPIJob has one template for all its workers, and one and two are two"):
        plans("mixed-ob1-allreduce", replace(SITE, inventory=site), PODS)
