"""Our own lines about nodes: those that could not be made ready, and those lost while a command ran (see `execute`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_ENGINE_AWAY, _ENGINE_LOST = "its container engine went away", "engine-lost@docker"
_NOT_READY, _LOST, _PREFLIGHT = "hetgpu: not ready: ", "hetgpu: node ", "hetgpu: preflight: "

# Causes of nodes that are not ready, by our own phrases; the first match counts. A quoted text, such as a build's
# output, may hold the words of any later row.
_PARTS = {
    "disk": r"the disk of .* is full|[Nn]o space left on device|[Dd]isk quota exceeded",
    "base": r"(?:lacks )?the base image hetgpu-base:\S+(?:, which no registry has| cannot be made with )",
    "registry": r"cannot be pulled|cannot reach the registry|the registry (?:has|knows|limits)|not trust the registry",
    "build": r"the image \S+ cannot be built from",
    "python3": r"the image has no python3|there is no python3 on|python3 is \S+ there, 3\.\d+ or later is needed",
    "sshd": (
        r"no (?:sshd|ssh-keygen) in PATH=|: ssh-keygen: |sshd (?:does not start|lets|cannot set)\b|"
        r"cannot come in by ssh|is locked \(`!`|: no port to listen on"
    ),
    "ssh": (
        r"\bssh from .* to .* failed: |cannot try ssh to it|: ssh cannot be started|: key \S.* of the inventory: |"
        r"cannot be resolved: write the host's address|the host key of |the key is readable by others|"
        r"does not let us in|nothing listens on |does not answer: down|closed the connection|\bssh to .* ended with "
    ),
    "engine": (
        r"does not answer: install Docker|is there, but you may not use it|has not answered for a minute|"
        r"do not agree on TLS|stopped answering|there is no \S+ on .*: is a container engine running|is no socket|"
        r"may not use \S+ on .*: add them|is no address of an engine|used only over ssh or TLS|Docker SDK for Python|"
        r"Docker engine(?: of \S+| at \S+)? refused: |container engine at \S+ went away and has not answered"
    ),
    "device": (
        r"cannot give GPUs to containers|has no such GPU|no such device, or its kernel driver|"
        r"on the host of .* is not a device"
    ),
    "slurm": (
        r"Slurm (?:refused the allocation|job \d+ (?:can never start|did not start|has \d+ nodes of))|"
        r"\bsrun cannot be started|"
        r"cpu_bind names CPU"
    ),
    "kubernetes": r"\bKubernetes\b|\bkubectl\b|\bpods? \S+ (?:was|were|lost|reached|ended)",
    "node": "",
}

# How Slurm took nodes away, in the words of `extensions/runtimes/_slurm/messages.py`.
_ENDED_BY_SLURM = lazy(r"Slurm job \d+ (was preempted|lost a node|reached its time limit|was cancelled)")
_SLURM = {
    "was preempted": (Kind.TIMEOUT, "preempted@slurm"),
    "lost a node": (Kind.NETWORK_FAILURE, "node-failure@slurm"),
    "reached its time limit": (Kind.TIMEOUT, "time-limit@slurm"),
    "was cancelled": (Kind.TIMEOUT, "cancelled@slurm"),
}

# How Kubernetes did, in the words of `extensions/runtimes/_kubernetes/messages.py`.
_ENDED_BY_KUBERNETES = lazy(
    r"pod \S+ (was deleted|was evicted|was preempted|reached its deadline|lost its node|was killed for its memory)|"
    r"the API server of .* (does not answer)"
)
_KUBERNETES = {
    "was deleted": (Kind.TIMEOUT, "deleted@kubernetes"),
    "was evicted": (Kind.TIMEOUT, "evicted@kubernetes"),
    "was preempted": (Kind.TIMEOUT, "preempted@kubernetes"),
    "reached its deadline": (Kind.TIMEOUT, "time-limit@kubernetes"),
    "lost its node": (Kind.NETWORK_FAILURE, "node-lost@kubernetes"),
    "was killed for its memory": (Kind.OUT_OF_MEMORY, "oom-kill@kernel"),
    "does not answer": (Kind.NETWORK_FAILURE, "no-server@kubernetes"),
}


class Nodes(RuleParser):
    """Parser of lines that start with `hetgpu:`, followed by the text of the runtime that reports."""

    rules = (
        MatchRule(
            _NOT_READY,
            Kind.NETWORK_FAILURE,
            _ENGINE_LOST,
            pattern=rf"^hetgpu: not ready: (?P<detail>.*{_ENGINE_AWAY}.*)",
        ),
        *(
            MatchRule(
                _NOT_READY,
                Kind.LAUNCH_FAILURE,
                f"not-ready@{part}",
                pattern=rf"^hetgpu: not ready: (?P<detail>.*(?:{phrases}).*)",
            )
            for part, phrases in _PARTS.items()
        ),
        MatchRule(
            _LOST,
            Kind.NETWORK_FAILURE,
            "lost@node",
            pattern=r"^hetgpu: node (?P<detail>.* was lost: .*)",
        ),
        MatchRule(
            "hetgpu: interface ",
            Kind.NETWORK_FAILURE,
            "lost@interface",
            pattern=r"^hetgpu: interface (?P<detail>\S+ of \S+ is (?:gone|down))$",
        ),
        MatchRule(
            _PREFLIGHT,
            Kind.LAUNCH_FAILURE,
            "preflight@{kind}",
            pattern=rf"^hetgpu: preflight: (?P<detail>.*\((?P<kind>{'|'.join(kind.value for kind in Kind)})\).*)",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        match = super().build_match(rule, groups, line)
        if rule.trigger == _LOST and _ENGINE_AWAY in groups.get("detail", ""):
            return replace(match, signature=replace(match.signature, key=_ENGINE_LOST))
        if rule.trigger == _LOST and "container ended" in groups.get("detail", ""):
            return replace(match, signature=replace(match.signature, kind=Kind.CRASH, key="lost@container"))
        if rule.trigger == _LOST and (found := _ENDED_BY_SLURM.search(groups.get("detail", ""))):
            kind, key = _SLURM[found[1]]
            return replace(match, signature=replace(match.signature, kind=kind, key=key))
        if rule.trigger == _LOST and (found := _ENDED_BY_KUBERNETES.search(groups.get("detail", ""))):
            kind, key = _KUBERNETES[found[1] or found[2]]
            return replace(match, signature=replace(match.signature, kind=kind, key=key))
        if rule.trigger == _PREFLIGHT and "kind" in groups:
            return replace(match, signature=replace(match.signature, kind=Kind(groups["kind"])))
        return match
