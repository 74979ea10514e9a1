"""Meanings of torch.distributed's texts, in an exception, a log line of c10d, or a what().

Sources: ProcessGroup{Gloo,NCCL,Wrapper}.cpp, TCPStore.cpp, socket.cpp and reducer.cpp in torch/csrc/distributed/c10d/,
torch/distributed/{rendezvous,distributed_c10d}.py and torch/distributed/elastic/rendezvous/ of PyTorch 1.10 to 2.13.
Messages of gloo/transport/ of Gloo begin with their source (`[FILE:LINE]` of common/error.h), its broken assumptions
with `[enforce fail at FILE:LINE]` (common/logging.cc).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import Priority, token
from pytest_hetgpu.model.verdict import Kind

_NET, _TIME, _MISSING = Kind.NETWORK_FAILURE, Kind.TIMEOUT, Kind.TRANSPORT_UNAVAILABLE
_SYMPTOM, _AFTER = Priority.SYMPTOM, Priority.CONSEQUENCE
_ERROR = Kind.ERROR

_GLOO = r"gloo/\S{1,100}:\d+\] "
_GONE = r"(?:closed by peer|reset by peer|Broken pipe)"


class MessageRule(NamedTuple):
    """Meaning of a text.

    `key` is a template over the pattern's group `what`; groups signal, rank and host give those fields. An empty key
    keeps the exception's own, with the name that the text has before an `@`, if any.
    """

    pattern: str
    kind: Kind
    key: str
    priority: Priority = Priority.CAUSE
    signal: str | None = None
    entry: str | None = None


GLOO = (
    # ProcessGroupGloo.cpp: a barrier that names the absent ranks; an error while it waited may be a peer's death.
    MessageRule(rf"to pass monitoredBarrier in [^\n]*\n[\s\S]{{0,300}}{_GONE}", _NET, "peer-lost@gloo", _AFTER),
    MessageRule(
        r"\bRanks? (?P<rank>\d+)[\d, ]* failed to pass monitoredBarrier",
        _TIME,
        "timeout@monitored_barrier",
        _SYMPTOM,
        entry="monitored_barrier",
    ),
    MessageRule(
        r"timed out in monitoredBarrier after", _TIME, "timeout@monitored_barrier", _SYMPTOM, entry="monitored_barrier"
    ),
    MessageRule(r"reached monitoredBarrier, but received errors", _NET, "peer-lost@gloo", _AFTER),
    # transport/tcp/pair.cc and tls/pair.cc: the other side is gone
    MessageRule(rf"Gloo connectFullMesh failed with [^\n]*{_GONE}", _NET, "peer-lost@gloo", _AFTER),
    MessageRule(r"Gloo connectFullMesh failed with", _NET, "connect@gloo", _SYMPTOM),
    MessageRule(rf"{_GLOO}[^\n]*(?:{_GONE}|Socket (?:unexpectedly )?closed)", _NET, "peer-lost@gloo", _AFTER),
    MessageRule(rf"{_GLOO}(?:timed out connecting|Connect timeout|Error connecting)", _NET, "connect@gloo", _SYMPTOM),
    MessageRule(rf"{_GLOO}[^\n]*Connection refused", _NET, "connect@gloo", _SYMPTOM),
    # transport/tcp/{unbound_buffer,buffer,pair}.cc, rendezvous/*_store.cc
    MessageRule(
        rf"{_GLOO}(?:Timed out waiting|Read timeout|Write timeout|Send timeout)", _TIME, "timeout@gloo", _SYMPTOM
    ),
    MessageRule(rf"{_GLOO}Wait timeout for key", _TIME, "timeout@gloo", _SYMPTOM),
    MessageRule(r"Application timeout caused pair closure", _TIME, "timeout@gloo", _AFTER),
    MessageRule(rf"{_GLOO}(?:Read error|writev?\b|SSL_\w+)", _NET, "io@gloo", _SYMPTOM),
    MessageRule(
        r"op\.preamble\.length [<=]= |op\.nbytes|Received data size doesn't match expected",
        _ERROR,
        "size-mismatch@gloo",
    ),
    # transport/tcp/device.cc, transport/ibverbs/device.cc
    MessageRule(r"\] [^\n]*Unable to find (?:address|interface|device)\b", _MISSING, "no-interface@gloo"),
    MessageRule(r"\] No ibverbs devices present", _MISSING, "no-interface@gloo"),
    MessageRule(r"\[enforce fail at \S*gloo/\S*?(?P<what>\w+\.(?:cc|h)):\d+\]", _ERROR, "enforce@{}"),
)

NCCL = (
    # ProcessGroupNCCL.cpp, WorkNCCL::checkTimeout. An abort follows, in the text of the thread that notices it.
    MessageRule(
        r"[Ww]atchdog caught collective operation timeout:? ?(?:WorkNCCL\([^)]*?OpType=(?P<what>\w+))?",
        _TIME,
        "timeout@ProcessGroupNCCL!{}",
        Priority.RELAYED,
    ),
    MessageRule(
        r"WorkNCCL\([^)]*?OpType=(?P<what>\w+)[^\n]{0,200}timed out in blocking wait",
        _TIME,
        "timeout@ProcessGroupNCCL!{}",
        Priority.RELAYED,
    ),
    MessageRule(r"NCCL timeout in communicator initialization", _TIME, "timeout@ProcessGroupNCCL", Priority.RELAYED),
    MessageRule(
        r"watchdog got stuck for|Heartbeat monitor timed out",
        _TIME,
        "watchdog-stuck@ProcessGroupNCCL",
        Priority.RELAYED,
    ),
    MessageRule(
        r"NCCL communicator was aborted|NCCL comm(?:unicator)? .{0,60}\baborted", _ERROR, "aborted@nccl", _AFTER
    ),
    MessageRule(r"ncclRemoteError|remote process exited or there was a network error", _NET, "peer-lost@nccl", _AFTER),
    MessageRule(r"ProcessGroupNCCL is only supported with GPUs", _ERROR, "no-gpu@ProcessGroupNCCL"),
    MessageRule(r"Tensors must be (?:CUDA|on distinct GPU)", _ERROR, "wrong-tensor@ProcessGroupNCCL"),
    MessageRule(
        r"(?:NCCL error in|DistBackendError)[\s\S]{0,400}?(?P<what>nccl(?:System|Internal|UnhandledCuda)Error)\b",
        _ERROR,
        "{}@nccl",
        Priority.RELAYED,
    ),
    MessageRule(r"NCCL error in[^\n]{0,200}unhandled system error", _ERROR, "ncclSystemError@nccl", Priority.RELAYED),
    MessageRule(
        r"NCCL error in[^\n]{0,200}unhandled cuda error", _ERROR, "ncclUnhandledCudaError@nccl", Priority.RELAYED
    ),
    MessageRule(r"NCCL error in[^\n]{0,200}internal error", _ERROR, "ncclInternalError@nccl", Priority.RELAYED),
    MessageRule(
        r"NCCL error in[\s\S]{0,400}?(?P<what>ncclInvalid(?:Usage|Argument))\b", _ERROR, "{}@nccl", Priority.RELAYED
    ),
    MessageRule(r"NCCL error in[^\n]{0,200}invalid usage", _ERROR, "ncclInvalidUsage@nccl", Priority.RELAYED),
    MessageRule(r"NCCL error in[^\n]{0,200}invalid argument", _ERROR, "ncclInvalidArgument@nccl", Priority.RELAYED),
)

C10D = (
    MessageRule(r"Detected mismatch between collectives on ranks", _ERROR, "collective-mismatch@c10d"),
    # TCPStore.cpp, TCPStoreLibUvBackend.cpp, socket.cpp
    MessageRule(r"Timed out after \d+ seconds waiting for workers", _TIME, "timeout@c10d-store", _SYMPTOM),
    MessageRule(r"Timed out after \d+ seconds waiting for clients", _TIME, "timeout@c10d-store", _SYMPTOM),
    MessageRule(
        r"\b(?:wait|barrier) timeout after \d+ms, key|\bSocket Timeout\b", _TIME, "timeout@c10d-store", _SYMPTOM
    ),
    MessageRule(
        r"Connection was likely closed|(?:recv|send)Value\w* failed|Stop_waiting response is expected"
        r"|^(?:DistNetworkError|RuntimeError): (?:Connection reset by peer|Broken pipe)",
        _NET,
        "peer-lost@c10d-store",
        _AFTER,
    ),
    MessageRule(
        r"server socket has failed to [\s\S]{0,300}(?i:address already in use)", _ERROR, "address-in-use@c10d-store"
    ),
    MessageRule(r"^RuntimeError: Address already in use", _ERROR, "address-in-use@c10d-store"),
    MessageRule(r"The server socket has failed to", _ERROR, "listen@c10d-store"),
    MessageRule(
        r"The client socket (?:has timed out|has failed|cannot be)(?:[^\n]{0,100}\((?P<host>[\w.:%-]{1,253}), \d+\))?",
        _NET,
        "connect@c10d-store",
        _SYMPTOM,
    ),
    MessageRule(r"network addresses of \([^)]*\) cannot be retrieved", _NET, "resolve@c10d-store", _SYMPTOM),
    MessageRule(r"^RuntimeError: (?:Connection refused|No route to host)", _NET, "connect@c10d-store", _SYMPTOM),
    # elastic/rendezvous/api.py
    MessageRule(r"^RendezvousConnectionError\b", _NET, "connect@c10d-store", _SYMPTOM),
    MessageRule(r"^RendezvousTimeoutError\b", _TIME, "timeout@rendezvous", _SYMPTOM),
    MessageRule(r"^Rendezvous(?:Closed|GracefulExit)Error\b", _ERROR, "closed@rendezvous", _AFTER),
    # rendezvous.py, distributed_c10d.py, ProcessGroup.hpp
    MessageRule(r"environment variable (?P<what>\w+) expected, but not set", _ERROR, "no-env@{}"),
    MessageRule(r"Distributed package doesn't have (?P<what>\w+) built in", _ERROR, "not-built@{}"),
    # ProcessGroupMPI.cpp, which asks Open MPI for CUDA, also in a build for ROCm
    MessageRule(r"the MPI used doesn't have CUDA-aware MPI support", _ERROR, "not-gpu-aware@MPI"),
    MessageRule(r"No backend type associated with device type (?P<what>\w+)", _ERROR, "no-backend@{}"),
    MessageRule(r"Default process group has not been initialized", _ERROR, "no-process-group@c10d"),
    MessageRule(r"trying to initialize the default process group twice", _ERROR, "two-process-groups@c10d"),
    MessageRule(r"^\w+: (?:Invalid|Unknown) (?:c10d )?backend", _ERROR, "unknown-backend@c10d"),
    # reducer.cpp, and utils.hpp's verify_params_across_processes
    MessageRule(
        r"finished reduction in the prior iteration[^\n]*training graph has changed", _ERROR, "graph-changed@ddp"
    ),
    MessageRule(r"Expected to have finished reduction in the prior iteration", _ERROR, "unused-parameters@ddp"),
    MessageRule(r"Expected to mark a variable ready only once", _ERROR, "marked-twice@ddp"),
    MessageRule(r"same model across all ranks|appears not to match (?:sizes|strides) of", _ERROR, "model-mismatch@ddp"),
)

MESSAGE_RULES = (*GLOO, *NCCL, *C10D)


def first_rule(text: str, senses: tuple[MessageRule, ...] = MESSAGE_RULES) -> tuple[MessageRule, re.Match[str]] | None:
    """Return the first rule whose pattern is found in a text, with the regex match."""
    for sense in senses:
        if found := re.search(sense.pattern, text):
            return sense, found
    return None


def filled_key(sense: MessageRule, found: re.Match[str]) -> str:
    """Return the key of a rule, with the name that its pattern matched."""
    return sense.key.format(token(found.groupdict().get("what") or "")).rstrip("@!")
