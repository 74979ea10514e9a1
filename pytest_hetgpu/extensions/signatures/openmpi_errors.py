"""Errors of the Open MPI library in a rank: errors that end the job, missing components, failures of transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.routes import no_route
from pytest_hetgpu.extensions.signatures._messages.ucx_statuses import status
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.openmpi_blocks import TRIGGERS, ErrorBlocks
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_UNAVAILABLE = Kind.TRANSPORT_UNAVAILABLE
_NETWORK = Kind.NETWORK_FAILURE
_TCP = "mca_btl_tcp_"
_TCP_REST = "v failed: "
_INIT = "_INIT failed for some reason"
_PEER_GONE = ("Connection reset by peer", "Broken pipe")
_UCX = "  Error: "
_SYSTEM_CALL = "A system call failed during"
_COMPONENT, _OF_PMIX = "A requested component was not found", "PMIX stopped checking at the first component"


class OpenMpiErrors(RuleParser, rows="openmpi_errors"):
    """Help texts are recognised by their first lines, fatal errors by their stars."""

    # Rows without a key: the blocks take their lines before the table is asked.
    rules = tuple(map(MatchRule, TRIGGERS))

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
        return (*(_under(match, entry) for match in read), *fatal)

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
