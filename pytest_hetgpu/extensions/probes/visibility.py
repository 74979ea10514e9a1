"""Variables that hide accelerators, or change what they say they are."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, Seen
from pytest_hetgpu.model.facts import Facts, absent, found


class Visibility(Probe):
    """ROCR_VISIBLE_DEVICES holds for everything on ROCm; HIP_VISIBLE_DEVICES, below it, counts only what that left.

    HIP takes CUDA_VISIBLE_DEVICES for HIP_VISIBLE_DEVICES too
    (https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html).
    """

    title = "Visible devices"
    env = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "NVIDIA_VISIBLE_DEVICES",
        "HSA_OVERRIDE_GFX_VERSION",
        "LD_LIBRARY_PATH",
    )
    promises = tuple(f"env.{name}" for name in env)

    def read(self, seen: Seen) -> Facts:
        return {
            f"env.{name}": found(seen.env[name] or "(empty)") if name in seen.env else absent("not set")
            for name in self.env
        }
