"""`UCX ERROR` and `UCX FATAL` lines of living processes, most of which a run may survive.

The lines' form is src/ucs/debug/log.c's. The texts are those of src/uct, src/ucp and src/ucs from UCX 1.6 to 1.22;
their source files stand beside the rows. Names of status (`Destination is unreachable`) are src/ucs/type/status.c's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_hetgpu.extensions.signatures._messages.routes import NO_ROUTE
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, process_of, slug, token
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_MOST_HOSTS = 64
_LONGEST = 4096
_LONGEST_DETAIL = 200
_NO_HEX = str.maketrans("", "", "0123456789abcdef")

_LOGGED = lazy(r"\bUCX\s+(?:ERROR|FATAL)\s+(\S.*)$")


class _Rule(NamedTuple):
    """Meaning of a message; without a kind it is harmless, without a key its text is the key."""

    words: str
    kind: Kind | None = None
    key: str = ""
    priority: Priority = Priority.CAUSE


_NET, _GONE = Kind.NETWORK_FAILURE, Kind.TRANSPORT_UNAVAILABLE
_MEMORY = Kind.OUT_OF_MEMORY

_ROWS = tuple(
    (lazy(row.words), row)
    for row in (
        # Cleaning up: uct/sm/mm/posix, xpmem, base/mm_ep.c; uct/cuda/cuda_ipc; and hints that follow another line.
        _Rule(r"^\s*(?:shm_)?unlink\(|munmap\(|[Uu]nable to unmap|xpmem_detach|ailed to release xpmem|detaching from"),
        _Rule(r"ibv_dereg_mr\(|failed to close memhandle|failed to remove address|failed to unmap|cudaEventDestroy"),
        _Rule(r"try to increase \"?net\.core|QP 0x[0-9a-f]+ wqe\["),
        # Memory: uct/sm/mm/posix/mm_posix.c, ucs/sys/sys.c, uct/ib/base/ib_log.h and everything that registers.
        _Rule(r"(?:^|[^\w/])/dev/shm\b|backing file.*No space left", _MEMORY, "no-space@dev-shm"),
        _Rule(r"shmget\(.*|shared memory limits by 'ipcs", _MEMORY, "no-space@sysv-shm"),
        _Rule(
            r"(?P<where>ibv_\w+|mlx5dv_\w+|create \w+ QP)\b.*(?:Cannot allocate memory|max locked memory)",
            _MEMORY,
            "Cannot-allocate-memory@{where}",
        ),
        _Rule(r"max locked memory|ulimit -l", _MEMORY, "Cannot-allocate-memory@memlock"),
        _Rule(r"(?i)not enough memory|out[ _]of[ _]memory|Cannot allocate memory", _MEMORY, "out-of-memory@ucx"),
        # Work completions: uct/ib/mlx5/ib_mlx5_log.c, uct/ib/base/ib_iface.h. A peer that died looks like a bad link.
        _Rule(r"(?P<what>(?:Transport|Receive-no-ready) retry count exceeded)", _NET, "{what}@ib", Priority.SYMPTOM),
        _Rule(r"WR flushed", _NET, "WR-flushed@ib", Priority.CONSEQUENCE),
        _Rule(r"(?P<what>\w[\w -]{0,60}?) on \S+/\w+ \(synd 0x|completion.* with error on \S+: (?P<status>[^,]{0,60})",
             Kind.ERROR, "{what}{status}@ib"),
        # No way to the peer or the device: ucp/wireup/select.c, ucp/core/ucp_context.c, ucp_rkey.h, uct/base/uct_md.c.
        _Rule(r"no (?:\S+ ){1,4}transport to|No transports selected|no supported sockaddr", _GONE, "no-transport@ucx"),
        _Rule(r"no remote registered memory access|remote memory is unreachable", _GONE, "no-transport@ucx"),
        _Rule(r"[Nn]o usable transports/devices|(?:TLs|device) lists? (?:is|are) empty", _GONE, "no-device@ucx"),
        _Rule(r"(?:MD|Transport|component) .*does not exist|[Nn]o memory domain resources", _GONE, "no-device@ucx"),
        _Rule(r"enable GPUDirect RDMA|(?:dmabuf|NVLINK) support (?:is )?requested but not", _GONE, "no-gpudirect@ucx"),
        _Rule(r"/dev/knem|No zero-copy protocol found|[Nn]o device was found|failed to open gdr copy", _GONE),
        _Rule(r"[Ii]nvalid gid\[|find a gid which", _GONE, "invalid-gid@ib"),
        _Rule(r"no valid pkey|find specified pkey|requested pkey", _GONE, "no-pkey@ib"),
        _Rule(r"none of the available|not support multi-threaded worker|No such device\b", _GONE),
        # Settings: ucs/config/parser.c, ucp/core/ucp_context.c.
        _Rule(r"Invalid value for (?P<where>\w+):", Kind.ERROR, "invalid-value@{where}"),
        _Rule(r"ulimit -n|maximal number of files|Too many open files", Kind.ERROR, "open-files@ucx"),
        # ucs/sys/sock.c has other names for lost peers: this one is a fault on this side, such as EFAULT.
        _Rule(r"^\s*tcp_ep .*: \w+\(\d+\) failed: Input/output error", Kind.ERROR),
        _Rule(rf"failed: (?:{NO_ROUTE})", _NET, "", Priority.RELAYED),
        # Peers: uct/tcp, ucs/sys/sock.c, ucp/core/ucp_worker.c and ucp_ep.c (`will not be handled`), uct/sm/cma.
        _Rule(r"\berror '(?P<what>[^']{3,60})' .*will not be handled", _NET, "{what}@ucx", Priority.SYMPTOM),
        _Rule(r"No such process", Kind.ERROR, "", Priority.CONSEQUENCE),
        _Rule(
            r"[Cc]onnection re(?:set|fused|jected|tries)|[Tt]imed? ?out|[Uu]nreachable|No route to host"
            r"|Broken pipe|rejected by remote|Host is down|not connected|[Kk]eepalive"
            r"|RDMA_CM_EVENT_(?:UNREACHABLE|\w+_ERROR|REJECTED)",
            _NET,
            "",
            Priority.SYMPTOM,
        ),
        # Error of a GPU's driver (uct/cuda/base/cuda_iface.h): often of a kernel long before.
        _Rule(r"(?P<where>cu[A-Z]\w*)\(.*(?:failed: |ret: ?)(?P<what>[^()]{3,80})$", Kind.ERROR, "{what}@{where}",
             Priority.SYMPTOM),
        _Rule(r"no cuda context bound|without active context", Kind.ERROR, "no-cuda-context@ucx", Priority.SYMPTOM),
        _Rule(r"", Kind.ERROR, "", Priority.SYMPTOM),
    )
)  # fmt: skip


class UcxErrors(LogParser):
    """Parser of UCX errors: one match per kind of message, with the hosts and ranks that logged it."""

    triggers = (b"UCX  ERROR", b"UCX  FATAL")

    def __init__(self) -> None:
        self._matches: dict[str, FailureMatch] = {}
        self._shapes: dict[str, str] = {}

    def feed(self, line: LogLine) -> None:
        logged = _LOGGED.search(line.text[:_LONGEST])
        if not logged:
            return
        shape = logged[1].translate(_NO_HEX)
        key = self._shapes.get(shape)
        if key is None and len(self._shapes) < _MOST:
            key = self._shapes[shape] = self._new(logged[1], line)
        if key:
            self._seen(self._matches[key], line)

    def _new(self, text: str, line: LogLine) -> str:
        """Return the key of a message of a new shape, "" if it is harmless."""
        found, row = next((match, row) for words, row in _ROWS if (match := words.search(text)))
        if row.kind is None:
            return ""
        said = {name: slug(part) or token(part) for name, part in found.groupdict().items() if part}
        key = re.sub(r"\{(\w+)\}", lambda name: said.get(name[1], ""), row.key) or f"{slug(text)}@ucx"
        signature = Signature(row.kind, key, line.quote, line.number, detail=text.strip()[:_LONGEST_DETAIL])
        self._matches.setdefault(key, FailureMatch(signature, row.priority, process_of(line.text), fatal=False))
        return key

    def _seen(self, match: FailureMatch, line: LogLine) -> None:
        signature, process = match.signature, process_of(line.text)
        host = process[0] if process else line.host
        if host and host not in signature.hosts and len(signature.hosts) < _MOST_HOSTS:
            signature = replace(signature, hosts=(*signature.hosts, host))
        if line.rank is not None and line.rank not in signature.ranks and len(signature.ranks) < _MOST_HOSTS:
            signature = replace(signature, ranks=(*signature.ranks, line.rank))
        if signature is not match.signature:
            self._matches[signature.key] = replace(match, signature=signature)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._matches.values())
