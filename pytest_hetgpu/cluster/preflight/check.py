"""Check of a cell against the facts of its nodes. Pure; unknown facts give no warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_hetgpu.cluster.preflight import accelerators, fabric, software
from pytest_hetgpu.cluster.preflight.warning import CheckedJob, PreflightWarning
from pytest_hetgpu.model.facts import Environment, FactState
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.verdict import Kind


def check(job: Job, environments: Mapping[int, Environment]) -> tuple[PreflightWarning, ...]:
    """Return every warning about a job, by the facts of its nodes (by index): certain ones first, worst first."""
    cell = CheckedJob.of(job, environments)
    found = dict.fromkeys(one for rules in (accelerators, fabric, software) for one in rules.warnings(cell))
    return tuple(sorted(found, key=lambda one: (not one.certain, -one.kind.severity)))


def deciding_warning(concerns: tuple[PreflightWarning, ...]) -> PreflightWarning | None:
    """Return the warning that decides a cell under strict preflight: the worst certain one, None without one."""
    return next((one for one in concerns if one.certain), None)


def machine_warnings(environment: Environment, name: str = "this machine") -> tuple[PreflightWarning, ...]:
    """Return warnings about a machine, independent of a job, for `hetgpu doctor`."""
    return tuple(_machine_warnings(environment, name))


def _machine_warnings(environment: Environment, name: str) -> Iterator[PreflightWarning]:
    bar = environment.fact("large_bar.rocm")
    if bar.text == "no":
        thresholds = " ".join(f"{one}=0" for one in accelerators.THRESHOLDS)
        yield PreflightWarning(
            Kind.CRASH, name, f"an AMD device has no Large BAR: {bar.why}", f"with UCX set {thresholds}", False
        )
    for platform, remedy in (
        ("cuda", "install NVIDIA's driver"),
        ("rocm", "load amdgpu, or give a container /dev/kfd"),
    ):
        fact = environment.fact(f"{platform}.devices")
        if fact.state is FactState.ABSENT and " is there" in fact.why:
            yield PreflightWarning(Kind.LAUNCH_FAILURE, name, fact.why, remedy)
    if environment.items("rocm.devices") and "w" not in (environment.text("rocm.access") or "w"):
        yield PreflightWarning(
            Kind.LAUNCH_FAILURE, name, "this user may not open /dev/kfd", "join the groups video and render"
        )
    if environment.items("rdma"):
        yield from fabric.memlock(name, environment.text("memlock"))
        yield from _rdma(environment, name)
    for line in environment.items("libraries.unresolved"):
        why = f"{line} is not found by the loader"
        yield PreflightWarning(
            Kind.MISSING_LIBRARY, name, why, "install it if a job is to use that library", not _optional(line)
        )
    shm = environment.text("shm")
    if shm and int(shm) < software.ENOUGH_SHM:
        why = f"there are {int(shm) // 1024**2} MiB of shared memory"
        yield PreflightWarning(Kind.CRASH, name, why, "give it at least 64 MiB (a container: --shm-size 8g)", False)


def _rdma(environment: Environment, name: str) -> Iterator[PreflightWarning]:
    roce = environment.fact("rdma.roce")
    if roce.state is FactState.ABSENT and roce.why != "no port is Ethernet":
        remedy = "give the HCA's interface an IPv4 address and bring it up"
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, name, f"no IPv4 RoCE v2 GID: {roce.why}", remedy)
    if environment.is_absent("dev_infiniband"):
        why = "an RDMA device is there, but not /dev/infiniband"
        yield PreflightWarning(
            Kind.TRANSPORT_UNAVAILABLE, name, why, "load ib_uverbs, or give a container --device=/dev/infiniband"
        )


def _optional(line: str) -> bool:
    """Return whether a library is a plugin that its user can run without."""
    return line.startswith(("libuct_", "libucc_")) or "-fi.so" in line or "-net" in line
