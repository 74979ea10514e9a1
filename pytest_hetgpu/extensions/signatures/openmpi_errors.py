"""What Open MPI's library says in a rank: errors that end the job, components it lacks, what its transports met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._texts.networks import no_way
from pytest_hetgpu.extensions.signatures._texts.openmpi import FABRIC, LACKING, TCP_WARNINGS, WRONG_USE
from pytest_hetgpu.extensions.signatures._texts.ucx_statuses import status
from pytest_hetgpu.extensions.signatures.base import LogLine, Reading, Weight, slug
from pytest_hetgpu.extensions.signatures.engine.fatal import PEER_LOST, TRIGGERS, FatalBlocks
from pytest_hetgpu.extensions.signatures.engine.rules import Rule, RuleDialect
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

_FIRST: tuple[Rule, ...] = (
    # opal/mca/btl/tcp/btl_tcp_frag.c, btl_tcp_endpoint.c, btl_tcp.c by BTL_ERROR of btl_base_error.h
    Rule("btl_tcp", key="{detail}@{layer}", pattern=_TCP_FAILED),
    Rule(_TCP_REST, key="{detail}@{layer}", pattern=_TCP_CUT_OFF),
    Rule(
        _TCP,
        key="{detail}@{layer}",
        pattern=r"(?P<layer>mca_btl_tcp_\w+): \w+ error",
        then=r"^\s+(?P<detail>[^()]+)\(\d+\)",
        within=4,
    ),
    Rule(
        "Unable to connect to the peer",
        _NETWORK,
        "connect@openmpi",
        Weight.SYMPTOM,
        r"(?:to: (?P<host>[\w.-]+) )?Unable to connect to the peer (?P<detail>\S+ on port \d+: .*)",
    ),
    Rule(
        "received unexpected process identifier",
        _NETWORK,
        "wrong-peer@openmpi",
        Weight.SYMPTOM,
        r"btl_tcp_endpoint\.c.*(?P<detail>received unexpected process identifier)",
    ),
    # opal/mca/base/help-mca-base.txt
    Rule(_NO_COMPONENT, _UNAVAILABLE, "no-component@{framework}", Weight.RELAYED, r"opened in the (?P<framework>\w+)"),
    Rule(
        _COMPONENT,
        _UNAVAILABLE,
        "no-component@{component}",
        then=r"^\s*Component: (?P<component>\S+)",
        quote_then=True,
    ),
    # ompi/mca/pml/base/pml_base_select.c, ompi/mca/part/base/part_base_select.c
    Rule(
        _PML, _UNAVAILABLE, "no-component@{name}", Weight.RELAYED, r"\b(?P<name>PML|PART|SPML) \w+ cannot be selected"
    ),
    Rule(
        " selected pml ",
        _UNAVAILABLE,
        "mismatch@pml",
        pattern=r"\],(?P<rank>\d+)\] (?P<detail>selected pml \w+, but peer .* on (?P<host>\S+) selected pml \w+)",
    ),
    # ompi/mca/bml/r2/help-mca-bml-r2.txt
    Rule(
        "At least one pair of MPI processes are unable to reach",
        _UNAVAILABLE,
        "unreachable@openmpi",
        Weight.RELAYED,
        detail="no BTL reaches the peer",
    ),
    # ompi/mca/pml/ucx/pml_ucx.c and its kin, by PML_UCX_ERROR
    # osc_ucx_component.c of 5.0 says so of every window where UCX is not used
    Rule(_UCX, pattern="OSC UCX component priority set inside component query failed"),
    Rule(
        _UCX,
        Kind.OUT_OF_MEMORY,
        "out-of-memory@ucp_ep_create",
        pattern=r"_ucx\w*\.[ch]:\d+ +Error: ucp_ep_create\(.*\) failed: (?P<detail>Out of memory)",
    ),
    Rule(
        _UCX,
        _UNAVAILABLE,
        "unreachable@ucp_ep_create",
        Weight.RELAYED,
        r"_ucx\w*\.[ch]:\d+ +Error: ucp_ep_create\(.*\) failed: (?P<detail>.*)",
    ),
    Rule(
        _UCX,
        _UNAVAILABLE,
        "unreachable@ucp_ep_create",
        Weight.RELAYED,
        r"_ucx\w*\.[ch]:\d+ +Error: (?P<detail>Failed to (?:receive UCX worker address|resolve UCX endpoint).*)",
    ),
    Rule(_UCX, key="{what}@{layer}", pattern=r"(?P<layer>\w+_ucx)\w*\.[ch]:\d+ +Error: (?P<detail>(?P<what>\S.*))"),
    Rule(
        "UCP worker does not support MPI_THREAD_MULTIPLE",
        _UNAVAILABLE,
        "no-thread-multiple@ucx",
        detail="UCX was built without --enable-mt",
        certain=False,
    ),
    # ompi/mca/mtl/ofi/help-mtl-ofi.txt, mtl_ofi.h
    Rule(
        "Open MPI failed an OFI Libfabric library call",
        key="failed@{call}",
        weight=Weight.RELAYED,
        pattern=r"library call \((?P<call>\w+)\)",
        then=r"^\s*Error: (?P<detail>.*?) \(-?\d+\)",
    ),
    Rule(
        "Error returned from fi_cq_read",
        key="{what}@{call}",
        weight=Weight.RELAYED,
        pattern=r"Error returned from (?P<call>fi_cq_read\w*): (?P<detail>(?P<what>.*?)\(-?\d+\))",
    ),
    Rule("The Open MPI OFI MTL is aborting the MPI job", key="abort@mtl_ofi", weight=Weight.UNSPECIFIC),
    Rule("Open MPI failed to register your buffer", key="registration@mtl_ofi", then=r"^\s*Error: (?P<detail>.*)"),
)

_SECOND: tuple[Rule, ...] = (
    # ompi/runtime/help-mpi-runtime.txt: ompi_mpi_init.c and instance.c name the step
    Rule(
        _INIT,
        Kind.LAUNCH_FAILURE,
        "failed@MPI_Init!{step}",
        Weight.RELAYED,
        r"\b(?P<entry>MPI_INIT) failed for some reason",
        then=r"^\s+(?P<detail>(?:\S+: )?(?P<step>\S.*?)(?: ?\(\))? failed)\s*$",
    ),
    Rule(
        "MPI_INIT has failed because at least one MPI process is unreachable",
        _UNAVAILABLE,
        "add-procs@pml",
        Weight.RELAYED,
    ),
    Rule(
        "PMIx_Init failed for the following reason",
        Kind.LAUNCH_FAILURE,
        "failed@PMIx_Init",
        then=r"^\s+(?P<detail>\S.*?)\s*$",
        within=3,
    ),
    Rule(
        "No PMIx server was reachable, but a PMI1/2 was detected",
        Kind.WRONG_RESULT,
        "singletons@srun",
        detail="every rank is alone: the launcher speaks no PMIx",
        certain=False,
    ),
    # opal/mca/shmem/*/help-opal-shmem-*.txt, opal/mca/btl/vader/help-btl-vader.txt, opal/mca/btl/smcuda
    Rule(
        "It appears as if there is not enough space for",
        Kind.OUT_OF_MEMORY,
        "no-space@dev-shm",
        Weight.RELAYED,
        "not enough space for /dev/shm/",
        certain=False,
    ),
    Rule(
        "It appears as if there is not enough space for",
        Kind.OUT_OF_MEMORY,
        "no-space@shm-file",
        Weight.RELAYED,
        r"not enough space for (?P<detail>/\S+)",
        certain=False,
    ),
    Rule(
        _SYSTEM_CALL,
        key="{detail}@openmpi",
        weight=Weight.RELAYED,
        pattern=r"(?:shared memory|BTL) initialization",
        then=r"^\s+Error:\s+(?P<detail>\S.*?) \(errno (?P<errno>\d+)\)",
        certain=False,
    ),
    # opal/mca/btl/vader/btl_vader_get.c: 1 is what a container forbids, and Open MPI goes round it; 14 is EFAULT
    Rule("errno = 14", Kind.ERROR, "Bad-address@cma", Weight.RELAYED, r"(?:Read|Wrote) -1, expected \d+, errno = 14\b"),
    # opal/mca/btl/tcp/help-mpi-btl-tcp.txt
    Rule(
        "failed to TCP connect to a peer MPI process",
        _NETWORK,
        "connect@openmpi",
        Weight.SYMPTOM,
        then=r"^\s*Error:\s+(?P<detail>\S.*)",
    ),
    Rule(
        "MPI communication peer process has unexpectedly disconnected",
        key="peer-lost@openmpi",
        weight=Weight.CONSEQUENCE,
        detail=PEER_LOST,
    ),
    *(Rule(text, _NETWORK, "{trigger}@openmpi", Weight.SYMPTOM, certain=False) for text in TCP_WARNINGS),
    *(Rule(text, _NETWORK, "{trigger}@openib") for text in FABRIC),
    Rule(
        "The OpenFabrics (openib) BTL failed to initialize while trying to",
        Kind.OUT_OF_MEMORY,
        "locked-memory@openib",
        then=r"Memlock limit: (?P<detail>.*)",
        within=14,
        certain=False,
    ),
    # opal/mca/accelerator/cuda/help-accelerator-cuda.txt, opal/mca/common/cuda/help-mpi-common-cuda.txt
    Rule(
        _CUDA,
        key="failed@{call}",
        pattern=r"^The call to (?P<call>cu\w+) failed\. +This is an? un",
        then=r"(?P<detail>return(?:ed)? value:?\s+-?\d+)",
        within=6,
    ),
    Rule(
        _CUDA,
        key="failed@{call}",
        weight=Weight.SYMPTOM,
        pattern=r"^The call to (?P<call>cu\w+)(?:\(.*\))? failed\b(?!.*(?:This is a warning|This means))",
        certain=False,
    ),
    Rule("A call to allocate memory within the CUDA support failed", Kind.OUT_OF_MEMORY, "out-of-memory@cuda"),
    # ompi/mca/pml/ob1/pml_ob1_recvreq.c, pml_ob1_sendreq.c
    Rule(" FATAL", key="fatal@{source}", weight=Weight.SYMPTOM, pattern=r"/(?P<source>\w+\.c):\d+ FATAL"),
    # orte/util/show_help.c: mpirun could not read the help text that a rank sent
    Rule(
        "show_help.c",
        key=_LOST_HELP,
        weight=Weight.UNSPECIFIC,
        pattern=r"ORTE_ERROR_LOG: (?P<detail>.*) in file \S*show_help\.c",
        certain=False,
    ),
    *(Rule(text, key="{trigger}@openmpi") for text in WRONG_USE),
    *(Rule(text, _UNAVAILABLE, "{trigger}@openmpi") for text in LACKING),
)


class OpenMpiErrors(RuleDialect):
    """Help texts are recognised by their first lines, fatal errors by their stars."""

    # Rows without a key: the blocks take their lines before the table is asked.
    rules = (*_FIRST, *_SECOND, *map(Rule, TRIGGERS))

    def __init__(self) -> None:
        super().__init__()
        self._fatal = FatalBlocks()
        self._of_pmix = False

    def feed(self, line: LogLine) -> None:
        # The text goes on, in lines between that it names the library and the component.
        self._of_pmix |= _OF_PMIX in line.text
        if not self._fatal.feed(line):
            super().feed(line)

    def finish(self) -> Sequence[Reading]:
        """Everything read. An error that only says that a call failed gives that call to what it failed of."""
        fatal = tuple(self._fatal.readings())
        vague = [reading.signature for reading in fatal if reading.weight is Weight.UNSPECIFIC]
        entry = next((signature.entry_point for signature in vague if signature.entry_point), None)
        read = [reading for reading in super().finish() if not self._echoes(reading)]
        told = (*(_under(reading, entry) for reading in read), *fatal)
        said = tuple(reading for reading in told if reading.signature.key != _LOST_HELP)
        return said or told

    def _echoes(self, reading: Reading) -> bool:
        """Whether a reading is the help text beside the line in which a rank itself says that it has no PML."""
        return reading.signature.key == "no-component@pml" and "no-component@PML" in self._readings

    def reading(self, rule: Rule, groups: Mapping[str, str], line: LogLine) -> Reading:
        reading = super().reading(rule, groups, line)
        detail = groups.get("detail", "")
        if rule.trigger in (_TCP, "btl_tcp", _TCP_REST):
            return _tcp(reading, detail)
        if rule.trigger == _INIT and "add procs" in detail:
            return _changed(reading, _UNAVAILABLE, "add-procs@pml")
        of_pmix = rule.trigger == _COMPONENT and self._of_pmix
        if of_pmix or (rule.trigger == _SYSTEM_CALL and groups.get("errno") in ("12", "28")):
            return _changed(reading, Kind.LAUNCH_FAILURE if of_pmix else Kind.OUT_OF_MEMORY)
        if reading.signature.key == "connect@openmpi":
            return _reached(reading, detail)
        if rule.trigger == _UCX and "what" in groups:
            return _ucx(reading, groups)
        return reading


def _changed(reading: Reading, kind: Kind, key: str = "") -> Reading:
    return replace(reading, signature=replace(reading.signature, kind=kind, key=key or reading.signature.key))


def _under(reading: Reading, entry: str | None) -> Reading:
    signature = reading.signature
    if signature.key == "no-component@PML":
        signature = replace(signature, key="no-component@pml")
    if entry and signature.entry_point in (None, "MPI_INIT") and reading.weight <= Weight.RELAYED:
        signature = replace(signature, entry_point=entry)
    elif signature.entry_point == "MPI_INIT":
        signature = replace(signature, entry_point="MPI_Init")
    return replace(reading, signature=signature)


def _tcp(reading: Reading, reason: str) -> Reading:
    """EFAULT is the sender's own buffer; a reset may be the peer's death; anything else is the network's doing."""
    if reason == "Bad address":
        return reading
    weight = Weight.CONSEQUENCE if reason in _PEER_GONE else Weight.SYMPTOM
    return _reached(replace(_changed(reading, _NETWORK), weight=weight), reason)


def _reached(reading: Reading, reason: str) -> Reading:
    """Who cannot be reached at all explains what the layers above say of it."""
    return replace(reading, weight=Weight.RELAYED) if no_way(reason) else reading


def _ucx(reading: Reading, groups: Mapping[str, str]) -> Reading:
    """What UCX told its caller, in a word; UCX itself has said more."""
    _, kind, weight = status(groups["what"])
    key = f"{slug(groups['what'])}@{groups['layer']}"
    return replace(_changed(reading, kind, key), weight=weight, certain=False)
