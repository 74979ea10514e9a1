"""Kubernetes: reasons of pods, events and jobs, and answers of kubectl; RunAI and Volcano use the same texts.

- Reasons of waiting containers: pkg/kubelet/images/types.go and kubelet/container/sync_result.go.
- Reasons of terminated pods: pkg/kubelet/eviction, pkg/apis/core.
- Reasons of events: pkg/kubelet/events/event.go and the scheduler's framework.
- Reasons of jobs: pkg/apis/batch and controller/job.
- Answers of the API: apimachinery's api/errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_TIMEOUT = Kind.TIMEOUT
_MEMORY = Kind.OUT_OF_MEMORY

# Reasons why a container cannot be started. Pulls and mounts are retried, so maybe only the first try failed.
_WAITING = {
    "no-image@kubernetes": (
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
    ),
    "no-registry@kubernetes": ("RegistryUnavailable",),
    "bad-configuration@kubernetes": ("CreateContainerConfigError", "CreatePodSandboxError", "FailedCreatePodSandBox"),
    "no-container@kubernetes": (
        "CreateContainerError",
        "RunContainerError",
        "ContainerCannotRun",
        "PostStartHookError",
    ),
    "not-admitted@kubernetes": ("UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods"),
    "no-volume@kubernetes": ("FailedMount", "FailedAttachVolume"),
    "no-program@kubernetes": ("StartError",),
}


class Kubernetes(RuleParser):
    """Parser of `kubectl get`, `describe`, `wait`, `logs` and events, all of them outside a run's own output."""

    rules = (
        MatchRule("OOMKilled", _MEMORY, "oom-kill@kernel", pattern=r"\b(?P<detail>(?:Init:)?OOMKilled)\b"),
        MatchRule("SystemOOM", _MEMORY, "oom-kill@kernel", pattern=r"(?P<detail>System OOM encountered.*)"),
        MatchRule(
            "low on resource: ",
            _MEMORY,
            "evicted@memory",
            pattern=r"(?P<detail>The node was low on resource: memory.*)",
        ),
        MatchRule(
            "low on resource: ",
            Kind.ERROR,
            "evicted@{name}",
            pattern=r"(?P<detail>The node was low on resource: (?P<name>[\w-]+).*)",
        ),
        MatchRule(
            "exceeds the limit ",
            Kind.ERROR,
            "evicted@storage",
            pattern=r"(?P<detail>(?:Container|Pod|Usage of EmptyDir).* exceeds the .*)",
        ),
        MatchRule("exceeds the total limit of containers", Kind.ERROR, "evicted@storage"),
        MatchRule("Evicted", Kind.ERROR, "evicted@kubernetes", Priority.SYMPTOM, pattern=r"(?:^|\s)Evicted(?:\s|$)"),
        MatchRule(
            "DeadlineExceeded",
            _TIMEOUT,
            "time-limit@kubernetes",
            Priority.LIMIT,
            r"(?:^|\s)(?:Job|Pod|reason:?|Reason:|Warning|Failed).*\bDeadlineExceeded\b",
        ),
        MatchRule("was active longer than specified deadline", _TIMEOUT, "time-limit@kubernetes", Priority.LIMIT),
        MatchRule("active on the node longer than the specified", _TIMEOUT, "time-limit@kubernetes", Priority.LIMIT),
        MatchRule(
            "timed out waiting for the condition",
            _TIMEOUT,
            "time-limit@kubectl",
            Priority.LIMIT,
            r"error: (?P<detail>timed out waiting.*)",
        ),
        MatchRule("BackoffLimitExceeded", Kind.ERROR, "backoff-limit@kubernetes", Priority.UNSPECIFIC),
        MatchRule(
            "has reached the specified backoff limit", Kind.ERROR, "backoff-limit@kubernetes", Priority.UNSPECIFIC
        ),
        MatchRule("CrashLoopBackOff", Kind.ERROR, "crash-loop@kubernetes", Priority.UNSPECIFIC),
        MatchRule("Back-off restarting failed container", Kind.ERROR, "crash-loop@kubernetes", Priority.UNSPECIFIC),
        MatchRule(
            "Failed to pull image",
            _LAUNCH,
            "no-image@kubernetes",
            pattern=r"(?P<detail>Failed to pull image .*)",
            fatal=False,
        ),
        MatchRule(
            "nodes are available: ",
            _LAUNCH,
            "unschedulable@kubernetes",
            pattern=r"(?P<detail>0/\d+ nodes are available: .*)",
            fatal=False,
        ),
        *(
            MatchRule(word, _LAUNCH, key, pattern=rf"(?P<detail>(?:Init:)?\b{word}\b.*)", fatal=False)
            for key, words in _WAITING.items()
            for word in words
        ),
        MatchRule(
            "OutOf", _LAUNCH, "not-admitted@kubernetes", pattern=r"(?:^|\s)(?P<detail>OutOf\w+\.\w+/\w+)", fatal=False
        ),
        MatchRule("NodeLost", Kind.NETWORK_FAILURE, "node-lost@kubernetes", Priority.EXIT, r"(?:^|\s)NodeLost(?:\s|$)"),
        MatchRule(
            "NodeNotReady",
            Kind.NETWORK_FAILURE,
            "node-lost@kubernetes",
            Priority.SYMPTOM,
            "Node is not ready",
            fatal=False,
        ),
        MatchRule(
            "node.kubernetes.io/unreachable",
            Kind.NETWORK_FAILURE,
            "node-lost@kubernetes",
            Priority.SYMPTOM,
            "[Tt]aint",
            fatal=False,
        ),
        MatchRule(
            "Preempted",
            _TIMEOUT,
            "preempted@kubernetes",
            Priority.LIMIT,
            r"(?P<detail>Preempted (?:by|in order to) .*)",
        ),
        MatchRule("was preempted by", _TIMEOUT, "preempted@kubernetes", Priority.LIMIT),
        MatchRule(
            "Error from server (",
            _LAUNCH,
            "{name}@kubernetes",
            pattern=r"Error from server \((?P<name>\w+)\): (?P<detail>.*)",
            fatal=False,
        ),
        MatchRule("was refused - did you specify", _LAUNCH, "no-server@kubernetes"),
        MatchRule(
            "Unable to connect to the server: ",
            _LAUNCH,
            "no-server@kubernetes",
            pattern=r"(?P<detail>Unable to connect to the server: .*)",
        ),
        MatchRule(
            "error: unable to recognize ",
            _LAUNCH,
            "{why}@kubernetes",
            pattern=r"unable to recognize \S+: (?P<detail>(?P<why>.*\S))",
        ),
        MatchRule("error: You must be logged in to", _LAUNCH, "unauthorized@kubernetes"),
        MatchRule(
            "command terminated with exit code ",
            Kind.ERROR,
            "exit@{name}",
            Priority.EXIT,
            r"exit code (?P<name>[1-9]\d*)",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        return super().build_match(rule, {**groups, "why": slug(groups.get("why", ""))}, line)
