"""Meanings of exceptions in Python programs, by name and message."""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures._messages.torch import MESSAGE_RULES, MessageRule
from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.model.verdict import Kind

_LIBRARY, _MEMORY, _ARCH = Kind.MISSING_LIBRARY, Kind.OUT_OF_MEMORY, Kind.GPU_ARCH_MISMATCH
_AFTER, _SYMPTOM, _VAGUE = Priority.CONSEQUENCE, Priority.SYMPTOM, Priority.UNSPECIFIC

# dlopen's words as importlib and ctypes pass them on (glibc's elf/dl-*.c)
_LOADING = (
    MessageRule(
        r"(?<![^\s:])(?P<what>[^\s:]+\.so[\w.]*): cannot open shared object file", _LIBRARY, "missing-library@{}"
    ),
    MessageRule(r"undefined symbol: (?P<what>[\w.]+)", _LIBRARY, "undefined-symbol@{}"),
    MessageRule(r"version [`'](?P<what>[\w.+-]+)' not found \(required by", _LIBRARY, "missing-version@{}"),
    MessageRule(
        r"(?<![^\s/])(?P<what>[^\s/]+\.so[\w.]*): (?:invalid ELF|file too short|wrong ELF)",
        _LIBRARY,
        "bad-library@{}",
    ),
    MessageRule(r"^ModuleNotFoundError: No module named '(?P<what>[\w.-]+)'", _LIBRARY, "missing-module@{}"),
    MessageRule(r"^RuntimeError: cannot load MPI library", _LIBRARY, "missing-library@libmpi.so"),  # mpi4py/_mpiabi.py
    MessageRule(r"^ImportError: (?:cannot import name|attempted relative import)", Kind.ERROR, ""),
    MessageRule(r"^ImportError: ", _LIBRARY, ""),
)

# torch/utils/data/_utils/signal_handling.py and dataloader.py; strsignal's names in torch/csrc/DataLoader.cpp
_WORKER = r"DataLoader worker \(pid \d+\) is killed by signal: "
_LOADER = (
    MessageRule(_WORKER + "Bus error", _MEMORY, "no-space@dev-shm", signal="SIGBUS"),
    MessageRule(_WORKER + "Killed", Kind.CRASH, "SIGKILL@DataLoader", signal="SIGKILL"),
    MessageRule(_WORKER + "Segmentation fault", Kind.CRASH, "SIGSEGV@DataLoader", signal="SIGSEGV"),
    MessageRule(_WORKER + "Aborted", Kind.CRASH, "SIGABRT@DataLoader", signal="SIGABRT"),
    MessageRule(_WORKER + "Floating point", Kind.CRASH, "SIGFPE@DataLoader", signal="SIGFPE"),
    MessageRule(_WORKER, Kind.ERROR, "stopped@DataLoader", _AFTER),
    MessageRule(
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) exited unexpectedly", Kind.ERROR, "exit@DataLoader", _VAGUE
    ),
    MessageRule(r"^\w+: Caught \w+ in (?:DataLoader worker|pin memory|replica)", Kind.ERROR, "", Priority.RELAYED),
)

# The C library's words for errno 12 and 28, and allocators': c10/core/impl/alloc_cpu.cpp, MapAllocator.cpp of ATen,
# CUDACachingAllocator.cpp, numpy, XLA, TensorFlow
_OUT = (
    MessageRule(r"^[\w.]*(?:MemoryError|OutOfMemoryError)\b", _MEMORY, ""),
    MessageRule(
        r"(?:No space left on device[\s\S]*/dev/shm/|/dev/shm/[\s\S]*No space left on device)",
        _MEMORY,
        "no-space@dev-shm",
    ),
    MessageRule(
        r"unable to (?:write to|allocate shared memory|resize)[^\n]*(?:/torch_|shm)[^\n]*", _MEMORY, "no-space@dev-shm"
    ),
    MessageRule(r"Bus error.*out of shared memory", _MEMORY, "no-space@dev-shm", signal="SIGBUS"),
    MessageRule(r"(?:CUDA|HIP|XPU|MPS)\S* (?:backend )?out of memory", _MEMORY, "OutOfMemoryError@"),
    MessageRule(r"CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED", _MEMORY, "OutOfMemoryError@"),
    MessageRule(r"\b[Rr]an out of memory\b|\bOOM when allocating\b", _MEMORY, "OutOfMemoryError@"),
    MessageRule(r"RESOURCE_EXHAUSTED: |^ResourceExhaustedError\b", _MEMORY, "OutOfMemoryError@"),
    MessageRule(r"Cannot allocate memory|can't allocate memory", _MEMORY, "MemoryError@"),
    MessageRule(r"No space left on device", Kind.ERROR, "no-space@disk"),
)

# torch/cuda/__init__.py, aten/src/ATen/cuda/detail/CUDAHooks.cpp, c10/cuda/CUDAFunctions.cpp
_GPU = (
    MessageRule(
        r"no kernel image is available|invalid device function|hipErrorNoBinaryForGpu", _ARCH, "no-kernel-image@gpu"
    ),
    MessageRule(r"Found no NVIDIA driver", Kind.ERROR, "no-driver@gpu"),
    MessageRule(r"NVIDIA driver on your system is too old", Kind.ERROR, "InsufficientDriver@gpu"),
    MessageRule(r"No (?:CUDA|HIP) GPUs are available|no CUDA-capable device", Kind.ERROR, "NoDevice@gpu"),
    MessageRule(r"Torch not compiled with (?P<what>\w+) enabled", Kind.ERROR, "not-built@{}"),
)

# Others' endings, as launchers and pools raise them: torch/multiprocessing/spawn.py, subprocess.py, torch elastic's
# multiprocessing/api.py, Horovod's horovod/common/exceptions.py, Ray's exceptions.py, concurrent.futures
_ENDINGS = (
    MessageRule(
        # A class of its own since torch 1.4
        r"^(?:ProcessExited)?Exception: process \d+ terminated with signal (?P<signal>SIG\w+)",
        Kind.CRASH,
        "{signal}",
        Priority.EXIT,
    ),
    MessageRule(
        r"^ProcessExitedException: process \d+ terminated with exit code (?P<what>\d+)",
        Kind.ERROR,
        "exit@{}",
        Priority.EXIT,
    ),
    MessageRule(r"^ProcessRaisedException\b", Kind.ERROR, "", Priority.RELAYED),
    MessageRule(
        r"^CalledProcessError: [\s\S]* died with <Signals\.(?P<signal>SIG\w+)", Kind.CRASH, "{signal}", Priority.EXIT
    ),
    MessageRule(r"^CalledProcessError: [\s\S]* non-zero exit status (?P<what>\d+)", Kind.ERROR, "exit@{}", _VAGUE),
    MessageRule(r"^TimeoutExpired: ", Kind.TIMEOUT, "", _SYMPTOM),
    MessageRule(
        r"^SignalException: Process \d+ got signal: (?P<signal>\d{1,3})\b",
        Kind.CRASH,
        "stopped@torchrun",
        Priority.LIMIT,
    ),
    # vllm/v1/engine: the end of the core's process, which printed its reason before
    MessageRule(r"See (?:root cause above|stack trace \(above\) for the root cause)", Kind.ERROR, "", _VAGUE),
    MessageRule(r"^HorovodInternalError\b|Horovod has been shut down", Kind.ERROR, "peer-lost@horovod", _AFTER),
    MessageRule(r"Horovod detected that one or more processes exited", Kind.ERROR, "exit@horovod", _VAGUE),
    MessageRule(
        r"^(?:WorkerCrashed|ActorDied|RayActor|NodeDied|ObjectLost|OwnerDied|ActorUnavailable)Error\b",
        Kind.ERROR,
        "",
        _SYMPTOM,
    ),
    MessageRule(r"^BrokenProcessPool\b", Kind.ERROR, "", _SYMPTOM),
    MessageRule(r"^(?:KeyboardInterrupt|SystemExit|GeneratorExit|CancelledError)\b", Kind.ERROR, "", _AFTER),
)

# The standard library's sockets: Lib/socket.py, Modules/socketmodule.c, errno's exceptions of PEP 3151
_SOCKETS = (
    MessageRule(r"^(?:BrokenPipe|ConnectionReset|ConnectionAborted)Error\b", Kind.NETWORK_FAILURE, "", _SYMPTOM),
    MessageRule(
        r"^(?:ConnectionRefusedError|ConnectionError|MaxRetryError|gaierror)\b", Kind.NETWORK_FAILURE, "", _SYMPTOM
    ),
    MessageRule(
        r"^(?:TimeoutError|timeout): [\s\S]*Connection timed out|^OSError: \[Errno 1(?:01|13)\]",
        Kind.NETWORK_FAILURE,
        "",
        _SYMPTOM,
    ),
    MessageRule(r"^(?:TimeoutError|timeout)\b", Kind.TIMEOUT, "", _SYMPTOM),
    # urllib's wrapper of a socket's error
    MessageRule(r"^URLError: <urlopen error \[Errno -?\d+\]", Kind.NETWORK_FAILURE, "", _SYMPTOM),
)

# numpy/testing/_private/utils.py, torch/testing/_comparison.py
_COMPARISONS = (
    MessageRule(
        r"^AssertionError:?\s*(?:Not equal to tolerance|Arrays are not (?:almost )?equal|Mismatched elements"
        r"|(?:Tensor-likes|Scalars) are not (?:close|equal))",
        Kind.WRONG_RESULT,
        "",
    ),
)

EXCEPTIONS = (*_COMPARISONS, *_LOADING, *_LOADER, *_ENDINGS, *_OUT, *MESSAGE_RULES, *_GPU, *_SOCKETS)

# MPI names of MPICH's errors: src/mpi/errhan/baseerrnames.txt, which every error stack begins with.
MPICH_CLASSES = {
    "Message truncated": "MPI_ERR_TRUNCATE",
    "Invalid buffer pointer": "MPI_ERR_BUFFER",
    "Invalid count": "MPI_ERR_COUNT",
    "Invalid datatype": "MPI_ERR_TYPE",
    "Invalid tag": "MPI_ERR_TAG",
    "Invalid communicator": "MPI_ERR_COMM",
    "Invalid rank": "MPI_ERR_RANK",
    "Invalid root": "MPI_ERR_ROOT",
    "Invalid group": "MPI_ERR_GROUP",
    "Invalid MPI_Op": "MPI_ERR_OP",
    "Invalid MPI_Request": "MPI_ERR_REQUEST",
    "Invalid topology": "MPI_ERR_TOPOLOGY",
    "Invalid dimension argument": "MPI_ERR_DIMS",
    "Invalid argument": "MPI_ERR_ARG",
    "Invalid MPI_Win": "MPI_ERR_WIN",
    "Invalid file handle": "MPI_ERR_FILE",
    "File does not exist": "MPI_ERR_NO_SUCH_FILE",
    "Out of memory (unable to allocate memory)": "MPI_ERR_NO_MEM",
    "Other MPI error": "MPI_ERR_OTHER",
    "Unknown error class": "MPI_ERR_UNKNOWN",
    "Internal MPI error!": "MPI_ERR_INTERN",
    "See the MPI_ERROR field in MPI_Status for the error code": "MPI_ERR_IN_STATUS",
    "Process failed": "MPIX_ERR_PROC_FAILED",
}
