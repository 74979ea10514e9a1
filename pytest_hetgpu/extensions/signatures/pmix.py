"""The runtime under Open MPI, from PMIx up to orte and PRRTE: its log, and a start that it gave up.

Most of its lines only repeat that something else has failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug, token
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_LAUNCH = Kind.LAUNCH_FAILURE
_FORCED = "FORCE-TERMINATE AT "
_FULL = lazy(r"No space left on device|Disk quota exceeded|errno (?:28|122)$")
# Parts of the runtime that only place and start things.
_STARTING = lazy(r"(?:ess|plm|ras|rmaps|odls|oob|session_dir|hnp_contact|prted?|orted)\w*\.c$")
_LOGGED = r"(?P<what>\S.*?) in file (?P<source>\S+) at line \d+"


def _logged(trigger: str, layer: str) -> MatchRule:
    """Return the rule of the lines of one layer's `..._ERROR_LOG`."""
    return MatchRule(
        trigger, key=f"{{what}}@{layer}", priority=Priority.SYMPTOM, pattern=re.escape(trigger) + _LOGGED, fatal=False
    )


class Pmix(RuleParser):
    """orte/mca/errmgr, opal/util/error.h, src/util/error.h of PRRTE and of PMIx, and help-*-runtime.txt of all four."""

    rules = (
        # orte/mca/state/state.h, shown by help-errmgr-base.txt
        MatchRule(
            _FORCED,
            _LAUNCH,
            "{what}@orte",
            Priority.RELAYED,
            r"FORCE-TERMINATE AT (?P<detail>(?P<what>[^:]+):-?\d+) - error (?P<source>\S+?)\(\d+\)",
        ),
        MatchRule(
            " failed for some reason",
            _LAUNCH,
            "failed@{what}!{step}",
            Priority.RELAYED,
            r"It looks like \W?(?P<what>(?:orte|prte|pmix|opal)_init)\b",
            then=r"^\s+(?P<detail>(?P<step>\S.*?) failed)\s*$",
        ),
        MatchRule(
            "unable to initialize properly.  The error occured while",
            _LAUNCH,
            "failed@orte_init",
            Priority.RELAYED,
            then=r"attempting to (?P<detail>\S.*)",
            within=2,
        ),
        # orte/orted/orted_submit.c, orte/util/hnp_contact.c, PMIx's ptl_base_listener.c and its kin: the session
        # directory cannot be written
        MatchRule(
            "CANNOT CREATE FIFO ",
            _LAUNCH,
            "no-fifo@session-dir",
            pattern=r"(?P<detail>CANNOT CREATE FIFO \S+: errno \d+)",
            fatal=False,
        ),
        MatchRule(
            "Impossible to open the file ",
            _LAUNCH,
            "no-file@session-dir",
            pattern=r"(?P<detail>Impossible to open the file \S+ in write mode)",
            fatal=False,
        ),
        # help-opal-util.txt, help-prte-util.txt, help-pmix-util.txt
        MatchRule(
            "unable to create the desired directory",
            _LAUNCH,
            "no-directory@session-dir",
            then=r"^\s*Error: +(?P<detail>\S.*?)\s*$",
            within=4,
        ),
        MatchRule(
            "While working through a directory tree",
            _LAUNCH,
            "no-directory@session-dir",
            then=r"^\s*Error: +(?P<detail>\S.*?)\s*$",
            within=6,
        ),
        # One process of many looks for a key before it is there.
        MatchRule("PMIX ERROR: ", pattern=r"NOT[-_]FOUND in file \S*dstore_base\.c"),
        # Whom the server answers is gone
        MatchRule(
            "PMIX ERROR: PMIX_ERR_UNREACH",
            key="lost-client@pmix",
            priority=Priority.CONSEQUENCE,
            pattern=r"(?P<detail>PMIX_ERR_UNREACH in file \S*(?:pmix_server|ptl_base_connection_hdlr)\.c)",
            fatal=False,
        ),
        # Its shared segments are files of the session directory.
        MatchRule(
            "PMIX ERROR: ",
            _LAUNCH,
            "no-space@session-dir",
            Priority.RELAYED,
            r"PMIX ERROR: (?P<detail>\S*OUT[-_]OF[-_]RESOURCE in file \S*(?:dstore|gds|shmem)\w*\.c)",
            fatal=False,
        ),
        # mpirun could not read a help text: OpenMpiErrors has them
        MatchRule("ORTE_ERROR_LOG: ", pattern=r" in file \S*show_help\.c"),
        _logged("ORTE_ERROR_LOG: ", "orte"),
        _logged("PRTE ERROR: ", "prte"),
        _logged("PMIX ERROR: ", "pmix"),
        _logged("OPAL ERROR: ", "opal"),
    )

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
