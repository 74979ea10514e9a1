"""Variables that hide accelerators, or change their reported architecture."""

from __future__ import annotations

from pytest_hetgpu.extensions.probes.base import Probe, RawFacts
from pytest_hetgpu.model.facts import Facts, absent, found


class VisibilityProbe(Probe):
    """A probe of variables. ROCR_VISIBLE_DEVICES applies to all of ROCm; HIP_VISIBLE_DEVICES indexes the rest.

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
    provides = tuple(f"env.{name}" for name in env)

    def read(self, raw: RawFacts) -> Facts:
        return {
            f"env.{name}": found(raw.env[name] or "(empty)") if name in raw.env else absent("not set")
            for name in self.env
        }
