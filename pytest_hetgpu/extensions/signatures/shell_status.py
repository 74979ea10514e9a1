"""Exit statuses of commands as scripts echo them: `exit status 255`, `rc=3`, `mpirun returned 9`.

Such a line counts if it is the last, or if another match proves a failure. 128+N is a signal (bash's manual, "Exit
Status"), 124 the time limit of timeout(1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_STATUS = lazy(
    r"^\W{0,6}(?:[\w./-]{1,40}[:,]? ){0,4}?"
    r"(?:exit(?:ed)?(?: with)?(?: (?:status|code))?|exit_?code|return(?:ed)? (?:code|status|value)|rc|ret|\$\?"
    r"|(?:mpi\w+|prterun|srun|torchrun|job|script|command|program|process|it) returned"
    r"|(?:mpirun|mpiexec|prterun|srun|torchrun)(?=: \d))"
    r"(?: is| was)?\s*[:=]?\s*\(?(?P<code>[1-9]\d{0,2})\)?\W{0,3}$",
    re.IGNORECASE,
)
_LONGEST = 120
_MOST = 50
_LIMIT = 124
_DEADLY = frozenset((4, 6, 7, 8, 9, 11))


class ShellStatus(LogParser):
    """Parser of a script's line about its command's exit, in customary forms."""

    triggers = (
        b"exit status",
        b"exit code",
        b"Exit status",
        b"Exit code",
        b"exited with",
        b"exitcode",
        b"exit_code",
        b"return code",
        b"returned ",
        b"return status",
        *(f"exit {digit}".encode() for digit in range(1, 10)),
        b"exit=",
        b"exit: ",
        b"rc=",
        b"rc ",
        b"RC=",
        b"rc:",
        b"ret=",
        b"mpirun: ",
        b"mpiexec: ",
        b"prterun: ",
        b"srun: ",
        b"torchrun: ",
    )

    def __init__(self) -> None:
        self._matches: dict[str, FailureMatch] = {}

    def feed(self, line: LogLine) -> None:
        if len(line.text) > _LONGEST or len(self._matches) >= _MOST:
            return
        found = _STATUS.match(line.text)
        if found:
            match = _match(int(found["code"]), line)
            self._matches.setdefault(match.signature.key, match)

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._matches.values())


def _match(code: int, line: LogLine) -> FailureMatch:
    detail = f"exit status {code}"
    if code - 128 in _DEADLY:
        name = signal_name(code - 128)
        signature = Signature(Kind.CRASH, name, line.quote, line.number, signal=name, detail=detail)
    elif code == _LIMIT:
        signature = Signature(Kind.TIMEOUT, "time-limit@timeout", line.quote, line.number, detail=detail)
    else:
        signature = Signature(Kind.ERROR, f"exit@{code}", line.quote, line.number, detail=detail)
    priority = Priority.LIMIT if code == _LIMIT else Priority.UNSPECIFIC
    return FailureMatch(signature, priority, fatal=False)
