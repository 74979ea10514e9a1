"""Errors of the Open MPI library in a rank: errors that end the job, missing components, failures of transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.openmpi import FABRIC, LACKING, TCP_WARNINGS, WRONG_USE
from pytest_hetgpu.extensions.signatures._messages.routes import no_route
from pytest_hetgpu.extensions.signatures._messages.ucx_statuses import status
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.openmpi_blocks import PEER_LOST, TRIGGERS, ErrorBlocks
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_UNAVAILABLE = Kind.TRANSPORT_UNAVAILABLE
_NETWORK = Kind.NETWORK_FAILURE
_TCP = "mca_btl_tcp_"
# It goes out in pieces, so that another rank's line may stand between two of them.
_TCP_FAILED = (
    r"(?:btl_tcp\w*\.c:\d+:|^(?:peer: \S+ )?)(?P<layer>mca_btl_tcp_\w+)[\]:].* failed: (?P<detail>[^()]+?) ?\(\d+\)"
)
_TCP_REST = "v failed: "
_TCP_CUT_OFF = r"^(?P<layer>(?:read|write)v) failed: (?P<detail>[^()]+?) ?\(\d+\)$"
_INIT = "_INIT failed for some reason"
_PML = "cannot be selected"
_NO_COMPONENT = "No components were able to be opened in the"
_PEER_GONE = ("Connection reset by peer", "Broken pipe")
_UCX = "  Error: "
_SYSTEM_CALL = "A system call failed during"
_LOST_HELP = "lost-help@orte"
_CUDA = "The call to cu"
_COMPONENT, _OF_PMIX = "A requested component was not found", "PMIX stopped checking at the first component"

_FIRST: tuple[MatchRule, ...] = (
    # opal/mca/btl/tcp/btl_tcp_frag.c, btl_tcp_endpoint.c, btl_tcp.c by BTL_ERROR of btl_base_error.h
    MatchRule("btl_tcp", key="{detail}@{layer}", pattern=_TCP_FAILED),
    MatchRule(_TCP_REST, key="{detail}@{layer}", pattern=_TCP_CUT_OFF),
    MatchRule(
        _TCP,
        key="{detail}@{layer}",
        pattern=r"(?P<layer>mca_btl_tcp_\w+): \w+ error",
        then=r"^\s+(?P<detail>[^()]+)\(\d+\)",
        within=4,
    ),
    MatchRule(
        "Unable to connect to the peer",
        _NETWORK,
        "connect@openmpi",
        Priority.SYMPTOM,
        r"(?:to: (?P<host>[\w.-]+) )?Unable to connect to the peer (?P<detail>\S+ on port \d+: .*)",
    ),
    MatchRule(
        "received unexpected process identifier",
        _NETWORK,
        "wrong-peer@openmpi",
        Priority.SYMPTOM,
        r"btl_tcp_endpoint\.c.*(?P<detail>received unexpected process identifier)",
    ),
    # opal/mca/base/help-mca-base.txt
    MatchRule(
        _NO_COMPONENT, _UNAVAILABLE, "no-component@{framework}", Priority.RELAYED, r"opened in the (?P<framework>\w+)"
    ),
    MatchRule(
        _COMPONENT,
        _UNAVAILABLE,
        "no-component@{component}",
        then=r"^\s*Component: (?P<component>\S+)",
        quote_then=True,
    ),
    # ompi/mca/pml/base/pml_base_select.c, ompi/mca/part/base/part_base_select.c
    MatchRule(
        _PML, _UNAVAILABLE, "no-component@{name}", Priority.RELAYED, r"\b(?P<name>PML|PART|SPML) \w+ cannot be selected"
    ),
    MatchRule(
        " selected pml ",
        _UNAVAILABLE,
        "mismatch@pml",
        pattern=r"\],(?P<rank>\d+)\] (?P<detail>selected pml \w+, but peer .* on (?P<host>\S+) selected pml \w+)",
    ),
    # ompi/mca/bml/r2/help-mca-bml-r2.txt
    MatchRule(
        "At least one pair of MPI processes are unable to reach",
        _UNAVAILABLE,
        "unreachable@openmpi",
        Priority.RELAYED,
        detail="no BTL reaches the peer",
    ),
    # ompi/mca/pml/ucx/pml_ucx.c and its kin, by PML_UCX_ERROR. osc_ucx_component.c of 5.0 prints it for every window
    # without UCX.
    MatchRule(_UCX, pattern="OSC UCX component priority set inside component query failed"),
    MatchRule(
        _UCX,
        Kind.OUT_OF_MEMORY,
        "out-of-memory@ucp_ep_create",
        pattern=r"_ucx\w*\.[ch]:\d+ +Error: ucp_ep_create\(.*\) failed: (?P<detail>Out of memory)",
    ),
    MatchRule(
        _UCX,
        _UNAVAILABLE,
        "unreachable@ucp_ep_create",
        Priority.RELAYED,
        r"_ucx\w*\.[ch]:\d+ +Error: ucp_ep_create\(.*\) failed: (?P<detail>.*)",
    ),
    MatchRule(
        _UCX,
        _UNAVAILABLE,
        "unreachable@ucp_ep_create",
        Priority.RELAYED,
        r"_ucx\w*\.[ch]:\d+ +Error: (?P<detail>Failed to (?:receive UCX worker address|resolve UCX endpoint).*)",
    ),
    MatchRule(
        _UCX, key="{what}@{layer}", pattern=r"(?P<layer>\w+_ucx)\w*\.[ch]:\d+ +Error: (?P<detail>(?P<what>\S.*))"
    ),
    MatchRule(
        "UCP worker does not support MPI_THREAD_MULTIPLE",
        _UNAVAILABLE,
        "no-thread-multiple@ucx",
        detail="UCX was built without --enable-mt",
        fatal=False,
    ),
    # ompi/mca/mtl/ofi/help-mtl-ofi.txt, mtl_ofi.h
    MatchRule(
        "Open MPI failed an OFI Libfabric library call",
        key="failed@{call}",
        priority=Priority.RELAYED,
        pattern=r"library call \((?P<call>\w+)\)",
        then=r"^\s*Error: (?P<detail>.*?) \(-?\d+\)",
    ),
    MatchRule(
        "Error returned from fi_cq_read",
        key="{what}@{call}",
        priority=Priority.RELAYED,
        pattern=r"Error returned from (?P<call>fi_cq_read\w*): (?P<detail>(?P<what>.*?)\(-?\d+\))",
    ),
    MatchRule("The Open MPI OFI MTL is aborting the MPI job", key="abort@mtl_ofi", priority=Priority.UNSPECIFIC),
    MatchRule("Open MPI failed to register your buffer", key="registration@mtl_ofi", then=r"^\s*Error: (?P<detail>.*)"),
)

_SECOND: tuple[MatchRule, ...] = (
    # ompi/runtime/help-mpi-runtime.txt: ompi_mpi_init.c and instance.c name the step
    MatchRule(
        _INIT,
        Kind.LAUNCH_FAILURE,
        "failed@MPI_Init!{step}",
        Priority.RELAYED,
        r"\b(?P<entry>MPI_INIT) failed for some reason",
        then=r"^\s+(?P<detail>(?:\S+: )?(?P<step>\S.*?)(?: ?\(\))? failed)\s*$",
    ),
    MatchRule(
        "MPI_INIT has failed because at least one MPI process is unreachable",
        _UNAVAILABLE,
        "add-procs@pml",
        Priority.RELAYED,
    ),
    MatchRule(
        "PMIx_Init failed for the following reason",
        Kind.LAUNCH_FAILURE,
        "failed@PMIx_Init",
        then=r"^\s+(?P<detail>\S.*?)\s*$",
        within=3,
    ),
    MatchRule(
        "No PMIx server was reachable, but a PMI1/2 was detected",
        Kind.WRONG_RESULT,
        "singletons@srun",
        detail="every rank is alone: the launcher has no PMIx",
        fatal=False,
    ),
    # opal/mca/shmem/*/help-opal-shmem-*.txt, opal/mca/btl/vader/help-btl-vader.txt, opal/mca/btl/smcuda
    MatchRule(
        "It appears as if there is not enough space for",
        Kind.OUT_OF_MEMORY,
        "no-space@dev-shm",
        Priority.RELAYED,
        "not enough space for /dev/shm/",
        fatal=False,
    ),
    MatchRule(
        "It appears as if there is not enough space for",
        Kind.OUT_OF_MEMORY,
        "no-space@shm-file",
        Priority.RELAYED,
        r"not enough space for (?P<detail>/\S+)",
        fatal=False,
    ),
    MatchRule(
        _SYSTEM_CALL,
        key="{detail}@openmpi",
        priority=Priority.RELAYED,
        pattern=r"(?:shared memory|BTL) initialization",
        then=r"^\s+Error:\s+(?P<detail>\S.*?) \(errno (?P<errno>\d+)\)",
        fatal=False,
    ),
    # opal/mca/btl/vader/btl_vader_get.c: 1 is forbidden by a container, and Open MPI works around it; 14 is EFAULT.
    MatchRule(
        "errno = 14", Kind.ERROR, "Bad-address@cma", Priority.RELAYED, r"(?:Read|Wrote) -1, expected \d+, errno = 14\b"
    ),
    # opal/mca/btl/tcp/help-mpi-btl-tcp.txt
    MatchRule(
        "failed to TCP connect to a peer MPI process",
        _NETWORK,
        "connect@openmpi",
        Priority.SYMPTOM,
        then=r"^\s*Error:\s+(?P<detail>\S.*)",
    ),
    MatchRule(
        "MPI communication peer process has unexpectedly disconnected",
        key="peer-lost@openmpi",
        priority=Priority.CONSEQUENCE,
        detail=PEER_LOST,
    ),
    *(MatchRule(text, _NETWORK, "{trigger}@openmpi", Priority.SYMPTOM, fatal=False) for text in TCP_WARNINGS),
    *(MatchRule(text, _NETWORK, "{trigger}@openib") for text in FABRIC),
    MatchRule(
        "The OpenFabrics (openib) BTL failed to initialize while trying to",
        Kind.OUT_OF_MEMORY,
        "locked-memory@openib",
        then=r"Memlock limit: (?P<detail>.*)",
        within=14,
        fatal=False,
    ),
    # opal/mca/accelerator/cuda/help-accelerator-cuda.txt, opal/mca/common/cuda/help-mpi-common-cuda.txt
    MatchRule(
        _CUDA,
        key="failed@{call}",
        pattern=r"^The call to (?P<call>cu\w+) failed\. +This is an? un",
        then=r"(?P<detail>return(?:ed)? value:?\s+-?\d+)",
        within=6,
    ),
    MatchRule(
        _CUDA,
        key="failed@{call}",
        priority=Priority.SYMPTOM,
        pattern=r"^The call to (?P<call>cu\w+)(?:\(.*\))? failed\b(?!.*(?:This is a warning|This means))",
        fatal=False,
    ),
    MatchRule("A call to allocate memory within the CUDA support failed", Kind.OUT_OF_MEMORY, "out-of-memory@cuda"),
    # ompi/mca/pml/ob1/pml_ob1_recvreq.c, pml_ob1_sendreq.c
    MatchRule(" FATAL", key="fatal@{source}", priority=Priority.SYMPTOM, pattern=r"/(?P<source>\w+\.c):\d+ FATAL"),
    # orte/util/show_help.c: mpirun could not read the help text that a rank sent
    MatchRule(
        "show_help.c",
        key=_LOST_HELP,
        priority=Priority.UNSPECIFIC,
        pattern=r"ORTE_ERROR_LOG: (?P<detail>.*) in file \S*show_help\.c",
        fatal=False,
    ),
    *(MatchRule(text, key="{trigger}@openmpi") for text in WRONG_USE),
    *(MatchRule(text, _UNAVAILABLE, "{trigger}@openmpi") for text in LACKING),
)


class OpenMpiErrors(RuleParser):
    """Help texts are recognised by their first lines, fatal errors by their stars."""

    # Rows without a key: the blocks take their lines before the table is asked.
    rules = (*_FIRST, *_SECOND, *map(MatchRule, TRIGGERS))

    def __init__(self) -> None:
        super().__init__()
        self._fatal = ErrorBlocks()
        self._of_pmix = False

    def feed(self, line: LogLine) -> None:
        # The text goes on, in lines between that it names the library and the component.
        self._of_pmix |= _OF_PMIX in line.text
        if not self._fatal.feed(line):
            super().feed(line)

    def finish(self) -> Sequence[FailureMatch]:
        """Return all matches; an error that only names a failed call gives that call to its cause."""
        fatal = tuple(self._fatal.matches())
        vague = [match.signature for match in fatal if match.priority is Priority.UNSPECIFIC]
        entry = next((signature.entry_point for signature in vague if signature.entry_point), None)
        read = [match for match in super().finish() if not self._echoes(match)]
        told = (*(_under(match, entry) for match in read), *fatal)
        said = tuple(match for match in told if match.signature.key != _LOST_HELP)
        return said or told

    def _echoes(self, match: FailureMatch) -> bool:
        """Return whether a match is the help text for a rank's own line about a missing PML."""
        return match.signature.key == "no-component@pml" and "no-component@PML" in self._matches

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        match = super().build_match(rule, groups, line)
        detail = groups.get("detail", "")
        if rule.trigger in (_TCP, "btl_tcp", _TCP_REST):
            return _tcp(match, detail)
        if rule.trigger == _INIT and "add procs" in detail:
            return _changed(match, _UNAVAILABLE, "add-procs@pml")
        of_pmix = rule.trigger == _COMPONENT and self._of_pmix
        if of_pmix or (rule.trigger == _SYSTEM_CALL and groups.get("errno") in ("12", "28")):
            return _changed(match, Kind.LAUNCH_FAILURE if of_pmix else Kind.OUT_OF_MEMORY)
        if match.signature.key == "connect@openmpi":
            return _reached(match, detail)
        if rule.trigger == _UCX and "what" in groups:
            return _ucx(match, groups)
        return match


def _changed(match: FailureMatch, kind: Kind, key: str = "") -> FailureMatch:
    return replace(match, signature=replace(match.signature, kind=kind, key=key or match.signature.key))


def _under(match: FailureMatch, entry: str | None) -> FailureMatch:
    signature = match.signature
    if signature.key == "no-component@PML":
        signature = replace(signature, key="no-component@pml")
    if entry and signature.entry_point in (None, "MPI_INIT") and match.priority <= Priority.RELAYED:
        signature = replace(signature, entry_point=entry)
    elif signature.entry_point == "MPI_INIT":
        signature = replace(signature, entry_point="MPI_Init")
    return replace(match, signature=signature)


def _tcp(match: FailureMatch, reason: str) -> FailureMatch:
    """Set the priority by the reason of a failed TCP call.

    EFAULT is the sender's own buffer. A reset may be the death of the peer. All others are errors of the network.
    """
    if reason == "Bad address":
        return match
    priority = Priority.CONSEQUENCE if reason in _PEER_GONE else Priority.SYMPTOM
    return _reached(replace(_changed(match, _NETWORK), priority=priority), reason)


def _reached(match: FailureMatch, reason: str) -> FailureMatch:
    """Return an unreachable peer as an explanation of the errors in layers above."""
    return replace(match, priority=Priority.RELAYED) if no_route(reason) else match


def _ucx(match: FailureMatch, groups: Mapping[str, str]) -> FailureMatch:
    """Return the UCX status in its caller's message; UCX itself has logged more."""
    _, kind, priority = status(groups["what"])
    key = f"{slug(groups['what'])}@{groups['layer']}"
    return replace(_changed(match, kind, key), priority=priority, fatal=False)
