"""Open MPI's error texts: its help messages, fatal MPI errors, and what its TCP layer met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect
from pytest_hetgpu.signatures.base import Reading, Weight

_UNAVAILABLE = Kind.TRANSPORT_UNAVAILABLE
_FATAL = "*** An error occurred in"
_TCP = "mca_btl_tcp_"
_INIT = "MPI_INIT failed for some reason"
_PEER_GONE = ("Connection reset by peer", "Broken pipe")
# Errors that say only that something below has failed.
_UNSPECIFIC = ("Unknown error", "MPI_ERR_OTHER", "MPI_ERR_INTERN", "MPI_ERR_UNKNOWN")
_PEER_LOST = "a peer process ended; this log does not say why"


class OpenMpiErrors(RuleDialect):
    """Help texts are recognised by their first lines (help-*.txt in the sources of Open MPI and PRRTE)."""

    rules = (
        Rule(
            _FATAL,
            key="{error}@{entry}",
            pattern=r"occurred in (?P<entry>\S.*?)\s*$",
            then=r"\*\*\* (?P<error>MPI_ERR_\w+|Unknown error)(?:: (?P<detail>.*))?",
            quote_then=True,
        ),
        Rule(
            _TCP,
            key="{detail}@{layer}",
            pattern=r"(?P<layer>mca_btl_tcp_\w+)\].* failed: (?P<detail>[^()]+?) ?\(\d+\)",
        ),
        Rule(
            _TCP,
            key="{detail}@{layer}",
            pattern=r"(?P<layer>mca_btl_tcp_\w+): \w+ error",
            then=r"^\t(?P<detail>[^()]+)\(\d+\)",
            within=4,
        ),
        Rule(
            "No components were able to be opened in the",
            _UNAVAILABLE,
            "no-component@{framework}",
            Weight.RELAYED,
            r"opened in the (?P<framework>\w+)",
        ),
        Rule("cannot be selected", _UNAVAILABLE, "no-component@pml", Weight.RELAYED, r"\bPML \w+ cannot be selected"),
        Rule(
            "A requested component was not found",
            _UNAVAILABLE,
            "no-component@{component}",
            then=r"^Component: (?P<component>\S+)",
            quote_then=True,
        ),
        Rule(
            "At least one pair of MPI processes are unable to reach",
            _UNAVAILABLE,
            "unreachable@openmpi",
            detail="no BTL reaches the peer",
        ),
        Rule(
            "ucp_ep_create(proc=",
            Kind.OUT_OF_MEMORY,
            "out-of-memory@ucp_ep_create",
            pattern=r"ucp_ep_create\(proc=\d+\) failed: (?P<detail>Out of memory)",
        ),
        Rule(
            "ucp_ep_create(proc=",
            _UNAVAILABLE,
            "unreachable@ucp_ep_create",
            Weight.RELAYED,
            r"ucp_ep_create\(proc=\d+\) failed: (?P<detail>.*)",
        ),
        Rule(
            _INIT,
            Kind.LAUNCH_FAILURE,
            "failed@MPI_Init!{step}",
            Weight.RELAYED,
            then=r"^\s+(?P<detail>(?:\S+: )?(?P<step>\S.*?)(?:\(\))? failed)\s*$",
        ),
        Rule(
            "has detected an attempt to run as root",
            Kind.LAUNCH_FAILURE,
            "run-as-root@mpirun",
            detail="refuses to run as root: set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        ),
        Rule("There are not enough slots available", Kind.LAUNCH_FAILURE, "no-slots@mpirun", detail="not enough slots"),
        Rule(
            "unable to launch the specified application",
            Kind.LAUNCH_FAILURE,
            "no-launch@{program}",
            then=r"^\s*(?:Executable|Working directory): (?P<detail>(?P<program>\S+))",
            quote_then=True,
        ),
        Rule(
            'via the "execve" system call but',
            Kind.LAUNCH_FAILURE,
            "exec@{detail}",
            then=r"^\s+Error:\s+(?P<detail>\S.*?)\s*$",
            quote_then=True,
        ),
        Rule("we found no available cpus on", Kind.LAUNCH_FAILURE, "no-cpus@mpirun"),
        Rule("detected a bad parameter in the hostfile", Kind.LAUNCH_FAILURE, "bad-hostfile@mpirun"),
        Rule(
            "A daemon failed to report back after being spawned",
            Kind.LAUNCH_FAILURE,
            "no-daemon@mpirun",
            Weight.RELAYED,
        ),
        Rule("unable to reliably start one or more daemons", Kind.LAUNCH_FAILURE, "no-daemon@mpirun", Weight.RELAYED),
        Rule("time limit for job execution has been reached", Kind.TIMEOUT, "time-limit@mpirun", Weight.ENDING),
        Rule(
            "It appears as if there is not enough space for",
            Kind.OUT_OF_MEMORY,
            "no-space@dev-shm",
            pattern="not enough space for /dev/shm/",
        ),
        Rule(
            "Cannot allocate memory (errno",
            Kind.OUT_OF_MEMORY,
            "{detail}@openmpi",
            Weight.RELAYED,
            r"^\s+Error:\s+(?P<detail>Cannot allocate memory)",
        ),
        Rule(
            "failed to TCP connect to a peer MPI process",
            Kind.NETWORK_FAILURE,
            "connect@openmpi",
            Weight.SYMPTOM,
            then=r"Message:\s+(?P<detail>\S.*)",
        ),
        Rule(
            "MPI communication peer process has unexpectedly disconnected",
            key="peer-lost@openmpi",
            weight=Weight.CONSEQUENCE,
            detail=_PEER_LOST,
        ),
        Rule(" FATAL", key="fatal@{source}", weight=Weight.SYMPTOM, pattern=r"/(?P<source>\w+\.c):\d+ FATAL"),
    )

    def reading(self, rule: Rule, groups: Mapping[str, str], line: str, number: int) -> Reading:
        reading = super().reading(rule, groups, line, number)
        if rule.trigger == _FATAL:
            return _fatal(reading, groups)
        if rule.trigger == _TCP:
            return _tcp(reading, groups.get("detail", ""))
        if rule.trigger == _INIT and "add procs" in groups.get("detail", ""):
            return replace(reading, signature=replace(reading.signature, kind=_UNAVAILABLE, key="add-procs@pml"))
        return reading


def _fatal(reading: Reading, groups: Mapping[str, str]) -> Reading:
    """An MPI error that ended the job, under the name that mpi4py's exception of the same error has."""
    error, function = groups.get("error", _UNSPECIFIC[0]), groups["entry"].removeprefix("P").removesuffix("_thread")
    if not function.startswith("MPI_"):
        gone = replace(reading.signature, key="peer-lost@openmpi", entry_point=None, detail=_PEER_LOST)
        return replace(reading, signature=gone, weight=Weight.CONSEQUENCE)
    kind = Kind.LAUNCH_FAILURE if function == "MPI_Init" and error in _UNSPECIFIC else Kind.ERROR
    key = f"{error}@{function}" if error.startswith("MPI_") else f"failed@{function}"
    detail = f"{error}: {groups['detail']}" if "detail" in groups else error
    weight = Weight.UNSPECIFIC if error in _UNSPECIFIC else Weight.CAUSE
    return replace(reading, signature=replace(reading.signature, kind=kind, key=key, detail=detail), weight=weight)


def _tcp(reading: Reading, reason: str) -> Reading:
    """EFAULT is the sender's own buffer; a reset is the peer's death; anything else is the network's doing."""
    if reason == "Bad address":
        return reading
    if reason in _PEER_GONE:
        return replace(reading, weight=Weight.CONSEQUENCE)
    return replace(reading, signature=replace(reading.signature, kind=Kind.NETWORK_FAILURE), weight=Weight.SYMPTOM)
