"""What is typed for pods: made, waited for, named, used and removed by kubectl."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pytest_hetgpu.extensions.runtimes._kubernetes.kubectl import arrival, creation, on, removal
from pytest_hetgpu.extensions.runtimes.pods.request import Pods
from pytest_hetgpu.model.job import Command, Demand, Hardware, Job, Node, Stack
from pytest_hetgpu.planning.shell.script import cleaning, preparation, started
from pytest_hetgpu.reporting.upstream.script import script

STACK = Stack("openmpi-5", "Open MPI", "5.0.11", "", "mpirun", "python3")
DEMAND = Demand(2, STACK, "ob1", ("tcp",), (), "allreduce")


def nodes(*kinds: str, ranks: Sequence[int] = (), **settings: str) -> tuple[Node, ...]:
    pods = {name: Pods(image=f"{name}:1", **settings) for name in kinds}  # type: ignore[arg-type]
    return tuple(
        Node(
            place,
            Hardware(name, runtime="kubernetes", settings=pods[name]),
            f"node{place}",
            ranks[place] if ranks else 1,
            f"node{place}" if place else "localhost",
            STACK,
        )
        for place, name in enumerate(kinds)
    )


def job(*argv: str, members: tuple[Node, ...]) -> Job:
    return Job("demo", "s", "s", {"placement": "two"}, members, Command(argv), 1.0, DEMAND)


def test_pods_are_made_waited_for_and_named() -> None:
    members = nodes("a", "b", namespace="n", context="c")
    (create,) = creation(members, "demo-two")
    until, wait, *named = arrival(members, "demo-two")
    first, *manifest, end = create.splitlines()
    assert first == "kubectl --context c --namespace n create -f - <<'END'"
    assert end == "END"
    kinds = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all("\n".join(manifest))]
    assert kinds == [("Job", "hetgpu-demo-two-0"), ("Job", "hetgpu-demo-two-1"), ("Service", "hetgpu-demo-two")]
    assert "-ge 2 ]; do sleep 1; done" in until
    assert wait == (
        "kubectl --context c --namespace n wait --for=condition=Ready pods -l hetgpu.name=hetgpu-demo-two "
        "--timeout=600s"
    )
    assert named[0] == (
        "pod0=$(kubectl --context c --namespace n get pods -l hetgpu.name=hetgpu-demo-two,hetgpu.group=0 "
        "-o 'jsonpath={.items[0].metadata.name}')"
    )
    assert named[1] == "ip0=$(kubectl --context c --namespace n get -o 'jsonpath={.status.podIP}' pod/\"$pod0\")"
    assert named[2].startswith("pod1=")
    assert "hetgpu.group=1" in named[2]


def test_runais_own_command_is_said_beside_but_not_run() -> None:
    told = list(creation(nodes("a", "a", kind="pytorchjob", project="team"), "demo-two"))
    assert told[0].startswith("# or, by RunAI's own client")
    assert told[1].startswith(
        "# runai submit-dist pytorch --name hetgpu-demo-two --project team --image a:1 --workers 1 "
    )
    assert told[1].endswith(" -- sleep 3600")
    assert told[2].startswith("kubectl --namespace runai-team create -f - ")


def test_one_command_removes_what_was_made() -> None:
    removed = {kind: removal(nodes("a", "a", kind=kind), "p") for kind in ("job", "mpijob", "pytorchjob", "volcano")}
    before = "kubectl delete --ignore-not-found --cascade=foreground"
    assert removed == {
        "job": f"{before} jobs.batch/hetgpu-p-0 services/hetgpu-p",
        "mpijob": f"{before} mpijobs.kubeflow.org/hetgpu-p",
        "pytorchjob": f"{before} pytorchjobs.kubeflow.org/hetgpu-p",
        "volcano": f"{before} jobs.batch.volcano.sh/hetgpu-p services/hetgpu-p",
    }


def test_a_command_runs_in_the_pod_of_its_node() -> None:
    first, second = nodes("a", "a")
    assert on(second, "echo", "it's") == """kubectl exec "$pod1" -c main -- echo 'it'"'"'s'"""
    assert on(first, "cat", stdin=True) == 'kubectl exec -i "$pod0" -c main -- cat'


def test_hosts_in_a_command_are_the_addresses_of_pods_but_not_those_that_ssh_explains() -> None:
    first, second = nodes("a", "a")
    words = ("mpirun", "-H", "node1:1", "--rdzv-endpoint", "node0:7", "MASTER_ADDR=node1", "node2", "node1x")
    assert on(first, *words, everybody=(first, second)).partition(" -- ")[2] == (
        'mpirun -H node1:1 --rdzv-endpoint "$ip0":7 MASTER_ADDR="$ip1" node2 node1x'
    )


def test_a_job_that_ran_is_told_with_the_addresses_of_its_next_pods() -> None:
    first, second = nodes("a", "a")
    there = replace(second, host="10.244.0.7")
    assert on(first, "x", "10.244.0.7:20", "10.244.0.70", "10x244.0.7", everybody=(first, there)).endswith(
        ' -- x "$ip1":20 10.244.0.70 10x244.0.7'
    )


def test_what_operators_put_into_pods_is_taken_away() -> None:
    (first,) = nodes("a", kind="pytorchjob")
    line = started(job("mpirun", members=(first,)), Command(("mpirun",), {"A": "b"}))
    assert line.startswith(
        'kubectl exec "$pod0" -c pytorch -- env -u MASTER_ADDR -u MASTER_PORT -u RANK -u WORLD_SIZE '
    )
    assert line.endswith(" env A=b mpirun")
    (plain,) = nodes("a")
    assert started(job("mpirun", members=(plain,)), Command(("mpirun",))) == 'kubectl exec "$pod0" -c main -- mpirun'


def test_pods_are_joined_as_other_nodes_are_and_all_of_it_is_shell(tmp_path: Path) -> None:
    members = nodes("a", "a", namespace="n")
    lines = list(preparation(job("mpirun", members=members), "/p/programs"))
    assert lines[-1] == (
        'kubectl --namespace n exec "$pod0" -c main -- sed -i "s/HostName node1$/HostName $ip1/" /tmp/hetgpu/ssh_config'
    )
    assert any(line.startswith("tar -C /p -c programs | kubectl --namespace n exec -i") for line in lines)
    script = "\n".join([*lines, *cleaning(job("mpirun", members=members))])
    assert subprocess.run(["sh", "-n"], input=script.encode(), cwd=tmp_path, check=False).returncode == 0
    assert list(cleaning(job("mpirun", members=members))) == [removal(members, "demo-two")]


def test_the_programs_of_an_installed_package_get_their_name_on_the_node() -> None:
    lines = list(preparation(job("mpirun", members=nodes("a")), "/site/pytest_hetgpu/remote"))
    (line,) = [line for line in lines if line.startswith("tar ")]
    packed, _, unpacked = line.partition(" | ")
    assert packed == "tar -C /site/pytest_hetgpu -c remote"
    assert unpacked.endswith(' && kubectl exec "$pod0" -c main -- mv /tmp/hetgpu/remote /tmp/hetgpu/programs')


def test_a_reproducer_says_that_it_needs_kubectl_and_removes_the_pods_whatever_happens() -> None:
    made = script(job("mpirun", members=nodes("a", "a")), "key")
    assert "# Needs a POSIX shell, kubectl, and the files beside it." in made
    clean = "  kubectl delete --ignore-not-found --cascade=foreground jobs.batch/hetgpu-demo-two-0 "
    assert f"clean() {{\n  set +e\n{clean}" in made
    assert subprocess.run(["sh", "-n"], input=made.encode(), check=False).returncode == 0


@pytest.mark.parametrize(("fails", "deletes"), [("create", False), ("wait", True)])
def test_a_reproducer_removes_pods_only_if_it_made_them(tmp_path: Path, fails: str, deletes: bool) -> None:
    tmp_path.joinpath("reproduce.sh").write_text(script(job("mpirun", members=nodes("a", "a")), "key"))
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$1" >>asked\n[ "$1" != {fails} ]\n')
    program.chmod(0o700)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    # As many pods as are waited for.
    tmp_path.joinpath("wc").write_text("#!/bin/sh\necho 2\n")
    tmp_path.joinpath("wc").chmod(0o700)
    done = subprocess.run(["sh", "reproduce.sh"], cwd=tmp_path, env=env, check=False)
    asked = tmp_path.joinpath("asked").read_text().split()
    assert (done.returncode, asked[0], "delete" in asked) == (1, "create", deletes)
