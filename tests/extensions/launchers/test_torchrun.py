"""torchrun's agents, token by token, and when it refuses."""

from __future__ import annotations

from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest, Rendezvous
from pytest_hetgpu.extensions.launchers.torchrun import Torchrun
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.model.job import RankContext, Stack

STACK = Stack("torch", "torch", "2.13.0", "/s", "/s/bin/torchrun", "/s/bin/python", torch=True)
PROGRAM = ("/s/bin/python", "/p/torch_sweep.py", "--backend", "gloo")
HEAD = ("/s/bin/python", "/p/torchruns.py")
AGENT = ("/s/bin/python", "-m", "torch.distributed.run")


def argv(*contexts: RankContext, ssh_config: str = "", address: str = "node0") -> tuple[str, ...]:
    start = LaunchRequest(STACK, contexts, ssh_config=ssh_config, programs="/p", rendezvous=Rendezvous(address, 20_001))
    command = Torchrun().command(start)
    assert command.env == {}
    return command.argv


def test_it_is_found_by_its_name() -> None:
    assert find("launchers", "torchrun", Launcher) is Torchrun  # type: ignore[type-abstract]


def test_one_agent_meets_nobody() -> None:
    assert argv(RankContext(4, "localhost", PROGRAM, {"B": "2", "A": "x y"})) == (
        *HEAD,
        *("-np", "4", "-H", "localhost", "env", "A=x y", "B=2"),
        *(*AGENT, "--nnodes", "1", "--nproc-per-node", "4", "--standalone", "--max-restarts", "0", "--tee", "3"),
        *PROGRAM[1:],
    )


def test_agents_meet_at_the_first_node_by_c10d() -> None:
    other = ("/o/bin/python", *PROGRAM[1:])
    found = argv(RankContext(2, "node0", PROGRAM), RankContext(1, "node1", other), ssh_config="/f/ssh_config")
    meeting = ("--rdzv-backend", "c10d", "--rdzv-id", "20001", "--rdzv-endpoint", "node0:20001", "--rdzv-conf")
    last = ("--max-restarts", "0", "--tee", "3", *PROGRAM[1:])
    assert found == (
        *(*HEAD, "--ssh-config", "/f/ssh_config", "-np", "2", "-H", "node0", *AGENT),
        *("--nnodes", "2", "--nproc-per-node", "2", "--node-rank", "0", *meeting, "is_host=true"),
        *("--local-addr", "node0", *last, ":"),
        *("-np", "1", "-H", "node1", "/o/bin/python", *AGENT[1:]),
        *("--nnodes", "2", "--nproc-per-node", "1", "--node-rank", "1", *meeting, "is_host=false"),
        *("--local-addr", "node1", *last),
    )


def test_the_first_node_goes_by_the_name_that_others_know() -> None:
    found = argv(RankContext(1, "localhost", PROGRAM), RankContext(1, "b", PROGRAM), address="10.0.0.1")
    assert [found[place + 1] for place, token in enumerate(found) if token == "--local-addr"] == ["10.0.0.1", "b"]


def test_what_is_no_python_program_is_started_as_it_is() -> None:
    found = argv(RankContext(1, "localhost", ("/opt/all_reduce_perf", "-g", "1")))
    assert found[-4:] == ("--no-python", "/opt/all_reduce_perf", "-g", "1")


def test_it_starts_only_what_it_can_make_one_world() -> None:
    assert Torchrun().unsuitable(STACK, (), "gloo") is None
    assert "calls MPI" in str(Torchrun().unsuitable(STACK, ()))
    assert "backend mpi" in str(Torchrun().unsuitable(STACK, (), "mpi"))
    assert Torchrun().unsuitable(STACK, ("pml", "btl"), "gloo") == "takes no MCA parameters; this cell sets btl, pml"


def test_it_tells_ranks_itself_where_they_meet_and_lines_begin_with_the_rank_among_all() -> None:
    variables = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${rank}]:"}
    assert Torchrun().environment(Rendezvous()) == variables
