"""Looking at a node in one round trip, and what differs between nodes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_hetgpu.cluster.inspect import FactRequest, collect, groups, probes, program, read, request, request_for
from pytest_hetgpu.extensions.registry import names
from pytest_hetgpu.extensions.runtimes.base import testinfra_host as host_of
from pytest_hetgpu.model.facts import Environment, Fact, FactState, SkewRow, absent, found, skew, unknown
from pytest_hetgpu.model.job import Hardware, Node, Stack


@dataclass
class Said:
    """What a host answers."""

    rc: int = 0
    stdout: str = ""
    stderr: str = ""


class Shell:
    """A host as testinfra has them, whose commands run here; `calls` counts them."""

    def __init__(self, change: Callable[[Said], Said] = lambda said: said) -> None:
        self.change = change
        self.calls = 0

    def run(self, command: str, *args: str) -> Said:
        self.calls += 1
        line = command % tuple(map(shlex.quote, args))
        line = line.replace("python3", shlex.quote(sys.executable), 1)
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
        return self.change(Said(done.returncode, done.stdout, done.stderr))


def states(environment: Environment) -> set[FactState]:
    return {fact.state for fact in environment.facts.values()}


def test_a_node_is_looked_at_in_one_command() -> None:
    shell = Shell()
    environment = collect(shell)
    assert shell.calls == 1
    assert environment.text("kernel")
    assert set(environment.facts) >= {name for probe in probes() for name in probe.provides}
    assert states(environment) >= {FactState.FOUND, FactState.ABSENT}


def test_a_testinfra_host_will_do(testinfra: None) -> None:
    assert collect(host_of("local://")).text("kernel") == collect(Shell()).text("kernel")


def test_a_greeting_before_the_answer_is_passed_over() -> None:
    def greet(said: Said) -> Said:
        return Said(said.rc, f"Welcome to the cluster!\n{{not json\n{said.stdout}\n", "")

    assert collect(Shell(greet)).text("kernel")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said(127, "", "sh: python3: not found\n"), "the node has no python3 to look with"),
        (Said(1, "", "Traceback\nMemoryError\n"), "looking at the node failed with 1: MemoryError"),
        (Said(137), "looking at the node failed with 137: it printed nothing"),
        (Said(0, ""), "the node's answer cannot be read: ''"),
        (Said(0, "Segmentation fault\n"), "the node's answer cannot be read: 'Segmentation fault'"),
        (Said(0, "[1, 2]\n"), "the node's answer cannot be read: '[1, 2]'"),
        (Said(0, '{"commands": {"a": {}}}\n'), "the node's answer cannot be read: "),
        (Said(0, "[" * 100_000), "the node's answer cannot be read: "),
    ],
)
def test_without_an_answer_every_fact_is_unknown_and_says_why(said: Said, why: str) -> None:
    environment = collect(Shell(lambda _: said))
    assert states(environment) == {FactState.UNKNOWN}
    assert all(fact.why.startswith(why) for fact in environment.facts.values())
    assert set(environment.facts) == {name for probe in probes() for name in probe.provides}


def test_a_host_that_raises_is_no_exception() -> None:
    def fail(_: Said) -> Said:
        raise RuntimeError("first line\nConnection refused\n")

    environment = collect(Shell(fail))
    assert {fact.why for fact in environment.facts.values()} == {"the node could not be looked at: Connection refused"}


def test_of_a_failed_ssh_the_last_complaint_is_told() -> None:
    def fail(_: Said) -> Said:
        raise RuntimeError(Said(255, "", "Warning: x\nssh: connect to host a port 22: Connection refused\n"))

    why = next(iter(collect(Shell(fail)).facts.values())).why
    assert why == "the node could not be looked at: ssh: connect to host a port 22: Connection refused"


def test_one_probe_that_cannot_read_does_not_cost_the_others() -> None:
    environment = read(
        '{"system": {"kernel": "6.1"}, "files": {"/sys/class/kfd/kfd/topology/nodes/1/properties": "a b"}}'
    )
    assert environment.text("kernel") == "6.1"
    assert environment.fact("rocm.arch").state is FactState.UNKNOWN
    assert "ValueError" in environment.fact("rocm.arch").why


def test_every_probe_is_asked_and_the_request_fits_in_one_argument() -> None:
    assert len(probes()) == len(names("probes"))
    # A single argument may have 128 KiB (Linux, MAX_ARG_STRLEN), and a container engine puts all into one.
    assert len(program()) + len(str(request())) < 60_000


def test_no_two_probes_call_a_command_or_a_fact_by_one_name() -> None:
    for part in ("commands", "each", "strings"):
        named = [name for probe in probes() for name in getattr(probe, part)]
        assert len(named) == len(set(named))
    promised = [name for probe in probes() for name in probe.provides]
    assert len(promised) == len(set(promised))


def test_a_node_is_looked_at_with_its_stack_and_its_variables() -> None:
    stack = Stack("openmpi-5", "Open MPI", "5.0.11", "/opt/mpi", "mpirun", "python3")
    hardware = Hardware("g4ad", prefix="/opt/other", env={"LD_LIBRARY_PATH": "/opt/ucx/lib"})
    look = request_for(Node(0, hardware, "a", 1, stack=stack))
    assert look.prefixes == ("/opt/other", "/opt/mpi")
    assert look.environ == {"LD_LIBRARY_PATH": "/opt/ucx/lib"}
    assert request_for(Node(0, Hardware("cpu"), "a", 1)) == FactRequest((), {})


def test_the_stack_that_is_given_is_the_one_that_is_seen(stack_prefix: Path) -> None:
    environment = collect(Shell(), FactRequest((str(stack_prefix),)))
    assert environment.text("openmpi") == "5.0.11"
    assert environment.text("openmpi.library") == f"{stack_prefix}/lib/libmpi.so.40"
    assert "ucx" in environment.items("openmpi.pml")
    assert (environment.text("ucx") or "").startswith("1.")
    assert "tcp" in environment.items("libfabric.providers")
    assert environment.text("mpi4py")


def test_facts_by_subject() -> None:
    environment = Environment({"ucx": found("1.20"), "ucx.modules": absent(), "nics.eth0.mtu": found("1500")})
    told = {title: list(facts) for title, facts in groups(environment)}
    assert told == {"UCX": ["ucx", "ucx.modules"], "Network interfaces": ["nics.eth0.mtu"]}


def env(**facts: Fact) -> Environment:
    return Environment(facts)


def test_what_differs() -> None:
    rows = skew(
        {
            "node0": env(os=found("Debian 12"), ucx=found("1.20.1"), torch=found("2.5.1"), glibc=found("2.36")),
            "node1": env(os=found("Debian 13"), ucx=found("1.20.1"), torch=absent(), glibc=unknown("?")),
        }
    )
    assert rows == (SkewRow("os", ("Debian 12", "Debian 13")), SkewRow("torch", ("2.5.1", "-")))


def test_unknown_differs_from_nothing_but_is_shown() -> None:
    three = {
        "node0": env(ucx=found("1.20")),
        "node1": env(ucx=unknown("no tool")),
        "node2": env(ucx=found("1.18")),
    }
    assert skew(three) == (SkewRow("ucx", ("1.20", "?", "1.18")),)
    assert skew({name: three[name] for name in ("node0", "node1")}) == ()


def test_what_no_two_machines_share_is_left_out() -> None:
    names_of_own = ("rdma.mlx5_0:1.gids", "nics", "nics.eth0.mtu", "rocm.devices", "memory", "cxi", "libraries")
    first, second = ({name: found(value) for name in names_of_own} for value in "ab")
    assert skew({"node0": Environment(first), "node1": Environment(second)}) == ()


def test_one_node_differs_from_nobody() -> None:
    assert skew({"node0": env(ucx=found("1.20"))}) == skew({}) == ()


@pytest.mark.parametrize(("ahead", "told"), [(0.0, "0.0"), (3600.0, "3600.0"), (-90.0, "-90.0")])
def test_how_far_a_clock_is_off_is_a_fact(ahead: float, told: str) -> None:
    class Off:
        def run(self, command: str, *args: str) -> Any:
            seen = json.loads(subprocess.run([sys.executable, "-c", *args], capture_output=True, check=True).stdout)
            seen["epoch"] += ahead
            return SimpleNamespace(rc=0, stdout=json.dumps(seen), stderr="")

    fact = collect(Off()).fact("clock")
    assert fact.text is not None
    assert abs(float(fact.text) - float(told)) < 5
    assert "clock" not in {row.fact for row in skew({"a": Environment({"clock": fact}), "b": Environment()})}


def test_no_value_of_a_variable_is_in_the_command() -> None:
    lines: list[str] = []

    class Noted(Shell):
        def run(self, command: str, *args: str) -> Said:
            lines.append(command % tuple(map(shlex.quote, args)))
            return super().run(command, *args)

    seen = collect(Noted(), FactRequest(environ={"ROCR_VISIBLE_DEVICES": "hidden-value"}))
    assert "hidden-value" in str(seen.facts)
    assert "hidden-value" not in lines[0]


def test_the_tools_of_a_node_inherit_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_x")
    assert "GITHUB_TOKEN" in request()["unset"]
    assert "ghp_x" not in str(request())
