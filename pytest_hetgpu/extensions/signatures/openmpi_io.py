"""Parallel I/O of Open MPI (OMPIO): failed reads and writes; and ROMIO's error for a file that it cannot lock.

ompi/mca/fbtl, fcoll, fs, sharedfp, io/ompio and common/ompio print by `opal_output` and return an error code to their
caller. A file's errors return by default, so that most programs continue as if the data were in the file. ROMIO
(src/mpi/ romio/adio/common/lock.c, in MPICH and in Open MPI) ends the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, slug
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MEMORY = lazy(
    r"(?i)could not allocate|error allocating|unable to (?:m|all)oc|memory allocation|while allocating"
    r"|Cannot allocate memory"
)
# Requests for a file that may be absent, or for a service that another component then provides.
_SURVIVED = lazy(r"^mca_common_ompio_file_(?:delete|open)|NOT (?:SUPPORTED|IMPLEMENTED)|incomplete_file_handle")


class OpenMpiIo(RuleParser, rows="openmpi_io"):
    """OMPIO's errors; the name of the function and the reason that the system gave make the key."""

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
