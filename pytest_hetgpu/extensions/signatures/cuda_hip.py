"""CUDA and HIP: errors of their runtimes as programs print them, faults that end a process, and messages of drivers.

Texts of errors: `texts.gpu`. Wrappers: helper_cuda.h of cuda-samples, common.h of nccl-tests and rccl-tests, HIP's
examples, CUDAException of PyTorch. Faults: runtime.cpp of ROCR-Runtime, rocdevice.cpp and hip_code_object.cpp of
ROCm/clr, the kernel drivers' log (NVIDIA's "Xid Errors", amdgpu_device.c and amdgpu_job.c of Linux).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.gpu import gpu_error
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, slug, token
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_LONGEST = 4096

# Lines of other parsers, or of a mere probe: exceptions, log lines of libraries, warnings.
_OTHERS = lazy(
    r"\b(?:UCX|UCC|CL_\w+|TL_\w+) +[A-Z]+ |\bNCCL (?:INFO|WARN|TRACE|CALL) |^libfabric:|^[\w.]*(?:Error|Exception): "
    r"|unhandled cuda error|Warning\b|^\[?[EWIF]\d{4} \d|ProcessGroupNCCL|^\s+what\(\): "
)
_WRAPPED = lazy(
    "|".join(
        (
            r"(?:(?P<host>^[\w.-]+): Test )?\b(?i:cuda|hip)(?: (?:Runtime|Driver)(?: API)?)? ?(?i:error|failure)\b",
            r"^GPUassert: |checkCudaErrors\(\)|\b(?:CUDA|HIP) call .{0,300}failed",
            r"\b(?:cuda|hip)[A-Z]\w{2,60}(?:\([^()]{0,200}\))?(?: call)? (?:failed|returned)",
        )
    )
)
# Texts that only a GPU's runtime writes, whichever program prints them.
_DISTINCT = lazy(
    r"-capable device is|illegal memory access|invalid device function|no kernel image|is insufficient for"
    r"|device-side assert|unspecified launch failure|\b(?:cuda|hip)Error[A-Z]|CUDA_ERROR_"
    r"|(?:cuda|hip)\w+.{0,80}out of memory"
)
# `rank 3`, `[rank 3]`, `Rank 3:` anywhere before the words.
_RANK = lazy(r"\b[Rr]ank[ :#]{0,2}(?P<rank>\d{1,7})\b")
_ABORTED = lazy(r"\bsignal:? ?6\b|Aborted \((?:6|core dumped)\)|\bSIGABRT\b|EXIT CODE: (?:6|134)\b|\bAborted$")

# Text, kind, key, priority, whether it is fatal, whether the runtime then calls abort().
_FAULTS: tuple[tuple[str, Kind, str, Priority, bool], ...] = (
    (r"Memory access fault by GPU node-\d+", Kind.CRASH, "memory-access-fault@gpu", Priority.CAUSE, True),
    (r"Memory critical error by agent node-\d+", Kind.CRASH, "memory-error@gpu", Priority.CAUSE, True),
    (r"HW Exception by GPU node-\d+", Kind.CRASH, "hardware-exception@gpu", Priority.CAUSE, True),
    (
        r"Unable to find code object for all current devices|hipErrorNoBinaryForGpu: (?:Unable|Could)",
        Kind.GPU_ARCH_MISMATCH,
        "no-kernel-image@gpu",
        Priority.CAUSE,
        True,
    ),
    # tensile_host.cpp of rocBLAS
    (
        r"rocBLAS error: .{1,400} for GPU arch ?: gfx\w+",
        Kind.GPU_ARCH_MISMATCH,
        "no-tensile-library@rocblas",
        Priority.CAUSE,
        True,
    ),
    (r"Aborting with error ?: (?P<what>HSA_STATUS_\w+)", Kind.CRASH, "{what}@gpu", Priority.CAUSE, True),
    (r"NVRM: Xid \([^()]*\): (?P<what>43|45),", Kind.ERROR, "Xid-{what}@gpu", Priority.CONSEQUENCE, False),
    (r"NVRM: Xid \([^()]*\): (?P<what>\d+),", Kind.ERROR, "Xid-{what}@gpu", Priority.RELAYED, False),
    (r"GPU has fallen off the bus", Kind.ERROR, "Xid-79@gpu", Priority.RELAYED, False),
    (r"amdgpu.*(?:GPU reset begin|ring \S+ timeout)", Kind.ERROR, "reset@gpu", Priority.RELAYED, False),
    (r"Found no NVIDIA driver on your system", Kind.ERROR, "no-driver@gpu", Priority.CAUSE, False),
    (r"The NVIDIA driver on your system is too old", Kind.ERROR, "InsufficientDriver@gpu", Priority.CAUSE, False),
    (r"Failed to initialize NVML: (?P<what>.+)", Kind.ERROR, "nvml-{what}@gpu", Priority.RELAYED, False),
    (r"Unable to open /dev/kfd|ROCk module is NOT loaded", Kind.ERROR, "no-driver@gpu", Priority.RELAYED, False),
    (
        r"\b(?P<what>(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|HIPBLAS)_STATUS_(?!SUCCESS)[A-Z_]{3,60})",
        Kind.ERROR,
        "{what}@gpu",
        Priority.RELAYED,
        False,
    ),
    (r"couldn't communicate with the NVIDIA driver", Kind.ERROR, "no-driver@gpu", Priority.RELAYED, False),
    (
        r"^(?:\S{1,300}:\d+: )?.{0,300}block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion .{1,500} failed",
        Kind.ERROR,
        "Assert@gpu",
        Priority.CAUSE,
        False,
    ),
    (r"Device-side assertion .{1,500} failed", Kind.ERROR, "Assert@gpu", Priority.CAUSE, False),
)
_COMPILED = tuple((lazy(words), kind, key, priority, aborts) for words, kind, key, priority, aborts in _FAULTS)
_NO_CODE = lazy(r"HSA_STATUS_ERROR_(?:ILLEGAL_INSTRUCTION|INVALID_ISA\w*|INVALID_CODE_OBJECT)\b")
_FULL = lazy(r"Available Free mem : 0 MB|HSA_STATUS_ERROR_OUT_OF_RESOURCES")


class CudaHip(LogParser):
    """Parser of GPU errors, one match per line; a runtime that aborts adds the signal, if the log shows one."""

    triggers = (
        *(
            f"{name} {word}".encode()
            for name in ("CUDA", "Cuda", "cuda", "HIP", "Hip", "hip")
            for word in ("error", "failure")
        ),
        b"CUDA Error",
        b"HIP Error",
        b"CUDA Runtime",
        b"CUDA call",
        b"HIP call",
        b"cudaError",
        b"hipError",
        b"CUDA_ERROR_",
        b"GPUassert",
        b"checkCudaErrors",
        *(
            words.encode()
            for words in (
                "Memory access fault by GPU",
                "Memory critical error by agent",
                "HW Exception by GPU",
                "Unable to find code object",
                "HSA_STATUS_ERROR",
                "rocBLAS error: ",
                "NVRM: Xid",
                "fallen off the bus",
                "GPU reset begin",
                "amdgpu_job_timedout",
                "Found no NVIDIA driver",
                "NVIDIA driver on your system",
                "communicate with the NVIDIA driver",
                "Failed to initialize NVML",
                "Unable to open /dev/kfd",
                "ROCk module",
                "CUBLAS_STATUS_",
                "CUDNN_STATUS_",
                "CUSPARSE_STATUS_",
                "CUSOLVER_STATUS_",
                "HIPBLAS_STATUS_",
                "], thread: [",
                "Device-side assertion",
                "no CUDA-capable device",
                "no ROCm-capable device",
                "illegal memory access",
                "invalid device function",
                "no kernel image",
                "is insufficient for ",
                "device-side assert",
                "unspecified launch failure",
                "out of memory",
                "Aborted",
                "ignal 6",
                "ignal: 6",
                "SIGABRT",
                "EXIT CODE: ",
            )
        ),
    )

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._aborting: set[int] = set()
        self._aborted = False

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if len(self._matches) >= _MOST:
            return
        match = None if _OTHERS.search(text) else self._fault(line, text) or _error(line, text)
        if match:
            self._matches.append(match)
        elif self._aborting and _ABORTED.search(text):
            self._aborted = True

    def _fault(self, line: LogLine, text: str) -> FailureMatch | None:
        for pattern, kind, key, priority, aborts in _COMPILED:
            if found := pattern.search(text):
                what = token((found.groupdict().get("what") or "").replace("/", "-"))
                if aborts:
                    self._aborting.add(len(self._matches))
                means = _hsa(text, kind) if what.startswith("HSA_") else kind
                return FailureMatch(_signature(line, text, means, key.replace("{what}", what)), priority, fatal=aborts)
        return None

    def finish(self) -> Sequence[FailureMatch]:
        if self._aborted:
            for place in self._aborting:
                match = self._matches[place]
                signature = replace(match.signature, signal="SIGABRT")
                self._matches[place] = replace(match, signature=signature)
        return tuple(self._matches)


def _hsa(text: str, otherwise: Kind) -> Kind:
    if _NO_CODE.search(text):
        return Kind.GPU_ARCH_MISMATCH
    return Kind.OUT_OF_MEMORY if _FULL.search(text) else otherwise


def _error(line: LogLine, text: str) -> FailureMatch | None:
    """Return an error of a runtime call: fatal if one of the usual wrappers prints it, else a mere mention."""
    wrapped, error = _WRAPPED.search(text), gpu_error(text)
    if wrapped is None:
        distinct = error is not None and _DISTINCT.search(text)
        return FailureMatch(_signature(line, text, error.kind, error.key), fatal=False) if error and distinct else None
    if error is None:
        said = text[wrapped.end() :]
        key = f"{slug(said) or 'error'}@gpu"
        if re.search(r"\b(?:success|no error|0 errors?)\b", said):
            return None
        return FailureMatch(_signature(line, text, Kind.ERROR, key), Priority.RELAYED, fatal=False)
    signature = _signature(line, text, error.kind, error.key)
    hosts = (wrapped["host"],) if wrapped["host"] else signature.hosts
    return FailureMatch(replace(signature, hosts=hosts))


def _signature(line: LogLine, text: str, kind: Kind, key: str) -> Signature:
    named = _RANK.search(text)
    rank = line.rank if line.rank is not None else int(named["rank"]) if named else None
    return Signature(
        kind,
        key,
        line.quote,
        line.number,
        detail=text.strip()[:200],
        ranks=() if rank is None else (rank,),
        hosts=(line.host,) if line.host else (),
    )
