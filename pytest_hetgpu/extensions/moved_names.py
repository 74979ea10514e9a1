"""Old and new places of names that extension packages of the version before import. Data only.

All paths are below `pytest_hetgpu`.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Packages that are below `extensions` now. Their modules kept their names if `MODULES` has no other.
FAMILIES = (
    *("fabrics", "hardware", "inventories", "launchers", "probes", "readers"),
    *("runtimes", "signatures", "stacks", "transports", "workloads"),
)

#: The module that has an old module's names now, if `NAMES` has no other place for one.
MODULES: Mapping[str, str] = {
    "batch": "extensions.runtimes.batch.request",
    "carriage": "model.transport_classes",
    "evidence": "model.outcome",
    "extensions": "extensions.entry_points",
    "fabrics.base": "extensions.fabrics.base",
    "foreign": "model.external_program",
    "hardware.base": "extensions.hardware.base",
    "images": "extensions.runtimes.containers.build_context",
    "interfaces": "model.interfaces",
    "inventories.base": "extensions.inventories.base",
    "launchers.base": "extensions.launchers.base",
    "limits": "model.thresholds",
    "metrics": "model.metrics",
    "model": "model.job",
    "patterns": "extensions.output_patterns",
    "pods": "extensions.runtimes.pods.request",
    "probes.base": "extensions.probes.base",
    "readers.base": "extensions.readers.base",
    "readings": "model.program_output",
    "regex": "model.lazy_regex",
    "registry": "extensions.registry",
    "runtimes.agent": "extensions.runtimes.agent",
    "runtimes.base": "extensions.runtimes.base",
    "samples": "model.sample",
    "signatures.base": "extensions.signatures.base",
    "signatures.reading.fatal": "extensions.signatures.engine.openmpi_blocks",
    "signatures.reading.frames": "extensions.signatures.engine.frames",
    "signatures.reading.halted": "extensions.signatures.engine.stopped_processes",
    "signatures.reading.names": "extensions.signatures.engine.demangle",
    "signatures.reading.rules": "extensions.signatures.engine.rules",
    "signatures.reading.stack_lines": "extensions.signatures.engine.stack_lines",
    "signatures.reading.stacks": "extensions.signatures.engine.stacks",
    "signatures.reading.tracebacks": "extensions.signatures.engine.tracebacks",
    "sizes": "model.sizes",
    "stacks.base": "extensions.stacks.base",
    "told": "model.failure",
    "transports._proof": "extensions.transports._mpi_log",
    "transports.base": "extensions.transports.base",
    "workloads._foreign": "extensions.workloads._external",
    "workloads.base": "extensions.workloads.base",
}

#: Names that have another place or another name, by old module: `MODULE.NAME`.
NAMES: Mapping[str, Mapping[str, str]] = {
    "carriage": {
        "Duty": "model.transport_classes.RequiredClass",
        "Member": "model.transport_classes.TransportMember",
        "duty": "model.transport_classes.required_class",
        "told": "model.transport_classes.describe_carriers",
    },
    "evidence": {
        "RankFate": "model.outcome.RankOutcome",
        "Told": "model.outcome.ProgramOutput",
        "Wire": "model.outcome.LinkBandwidth",
    },
    "fabrics.base": {
        "FabricKind": "api.FabricKind",
        "gid_words": "extensions.fabrics.base.gid_arguments",
        "known": "extensions.fabrics.base.without_none",
    },
    "foreign": {"Foreign": "model.external_program.ExternalProgram"},
    "hardware.base": {"Platform": "api.Platform"},
    "images": {
        "Entry": "extensions.runtimes.containers.build_context.ContextFile",
        "Pattern": "extensions.runtimes.containers.build_context.IgnorePattern",
    },
    "interfaces": {
        "Choice": "model.interfaces.InterfaceChoice",
        "choose": "model.interfaces.choose_interface",
        "routed": "model.interfaces.routed_interfaces",
    },
    "inventories.base": {
        "Found": "api.ListedHost",
        "Left": "extensions.inventories.base.SkippedEntry",
        "Listing": "api.HostListing",
        "Malformed": "extensions.inventories.base.MalformedInventory",
        "Source": "api.InventorySource",
        "UNTOLD": "extensions.inventories.base.UNKNOWN_PLATFORM",
    },
    "launchers.base": {
        "Launcher": "api.Launcher",
        "Meeting": "extensions.launchers.base.Rendezvous",
        "Start": "api.LaunchRequest",
    },
    "limits": {"Limit": "model.thresholds.Threshold", "Reference": "model.thresholds.PerformanceReference"},
    "metrics": {
        "of_wire": "model.metrics.link_fraction",
    },
    "model": {
        "Command": "api.Command",
        "Demand": "model.job.Requirements",
        "Job": "api.Job",
        "Kind": "api.Kind",
        "Node": "api.Node",
        "Reach": "model.job.ConnectionInfo",
        "Stack": "api.Stack",
    },
    "patterns": {"Match": "extensions.output_patterns.TextMatch"},
    "probes.base": {
        "Path": "extensions.probes.base.NodePath",
        "Probe": "api.Probe",
        "Ran": "extensions.probes.base.CommandOutput",
        "Seen": "extensions.probes.base.RawFacts",
        "State": "model.facts.FactState",
    },
    "readers.base": {
        "Asked": "extensions.readers.base.ParseRequest",
        "Notes": "extensions.readers.base.ParseIssues",
        "Reader": "api.OutputParser",
    },
    "readings": {
        "Exited": "model.program_output.ExitMeaning",
        "Figure": "model.program_output.Quantity",
        "Measured": "model.program_output.BenchmarkRow",
        "Reading": "model.program_output.BenchmarkResult",
    },
    "registry": {
        "known": "model.messages.known",
        "show": "model.messages.show",
        "troubles": "extensions.registry.extension_errors",
    },
    "runtimes.agent": {"reached_by": "api.reached_by"},
    "runtimes.base": {
        "Answer": "extensions.runtimes.base.CommandResult",
        "Door": "extensions.runtimes.base.SshServer",
        "Gathering": "api.Deployment",
        "Look": "extensions.runtimes.base.StackDumper",
        "Member": "api.RemoteNode",
        "MemberRuntime": "api.NodeProvider",
        "OnOverdue": "extensions.runtimes.base.OnTimeout",
        "Overdue": "extensions.runtimes.base.TimeoutInfo",
        "Term": "extensions.runtimes.base.Walltime",
        "shrug": "extensions.runtimes.base.ignore",
    },
    "signatures.base": {
        "Dialect": "api.LogParser",
        "LogLine": "api.LogLine",
        "Reading": "api.FailureMatch",
        "Weight": "api.Priority",
    },
    "signatures.reading.fatal": {"FatalBlocks": "extensions.signatures.engine.openmpi_blocks.ErrorBlocks"},
    "signatures.reading.halted": {
        "Halted": "extensions.signatures.engine.stopped_processes.StoppedProcess",
        "halted": "extensions.signatures.engine.stopped_processes.parse_stopped",
        "key_of": "extensions.signatures.engine.stopped_processes.stopped_key",
    },
    "signatures.reading.rules": {"Rule": "api.MatchRule", "RuleDialect": "api.RuleParser"},
    "signatures.reading.stacks": {
        "Summary": "extensions.signatures.engine.stacks.StackSummary",
        "moved_on": "extensions.signatures.engine.stacks.has_moved",
        "numbers": "extensions.signatures.engine.stacks.rank_ranges",
        "summary": "extensions.signatures.engine.stacks.summarize",
    },
    "signatures.reading.tracebacks": {
        "Fatal": "extensions.signatures.engine.tracebacks.InterpreterCrash",
        "Link": "extensions.signatures.engine.tracebacks.ChainLink",
        "Raised": "extensions.signatures.engine.tracebacks.RaisedException",
        "of_its_rank": "extensions.signatures.engine.tracebacks.strip_rank_prefix",
        "unmasked": "extensions.signatures.engine.tracebacks.restore_exception_name",
    },
    "stacks.base": {
        "Release": "api.Release",
        "StackFamily": "api.StackFamily",
        "has": "extensions.stacks.base.has_distribution",
    },
    "told": {
        "Device": "model.records.Device",
        "Hello": "model.records.Hello",
        "Kind": "api.Kind",
        "Known": "model.failure.KnownFailure",
        "Measurement": "model.records.Measurement",
        "Point": "model.records.MessagePoint",
        "RankExit": "model.records.RankExit",
        "Row": "model.records.Row",
        "Verdict": "model.verdict.Verdict",
    },
    "transports._proof": {"Proof": "extensions.transports._mpi_log.MpiTransportParser"},
    "transports.base": {
        "ProofReader": "extensions.transports.base.TransportParser",
        "Rendering": "api.Rendering",
        "Transport": "api.Transport",
    },
    "workloads._foreign": {
        "Called": "extensions.workloads._external.ProgramName",
        "ForeignSettings": "extensions.workloads._external.ExternalSettings",
        "ForeignWorkload": "extensions.workloads._external.ExternalWorkload",
        "doubling": "extensions.workloads._external.doubled_sizes",
        "unchecked": "extensions.workloads._external.cannot_verify",
    },
    "workloads.base": {
        "Collective": "extensions.workloads.base.CollectiveSettings",
        "Repeated": "extensions.workloads.base.TimedSettings",
        "Split": "extensions.workloads.base.SplitSettings",
        "Summed": "extensions.workloads.base.ReductionSettings",
        "Sweep": "extensions.workloads.base.SweepSettings",
        "Workload": "api.Workload",
    },
}
