"""Errors of the Open MPI launchers: no start, a lost daemon, a stopped job; mpirun of 4.x, prterun of 5.x.

Recognised by the first lines of orte's and PRRTE's help-*.txt, which the rules name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, slug, token
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_NETWORK = Kind.NETWORK_FAILURE
_LONGEST_HOST = 100
# Release 5 names an option, release 4 its purpose.
_POLICIES = {"mapby": "mapping", "bindto": "binding", "rankby": "ranking"}
_NO_REPORT, _REMOTE = "A daemon failed to report back after being spawned", "  Remote host: "
_START = "unable to launch the specified application"


class OpenMpiLaunch(RuleParser, rows="openmpi_launch"):
    """The launchers' last words, before any rank ran or while ranks ran."""

    def __init__(self) -> None:
        super().__init__()
        self._remote = ""

    def feed(self, line: LogLine) -> None:
        if _REMOTE in line.text:
            self._remote = line.text.rpartition(": ")[2].strip()[:_LONGEST_HOST]
        super().feed(line)

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        if "what" in groups:
            groups = {**groups, "what": _POLICIES.get(groups["what"], groups["what"])}
        match = super().build_match(rule, groups, line)
        if rule.trigger == _NO_REPORT:
            return _no_report(match, groups.get("status"), self._remote)
        if rule.trigger == _START and "folder" in groups:
            return _told(match, f"no-directory@{token(groups['folder'])}", groups["folder"])
        if rule.trigger == _START and "reason" in groups:
            return _told(match, f"{slug(groups['reason'])}@mpirun", groups["reason"])
        return match


def _no_report(match: FailureMatch, status: str | None, host: str) -> FailureMatch:
    """Return a daemon without report: only the exit code of the ssh client distinguishes a failed start from a loss.

    255 is a failed connection, which ssh has then reported, or one that broke silently. A daemon that could not start
    exits with another code.
    """
    signature = replace(match.signature, hosts=(host,) if host else match.signature.hosts)
    if status == "255":
        signature = replace(signature, kind=_NETWORK, key="lost@daemon")
    return replace(match, signature=signature)


def _told(match: FailureMatch, key: str, detail: str) -> FailureMatch:
    return replace(match, signature=replace(match.signature, key=key, detail=detail))
