"""Jobs over real containers: joined by ssh, looked at, reused, made anew, and gone afterwards."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.nodes_here import AXES, BUILD, HEAD, HOSTS, ROOT, docker, environment, left, properties
from tests.xdist_here import has_xdist

pytestmark = [pytest.mark.real, pytest.mark.beside]

Nodes = Callable[..., pytest.RunResult]


def test_two_images_in_one_job(nodes: Nodes, pytester: pytest.Pytester) -> None:
    result = nodes(AXES.replace("[one, one]", "[one, other]"))
    assert result.ret == 0
    (cell,) = properties(pytester.path / "reports").values()
    assert (cell["verdict"], cell["transport_seen"]) == ("ok", "ob1/tcp")
    assert "/opt/mpi/lib/libmpi.so.40" in cell["stack"]
    seen = environment(pytester.path / "reports", "pair")
    assert seen["nodes"]["node0"]["facts"]["openmpi"]["value"] == "5.0.11"
    assert {"os", "glibc"} <= {row["fact"] for row in seen["skew"]}
    summary = (pytester.path / "reports/latest/summary.md").read_text()
    assert "## What the nodes are" in summary
    assert "≠ os" in summary


def test_containers_stay_for_the_next_cell_and_not_after_a_crash(nodes: Nodes, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("test_hosts.py").write_text(
        "def test_cell(cluster, run):\n"
        "    run(check=False)\n"
        "    with open('hosts', 'a') as log:\n"
        "        print(cluster.job.scenario, [n.host.file('/etc/hostname').content_string.strip() for n in\n"
        "              cluster.nodes], cluster.nodes[0].runtime.folder, file=log)\n"
    )
    axes = AXES.replace("{ob1: {}}", "{ob1: {}, ucx: {}}").replace(
        "64K]}", "64K]}, guarded_send: {sizes: 64}, barrier: {}"
    )
    nodes(axes, "test_hosts.py")
    lines = [line.split() for line in (pytester.path / "hosts").read_text().splitlines()]
    assert [line[0] for line in lines] == [
        f"pair-{transport}-{workload}"
        for transport in ("ob1", "ucx")
        for workload in ("allreduce", "guarded_send", "barrier")
    ]
    assert lines[0][1:3] == ["['node0',", "'node1']"]
    folders = [line[3] for line in lines]
    # ob1's error is no crash: what follows has the same nodes; UCX's segmentation fault makes them anew.
    assert folders[0] == folders[1] == folders[2] == folders[3] == folders[4] != folders[5]


def test_a_node_without_ranks_starts_the_job(nodes: Nodes, pytester: pytest.Pytester) -> None:
    result = nodes(AXES.replace("[one, one]", "{nodes: [other, one, other], launch_from: one}"))
    assert result.ret == 0
    assert set(environment(pytester.path / "reports", "pair")["nodes"]) == {"node0", "node1", "node2", "launcher"}


def test_workers_have_nodes_of_their_own(
    nodes: Nodes, pytester: pytest.Pytester, lacking: Callable[[str, str], None]
) -> None:
    if not has_xdist():
        lacking("xdist", "pytest-xdist is not installed")
    result = nodes(AXES.replace("{ob1: {}}", "{ob1: {}, ofi: {}}"), "-n2")
    assert result.ret == 0
    assert [cell["verdict"] for cell in properties(pytester.path / "reports").values()] == ["ok", "ok"]


def test_an_image_that_cannot_be_built_is_an_error_and_the_other_cells_go_on(
    nodes: Nodes, pytester: pytest.Pytester
) -> None:
    folder = pytester.path / "broken"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM hetgpu-base:bookworm\nRUN echo so far so good && false\n")
    head = HEAD + f"  broken: {{runtime: docker, image: {folder}}}\n"
    hosts = HOSTS.replace("}", ", broken: [localhost]}")
    pytester.path.joinpath("hosts.yaml").write_text(hosts + BUILD)
    result = nodes(AXES.replace("{pair: [one, one]}", "{bad: [one, broken], pair: [one, one]}"), head=head)
    assert result.ret == 1
    result.assert_outcomes(errors=1, passed=1)
    cells = properties(pytester.path / "reports")
    assert (cells["bad-ob1-allreduce"]["outcome"], cells["pair-ob1-allreduce"]["outcome"]) == (
        "launch_failure",
        "passed",
    )
    assert cells["bad-ob1-allreduce"]["signature"].startswith("not-ready@")
    log = (pytester.path / "reports/latest/scenarios/bad-ob1-allreduce/output.log").read_text()
    assert "so far so good" in log
    assert "RUN echo so far so good && false" in log


def test_an_image_without_sshd_is_named(nodes: Nodes, pytester: pytest.Pytester) -> None:
    head = HEAD.replace("cpu-ompi5-b}", "cpu-ompi5-b}\n  bare: {runtime: docker, image: 'hetgpu-base:bookworm'}")
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS.replace("}", ", bare: [localhost]}") + BUILD)
    result = nodes(AXES.replace("[one, one]", "[one, bare]"), head=head)
    assert result.ret == 1
    (cell,) = properties(pytester.path / "reports").values()
    assert cell["outcome"] == "launch_failure"
    assert "sshd" in cell["why"]
    assert "openssh-server" in cell["why"]


def test_what_the_plan_prints_can_be_pasted(nodes: Nodes, pytester: pytest.Pytester, engine: None) -> None:
    axes = AXES.replace("[one, one]", "{nodes: [one, other], launch_from: one}")
    pytester.path.joinpath("nodes.yaml").write_text(HEAD.replace("name: nodes", "name: pasted") + axes)
    given = ("--hetgpu-matrix", "nodes.yaml", "--hetgpu-inventory", "hosts.yaml", "--hetgpu-plan")
    planned = pytester.runpytest_subprocess("-p", "no:cacheprovider", *given, timeout=100)
    first = next(place for place, line in enumerate(planned.outlines) if line.startswith("# placement"))
    script = "\n".join(["set -e", *_commands(planned.outlines[first:])])
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    try:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert done.stdout.count('"t":"done"') == 2
    finally:
        for name in docker("ps", "-aq", "--filter", "name=hetgpu-pasted").split():
            docker("rm", "-f", name)
        for name in docker("network", "ls", "-q", "--filter", "name=hetgpu-pasted").split():
            docker("network", "rm", name)


def _commands(lines: list[str]) -> list[str]:
    """The shell lines of a plan: what prepares and cleans stands by itself, a cell's command after its `$`."""
    words = re.compile(r"(pair-|=|  (node|interface|started from|timeout)\b)")
    return [line.removeprefix("  $ ") for line in lines if not words.match(line)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_when_a_run_is_killed(
    engine: None, pytester: pytest.Pytester, number: signal.Signals, nodes: Nodes
) -> None:
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS + BUILD)
    workload = "{fault: {fault: hang, timeout: 60}}"
    pytester.path.joinpath("nodes.yaml").write_text(HEAD + AXES.replace("{allreduce: {sizes: [8, 64K]}}", workload))
    given = ("--hetgpu-matrix", "nodes.yaml", "--hetgpu-inventory", "hosts.yaml")
    with subprocess.Popen((sys.executable, "-m", "pytest", *given), cwd=pytester.path) as running:
        log = _until(lambda: next(pytester.path.glob("reports/.private/*/*.log"), None), running)
        _until(lambda: log.stat().st_size or None, running)
        run = log.parent.name
        assert len(left(run)) == 3
        running.send_signal(number)
        running.wait(60)
    import docker as sdk

    with contextlib.closing(sdk.APIClient(version="auto")) as api:
        for container in api.containers(filters={"label": f"hetgpu.run={run}"}):
            with contextlib.suppress(sdk.errors.NotFound):
                api.wait(container["Id"], condition="removed", timeout=30)
    # A network is nothing that ends by itself; the next run that uses this engine removes it.
    networks = {f"hetgpu-{run}-nodes-pair"} if number == signal.SIGKILL else set()
    assert {name.rpartition("-")[0] for name in left(run)} <= networks


def test_a_node_that_dies_in_mid_run_is_named_and_the_next_cell_has_another(
    engine: None, pytester: pytest.Pytester, nodes: Nodes
) -> None:
    pytester.path.joinpath("hosts.yaml").write_text(HOSTS + BUILD)
    workload = "{fault: {fault: hang, timeout: 60}, allreduce: {sizes: 8}}"
    pytester.path.joinpath("nodes.yaml").write_text(HEAD + AXES.replace("{allreduce: {sizes: [8, 64K]}}", workload))
    given = ("--hetgpu-matrix", "nodes.yaml", "--hetgpu-inventory", "hosts.yaml")
    with subprocess.Popen((sys.executable, "-m", "pytest", *given), cwd=pytester.path) as running:
        log = _until(lambda: next(pytester.path.glob("reports/.private/*/*.log"), None), running)
        _until(lambda: log.stat().st_size or None, running)
        run = log.parent.name
        filters = ("--filter", f"label=hetgpu.run={run}", "--filter", "label=hetgpu.node=node1")
        docker("kill", *docker("ps", "-q", *filters).split())
        running.wait(100)
    assert left(run) == []
    cells = properties(pytester.path / "reports")
    assert cells["pair-ob1-allreduce"]["verdict"] == "ok"
    assert (cells["pair-ob1-fault"]["outcome"], cells["pair-ob1-fault"]["verdict"]) == ("crash", "new")
    text = (pytester.path / f"reports/{run}/scenarios/pair-ob1-fault/output.log").read_text(errors="replace")
    assert "hetgpu: node node1 (one on localhost) was lost: the container ended with exit code 137" in text
    assert cells["pair-ob1-fault"]["signature"] == "lost@container", text


def _until(look: Callable[[], Path | int | None], running: subprocess.Popen[bytes]) -> Path:
    """What `look` finds, looked for as long as the run lives."""
    while running.poll() is None:
        if found := look():
            return found  # type: ignore[return-value]
        try:
            running.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the run ended before anything was seen of it")
