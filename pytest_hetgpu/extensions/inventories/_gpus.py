"""Products of GPUs as schedulers name them, by platform and instruction set.

Instruction sets: https://developer.nvidia.com/cuda-gpus, and of AMD
https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html. Device ids: https://pci-ids.ucw.cz/read/PC/1002.
"""

from __future__ import annotations

import itertools
import re

_CUDA = {
    "sm_60": "p100",
    "sm_61": "p4 p40 1080 1080ti titanxp",
    "sm_70": "v100 v100s titanv gv100",
    "sm_75": "t4 t4g rtx6000 rtx8000 2080 2080ti quadrortx6000 quadrortx8000",
    "sm_80": "a100 a30 a800",
    "sm_86": "a10 a10g a40 a16 a2 a4000 a5000 a6000 rtxa4000 rtxa5000 rtxa6000 3080 3090 rtx3080 rtx3090",
    "sm_89": "l4 l40 l40s 4090 rtx4090 rtx6000ada 6000ada",
    "sm_90": "h100 h200 h800 h20 gh200",
    "sm_100": "b100 b200 gb200",
}
_ROCM = {
    "gfx906": "mi50 mi60 vega20",
    "gfx908": "mi100",
    "gfx90a": "mi200 mi210 mi250 mi250x",
    "gfx942": "mi300 mi300a mi300x mi308x mi325x",
    "gfx950": "mi350x mi355x",
    "gfx1011": "v520",
    "gfx1030": "v620 w6800",
    "gfx1100": "w7900 w7800 7900xtx",
}
_DEVICES = {
    "gfx906": "66a0 66a1",
    "gfx908": "738c 738e",
    "gfx90a": "7408 740c 740f",
    "gfx942": "74a0 74a1 74a2 74a5 74a9",
    "gfx950": "75a0 75a3",
    "gfx1011": "7362",
    "gfx1030": "73a1 73a3",
    "gfx1100": "7448 744c",
}
PRODUCTS = {
    name: (platform, arch)
    for platform, table in (("cuda", _CUDA), ("rocm", _ROCM))
    for arch, names in table.items()
    for name in names.split()
}
DEVICES = {device: arch for arch, devices in _DEVICES.items() for device in devices.split()}
_VENDORS = {
    "cuda": "cuda nvidia tesla quadro geforce",
    "rocm": "rocm amd radeon instinct hip",
}
_VENDOR_OF = {word: platform for platform, names in _VENDORS.items() for word in names.split()}


def identify(*texts: str) -> tuple[str, str]:
    """Return platform and instruction set of the first text that names a product or a vendor; else ("", "").

    Examples: `mi250x`, `NVIDIA-A100-SXM4-80GB`, `a100_80gb`, `AMD_Instinct_MI300X_OAM`, `nvidia`, `gfx90a`.
    """
    for text in texts:
        parts = [part for part in re.split(r"[^a-z0-9]+", text.lower()) if part]
        arch = next((part for part in parts if re.fullmatch(r"gfx[0-9]{2,3}[0-9a-f]", part)), "")
        if arch:
            return "rocm", arch
        pairs = [f"{one}{other}" for one, other in itertools.pairwise(parts)]
        product = next((part for part in (*pairs, *parts) if part in PRODUCTS), "")
        if product:
            return PRODUCTS[product]
        vendor = next((part for part in parts if part in _VENDOR_OF), "")
        if vendor:
            return _VENDOR_OF[vendor], ""
    return "", ""
