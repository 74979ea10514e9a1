"""Every stack over every transport it has: the data goes the way that was asked for, and any other way is seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.execution.context import Invocation, unchanged
from pytest_hetgpu.extensions.stacks.base import family_of
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.session.settings import Settings
from pytest_hetgpu.session.start import RunRequest, start

pytestmark = pytest.mark.real

STACKS = ("openmpi-5", "openmpi-4", "mpich", "openmpi-system")
TEXT = """\
name: real
hardware: {{cpu: {{}}, control: {{}}}}
axes:
  placement:
    two: [cpu, cpu]
    four: {{nodes: [cpu, cpu], ranks_per_node: 2}}
    led: {{nodes: [cpu, cpu], launch_from: control}}
  transport:
    auto: {{}}
    ob1-tcp: {{family: ob1}}
    shm: {{}}
    ucx-tcp: {{family: ucx}}
    ucx-posix: {{family: ucx, tls: [posix, self]}}
    ucx-sysv: {{family: ucx, tls: [sysv, self]}}
    ucx-cma: {{family: ucx, tls: [posix, cma, self]}}
    ucx-any: {{family: ucx, tls: any}}
    ucx-rc-tcp: {{family: ucx, tls: [rc, tcp, self]}}
    ucx-rc-tcp-any: {{family: ucx, tls: [rc, tcp, self], carried_by: any}}
    ucx-posix-tcp: {{family: ucx, tls: [posix, tcp, self]}}
    ofi-tcp: {{family: ofi}}
    ucc: {{over: ucx-tcp}}
  workload: {{allreduce: {{sizes: 8..1K}}}}
  stack: [{stack}]
  forced:
    no: {{}}
    ob1: {{mca: {{pml: ob1, btl: "tcp,self", btl_tcp_if_include: lo}}}}
    ucx: {{mca: {{pml: ucx, opal_common_ucx_tls: any, opal_common_ucx_devices: any}}}}
    ofi: {{mca: {{pml: cm, mtl: ofi, opal_common_ofi_provider_include: tcp}}}}
    ch4-ucx: {{env: {{MPIR_CVAR_CH4_NETMOD: ucx}}}}
    ch4-ofi: {{env: {{MPIR_CVAR_CH4_NETMOD: ofi, FI_PROVIDER: tcp}}}}
    ch4-shm: {{env: {{MPIR_CVAR_NOLOCAL: 0}}}}
    ch4-not-shm: {{env: {{MPIR_CVAR_NOLOCAL: 1, UCX_TLS: "tcp,self"}}}}
"""
SHARED = {"openmpi-5": "ob1/sm", "openmpi-4": "ob1/sm", "openmpi-system": "ob1/sm", "mpich": "ch4/posix"}
SEEN = {
    "ob1-tcp": "ob1/tcp",
    "ucx-tcp": "ucx/tcp",
    "ucx-posix": "ucx/posix",
    "ucx-sysv": "ucx/sysv",
    "ucx-cma": "ucx/cma ucx/posix",
    "ofi-tcp": "ofi/tcp",
}
Cell = Callable[..., Outcome]


@pytest.fixture(params=STACKS)
def stack(
    request: pytest.FixtureRequest, stacks_here: Callable[[str], Path], lacking: Callable[[str, str], NoReturn]
) -> str:
    """A stack's name; the stack is here."""
    name = str(request.param)
    if not name.endswith("-system"):
        stacks_here(name)
        return name
    try:
        family_of(name).locate(name, ())
    except NotHere as error:
        lacking("system-mpi", str(error))
    return name


@pytest.fixture
def cell(
    stack: str, tmp_path: Path, stacks_here: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cell]:
    """Runs one cell with the stack."""
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    (tmp_path / "leases").mkdir(mode=0o700)
    (tmp_path / "real.yaml").write_text(TEXT.format(stack=stack))
    home = tmp_path / "stacks"
    home.mkdir()
    if not stack.endswith("-system"):
        (home / stack).symlink_to(stacks_here(stack))
    environ = {"HETGPU_STACKS": str(home), "HOME": os.environ.get("HOME", "/")}
    suite = MatrixSet.load([tmp_path / "real.yaml"], tmp_path, timeout=40, environ=environ)
    request = RunRequest(suite, Settings(), tmp_path, (), (), unchanged)
    runner = start(request, Invocation()).runner

    def run(transport: str, forced: str = "no", placement: str = "two") -> Outcome:
        wanted = f"{placement}-{transport}-allreduce-{stack}-{forced}"
        (scenario,) = suite.select([wanted])
        return runner.run(runner.provision(scenario))[1]

    yield run
    runner.close()


@pytest.mark.parametrize("transport", [*SEEN, "shm"])
def test_a_transport_of_a_stack_is_used_and_proven(cell: Cell, stack: str, transport: str) -> None:
    if transport == "ob1-tcp" and stack == "mpich":
        with pytest.raises(NotHere, match="MPICH has no ob1"):
            cell(transport)
        return
    outcome = cell(transport)
    assert (outcome.verdict.value, outcome.why) == ("ok", "")
    assert " ".join(outcome.transports) == SEEN.get(transport, SHARED[stack])


@pytest.mark.parametrize("transport", ["auto", "ucx-any"])
def test_the_library_s_own_choice_is_told(cell: Cell, stack: str, transport: str) -> None:
    outcome = cell(transport)
    assert (outcome.verdict.value, outcome.why) == ("ok", "")
    assert outcome.transports


def test_ucc_that_is_not_built_is_no_pass(cell: Cell) -> None:
    outcome = cell("ucc")
    assert (outcome.kind.value, outcome.transports) == ("transport_unavailable", ("ucx/tcp",))
    assert outcome.why == "silent fallback: asked for ucc/*:ucx/tcp, used ucx/tcp"


def test_the_best_of_a_list_that_is_not_here_is_no_pass(cell: Cell) -> None:
    outcome = cell("ucx-rc-tcp")
    assert (outcome.kind.value, outcome.transports) == ("transport_unavailable", ("ucx/tcp",))
    assert outcome.carried == {"on-host": ("ucx/tcp",)}
    assert outcome.why == (
        "asked for rc, tcp (best on-host: rc), carried by tcp on-host: no RDMA device took part; "
        "add `carried_by: any` if that is meant"
    )


def test_any_member_may_carry_where_the_matrix_says_so(cell: Cell) -> None:
    outcome = cell("ucx-rc-tcp-any")
    assert (outcome.verdict.value, outcome.why, outcome.carried) == ("ok", "", {"on-host": ("ucx/tcp",)})


def test_of_shared_memory_and_tcp_shared_memory_carries(cell: Cell, stack: str) -> None:
    outcome = cell("ucx-posix-tcp")
    if stack.endswith("-system") and "UCX before 1.16" in outcome.why:  # that of Debian 12 does not log its large lanes
        assert outcome.kind.value == "unknown"
        return
    assert (outcome.verdict.value, outcome.why) == ("ok", "")
    assert "ucx/posix" in outcome.carried["on-host"]


# Asked for, forced underneath, seen.
OPEN_MPI = (
    ("shm", "ob1", "ob1/tcp"),
    ("ob1-tcp", "ucx", "ucx/"),
    ("ucx-tcp", "ofi", "ofi"),
    ("ofi-tcp", "ob1", "ob1/"),
)
HYDRA = (
    ("ucx-tcp", "ch4-ofi", "ofi/tcp"),
    ("ofi-tcp", "ch4-ucx", "ucx/"),
    ("ucx-tcp", "ch4-shm", "ch4/posix"),
    ("shm", "ch4-not-shm", "ucx/tcp"),
)


@pytest.mark.parametrize("case", range(4))
def test_another_transport_underneath_is_seen(cell: Cell, stack: str, case: int) -> None:
    transport, forced, seen = (HYDRA if stack == "mpich" else OPEN_MPI)[case]
    outcome = cell(transport, forced)
    assert outcome.kind.value == "transport_unavailable"
    assert outcome.transports[0].startswith(seen)


@pytest.mark.parametrize("placement", ["four", "led"])
def test_more_ranks_than_cores_and_a_launcher_without_ranks(cell: Cell, stack: str, placement: str) -> None:
    outcome = cell("shm", placement=placement)
    assert (outcome.verdict.value, outcome.why, outcome.transports) == ("ok", "", (SHARED[stack],))
