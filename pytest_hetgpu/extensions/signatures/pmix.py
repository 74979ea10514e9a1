"""The runtime under Open MPI, from PMIx up to orte and PRRTE: its log, and a start that it gave up.

Most of its lines only repeat that something else has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, slug, token
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_FORCED = "FORCE-TERMINATE AT "
_FULL = lazy(r"No space left on device|Disk quota exceeded|errno (?:28|122)$")
# Parts of the runtime that only place and start things.
_STARTING = lazy(r"(?:ess|plm|ras|rmaps|odls|oob|session_dir|hnp_contact|prted?|orted)\w*\.c$")


class Pmix(RuleParser, rows="pmix"):
    """orte/mca/errmgr, opal/util/error.h, src/util/error.h of PRRTE and of PMIx, and help-*-runtime.txt of all four."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        match = super().build_match(rule, groups, line)
        signature, source = match.signature, groups.get("source", "").rpartition("/")[2]
        if rule.trigger == _FORCED:
            what = groups["what"]
            key = f"terminated@{token(source)}" if what == "(null)" else f"{slug(what)}@orte"
            return replace(match, signature=replace(signature, key=key))
        if signature.key.endswith("@session-dir") and _FULL.search(signature.detail or ""):
            return replace(match, signature=replace(signature, key="no-space@session-dir"))
        if source:
            kind = _LAUNCH if _STARTING.match(source) else signature.kind
            detail = f"{groups['what']} in {source}"
            return replace(match, signature=replace(signature, kind=kind, detail=detail))
        return match
