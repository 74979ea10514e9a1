"""Parallel I/O of Open MPI (OMPIO): failed reads and writes; and ROMIO's error for a file that it cannot lock.

ompi/mca/fbtl, fcoll, fs, sharedfp, io/ompio and common/ompio print by `opal_output` and return an error code to their
caller. A file's errors return by default, so that most programs continue as if the data were in the file. ROMIO
(src/mpi/ romio/adio/common/lock.c, in MPICH and in Open MPI) ends the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority, slug
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_BEGIN = r"^(?:\[[^\[\]\s]{1,100}\] )?,?(?:\[\d{1,7}\])?"
# The frameworks' own verbose lines have the same beginnings.
_WRONG = r"(?:\b[Ee]rr?or|[Uu]nable to|failed|NOT (?:SUPP|IMPL)|[Cc]ould not|[Cc]annot|is NULL|must be|not supported)"
_MEMORY = lazy(
    r"(?i)could not allocate|error allocating|unable to (?:m|all)oc|memory allocation|while allocating"
    r"|Cannot allocate memory"
)
# Requests for a file that may be absent, or for a service that another component then provides.
_SURVIVED = lazy(r"^mca_common_ompio_file_(?:delete|open)|NOT (?:SUPPORTED|IMPLEMENTED)|incomplete_file_handle")


def _said(trigger: str, where: str, priority: Priority = Priority.CAUSE) -> MatchRule:
    """Return the rule of lines that begin with the function's name and then give the error, which some lines lack."""
    said = rf"(?P<where>(?!\w*_component_){where}): ?(?P<what>(?=.*{_WRONG})\S.*)"
    return MatchRule(trigger, key="{what}@{where}", priority=priority, pattern=f"{_BEGIN}(?P<detail>{said})")


class OpenMpiIo(RuleParser):
    """OMPIO's errors; the name of the function and the reason that the system gave make the key."""

    rules = (
        # The system's own reason: fbtl/posix, fbtl/ime, sharedfp/sm
        _said("mca_fbtl_", r"mca_fbtl_\w{1,60}"),
        MatchRule(
            "ime_native_",
            key="{what}@{where}",
            pattern=rf"{_BEGIN}(?P<detail>(?P<where>ime_native_\w{{1,40}})(?:\(\))? error (?P<what>ret=.*))",
        ),
        _said("mca_sharedfp_", r"mca_sharedfp_\w{1,60}"),
        _said("sharedfp_", r"sharedfp_\w{1,60}"),
        MatchRule(
            "sharedfp_",
            key="{what}@{where}",
            pattern=rf"{_BEGIN}(?P<detail>(?P<where>sharedfp_\w{{1,60}}) - (?P<what>\S.*))",
        ),
        # The layers above them: fcoll/vulcan and its kin, common/ompio, io/ompio
        *(
            MatchRule(
                words,
                key="{what}@{where}",
                priority=Priority.RELAYED,
                pattern=rf"{_BEGIN}(?P<detail>(?P<where>\w{{1,40}}_all): (?P<what>\w*{words}.*))",
            )
            for words in (
                "fbtl_pwritev failed",
                "fbtl_preadv failed",
                "fbtl_ipwritev failed",
                "fbtl_ipreadv failed",
                "_pregen failed",
            )
        ),
        MatchRule(
            "_base_file_select() failed",
            key="no-component@{framework}",
            pattern=rf"{_BEGIN}(?:\w{{1,40}}: )?(?P<detail>mca_(?P<framework>[a-z]{{2,8}})_base_file_select.*)",
        ),
        _said("common_ompio", r"(?:mca_)?common_ompio\w{0,60}", Priority.RELAYED),
        _said("mca_io_ompio_", r"mca_io_ompio_\w{1,60}", Priority.RELAYED),
        MatchRule(
            "No shared file pointer component found for",
            key="no-component@sharedfp",
            pattern="for (?:this|the given) (?:file|communicator)",
        ),
        MatchRule("Only one split collective I/O operation allowed per file", key="split-collective@ompio"),
        # A file that is not there is an error that programs ask for.
        MatchRule(
            "fs_file failed, error code",
            key="failed@fs_file",
            priority=Priority.SYMPTOM,
            pattern=r"(?P<detail>fs_file failed, error code -?\d+)",
            fatal=False,
        ),
        MatchRule(
            "mca_fs_base_file_delete: Could not remove",
            key="not-removed@ompio",
            priority=Priority.SYMPTOM,
            pattern=r"(?P<detail>Could not remove file.*)",
            fatal=False,
        ),
        MatchRule("cannot use a soft-link between a LUSTRE", key="soft-link@lustre"),
        # src/mpi/romio/adio/common/lock.c
        MatchRule(
            "File locking failed in ADIOI_",
            key="no-lock@romio",
            pattern=r"(?P<detail>File locking failed in ADIOI_\w+)",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        what = groups.get("what")
        if what is None:
            return super().build_match(rule, groups, line)
        detail = groups["detail"].strip()
        reason = re.sub(r"^[Ee]rror (?:in|while|during) ", "", what)
        named = {
            **groups,
            "what": slug(_system(reason)),
            "where": groups["where"].removeprefix("mca_"),
            "detail": detail,
        }
        read = super().build_match(rule, named, line)
        if _MEMORY.search(what):
            read = replace(read, signature=replace(read.signature, kind=Kind.OUT_OF_MEMORY))
        if _SURVIVED.search(detail):
            read = replace(read, fatal=False)
        return read


def _system(reason: str) -> str:
    """Return the system's text of `(p)write(v):Bad address` and `aio_read(): errno 14 Bad address`, else the whole."""
    found = re.search(r"(?::|errno \d{1,3}|ret=-?\d{1,10}:?) *([A-Z][a-z].*)$", reason)
    return found[1] if found else reason
