"""Our own lines about nodes: those that could not be made ready, and those lost while a command ran (see `execute`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_ENGINE_AWAY, _ENGINE_LOST = "its container engine went away", "engine-lost@docker"
_LOST, _PREFLIGHT = "hetgpu: node ", "hetgpu: preflight: "

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


class Nodes(RuleParser, rows="nodes"):
    """Parser of lines that start with `hetgpu:`, followed by the text of the runtime that reports."""

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
