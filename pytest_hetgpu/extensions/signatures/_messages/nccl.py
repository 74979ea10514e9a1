"""Meanings of warnings of NCCL and RCCL: the `WARN(...)` calls in src/ of NCCL 2.4 to 2.30 and RCCL."""

from __future__ import annotations

import re
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures._messages.gpu import gpu_error
from pytest_hetgpu.extensions.signatures.base import Priority, slug
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NET, _MEMORY, _MISSING = Kind.NETWORK_FAILURE, Kind.OUT_OF_MEMORY, Kind.TRANSPORT_UNAVAILABLE
PEER_LOST = "peer-lost@nccl"
_CAUSE, _RELAYED, _AFTER = Priority.CAUSE, Priority.RELAYED, Priority.CONSEQUENCE

# enum ibv_wc_status in libibverbs/verbs.h, which ibv_wc_status_str names.
_COMPLETIONS = (
    ("SUCCESS", "success"),
    ("LOC_LEN_ERR", "local length error"),
    ("LOC_QP_OP_ERR", "local QP operation error"),
    ("LOC_EEC_OP_ERR", "local EE context operation error"),
    ("LOC_PROT_ERR", "local protection error"),
    ("WR_FLUSH_ERR", "work request flushed"),
    ("MW_BIND_ERR", "memory window bind error"),
    ("BAD_RESP_ERR", "bad response error"),
    ("LOC_ACCESS_ERR", "local access error"),
    ("REM_INV_REQ_ERR", "remote invalid request"),
    ("REM_ACCESS_ERR", "remote access error"),
    ("REM_OP_ERR", "remote operation error"),
    ("RETRY_EXC_ERR", "transport retry counter exceeded"),
    ("RNR_RETRY_EXC_ERR", "RNR retry counter exceeded"),
    ("LOC_RDD_VIOL_ERR", "local RDD violation"),
    ("REM_INV_RD_REQ_ERR", "remote invalid RD request"),
    ("REM_ABORT_ERR", "remote aborted"),
    ("INV_EECN_ERR", "invalid EE context number"),
    ("INV_EEC_STATE_ERR", "invalid EE context state"),
    ("FATAL_ERR", "fatal error"),
    ("RESP_TIMEOUT_ERR", "response timeout"),
    ("GENERAL_ERR", "general error"),
)
_FLUSHED = "WR_FLUSH_ERR"

# transport/net_ib.cc, of late net_ib/p2p.cc: first `with error N`, then `with status=N`, then `with status=NAME(N)`.
_COMPLETION = lazy(
    r"Got (?:completion|CQE)\b.{0,200}? with (?:error |status=(?:IBV_WC_\w+\()?)(?P<status>\d+)"
    r"(?:.{0,120}?vendor[ _]err[ =](?P<vendor>\d+))?"
)

# Warnings that runs survive: corrected settings, missing features, cleanup, links that come back.
_HARMLESS = lazy(
    "|".join(
        (
            r"\bignor(?!e this)",
            r"[Ll]imiting (?:it |value )?to|setting it to|\bcap it to|\bset (?:both|it) to|\b[Uu]nsetting",
            r"defaulting to|[Dd]isabl(?:ing|ed)\b|falling back|using point-to-point|[Ss]kipping|not dumping",
            r"as fallback|iommu=pt|NUMA auto balancing|HSA_FORCE_FINE_GRAIN|^MSCCL|^NPK|Could not force merge NICs",
            r"^(?:unlink|munmap|shm_unlink|close)\b.*failed|munmap of shared memory failed|shm (?:unlink|close) failed",
            r"nvmlShutdown|^Failed to (?:find|load|open) (?:CUDA|ROC|ROCm|ROCr|libnvidia-ml|libibverbs|libcuda|nvml)",
            r"^Retrieve \S+ (?:version \d+ )?failed|cleanup|GID table changed|GDRCOPY|^Failed to close",
            r"Got (?:non-fatal )?async e\w+(?: error event)? ?: (?:port active|client rereg|LID|SM|P_Key)",
            r"Could not find a path for pattern|Max rings reached|inconsistent start/end|did not find start/end",
            r"could not find CPU close|lib wrapper not initialized|libmlx5|No NVML device|User asked for a m",
        )
    )
)

# Texts and meanings; the first match counts.
_MEANINGS: tuple[tuple[tuple[str, ...], Kind, str, Priority], ...] = (
    # misc/shmutils.cc, include/shm.h
    (
        (
            r"posix_fallocate failed|No space left on device",
            r"(?:failed to extend|Could not map|create shared memory file) /dev/shm/",
        ),
        _MEMORY,
        "no-space@dev-shm",
        _CAUSE,
    ),
    ((r"Error while creating shared memory segment",), _MEMORY, "no-space@dev-shm", _RELAYED),
    ((r"attaching to shared memory segment",), Kind.ERROR, "shm-attach@nccl", _RELAYED),
    # include/alloc.h, include/checks.h, misc/ibvwrap.cc
    (
        (
            r"Cannot allocate memory",
            r"[Ff]ailed to (?:CUDA )?(?:host )?(?:m|c)?alloc",
            r"malloc.*(?:returned null|bytes failed)",
        ),
        _MEMORY,
        "out-of-memory@nccl",
        _CAUSE,
    ),
    ((r"Too many open files",), Kind.ERROR, "too-many-files@nccl", _CAUSE),
    # init.cc, transport.cc, net.cc, transport/net_ib.cc
    ((r"Duplicate GPU detected|Multiple Ranks are using the same GPU",), Kind.ERROR, "duplicate-gpu@nccl", _CAUSE),
    ((r"Error ?: network .+? not found",), _MISSING, "no-network@nccl", _CAUSE),
    (
        (
            r"no socket interface found|No IP interface found|No usable listening interface|no interface found",
            r"No interface found in the same subnet|no device found (?:matching|after excluding)",
            r"Network returned 0 device",
        ),
        _MISSING,
        "no-interface@nccl",
        _CAUSE,
    ),
    ((r"No transport found|has no transport for",), _MISSING, "no-transport@nccl", _CAUSE),
    (
        (r"incompatible devices|device is incompatible with the local|different link_layer",),
        _MISSING,
        "incompatible-nics@nccl",
        _CAUSE,
    ),
    (
        (
            r"NCCL version mismatch|Mismatched NCCL version|not backwards compatible|too old version of NCCL",
            r"NCCL library is too old",
        ),
        Kind.ERROR,
        "version-mismatch@nccl",
        _CAUSE,
    ),
    ((r"Driver version found is \d+\. Minimum",), Kind.ERROR, "InsufficientDriver@gpu", _CAUSE),
    ((r"MNNVL .* (?:not working|not supported)",), Kind.ERROR, "imex@nccl", _CAUSE),
    ((r"NVLink SHARP \(NVLS\) Multicast",), Kind.ERROR, "nvls-multicast@nccl", _CAUSE),
    ((r"^Bootstrap Root :",), Kind.ERROR, "bootstrap-mismatch@nccl", _CAUSE),
    # transport/net_socket.cc, transport/net_ib.cc: a peer sent unexpected data
    ((r"[Mm]essage truncated",), Kind.ERROR, "message-truncated@nccl", _CAUSE),
    (
        (r"[Cc]ollective mismatch|Mismatched collective|incorrect receive info",),
        Kind.ERROR,
        "collective-mismatch@nccl",
        _CAUSE,
    ),
    ((r"Fatal error\. Detected \d+ failed devices|The error is fatal",), _NET, "nic-failed@nccl", _CAUSE),
    ((r"async fatal event|async .*(?:port error|[Ff]atal)|port error",), _NET, "async-event@nccl", _RELAYED),
    # misc/socket.cc (os/linux.cc since 2.29): gone, or no peer there
    (
        (r"[Cc]onnection closed by|Connection reset by peer|Broken pipe|remote process exited",),
        _NET,
        PEER_LOST,
        Priority.SYMPTOM,
    ),
    # init.cc, proxy.cc, group.cc: a communicator that is given up
    (
        (
            r"in abort state|\(rank = \d+\) in abort|failed in destroy/abort|before the previous operation returned",
            r"communicator was revoked|already been destroyed|destroys? proxy resource|ncclCommSetAsyncError",
            r"Accept failed|Error encountered progressing operation|Failed to execute operation|Proxy Call to rank",
            r"ncclAsyncJobComplete|Unexpected connections are not empty|Could not receive type from|commDestroySync",
        ),
        Kind.ERROR,
        "aborted@nccl",
        _AFTER,
    ),
    (
        (
            r"[Cc]onnect to \S+ (?:failed|returned)|PollConnect|StartConnect|: connect returned",
            r"No route to host|Network is unreachable|Connection (?:refused|timed out)",
        ),
        _NET,
        "connect@nccl",
        _RELAYED,
    ),
    (
        (
            r"Call to (?:send|recv|accept|ibv_modify_qp)|recv from \S+ failed|send to \S+ failed|socket progress error",
            r"Failed to (?:send|recv): ",
        ),
        _NET,
        "socket@nccl",
        _RELAYED,
    ),
    # misc/argcheck.cc, init.cc: arguments of the caller
    (
        (
            r"^(?P<entry>\w+) : \w+ (?:(?:\S+ )?is not a valid pointer|argument is NULL|allocated on device)",
            r"^(?P<entry2>\w+) : (?:invalid (?:root|type|reduction)|reduction operation)",
            r"Invalid (?:rank|device count) requested|improper usage",
        ),
        Kind.ERROR,
        "invalid-argument@nccl",
        _CAUSE,
    ),
)
_COMPILED = tuple((lazy("|".join(words)), kind, key, priority) for words, kind, key, priority in _MEANINGS)


class Meaning(NamedTuple):
    """Meaning of a warning: a kind, a key, a priority, and the NCCL function that it names."""

    kind: Kind
    key: str
    priority: Priority
    detail: str
    entry: str | None = None


def meaning(text: str) -> Meaning | None:
    """Return the meaning of a warning; None for those that runs survive, and for plugins with a parser of their own."""
    if text.startswith("NET/OFI") or _HARMLESS.search(text):
        return None
    if found := _COMPLETION.search(text):
        return _completion(int(found["status"]), found["vendor"])
    if re.match(r"(?:Cuda|CUDA|HIP|ROCr) failure", text) and (error := gpu_error(text)):
        return Meaning(error.kind, error.key, _CAUSE, text[:200])
    for pattern, kind, key, priority in _COMPILED:
        if found := pattern.search(text):
            named = next((name for name in found.groupdict().values() if name), None)
            entry = named and (named if named.startswith("nccl") else f"nccl{named}")
            return Meaning(kind, key, priority, text[:200], entry)
    return Meaning(Kind.ERROR, f"{slug(text) or 'warning'}@nccl", _RELAYED, text[:200])


def _completion(status: int, vendor: str | None) -> Meaning:
    name, words = _COMPLETIONS[status] if status < len(_COMPLETIONS) else (f"error-{status}", "unknown status")
    detail = f"completion error {status} ({words})" + (f", vendor error {vendor}" if vendor else "")
    return Meaning(_NET, f"{name}@nccl", Priority.RELAYED if name == _FLUSHED else _CAUSE, detail)
