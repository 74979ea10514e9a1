"""Whole runs on a real Slurm of four nodes in two partitions, and what may happen to them there."""

from __future__ import annotations

import concurrent.futures
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.real.nodes_here import RAW, ROOT, properties
from tests.slurm import cluster as slurm

pytestmark = pytest.mark.real

Lacking = Callable[[str, str], None]
HEAD = """\
name: nodes
hardware:
  one: {runtime: slurm, slurm: {partition: cuda, time: 5, queue: 100}, mca: {mpi_yield_when_idle: 1}}
  other: {runtime: slurm, slurm: {partition: rocm, time: 5, queue: 100}, mca: {mpi_yield_when_idle: 1}}
axes:
  placement: {pair: %s}
  transport: {ob1: {}}
  workload: {%s}
  start: {by: {launcher: %s}}
"""
ALLREDUCE = "allreduce: {sizes: 8, iterations: 2}"
HANG = "fault: {fault: hang, timeout: 100}"
OPTIONS = ("-p", "no:cacheprovider", "--hetgpu-wire", "off", "--hetgpu-matrix", "nodes.yaml")


@pytest.fixture(scope="module")
def running() -> Iterator[slurm.Cluster]:
    with slurm.running() as made:
        yield made


@pytest.fixture
def cluster(
    lacking: Lacking,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[slurm.Cluster]:
    """A Slurm of one's own, whose queue is empty before and after."""
    if lack := slurm.lacks():
        lacking("slurm", lack)
    made: slurm.Cluster = request.getfixturevalue("running")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, made.env[name])
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path_factory.mktemp("leases")))
    yield made
    made.until(lambda: made.queue() == [], what="an empty queue")
    made.until(made.idle, seconds=60, what="four idle nodes")


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(cluster: slurm.Cluster, pytester: pytest.Pytester) -> Run:
    def start(
        nodes: str = "[one, one]", workload: str = ALLREDUCE, launcher: str = "srun", *options: str
    ) -> pytest.RunResult:
        pytester.path.joinpath("nodes.yaml").write_text(HEAD % (nodes, workload, launcher))
        return pytester.runpytest_subprocess(*OPTIONS, *options, timeout=200)

    return start


def only(pytester: pytest.Pytester) -> dict[str, str]:
    (cell,) = properties(pytester.path / "reports").values()
    return cell


@pytest.mark.nightly(reason=".ci/run runs the same matrix")
def test_the_shipped_matrix_is_green_on_it(cluster: slurm.Cluster, pytester: pytest.Pytester) -> None:
    given = (
        "--hetgpu-matrix",
        f"{ROOT}/matrices/slurm.yaml",
        "--hetgpu-inventory",
        f"{ROOT}/matrices/slurm.hosts.yaml",
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--hetgpu-wire", "off", *given, timeout=300)
    assert result.ret == 0
    cells = properties(pytester.path / "reports")
    passed = [name for name, cell in cells.items() if cell["outcome"] == "passed"]
    assert len(passed) >= 5
    # One job over both partitions is among them; how long it waited is kept.
    assert any(name.startswith("mixed-") for name in passed)
    kept = pytester.path / "reports/latest/placements/slurm-mixed/environment.json"
    assert "slurm.queued" in kept.read_text()


@pytest.mark.parametrize(
    ("nodes", "inventory", "says"),
    [
        ("[one, one, one]", "{}", "(PartitionNodeLimit): partition cuda has 2 nodes, and 3 are asked for"),
        ("[one]", "{partition: closed}", "(PartitionDown): partition closed is down"),
        ("[one]", "{partition: nonsense}", "there is no such partition"),
        ("[one]", '{gres: "gpu:h100:1"}', "sinfo -o '%N %"),
        ("[one]", "{constraint: fast}", "Invalid feature"),
        ("[one]", "{time: 9-0}", "(PartitionTimeLimit): `time` asks for 9-00:00:00, and partition cuda allows"),
    ],
)
def test_what_can_never_start_is_said_at_once(
    run: Run, pytester: pytest.Pytester, nodes: str, inventory: str, says: str
) -> None:
    pytester.path.joinpath("hosts.yaml").write_text(f"slurm: {{one: {inventory}}}\n")
    result = run(nodes, ALLREDUCE, "srun", "--hetgpu-inventory", "hosts.yaml")
    assert result.ret == 1
    cell = only(pytester)
    assert (cell["outcome"], cell["signature"]) == ("launch_failure", "not-ready@slurm")
    log = pytester.path.joinpath("reports/latest/scenarios/pair-ob1-allreduce-by/output.log").read_text()
    assert says in log
    assert log.count("\n") == 1


def test_a_limit_is_said_before_the_scheduler_has_looked(
    lacking: Lacking, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its reason is PartitionConfig, whatever the limit is."""
    if lack := slurm.lacks():
        lacking("slurm", lack)
    pytester.path.joinpath("nodes.yaml").write_text(HEAD % ("[one]", ALLREDUCE, "srun"))
    pytester.path.joinpath("hosts.yaml").write_text("slurm: {one: {time: 9-0}}\n")
    with slurm.running(slurm.LAZY) as made:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, made.env[name])
        assert pytester.runpytest_subprocess(*OPTIONS, "--hetgpu-inventory", "hosts.yaml", timeout=200).ret == 1
    assert "(PartitionTimeLimit): `time` asks for 9-00:00:00" in only(pytester)["why"]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_ranks_get_what_they_need_of_nodes_that_others_use_too(
    cluster: slurm.Cluster, pytester: pytest.Pytester, launcher: str
) -> None:
    nodes = "{nodes: [one, one], ranks_per_node: 2}"
    text = HEAD.replace("queue: 100}", "queue: 100, exclusive: false}") % (nodes, ALLREDUCE, launcher)
    pytester.path.joinpath("nodes.yaml").write_text(text)
    with subprocess.Popen(("salloc", "-p", "cuda", "-w", "c1", "--ntasks=1", "cat"), stdin=subprocess.PIPE) as other:
        cluster.until(lambda: any("RUNNING" in line for line in cluster.queue()), what="another's job")
        assert pytester.runpytest_subprocess(*OPTIONS, timeout=100).ret == 0
        assert len(cluster.queue()) == 1
        assert other.stdin is not None
        other.stdin.close()


def test_srun_needs_no_sshd_on_the_nodes(
    lacking: Lacking, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lack := slurm.lacks():
        lacking("slurm", lack)
    by = "mpirun}, srun: {launcher: srun"
    pytester.path.joinpath("nodes.yaml").write_text(HEAD % ("[one, one]", ALLREDUCE, by))
    with slurm.running() as made:
        made.hide("sshd")
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, made.env[name])
        assert pytester.runpytest_subprocess(*OPTIONS, timeout=200).ret == 1
    by_ssh, by_srun = properties(pytester.path / "reports").values()
    assert by_srun["outcome"] == "passed"
    assert (by_ssh["outcome"], by_ssh["signature"]) == ("launch_failure", "not-ready@sshd")
    missing = "no sshd in PATH, /usr/sbin or /usr/local/sbin: install openssh-server there or in its image"
    assert by_ssh["why"].startswith(f"not-ready@sshd: node1: {missing}")


def test_munge_that_is_down_is_named(run: Run, cluster: slurm.Cluster, pytester: pytest.Pytester) -> None:
    cluster.kill("munged")
    # As it leaves it when it is stopped: at a socket that nobody serves, clients knock for 50 s.
    cluster.folder.joinpath("munge.socket").unlink()
    try:
        result = run("[one]")
    finally:
        cluster.munge()
    assert result.ret == 1
    assert only(pytester)["signature"] == "not-ready@slurm"
    assert "munge does not answer here" in only(pytester)["why"]


def test_nodes_that_come_back_are_waited_for(run: Run, cluster: slurm.Cluster, pytester: pytest.Pytester) -> None:
    cluster.call("scontrol", "update", "NodeName=c[1-2]", "State=DRAIN", "Reason=cabling")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(run, "[one]")
            cluster.until(lambda: "DRAINED" in cluster.call("squeue", "-h", "-o", "%r"), what="a job that waits")
        finally:
            cluster.call("scontrol", "update", "NodeName=c[1-2]", "State=RESUME")
        assert running.result().ret == 0
    kept = json.loads(pytester.path.joinpath("reports/latest/placements/nodes-pair/environment.json").read_text())
    assert "(Nodes required for job are DOWN, DRAINED" in json.dumps(kept)


def test_no_srun_skips_and_says_how_to_get_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    result = run("[one]")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*there is no srun in PATH, which runtime slurm needs*"])


@pytest.fixture
def hanging(
    cluster: slurm.Cluster, pytester: pytest.Pytester
) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], Path]]]:
    """Starts a run whose first cell hangs, and waits until its ranks are there."""
    started: list[subprocess.Popen[bytes]] = []

    def start(launcher: str, workload: str = HANG) -> tuple[subprocess.Popen[bytes], Path]:
        pytester.path.joinpath("nodes.yaml").write_text(HEAD % ("[one, one]", workload, launcher))
        started.append(subprocess.Popen((sys.executable, "-m", "pytest", *OPTIONS), cwd=pytester.path))
        cluster.until(lambda: any(log.stat().st_size for log in pytester.path.glob(RAW)), 60, "a log")
        raw = next(pytester.path.glob(RAW))
        return started[0], pytester.path / "reports" / raw.parent.name / "scenarios" / raw.stem / "output.log"

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_a_hang_under_srun_is_looked_at_and_leaves_no_step(
    run: Run, cluster: slurm.Cluster, pytester: pytest.Pytester
) -> None:
    workload = HANG.replace("timeout: 100", "timeout: 15") + ", " + ALLREDUCE
    result = run("[one, one]", workload)
    assert result.ret == 1
    cells = properties(pytester.path / "reports")
    assert cells["pair-ob1-fault-by"]["outcome"] == "hang"
    # The next step started. Under srun a rank may meet open-mpi/ompi#12495, a message before its MPI_Init is over.
    after = cells["pair-ob1-allreduce-by"]
    assert after["outcome"] == "passed" or after["signature"].endswith("!mca_pml_ob1_recv_frag_callback_match")
    stacks = json.loads(pytester.path.joinpath("reports/latest/scenarios/pair-ob1-fault-by/stacks.json").read_text())
    assert {rank["rank"] for node in stacks["nodes"] for rank in node["ranks"]} == {0, 1}


def test_what_the_plan_prints_can_be_pasted(run: Run, cluster: slurm.Cluster, pytester: pytest.Pytester) -> None:
    planned = run("[one, other]", ALLREDUCE, "mpirun", "--hetgpu-plan")
    words = re.compile(r"(pair-|=|  (node|interface|timeout)\b)")
    first = next(place for place, line in enumerate(planned.outlines) if line.startswith("# placement"))
    lines = [line.removeprefix("  $ ") for line in planned.outlines[first:] if not words.match(line)]
    # Fed as a terminal would: the shell that salloc starts reads on where the first stopped.
    script = "\n".join((*lines, ""))
    done = subprocess.run(["bash"], input=script, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.count('"t":"done"') == 2, done.stdout[-3000:] + done.stderr[-3000:]


def scancel(cluster: slurm.Cluster) -> None:
    cluster.call("scancel", *(line.split()[0] for line in cluster.queue()))


def preempt(cluster: slurm.Cluster) -> None:
    cluster.call("srun", "-p", "urgent", "-w", "c2", "--exclusive", "true")


def time_limit(cluster: slurm.Cluster) -> None:
    job = cluster.queue()[0].split()[0]
    # A limit is whole minutes. The controller looks at them every 30 s.
    cluster.call("scontrol", "update", f"JobId={job}", "EndTime=now")


def lose(cluster: slurm.Cluster) -> None:
    cluster.kill("c2")


@pytest.mark.nightly(reason="waits for timers of Slurm")
@pytest.mark.parametrize(
    ("happens", "launcher", "outcome", "signature"),
    [
        (scancel, "srun", "timeout", "cancelled@slurm"),
        (scancel, "mpirun", "timeout", "cancelled@slurm"),
        (preempt, "srun", "timeout", "preempted@slurm"),
        (preempt, "mpirun", "timeout", "preempted@slurm"),
        (time_limit, "srun", "timeout", "time-limit@slurm"),
        (lose, "srun", "network_failure", "node-failure@slurm"),
        (lose, "mpirun", "network_failure", "node-failure@slurm"),
    ],
)
def test_what_slurm_takes_away_is_no_failure_of_the_cell(
    hanging: Callable[..., tuple[subprocess.Popen[bytes], Path]],
    cluster: slurm.Cluster,
    pytester: pytest.Pytester,
    happens: Callable[[slurm.Cluster], None],
    launcher: str,
    outcome: str,
    signature: str,
) -> None:
    process, log = hanging(launcher)
    happens(cluster)
    process.wait(100)
    if happens is lose:
        cluster.node("c2")
    cell = only(pytester)
    assert (cell["outcome"], cell["signature"]) == (outcome, signature), log.read_text()[-3000:]


def restart(cluster: slurm.Cluster) -> None:
    cluster.end("slurmctld")


def crash(cluster: slurm.Cluster) -> None:
    """It has no time to write down what it knows: that of the job is on disk some seconds after its start."""
    state = cluster.folder / "state" / "job_state"
    began = datetime.fromisoformat(cluster.call("squeue", "-h", "-o", "%S").strip()).timestamp()
    cluster.until(lambda: state.exists() and state.stat().st_mtime > began + 1, 30, "a state of jobs on disk")
    cluster.kill("slurmctld")


@pytest.mark.nightly(reason="waits for timers of Slurm")
@pytest.mark.parametrize("goes", [restart, crash])
def test_a_run_goes_on_while_the_controller_is_away(
    hanging: Callable[..., tuple[subprocess.Popen[bytes], Path]],
    cluster: slurm.Cluster,
    pytester: pytest.Pytester,
    goes: Callable[[slurm.Cluster], None],
) -> None:
    process, _ = hanging("srun", workload=f"{HANG.replace('timeout: 100', 'timeout: 12')}, {ALLREDUCE}")
    (job,) = cluster.queue()
    goes(cluster)
    cluster.controller()
    cluster.until(lambda: cluster.call("squeue", "-h", "-o", "%i %j %T", check=False).split("\n")[0] == job, what=job)
    process.wait(100)
    cells = properties(pytester.path / "reports")
    assert {name: cell["outcome"] for name, cell in cells.items()} == {
        "pair-ob1-fault-by": "hang",
        "pair-ob1-allreduce-by": "passed",
    }


def test_ranks_of_torch_find_each_other(
    stacks_here: Callable[[str], Path], cluster: slurm.Cluster, pytester: pytest.Pytester
) -> None:
    stacks_here("openmpi-5-torch")
    text = HEAD.replace("ob1", "gloo").replace("mca: {mpi_yield_when_idle: 1}", "mpi: {stack: openmpi-5-torch}")
    text = text.replace("launcher: %s}", "launcher: srun}, torchrun: {launcher: torchrun}") % ("[one, one]", ALLREDUCE)
    pytester.path.joinpath("nodes.yaml").write_text(text)
    assert pytester.runpytest_subprocess(*OPTIONS, timeout=200).ret == 0
    cells = properties(pytester.path / "reports").values()
    assert [(cell["outcome"], cell["transport_seen"]) for cell in cells] == [("passed", "gloo/tcp")] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_no_job(
    hanging: Callable[..., tuple[subprocess.Popen[bytes], Path]], cluster: slurm.Cluster, number: signal.Signals
) -> None:
    process, _ = hanging("srun")
    assert len(cluster.queue()) == 1
    process.send_signal(number)
    process.wait(60)
    cluster.until(lambda: cluster.queue() == [], what="an empty queue")


def test_a_run_killed_while_its_job_waits_leaves_no_job(cluster: slurm.Cluster, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("nodes.yaml").write_text(HEAD % ("[one, one]", ALLREDUCE, "srun"))
    holding = subprocess.Popen(("salloc", "-p", "cuda", "-w", "c1", "--exclusive", "cat"), stdin=subprocess.PIPE)
    try:
        cluster.until(cluster.queue, what="who holds a node")
        with subprocess.Popen((sys.executable, "-m", "pytest", *OPTIONS), cwd=pytester.path) as waiting:
            cluster.until(lambda: any("PENDING" in line for line in cluster.queue()), what="a waiting job")
            waiting.kill()
        cluster.until(lambda: len(cluster.queue()) == 1, what="the waiting job cancelled")
    finally:
        holding.communicate()
