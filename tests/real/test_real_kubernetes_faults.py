"""What happens to the pods of a real Kubernetes in mid-run, and to what a killed run has there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_hetgpu.cli.main import main
from tests.kubernetes.daemons import PAUSE
from tests.real.nodes_here import properties
from tests.real.pods_here import ALLREDUCE, HANG, Pods

pytestmark = pytest.mark.real

OTHERS = "tests"


def first(pods: Pods) -> str:
    return min(pods.cluster.pods())


def delete(pods: Pods) -> None:
    pods.cluster.kubectl("delete", "pod", first(pods), "-n", OTHERS, "--wait=false")


def evict(pods: Pods) -> None:
    """As `kubectl drain` does it."""
    name = first(pods)
    meta = {"name": name, "namespace": OTHERS}
    text = json.dumps({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": meta})
    pods.cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{OTHERS}/pods/{name}/eviction", "-f", "-", stdin=text)


def deadline(pods: Pods) -> None:
    pods.cluster.kubectl("patch", "pod", first(pods), "-n", OTHERS, "-p", '{"spec":{"activeDeadlineSeconds":1}}')


def preempt(pods: Pods) -> None:
    """Somebody more important wants all of the node."""
    (node,) = pods.cluster.get("nodes")
    spec = {
        "priorityClassName": "urgent",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": PAUSE,
                "resources": {"requests": {"cpu": node["status"]["allocatable"]["cpu"]}},
            }
        ],
    }
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent", "namespace": "closed"}, "spec": spec}
    pods.cluster.apply(urgent, pod)


def lose_server(pods: Pods) -> None:
    pods.cluster.kill("kube-apiserver")


def lose_node(pods: Pods) -> None:
    pods.cluster.kill("kubelet")


def lose_node_unseen(pods: Pods) -> None:
    """A cluster gives a node up after a time of grace, 40 s and more, and until then says nothing."""
    pods.cluster.kill("kube-controller-manager")
    pods.cluster.kill("kubelet")


def darken_host(pods: Pods) -> None:
    """No connection ends, and nothing is answered: as with a host whose power or link is gone."""
    pods.cluster.daemons["kubelet"].send_signal(signal.SIGSTOP)


@pytest.fixture
def mended(pods: Pods) -> Iterator[Pods]:
    """A cluster that is whole again afterwards."""
    yield pods
    if "kube-apiserver" not in pods.cluster.daemons:
        pods.cluster.start("kube-apiserver")
        pods.cluster.until(pods.cluster.answers, what="an API server")
    for name in ("kube-controller-manager", "kubelet"):
        if name not in pods.cluster.daemons:
            pods.cluster.start(name)
    pods.cluster.daemons["kubelet"].send_signal(signal.SIGCONT)
    pods.cluster.kubectl("delete", "pod", "urgent", "-n", "closed", "--ignore-not-found", "--now")
    pods.cluster.until(pods.cluster.ready, what="a ready node")


@pytest.mark.parametrize(
    ("happens", "site", "outcome", "signature", "says"),
    [
        (delete, "{}", "timeout", "deleted@kubernetes", "was deleted"),
        (evict, "{}", "timeout", "deleted@kubernetes", "was deleted"),
        (deadline, "{}", "timeout", "time-limit@kubernetes", "reached its deadline: give `ttl` of `kubernetes` more"),
        (
            preempt,
            "{resources: {cpu: 200m}}",
            "timeout",
            "preempted@kubernetes",
            "was preempted (Preempted by closed/urgent",
        ),
        (lose_server, "{}", "network_failure", "no-server@kubernetes", "does not answer: `kubectl cluster-info"),
        (lose_node, "{}", "network_failure", "node-lost@kubernetes", "lost its node kind0"),
        (
            lose_node_unseen,
            "{}",
            "network_failure",
            "node-lost@kubernetes",
            "does not reach the kubelet of that pod's node",
        ),
        (darken_host, "{}", "network_failure", "node-lost@kubernetes", "lost its node kind0: it does not answer"),
    ],
    ids=["delete", "evict", "deadline", "preempt", "server", "node", "node-unseen", "host"],
)
def test_what_a_cluster_takes_away_is_no_failure_of_the_cell(
    mended: Pods,
    pytester: pytest.Pytester,
    happens: Callable[[Pods], None],
    site: str,
    outcome: str,
    signature: str,
    says: str,
) -> None:
    with mended.hanging(site) as process:
        happens(mended)
        process.wait(100)
    log = mended.log()
    (cell,) = properties(pytester.path / "reports").values()
    assert (cell["outcome"], cell["signature"]) == (outcome, signature), log[-3000:]
    assert says in log


def test_a_rank_that_its_pod_has_no_memory_for(pods: Pods, pytester: pytest.Pytester) -> None:
    assert pods.run("[one, one]", "fault: {fault: fill-memory}", "{resources: {memory: 400Mi}}").ret == 1
    (cell,) = properties(pytester.path / "reports").values()
    assert (cell["outcome"], cell["signature"]) == ("out_of_memory", "oom-kill@kernel")


def test_a_run_that_stopped_without_a_server_is_resumed_when_it_is_back(
    mended: Pods, pytester: pytest.Pytester
) -> None:
    both = f"{HANG}, {ALLREDUCE}"
    with mended.hanging("{}", both, "-x") as process:
        lose_server(mended)
        process.wait(100)
    run = mended.reports.resolve().name
    mended.cluster.start("kube-apiserver")
    mended.cluster.until(mended.cluster.answers, what="an API server")
    # What could not be removed while it was away is removed by the guardian.
    mended.cluster.until(lambda: mended.cluster.left() == [], what="nothing of the run")
    resumed = mended.run("[one, one]", both, "{}", "--hetgpu-resume", run)
    resumed.stdout.fnmatch_lines([f"*resumed reports/{run}: 1 of 2 cells are kept, 1 to run*"])
    cells = properties(pytester.path / "reports")
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "pair-ob1-fault": "network_failure",
        "pair-ob1-allreduce": "passed",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_nothing(pods: Pods, number: signal.Signals) -> None:
    with pods.hanging() as process:
        assert len(pods.cluster.pods()) == 2
        process.send_signal(number)
        process.wait(60)
    pods.cluster.until(lambda: pods.cluster.left() == [], what="nothing of the run")


def test_a_run_killed_while_its_pods_wait_leaves_nothing(pods: Pods, pytester: pytest.Pytester) -> None:
    pods.write("[one, one]", "allreduce: {sizes: 8}", "{resources: {cpu: 99}}")
    argv = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hetgpu-matrix", "nodes.yaml")
    with subprocess.Popen((*argv, "--hetgpu-inventory", "hosts.yaml"), cwd=pytester.path) as waiting:
        pods.cluster.until(lambda: len(pods.cluster.pods()) == 2, what="pods that wait")
        waiting.kill()
    pods.cluster.until(lambda: pods.cluster.left() == [], what="nothing of the run")


def test_clean_leaves_a_live_run_alone_and_shows_and_removes_a_dead_ones(
    pods: Pods, capsys: pytest.CaptureFixture[str]
) -> None:
    with pods.hanging() as process:
        assert main(["clean", "--yes"]) == 0
        assert "left alone: run" in capsys.readouterr().out
        assert len(pods.cluster.pods()) == 2
        # A guardian that was killed too, as by a reboot.
        (book,) = Path(os.environ["HETGPU_LEDGERS"]).glob("*.ledger")
        kept = book.read_text()
        process.send_signal(signal.SIGSTOP)
        guardian = next(
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and str(book) in entry.joinpath("cmdline").read_text().replace("\0", " ")
        )
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        process.wait(30)
    assert kept == book.read_text()
    assert main(["clean"]) == 1
    shown = capsys.readouterr().out
    assert re.search("^job +hetgpu-nodes-pair-", shown, re.MULTILINE)
    assert "namespace tests of Kubernetes at user" in shown
    assert main(["clean", "--yes"]) == 0
    pods.cluster.until(lambda: pods.cluster.left() == [], what="nothing of the run")
    assert not book.exists()


def test_credentials_that_expire_in_mid_run_leave_nothing_once_they_are_renewed(pods: Pods) -> None:
    good = pods.cluster.user.read_text()
    with pods.hanging() as process:
        pods.cluster.write_config("user", {"token": pods.cluster.token(-60)})
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert pods.cluster.left()
    assert json.loads(good)
    pods.cluster.user.write_text(good)
    pods.cluster.until(lambda: pods.cluster.left() == [], 60, "nothing of the run")
