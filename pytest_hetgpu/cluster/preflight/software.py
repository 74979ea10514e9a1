"""Warnings about libraries: missing, unresolved, built without a needed component, or of other versions."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from pytest_hetgpu.cluster.launchers import PROGRAM, VENDOR, VERSION
from pytest_hetgpu.cluster.preflight.warning import CheckedJob, CheckedNode, PreflightWarning, torch_backend
from pytest_hetgpu.model.facts import FactState
from pytest_hetgpu.model.verdict import Kind

_FACTS = {"Open MPI": "openmpi", "MPICH": "mpich"}
_DAEMONS = {"Open MPI": "orted and prted", "MPICH": "hydra_pmi_proxy"}
MOST_SKEW = 5.0
ENOUGH_SHM = 64 * 1024**2
_UCX_MODULES = {"rocm": ("rocm", "rocm_copy", "rocm_ipc"), "cuda": ("cuda", "cuda_copy", "cuda_ipc", "gdr_copy")}
_OWNER_THREAD = "https://github.com/openucx/ucc/issues/1045"


def warnings(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield the warnings about every node with ranks, then about differences between them."""
    for member in cell.ranked:
        for rule in (
            _stack,
            _components,
            _device_memory,
            _unresolved,
            _modules,
            _torch,
            _mpi4py,
            _nccl,
            _shared_memory,
            _cma,
        ):
            yield from rule(cell, member)
    yield from _launcher(cell)
    yield from _clocks(cell)
    yield from _majors(cell)
    yield from _ucx_versions(cell)
    yield from _machines(cell)


def _stack(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    stack = member.node.stack or cell.job.demand.stack
    fact = _FACTS.get(stack.vendor, "")
    if fact and member.environment.is_absent(fact):
        why = f"there is no {stack.vendor}: {member.environment.fact(fact).why}"
        remedy = f"install {stack.vendor} {stack.version}, or give its folder as `prefix`"
        yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, remedy)


def _launcher(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield a warning if the launcher of the node that starts the job is of another MPI or release than its stack."""
    starter = cell.starter
    stack, seen = starter.node.stack or cell.job.demand.stack, starter.environment
    program, vendor, version = (seen.text(fact) or "" for fact in (PROGRAM, VENDOR, VERSION))
    if not program or cell.job.command.argv[0] not in (program, stack.launcher):
        return
    if vendor != stack.vendor or stack.major not in (0, int(_number(version, 1)[0])):
        wanted = f"{stack.vendor} {stack.version}".rstrip()
        why = f"its {program.rpartition('/')[2]} is {vendor} {version}, the stack {stack.name} is {wanted}"
        remedy = f"give it the stack that it has, or install {wanted}, or give its folder as `prefix`"
        yield PreflightWarning(Kind.LAUNCH_FAILURE, starter.name, why, remedy)


def _clocks(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield a warning about a clock that is off. No job needs equal clocks, but readers of several logs do."""
    for member in cell.members:
        ahead = float(member.environment.text("clock") or 0)
        if abs(ahead) > MOST_SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            why = f"its clock is {abs(ahead):.0f} s {way} this machine's: times in the logs of its ranks mislead"
            yield PreflightWarning(Kind.UNKNOWN, member.name, why, "let both follow an NTP server", False)


def _components(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    """Yield a warning if Open MPI was built without a component that the cell needs."""
    stack = member.node.stack or cell.job.demand.stack
    family = cell.job.demand.transport_family
    needed = {
        "ucx": (("pml", "ucx"),),
        "ob1": (("pml", "ob1"),),
        "ofi": (("pml", "cm"), ("mtl", "ofi")),
        "ucc": (("coll", "ucc"),),
    }
    # An external program carries data by its own library, independent of the build of this MPI.
    beside = cell.job.demand.external is not None and bool(cell.job.demand.external.layer)
    if stack.vendor != "Open MPI" or beside:
        return
    for framework, name in needed.get(family, ()):
        fact = member.environment.fact(f"openmpi.{framework}")
        if fact.state is FactState.FOUND and name not in fact.items:
            why = f"its Open MPI was built without {framework}/{name} (it has: {fact.text})"
            yield PreflightWarning(
                Kind.TRANSPORT_UNAVAILABLE, member.name, why, f"build Open MPI with {name}: ./configure --with-{name}"
            )


def _device_memory(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    """Yield a warning if buffers are in device memory, and Open MPI takes their addresses for those of the host.

    UCX and UCC detect device memory by themselves; the reductions of Open MPI compute on the CPU.
    """
    demand, platform = cell.job.demand, member.platform
    stack = member.node.stack or demand.stack
    by_mpi = demand.external is None and demand.backend in ("", "mpi")
    if stack.vendor != "Open MPI" or not by_mpi or demand.facts.get("memory") != "device" or platform == "cpu":
        return
    # Release 4 has no such framework: coll/cuda shows that CUDA is built in, and it knows no ROCm.
    framework = "coll" if 0 < stack.major < 5 else "accelerator"
    fact = member.environment.fact(f"openmpi.{framework}")
    if fact.state is FactState.UNKNOWN or platform in fact.items or member.environment.is_absent("openmpi"):
        return
    certain = not cell.uses("ucx") or (demand.transport_family != "ucc" and "reduce" in demand.operation)
    why = (
        f"its Open MPI has no {framework}/{platform} (it has: {fact.text or 'none'}), and the buffers are on the device"
    )
    remedy = f"build Open MPI for it: ./configure --with-{platform}"
    if platform == "rocm" and framework == "coll":
        remedy = "take Open MPI 5: release 4 knows no ROCm"
    yield PreflightWarning(Kind.CRASH, member.name, why, remedy, certain)


def _unresolved(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    """Yield warnings about unresolved libraries that this cell loads: one for required libraries, one for plugins."""
    needs: dict[bool, dict[str, list[str]]] = {}
    for line in member.environment.items("libraries.unresolved"):
        library, _, needed = line.partition(": ")
        if any(fnmatchcase(library, glob) for glob in _loaded(cell, member)):
            # Without its network plugin NCCL uses sockets.
            needs.setdefault("ccl-net" not in library, {}).setdefault(library, []).append(needed)
    for certain, libraries in needs.items():
        why = "; ".join(f"{library} needs {', '.join(needed)}" for library, needed in libraries.items())
        remedy = "install what holds it, or put its folder into LD_LIBRARY_PATH"
        yield PreflightWarning(
            Kind.MISSING_LIBRARY, member.name, f"the loader does not find all: {why}", remedy, certain
        )


def _loaded(cell: CheckedJob, member: CheckedNode) -> Iterator[str]:
    yield "libmpi.so*"
    if cell.uses("ucx"):
        yield "libuc[pt].so*"
        tls = member.words("UCX_TLS")
        for platform, names in _UCX_MODULES.items():
            if platform == member.platform and any(name in tls for name in names):
                yield f"libuct_{platform}*"
        if any(word in ("ib", "rc", "dc", "ud") or word.startswith(("rc_", "dc_", "ud_")) for word in tls):
            yield from ("libuct_ib.so*", "libuct_ib_mlx5.so*")
    if cell.uses("ucc"):
        yield "libucc.so*"
    if cell.uses("ofi"):
        yield from ("libfabric.so*", *(f"lib{name}-fi.so" for name in cell.components("ofi")))
        yield from ("libcxi.so*",) if "cxi" in cell.components("ofi") else ()
    if cell.job.demand.transport_family == "nccl":
        yield from ("librccl*",) if member.platform == "rocm" else ("libnccl*",)
    if cell.torch:
        yield "libtorch*"


def _modules(_: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    """Yield a warning if UCX lacks the transports of the node's accelerator, and the cell names one."""
    names = _UCX_MODULES.get(member.platform, ())
    asked = [word for word in member.words("UCX_TLS") if word in names]
    fact = member.environment.fact("ucx.modules")
    if asked and fact.state is FactState.FOUND and member.platform not in fact.items:
        why = f"its UCX has no {asked[0]} (modules: {fact.text})"
        yield PreflightWarning(
            Kind.TRANSPORT_UNAVAILABLE, member.name, why, f"build UCX with ./configure --with-{member.platform}=PREFIX"
        )


def _torch(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    if not cell.torch:
        return
    backend = torch_backend(cell.job)
    environment, name = member.environment, member.name
    if environment.is_absent("torch"):
        yield PreflightWarning(
            Kind.MISSING_LIBRARY, name, "there is no PyTorch", "install PyTorch for the ranks' interpreter"
        )
        return
    built_for = {"rocm": "torch.hip", "cuda": "torch.cuda"}.get(member.platform)
    if built_for and environment.is_absent(built_for):
        why = f"its PyTorch {environment.text('torch')} was built without {member.platform}"
        yield PreflightWarning(Kind.MISSING_LIBRARY, name, why, f"install PyTorch built for {member.platform}")
    built = environment.fact("torch.backends")
    if built.state is FactState.FOUND and backend not in built.items:
        why = f"its PyTorch has no backend {backend} (it has: {built.text})"
        remedy = (
            f"build PyTorch from source with USE_{backend.upper()}=1"
            if backend in ("mpi", "ucc")
            else "take another build"
        )
        yield PreflightWarning(Kind.MISSING_LIBRARY, name, why, remedy)
    if backend == "mpi" and cell.uses("ucx") and environment.text("ucx.enable_mt") == "yes":
        why = "its UCX was built with --enable-mt, under which PyTorch over MPI crashes in ucs_async_check_owner_thread"
        yield PreflightWarning(Kind.CRASH, name, why, f"build UCX without --enable-mt ({_OWNER_THREAD})")


def _mpi4py(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    if "mpi4py" in cell.job.command.argv and member.environment.is_absent("mpi4py"):
        remedy = "install mpi4py for the interpreter that the ranks run with"
        yield PreflightWarning(Kind.MISSING_LIBRARY, member.name, "there is no mpi4py", remedy)


def _nccl(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    if cell.job.demand.transport_family != "nccl" or member.platform not in ("cuda", "rocm"):
        return
    library = "rccl" if member.platform == "rocm" else "nccl"
    if member.environment.is_absent(library):
        yield PreflightWarning(
            Kind.MISSING_LIBRARY, member.name, f"there is no {library.upper()}", f"install {library.upper()}"
        )
    first = cell.ranked[0]
    theirs, ours = (one.environment.text(library) for one in (first, member))
    if theirs and ours and theirs != ours:
        why = f"its {library.upper()} is {ours}, that of {first.name} {theirs}; ranks of one job need one version"
        yield PreflightWarning(Kind.ERROR, member.name, why, "take the same version everywhere", certain=False)


def _shared_memory(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    size, several = member.environment.text("shm"), member.node.ranks > 1
    if not several or cell.uses("ofi"):
        return
    if member.environment.is_absent("shm") or (size and int(size) < ENOUGH_SHM):
        has = f"is {int(size) // 1024**2} MiB" if size else "is not there"
        why = (
            f"the shared memory of its host {has}; ranks of one node meet there, and die of a bus error once it is full"
        )
        remedy = "give the container --shm-size 8g, or --ipc host"
        yield PreflightWarning(Kind.CRASH, member.name, why, remedy, certain=False)


def _cma(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    fact = member.environment.fact("cma")
    carriers = cell.components("ucx")
    if fact.text == "no" and "cma" in carriers and member.node.ranks > 1:
        why = f"processes may not read each other's memory ({fact.why}), which cma does"
        remedy = "give the container --cap-add SYS_PTRACE, or set kernel.yama.ptrace_scope=0"
        yield PreflightWarning(Kind.TRANSPORT_UNAVAILABLE, member.name, why, remedy, certain=set(carriers) == {"cma"})


def _majors(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield warnings about daemons of different major versions, which do not understand each other."""
    vendor = cell.job.demand.stack.vendor
    starter = cell.starter
    fact = _FACTS.get(vendor, "")
    theirs = starter.environment.text(fact)
    for member in cell.members:
        ours = member.environment.text(fact)
        if theirs and ours and _number(ours, 1) != _number(theirs, 1):
            why = f"its {vendor} is {ours}, that of {starter.name}, which starts the job, {theirs}"
            remedy = f"take one major version: the daemons ({_DAEMONS[vendor]}) do not understand each other"
            yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, remedy, certain=vendor == "Open MPI")


def _ucx_versions(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield warnings about different UCX versions.

    Observed between 1.18 and 1.20: small messages pass, messages above the rendezvous threshold fail.
    """
    first = cell.ranked[0] if cell.ranked else None
    for member in cell.ranked:
        ours, theirs = member.environment.text("ucx"), first.environment.text("ucx") if first else None
        differ = first and ours and theirs and _number(ours, 2) != _number(theirs, 2)
        if differ and first and cell.uses("ucx") and member.setting("UCX_RNDV_THRESH") != "inf":
            why = f"its UCX is {ours}, that of {first.name} {theirs}: rendezvous between them may fail (large messages)"
            remedy = "take the same UCX everywhere, or set UCX_RNDV_THRESH=inf"
            yield PreflightWarning(Kind.ERROR, member.name, why, remedy, certain=False)


def _machines(cell: CheckedJob) -> Iterator[PreflightWarning]:
    first = cell.ranked[0] if cell.ranked else None
    for member in cell.ranked[1:]:
        ours, theirs = member.environment.text("machine"), first.environment.text("machine") if first else None
        if first and ours and theirs and ours != theirs:
            why = f"it is {ours}, {first.name} is {theirs}, and few MPIs translate between them"
            yield PreflightWarning(
                Kind.LAUNCH_FAILURE, member.name, why, "take nodes of one architecture", certain=False
            )


def _number(version: str, parts: int) -> tuple[str, ...]:
    return tuple(version.split(".")[:parts])
