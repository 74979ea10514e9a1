"""Meanings of the last lines of error stacks in MPICH.

The texts are those of src/mpi/errhan/errnames.txt and src/mpid/ch4/netmod/ucx/errnames.txt. Those of
src/mpid/ch4/netmod/ofi/errnames.txt belong to calls of libfabric: the macro `MPIDI_OFI_CALL` makes one for each. Intel
MPI puts file and line into them.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_hetgpu.extensions.signatures.base import Priority, slug
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_INTERNAL = lazy(r"(?:internal(?P<x>X)?|P(?=MPIX?_[A-Z]))_?(?P<name>\w*)")


class MpichReason(NamedTuple):
    """A text's meaning. `by_function`: the key names the function that printed it, not the MPI call."""

    kind: Kind
    key: str
    detail: str | None = None
    by_function: bool = True
    priority: Priority = Priority.RELAYED


_NET, _NONE, _MEMORY = Kind.NETWORK_FAILURE, Kind.TRANSPORT_UNAVAILABLE, Kind.OUT_OF_MEMORY

# fi_strerror's and strerror's words for why a call of libfabric failed, as they end its line.
_NO_TRANSPORT = r"No data available|No such device|Function not implemented|Operation not supported|Protocol not supp"
_NO_MEMORY = r"Cannot allocate memory|Out of memory|No space left on device|Resource exhausted"
_LOST = (
    r"Connection (?:refused|reset|timed out|aborted)|Transport endpoint|No route to host|Network is (?:un|down)"
    r"|Host is (?:un|down)|Broken pipe|Software caused connection|timed out"
)
# Calls of MPICH that open a transport.
_OPENING = r"getinfo|addrinfo|fabric|opendomain|openep|\bep\b|endpoint open|domain|avopen|opencq"
_MOVING = r"(?:poll|event|av|cq|e[pq]|t?send|t?recv|t?inject|read|write|mr|rdma|tagged|get)"


def _ofi(pattern: str, kind: Kind, key: str = "OFI-{call}-{why}") -> tuple[str, MpichReason]:
    return pattern, MpichReason(kind, key)


def _any(pattern: str, kind: Kind, key: str, priority: Priority = Priority.RELAYED) -> tuple[str, MpichReason]:
    """Return the row of a text that any function may print: the called function has more information."""
    return pattern, MpichReason(kind, key, by_function=False, priority=priority)


_TEXTS = (
    # MPIDI_OFI_CALL, and its form in Intel MPI and releases before 4.0 (`OFI fi_getinfo() failed (FILE:...)`).
    _ofi(rf"OFI .*(?P<why>{_NO_MEMORY})", _MEMORY),
    _ofi(rf"OFI .*(?:{_OPENING}).*fail.*?(?P<why>{_NO_TRANSPORT})", _NONE),
    _ofi(r"OFI (?:call getinfo|fi_getinfo\(\)|addrinfo\(\)) fail", _NONE, "OFI-{call}"),
    _ofi(r"OFI (?:call |fi_)?(?:fabric|open domain|open_domain|domain)", _NONE),
    _ofi(rf"OFI (?:call )?{_MOVING}.*fail", _NET),
    _ofi(rf"OFI .*(?P<why>{_LOST})", _NET),
    _ofi(r"No valid libfabric provider|OFI Provider name does not match", _NONE, "no-provider@OFI"),
    _ofi(r"different number of nics", _NONE, "nics-differ@OFI"),
    # The UCX netmod passes on ucs_status_string.
    _ofi(r"ucx function returned.*(?P<why>Out of memory|No resources)", _MEMORY, "UCX-{why}"),
    _ofi(
        r"ucx function returned.*(?P<why>No such device|Destination is unreach\w*|Unsupported operation)",
        _NONE,
        "UCX-{why}",
    ),
    _ofi(
        r"ucx function returned.*"
        r"(?P<why>Endpoint \w[\w ]*|Connection reset[\w ]*|Operation (?:timed|rejec)[\w ]*|Input/output error)",
        _NET,
        "UCX-{why}",
    ),
    _ofi(r"failed request in UCX netmod.*(?P<why>Out of memory)", _MEMORY, "UCX-{why}"),
    _ofi(
        r"failed request in UCX netmod.*"
        r"(?P<why>Endpoint \w[\w ]*|Connection reset[\w ]*|Operation (?:timed|rejec)[\w ]*)",
        _NET,
        "UCX-{why}",
    ),
    # Sockets (ch3:nemesis:tcp, ch3:sock) and process management.
    _any(
        r"Communication error|Unable to establish connection|Failure during connection protocol"
        r"|Connection is in error",
        _NET,
        "communication-error",
    ),
    _any(rf"(?:connect|accept|socket|read|write|send|recv|poll)\w* failed.*(?P<why>{_LOST})", _NET, "socket-{why}"),
    _any(rf"connection failure \(.*errno=\d+:(?P<why>{_LOST})", _NET, "socket-{why}"),
    _any(r"socket closed|connection closed by peer", _NET, "socket-closed", Priority.SYMPTOM),
    _any(r"gethostbyname failed|getaddrinfo failed|MPL_get_sockaddr failed", _NET, "no-address"),
    _any(r"network interface.*was not found|Invalid netmod specified", _NONE, "no-interface"),
    _any(
        r"PMI\w* init fail|PMI2? init|PMI\w*_Init.*(?:fail|return)|PMI_Get_appnum returned",
        Kind.LAUNCH_FAILURE,
        "PMI-init",
    ),
    _any(r"PMI_(?:KVS|Barrier)", _NET, "PMI-lost", Priority.SYMPTOM),
    # Memory.
    _any(r"[Oo]ut of memory|Unable to allocate (?:memory|\d+ bytes)|cannot allocate memory", _MEMORY, "out-of-memory"),
    _any(
        r"[Uu]nable to allocate shared memory|Shared memory subsystem unable|unable to resize the shared memory"
        r"|No space left",
        _MEMORY,
        "shared-memory",
    ),
    _any(r"unable to map memory, mmap failed", _MEMORY, "mmap-failed"),
    # Peers.
    _any(
        r"Process failed|Process was aborted|Request pending due to failure",
        _NET,
        "process-failed",
        Priority.CONSEQUENCE,
    ),
    _any(r"Progress TIMEOUT", Kind.TIMEOUT, "progress-timeout"),
    # Device memory.
    _ofi(r"(?P<why>gpu_\w+|MPL_gpu_\w+|MPL_ze_\w+) failed", Kind.ERROR, "{why}"),
)
_TABLE = tuple((lazy(pattern), reason) for pattern, reason in _TEXTS)
# Functions that fail while MPI starts, but for calls that move data.
_PREPARING = lazy(r"OFI .*fail|ucx function returned")
_DATA = lazy(r"(?:cq_?)?(?:poll|read|write|event|tag|t?send|t?recv|t?inject|rdma)")
_STARTING = (
    (lazy("OFI "), MpichReason(_NONE, "OFI-{call}-{why}")),
    (lazy(r"ucx function returned.* \w+ (?P<why>[A-Z][a-z][^()]*)\)"), MpichReason(_NONE, "UCX-{why}")),
)
_LOST_REASON = lazy(rf"{_LOST}|Endpoint \w|Operation rejected")
_CALL = lazy(r"OFI (?:call |OFI )?(?:fi_)?(?P<call>[A-Za-z]\w*(?: (?!fail)[a-z]\w*){0,3})")
_WHY = lazy(r"[:(](?:default nic=\S+: |[\w./-]+:\d+:\w+:)?(?P<why>[A-Z][^:()]{2,80})\)?\s*$")


def mpi_name(entry: str) -> str:
    """Return the call's public name: `MPI_Send` for `internal_Send` and `PMPI_Send`."""
    found = _INTERNAL.fullmatch(entry)
    if not found:
        return entry
    name = found["name"]
    return name if name.startswith("MPI") else f"{'MPIX' if found['x'] else 'MPI'}_{name}"


def reason_in(text: str, starting: bool = False) -> MpichReason | None:
    """Return the reason in a line of a stack, with the key filled in; None if the line only relays.

    `starting`: the stack is of a call that starts MPI.
    """
    call = found["call"] if (found := _CALL.search(text)) else ""
    unready = starting and _PREPARING.search(text) is not None and not _DATA.match(call)
    matches = ((pattern.search(text), reason) for pattern, reason in (*_TABLE, *(_STARTING if unready else ())))
    found, reason = next(((found, reason) for found, reason in matches if found), (None, None))
    if found is None or reason is None:
        return None
    why = found.groupdict().get("why")
    if why is None and (ending := _WHY.search(text)):
        why = ending["why"]
    key = reason.key.replace("{call}", slug(call)).replace("{why}", slug(why or "")).strip("-").replace("--", "-")
    return MpichReason(_kind(reason.kind, text, starting, unready), key, why, reason.by_function, reason.priority)


def _kind(kind: Kind, text: str, starting: bool, unready: bool) -> Kind:
    """Return the kind of a reason.

    A refusal at the start of MPI is a missing feature; an unreachable peer later was reachable before.
    """
    if unready and kind is _NET and not _LOST_REASON.search(text):
        return _NONE
    return _NET if not starting and kind is _NONE and "Destination is unreachable" in text else kind
