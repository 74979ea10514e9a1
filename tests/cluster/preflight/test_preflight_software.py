"""Preflight warnings about libraries and versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_hetgpu.cluster.preflight.check import check, deciding_warning, machine_warnings
from pytest_hetgpu.cluster.preflight.warning import CheckedJob, torch_backend
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.job import Command, Hardware, Job
from pytest_hetgpu.model.verdict import Kind
from tests.cluster.preflight.preflight_cases import CPU, G4AD, G4DN, OPEN_MPI, concerns, environment, job, looked

DDP = ("python3", "/programs/ddp.py", "--backend", "mpi")
MPI_TORCH = environment(
    {"torch": "2.5.1", "torch.backends": ("gloo", "mpi"), "ucx.enable_mt": "yes", "torch.hip": "6.2"}
)


def test_no_mpi_at_all() -> None:
    assert concerns(job(CPU), environment(openmpi=None)) == [(Kind.LAUNCH_FAILURE, "node 0 (cpu)", True)]
    assert looked(job(CPU, stack=replace(OPEN_MPI, vendor="MPICH")), environment(openmpi=None, mpich="5.0.2")) == ()


@pytest.mark.parametrize(
    ("stack", "vendor", "version", "told"),
    [
        ("Open MPI 5", "Open MPI", "4.1.4", "its mpirun is Open MPI 4.1.4, the stack s is Open MPI 5"),
        ("MPICH ", "Open MPI", "4.1.4", "its mpirun is Open MPI 4.1.4, the stack s is MPICH"),
        ("Open MPI ", "MPICH", "4.0.2", "its mpirun is MPICH 4.0.2, the stack s is Open MPI"),
        ("Open MPI 5", "Open MPI", "5.0.3", ""),
        ("Open MPI ", "Open MPI", "4.1.4", ""),
    ],
)
def test_a_launcher_of_another_mpi_or_release(stack: str, vendor: str, version: str, told: str) -> None:
    facts = {"launcher": "mpirun", "launcher.vendor": vendor, "launcher.version": version}
    asked, _, major = stack.rpartition(" ")
    what = job(CPU, stack=replace(OPEN_MPI, name="s", vendor=asked, version=major, launcher="mpirun"))
    seen = looked(what, environment(facts))
    assert [(one.kind, one.certain, one.why) for one in seen] == ([(Kind.LAUNCH_FAILURE, True, told)] if told else [])
    # Another launcher starts the ranks.
    by_srun = replace(what, command=Command(("srun", *what.command.argv[1:])))
    assert looked(by_srun, environment(facts)) == ()


@pytest.mark.parametrize(
    ("family", "transport", "fact"),
    [("ucx", "ucx/tcp", "pml"), ("ob1", "ob1/tcp", "pml"), ("ofi", "ofi/tcp", "mtl"), ("ucc", "ucc/*:ucx/tcp", "coll")],
)
def test_open_mpi_without_the_component(family: str, transport: str, fact: str) -> None:
    what = job(CPU, family=family, transports=(transport,))
    told = looked(what, environment({f"openmpi.{fact}": ("tuned",)}))
    assert [one.kind for one in told] == [Kind.TRANSPORT_UNAVAILABLE]
    assert f"without {fact}/{family}" in told[0].why
    assert looked(what, environment({f"openmpi.{fact}": (family,)})) == ()


def test_a_foreign_programs_own_library_needs_nothing_of_open_mpi() -> None:
    what = job(CPU, family="ucc", transports=("ucc/*:ucx/tcp",))
    beside = replace(
        what, demand=replace(what.demand, external=ExternalProgram(("ucc_perftest",), "ucc_perftest", layer="ucc"))
    )
    over = replace(what, demand=replace(what.demand, external=ExternalProgram(("osu_allreduce",), "osu")))
    facts = environment({"openmpi.coll": ("tuned",)})
    assert looked(beside, facts) == ()
    assert [one.kind for one in looked(over, facts)] == [Kind.TRANSPORT_UNAVAILABLE]


def test_a_library_counts_only_where_the_cell_loads_it() -> None:
    facts = environment({"libraries.unresolved": ("libuct_ib.so.0: libibverbs.so.1", "libuct_rocm.so.0: libhsa.so.1")})
    assert looked(job(CPU, env={"UCX_TLS": "tcp"}), facts) == ()
    assert concerns(job(CPU, env={"UCX_TLS": "rc_v"}), facts) == [(Kind.MISSING_LIBRARY, "node 0 (cpu)", True)]
    rocm = environment({**facts.facts, "rocm.devices": ("gfx1011",)})
    assert concerns(job(G4AD, env={"UCX_TLS": "tcp,rocm_copy"}), rocm) == [
        (Kind.MISSING_LIBRARY, "node 0 (g4ad)", True)
    ]
    core = environment(
        {"libraries.unresolved": ("libucp.so.0: libucs.so.0", "libucp.so.0: libm.so.6", "libmpi.so.40: libpmix.so.2")}
    )
    told = looked(job(CPU), core)
    assert [one.why for one in told] == [
        "the loader does not find all: libucp.so.0 needs libucs.so.0, libm.so.6; libmpi.so.40 needs libpmix.so.2"
    ]
    told = looked(job(CPU, family="ob1", transports=("ob1/tcp",)), core)
    assert [one.why for one in told] == ["the loader does not find all: libmpi.so.40 needs libpmix.so.2"]


def test_ucx_without_the_accelerators_transports() -> None:
    facts = environment({"ucx.modules": ("cma", "ib"), "rocm.devices": ("gfx1011",)})
    told = looked(job(G4AD, env={"UCX_TLS": "tcp,rocm_copy"}), facts)
    assert [(one.kind, one.why) for one in told] == [
        (Kind.TRANSPORT_UNAVAILABLE, "its UCX has no rocm_copy (modules: cma, ib)")
    ]
    # Of the other vendor's transports, which a mixed cell names too, nothing is asked.
    assert looked(job(G4DN, env={"UCX_TLS": "tcp,rocm_copy"}), environment({"ucx.modules": ("cma",)})) == ()


def on_device(what: Job) -> Job:
    return replace(what, demand=replace(what.demand, facts={"memory": "device"}))


@pytest.mark.parametrize(
    ("version", "hardware", "fact", "family", "operation", "certain"),
    [
        ("5.0.11", G4DN, {"openmpi.accelerator": ("null",)}, "ob1", "send_recv", True),
        ("5.0.11", G4AD, {"openmpi.accelerator": ("cuda", "null")}, "ob1", "send_recv", True),
        ("5.0.11", G4DN, {"openmpi.accelerator": None}, "ob1", "send_recv", True),
        # UCX finds device memory by itself, and so does UCC; Open MPI's reductions do not.
        ("5.0.11", G4DN, {"openmpi.accelerator": ("null",)}, "ucx", "send_recv", False),
        ("5.0.11", G4DN, {"openmpi.accelerator": ("null",)}, "ucx", "allreduce", True),
        # Release 4 has no accelerator framework.
        ("4.1.8", G4DN, {"openmpi.coll": ("basic", "tuned"), "openmpi.accelerator": None}, "ob1", "send_recv", True),
        ("4.1.8", G4AD, {"openmpi.coll": ("cuda", "tuned"), "openmpi.accelerator": None}, "ob1", "send_recv", True),
    ],
)
def test_device_memory_needs_an_open_mpi_that_knows_it(
    version: str,
    hardware: Hardware,
    fact: dict[str, tuple[str, ...] | None],
    family: str,
    operation: str,
    certain: bool,
) -> None:
    what = job(
        hardware,
        family=family,
        transports=(f"{family}/tcp",),
        operation=operation,
        stack=replace(OPEN_MPI, version=version),
    )
    what = on_device(what)
    facts = environment({"openmpi": version, f"{hardware.accelerator.platform}.devices": ("x",), **fact})
    told = [one for one in looked(what, facts) if "buffers are on the device" in one.why]
    assert [(one.kind, one.certain) for one in told] == [(Kind.CRASH, certain)]
    on_host = replace(what, demand=replace(what.demand, facts={"memory": "host"}))
    assert not [one for one in looked(on_host, facts) if "buffers are on the device" in one.why]


@pytest.mark.parametrize(
    ("version", "fact"),
    [("5.0.11", {"openmpi.accelerator": ("cuda", "null")}), ("4.1.8", {"openmpi.coll": ("cuda",)}), ("5.0.11", {})],
)
def test_device_memory_of_an_open_mpi_that_knows_it(version: str, fact: dict[str, tuple[str, ...]]) -> None:
    what = job(
        G4DN,
        family="ob1",
        transports=("ob1/tcp",),
        stack=replace(OPEN_MPI, version=version),
    )
    what = on_device(what)
    assert "on the device" not in str(looked(what, environment({"openmpi": version, "cuda.devices": ("x",), **fact})))


def test_enable_mt_under_pytorch_over_mpi_is_the_known_crash() -> None:
    told = looked(job(G4AD, program=DDP, operation="ddp"), MPI_TORCH)
    assert [(one.kind, one.certain) for one in told] == [(Kind.CRASH, True)]
    assert "ucs_async_check_owner_thread" in told[0].why
    assert looked(job(G4AD), MPI_TORCH) == ()
    assert looked(job(G4AD, program=(*DDP[:-1], "gloo"), operation="ddp"), MPI_TORCH) == ()
    assert looked(job(G4AD, program=DDP, family="ob1", transports=("ob1/tcp",)), MPI_TORCH) == ()
    single = environment({**MPI_TORCH.facts, "ucx.enable_mt": "no"})
    assert looked(job(G4AD, program=DDP), single) == ()


def test_pytorch_that_is_missing_or_lacks_what_is_asked() -> None:
    what = job(G4AD, program=DDP)
    assert [one.why for one in looked(what, environment(torch=None))] == ["there is no PyTorch"]
    other = environment({"torch": "2.5.1+cu124", "torch.hip": None, "torch.backends": ("gloo", "nccl")})
    assert [one.why for one in looked(what, other)] == [
        "its PyTorch 2.5.1+cu124 was built without rocm",
        "its PyTorch has no backend mpi (it has: gloo, nccl)",
    ]


@pytest.mark.parametrize(
    ("given", "family", "backend"),
    [
        (("--backend", "cuda:nccl"), "ucx", "nccl"),
        (("--backend=gloo",), "ucx", "gloo"),
        ((), "ucx", "mpi"),
        ((), "nccl", "nccl"),
    ],
)
def test_the_backend_of_pytorch(given: tuple[str, ...], family: str, backend: str) -> None:
    assert torch_backend(job(CPU, program=("python3", "ddp.py", *given), family=family)) == backend


def test_a_plugin_that_does_not_load_is_only_possible() -> None:
    facts = environment({"libraries.unresolved": ("librccl-net.so: libcxi.so.1",), "rocm.devices": ("gfx1011",)})
    what = job(G4AD, family="nccl", transports=("nccl/*",))
    assert concerns(what, facts) == [(Kind.MISSING_LIBRARY, "node 0 (g4ad)", False)]


def test_no_mpi4py() -> None:
    assert concerns(job(CPU), environment(mpi4py=None)) == [(Kind.MISSING_LIBRARY, "node 0 (cpu)", True)]
    assert looked(job(CPU, program=("/usr/bin/osu_allreduce",)), environment(mpi4py=None)) == ()


def test_versions_of_nccl() -> None:
    what = job(G4DN, G4DN, family="nccl", transports=("nccl/Socket",))
    one, two = (environment({"nccl": version, "cuda.devices": ("0",)}) for version in ("2.20.5", "2.21.5"))
    assert concerns(what, one, two) == [(Kind.ERROR, "node 1 (g4dn)", False)]
    assert concerns(what, one, environment(nccl=None)) == [(Kind.MISSING_LIBRARY, "node 1 (g4dn)", True)]


def test_two_major_versions_of_open_mpi_never_start() -> None:
    four, five = environment(openmpi="4.1.4"), environment(openmpi="5.0.11")
    told = looked(job(CPU, CPU), five, four)
    assert [(one.kind, one.node, one.certain) for one in told] == [(Kind.LAUNCH_FAILURE, "node 1 (cpu)", True)]
    assert "its Open MPI is 4.1.4, that of node 0 (cpu), which starts the job, 5.0.11" in told[0].why
    assert looked(job(CPU, CPU), five, environment(openmpi="5.0.3")) == ()


def test_a_launcher_of_another_major_version() -> None:
    four, five = environment(openmpi="4.1.4"), environment(openmpi="5.0.11")
    told = concerns(job(CPU, CPU, launcher=CPU), five, five, four)
    assert told == [(Kind.LAUNCH_FAILURE, f"node {index} (cpu)", True) for index in range(2)]


def test_other_versions_of_ucx_may_fail_above_the_rendezvous_threshold() -> None:
    new, old = environment(ucx="1.20.1"), environment(ucx="1.18.1")
    assert concerns(job(CPU, CPU), new, old) == [(Kind.ERROR, "node 1 (cpu)", False)]
    assert looked(job(CPU, CPU), new, environment(ucx="1.20.0")) == ()
    assert looked(job(CPU, CPU, env={"UCX_RNDV_THRESH": "inf"}), new, old) == ()
    assert looked(job(CPU, CPU, family="ob1", transports=("ob1/tcp",)), new, old) == ()


def test_processors_of_two_kinds() -> None:
    assert concerns(job(CPU, CPU), environment(machine="x86_64"), environment(machine="aarch64")) == [
        (Kind.LAUNCH_FAILURE, "node 1 (cpu)", False)
    ]


def test_too_little_shared_memory_for_ranks_of_one_node() -> None:
    small, docker = environment(shm=str(32 << 20)), environment(shm=str(64 << 20))
    assert concerns(job(CPU, ranks=2), small) == [(Kind.CRASH, "node 0 (cpu)", False)]
    assert looked(job(CPU, ranks=2), docker) == ()
    assert looked(job(CPU, CPU), small, small) == ()


@pytest.mark.parametrize(("transports", "certain"), [(("ucx/cma",), True), (("ucx/posix", "ucx/cma"), False)])
def test_no_right_to_read_a_neighbours_memory(transports: tuple[str, ...], certain: bool) -> None:
    denied = environment(cma="no")
    assert concerns(job(CPU, ranks=2, transports=transports), denied) == [
        (Kind.TRANSPORT_UNAVAILABLE, "node 0 (cpu)", certain)
    ]
    assert looked(job(CPU, CPU, transports=transports), denied, denied) == ()


def test_the_certain_come_first_and_only_they_decide() -> None:
    facts = environment({"mpi4py": None, "nics": ("ens5",)}), environment(ucx="1.18.1")
    told = looked(job(CPU, CPU), environment({**facts[0].facts, "ucx": "1.20.1"}), facts[1])
    assert [one.certain for one in told] == [True, True, False]
    verdict = deciding_warning(told)
    assert verdict is not None
    assert verdict.kind is Kind.MISSING_LIBRARY
    assert deciding_warning(told[2:]) is None
    assert str(told[2]).startswith("node 1 (cpu): its UCX is 1.18.1")
    assert "(possible error)" in str(told[2])


def test_a_cell_knows_the_variables_of_each_context() -> None:
    what = job(G4AD, G4DN, CPU, ranks=2, env=({"A": "1"}, {}, {"A": "3", "B": "x=y"}))
    assert [dict(member.settings) for member in CheckedJob.of(what, {}).members] == [
        {"A": "1"},
        {},
        {"A": "3", "B": "x=y"},
    ]


def test_nodes_that_share_a_context_have_its_variables() -> None:
    uniform = job(CPU, CPU, env={"A": "1"})
    argv = ("mpirun", "-np", "2", "-H", "host0:1,host1:1", "env", "A=1", "python3", "x.py")
    joined = replace(uniform, command=replace(uniform.command, argv=argv))
    assert [dict(member.settings) for member in CheckedJob.of(joined, {}).members] == [{"A": "1"}] * 2


def test_nothing_is_known_of_a_node_nobody_looked_at() -> None:
    assert check(job(CPU, CPU), {0: environment(openmpi="5.0.11")}) == ()


def test_what_speaks_against_a_machine_whatever_the_job() -> None:
    facts = environment(
        {
            "large_bar.rocm": "no",
            "rdma": ("mlx5_0",),
            "memlock": str(64 << 10),
            "rdma.roce": None,
            "dev_infiniband": None,
            "libraries.unresolved": ("libmpi.so.40: libpmix.so.2", "libuct_ib.so.0: libmlx5.so.1"),
            "shm": str(1 << 20),
        }
    )
    told = machine_warnings(facts, "here")
    assert [(one.kind, one.certain) for one in told] == [
        (Kind.CRASH, False),
        (Kind.TRANSPORT_UNAVAILABLE, True),
        (Kind.TRANSPORT_UNAVAILABLE, True),
        (Kind.TRANSPORT_UNAVAILABLE, True),
        (Kind.MISSING_LIBRARY, True),
        (Kind.MISSING_LIBRARY, False),
        (Kind.CRASH, False),
    ]
    assert machine_warnings(environment()) == ()
    closed = environment({"rocm.devices": ("gfx1011",), "rocm.access": "none"})
    assert [one.why for one in machine_warnings(closed)] == ["this user may not open /dev/kfd"]
    assert machine_warnings(environment({"rocm.devices": ("gfx1011",), "rocm.access": "rw"})) == ()
    assert machine_warnings(environment({"rocm.access": "none"})) == ()


@pytest.mark.parametrize(
    ("clock", "said"), [("0.0", ""), ("-4.9", ""), ("3600.2", "3600 s ahead of"), ("-61.0", "61 s behind")]
)
def test_clocks_that_are_apart_are_told(clock: str, said: str) -> None:
    found = [str(one) for one in looked(job(CPU, CPU), environment(), environment(clock=clock)) if "clock" in one.why]
    assert len(found) == bool(said)
    assert all(said in one and "NTP" in one for one in found)
