"""Facts of a run that its log alone shows: GPU memory, platforms, fabric, launcher, program. A text proves a value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from pytest_hetgpu.analysis.logs.text_search import find_texts

# Names of components and libraries: UCX's src/uct/cuda and src/uct/rocm, the CUDA driver, HIP and the ROCr runtime.
_CUDA = ("cuda_copy", "cuda_ipc", "gdr_copy", "libuct_cuda", "libcuda.so", "libcudart", "cuCtxGetDevice")
_ROCM = ("rocm_copy", "rocm_ipc", "libuct_rocm", "libamdhip64", "libhsa-runtime64", "libmca_accelerator_rocm", "ROCm")
# PyTorch names devices of both vendors `cuda`.
_GPU = ("GPU", "NCCL INFO", "device='cuda", "device cuda:", "cuda:0", *_CUDA, *_ROCM)

TEXTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "memory": {"device": _GPU, "cuda": _CUDA, "rocm": _ROCM},
    "platform": {"cuda": _CUDA, "rocm": _ROCM},
    "fabric": {
        "slingshot": ("cxi0", "prov=cxi", "provider: cxi", "provider is cxi", "hsn0", "Slingshot", "Cassini"),
        "efa": ("prov=efa", "provider: efa", "provider is efa", "efa-direct", "EFA provider"),
    },
    "launcher": {"srun": ("srun: ",)},
    "program": {"torch": ("torch",)},
}
"""Texts that prove a value of a fact. A log without them leaves the fact unknown."""


def log_facts(log: Path, wanted: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return those of the wanted facts that texts in a log prove; `platform` is `mixed` too if there are several.

    Raise OSError if the log cannot be read.
    """
    asked = {fact: TEXTS[fact] for fact in wanted if fact in TEXTS}
    if not asked:
        return {}
    texts = {text for values in asked.values() for every in values.values() for text in every}
    present = find_texts(log, texts)
    found = {
        fact: [value for value, every in values.items() if any(text in present for text in every)]
        for fact, values in asked.items()
    }
    if len(found.get("platform", ())) > 1:
        found["platform"].append("mixed")
    return {fact: tuple(values) for fact, values in found.items() if values}


def separate(versions: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return each fact with all its values: nodes that differ have several versions, joined by commas."""
    return {name: tuple(text.split(", ")) for name, text in versions.items()}
