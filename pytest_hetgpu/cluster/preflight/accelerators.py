"""Warnings about accelerators: none, too few, another instruction set, hidden, or without Large BAR."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_hetgpu.cluster.preflight.warning import CheckedJob, CheckedNode, PreflightWarning
from pytest_hetgpu.model.facts import FactState
from pytest_hetgpu.model.verdict import Kind

_GIVE = {
    "cuda": "load NVIDIA's driver, and give a container its devices (--gpus all, with the NVIDIA container toolkit)",
    "rocm": "load amdgpu, and give a container its devices (--device=/dev/kfd --device=/dev/dri --group-add video)",
}
_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
# Workaround for the crash of a device without Large BAR (https://github.com/openucx/ucc/issues/1043).
THRESHOLDS = ("UCX_ROCM_COPY_D2H_THRESH", "UCX_ROCM_COPY_H2D_THRESH")
_ROCM_TLS = ("rocm", "rocm_copy", "rocm_ipc", "all", "any")


def warnings(cell: CheckedJob) -> Iterator[PreflightWarning]:
    """Yield the warnings about every node with ranks that should have an accelerator."""
    for member in cell.ranked:
        if member.platform in _GIVE:
            yield from _devices(member)
            yield from _arch(member)
            yield from _hidden(member)
        if member.platform == "rocm":
            yield from _access(member)
            yield from _large_bar(cell, member)


def _devices(member: CheckedNode) -> Iterator[PreflightWarning]:
    fact = member.environment.fact(f"{member.platform}.devices")
    if fact.state is FactState.ABSENT:
        why = f"there is no {member.platform} device: {fact.why}"
        yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, _GIVE[member.platform])
    wanted = member.node.hardware.accelerator.count
    if fact.state is FactState.FOUND and len(fact.items) < wanted:
        why = f"the matrix requires {wanted} {member.platform} devices, there are {len(fact.items)} ({fact.text})"
        yield PreflightWarning(
            Kind.LAUNCH_FAILURE, member.name, why, "correct `count` in the matrix, or give the node all of them"
        )


def _arch(member: CheckedNode) -> Iterator[PreflightWarning]:
    wanted = member.node.hardware.accelerator.arch
    real = member.environment.items(f"{member.platform}.arch")
    override = member.setting("HSA_OVERRIDE_GFX_VERSION") if member.platform == "rocm" else None
    if not wanted or not real or wanted in real:
        return
    if override and gfx(override) == wanted:
        return
    why = f"the matrix requires {wanted}, the device is {', '.join(real)}"
    if override:
        why += f" (and HSA_OVERRIDE_GFX_VERSION={override} makes it {gfx(override)})"
    remedy = f"set `arch: {real[0]}` in the matrix, and build the image's libraries for it"
    if member.platform == "rocm" and wanted.startswith("gfx1"):
        remedy += f"; or set HSA_OVERRIDE_GFX_VERSION, where {wanted} code runs on a {real[0]}"
    yield PreflightWarning(Kind.GPU_ARCH_MISMATCH, member.name, why, remedy)


def gfx(version: str) -> str:
    """Return the instruction set that HSA_OVERRIDE_GFX_VERSION names: `10.1.1` is gfx1011, `9.0.10` gfx90a."""
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return version
    return f"gfx{parts[0]}{int(parts[1]):x}{int(parts[2]):x}"


def _hidden(member: CheckedNode) -> Iterator[PreflightWarning]:
    for name in _HIDING[member.platform]:
        value = member.setting(name)
        if value in ("", "(empty)", "-1", "NoDevFiles", "none", "void"):
            why = f"{name}={'' if value == '(empty)' else value} hides every device"
            yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, f"unset {name}, or name a device")
    if member.platform != "rocm":
        return
    below = [word for word in member.words("ROCR_VISIBLE_DEVICES") if word != "-1"]
    above = [word for word in member.words("HIP_VISIBLE_DEVICES") if word.isdecimal()]
    beyond = [word for word in above if below and int(word) >= len(below)]
    if beyond:
        why = (
            f"HIP_VISIBLE_DEVICES={','.join(above)} asks for device {beyond[0]} of the {len(below)} that "
            f"ROCR_VISIBLE_DEVICES={','.join(below)} leaves; HIP counts only those, from 0"
        )
        remedy = f"set HIP_VISIBLE_DEVICES={','.join(map(str, range(len(below))))}, or only one of the two"
        yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, remedy)


def _access(member: CheckedNode) -> Iterator[PreflightWarning]:
    access = member.environment.text("rocm.access")
    if access and "w" not in access:
        why = "this user may not open /dev/kfd"
        yield PreflightWarning(Kind.LAUNCH_FAILURE, member.name, why, "run as a member of the groups video and render")


def _large_bar(cell: CheckedJob, member: CheckedNode) -> Iterator[PreflightWarning]:
    fact = member.environment.fact("large_bar.rocm")
    if fact.text != "no" or not cell.uses("ucx"):
        return
    lacking = [name for name in THRESHOLDS if member.setting(name) != "0"]
    if lacking:
        why = f"no Large BAR ({fact.why}): UCX copies small messages with the CPU, which cannot reach device memory"
        # Only access to device memory crashes, and that needs the ROCm transports of UCX.
        asked = any(word in _ROCM_TLS for word in member.words("UCX_TLS"))
        remedy = f"set {' '.join(f'{name}=0' for name in lacking)} (https://github.com/openucx/ucc/issues/1043)"
        yield PreflightWarning(Kind.CRASH, member.name, why, remedy, certain=asked)
