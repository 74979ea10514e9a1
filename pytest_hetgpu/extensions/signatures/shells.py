"""Messages of shells about their commands: one that died of a signal, one that was no program.

Sources:

- bash's jobs.c (print_pipeline: 24 columns for the signal's name, no blank after a longer one).
- dash's and busybox ash's jobs.c (the bare text).
- zsh's Src/jobs.c and the names of signals that its Src/signames2.awk makes.
- ksh93's sh/jobs.c, fish's share/functions/fish_job_summary.fish, and the names of glibc's siglist.

execvp(3) passes a file that the kernel refuses to /bin/sh; dash's and bash's complaints about its first lines follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, token
from pytest_hetgpu.extensions.signatures.engine.exits import CUT_OFF, exit_by_signal, signal_number
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 200
_LONGEST = 2000

# strsignal's names; ksh93 and zsh have names of their own for some.
_OTHER_NAMES = {
    "Memory fault": 11,
    "Floating exception": 8,
    "Abort": 6,
    "abort": 6,
    "IOT instruction": 6,
    "segmentation fault": 11,
    "bus error": 7,
    "killed": 9,
    "terminated": 15,
    "hangup": 1,
    "floating point exception": 8,
    "illegal hardware instruction": 4,
    "trace trap": 5,
    "invalid system call": 31,
    "cpu limit exceeded": 24,
    "file size limit exceeded": 25,
    "alarm": 14,
}
_NAMES = (
    *("Segmentation fault", "Aborted", "Bus error", "Illegal instruction", "Floating point exception", "Killed"),
    *("Trace/breakpoint trap", "Bad system call", "Terminated", "Hangup", "Alarm clock", "CPU time limit exceeded"),
    *("File size limit exceeded", "Stack fault", "Quit", "Virtual timer expired", "Profiling timer expired"),
    *("User defined signal 1", "User defined signal 2", "Power failure"),
)
_STRSIGNAL = "|".join(_NAMES)
_OWN = "|".join(_OTHER_NAMES)
_DUMPED = r"(?: ?\(core ?dump(?:ed)?\))?"

# `run.sh: line 7: 1176 Killed mpirun ...`; a part of a pipeline may have a line of its own.
_BASH = lazy(
    rf"^[^\s:]{{1,200}}: line \d{{1,7}}: +\d{{1,8}} (?P<how>{_STRSIGNAL})(?: *\(core dumped\))?(?P<command>.*)$"
)
# The number of `[1] + 1234 abort` may be mistaken for a rank.
_ZSH = lazy(
    rf"^(?:zsh: (?:\d{{1,8}} )?|(?:\[\d{{1,4}}\] )? [+-] \d{{1,8}} )(?P<how>{_OWN}){_DUMPED}"
    r"(?: {2,}(?P<command>.*))?$"
)
_KSH = lazy(
    rf"^[^\s:]{{1,200}}(?:\[\d{{1,7}}\]|: line \d{{1,7}}): (?:\d{{1,8}}:? )?(?P<how>{_STRSIGNAL}|{_OWN}){_DUMPED}\s*$"
)
_FISH = lazy(
    r"^fish: (?:Process \d{1,8}, '[^']{0,100}' from job |Job )[^\s,]{1,20}, "
    r"['\u201c](?P<command>[^'\u201d]{0,300})['\u201d] "
    r"terminated by signal (?P<name>SIG[A-Z]{2,8})\b"
)
# dash's and csh's words have nothing before them.
_BARE = lazy(rf"^(?P<how>{_STRSIGNAL})(?P<dumped> \(core dumped\))?\s*$")
# Before glibc's report of a core, whatever name of a program is put.
_NAMED = lazy(
    r"^(?:[\w./-]{1,200}: )?(?P<how>Segmentation fault|Aborted|Abort|Bus error|Illegal instruction"
    r"|Floating point exception|Trace/breakpoint trap|Bad system call) +\(core dumped\)(?: +(?P<command>\S.*))?$"
)
_NOT_A_SHELL = ("srun:", "slurmstepd", "make")

_ASSIGNED = r"(?:\w+=\S* +|(?:exec|time|nohup|env|command|nice|ionice|stdbuf|setsid|sudo)(?: +-\S+)* +){0,8}"
_TIMEOUT = lazy(rf"^\s*{_ASSIGNED}(?:\S*/)?timeout +(?P<options>(?:-\S+ +(?:(?:SIG)?[A-Z]\w* +)?)*)")
# Commands that scripts run beside their program, and end themselves.
_BESIDE = lazy(
    rf"^\s*\(?\s*{_ASSIGNED}(?:\S*/)?(?:sleep|tail|tee|cat|yes|vmstat|dstat|iostat|sar|top|watch|dmesg|ping|nvidia-smi"
    r"|rocm-smi|amd-smi|dcgmi|\S*monitor\S*|free|perf|tcpdump|while|for|until)\b"
)
_SENT = (1, 2, 3, 9, 14, 15)
_FROM_TIMEOUT = "time-limit@timeout"

# `./prog: 15: ./prog: 15: Syntax error: ")" unexpected`, `./prog: line 1: syntax error near unexpected token `)'`
_SYNTAX = lazy(
    r"^(?P<self>[^\s:]{1,200}): (?:line )?\d{1,7}: (?:(?P=self): \d{1,7}: )?"
    r"(?P<detail>Syntax error: .{1,120}|syntax error(?: near|:).{1,120}|Unterminated quoted string"
    r"|unexpected EOF while looking for matching .{1,60})$"
)
_NOT_FOUND = lazy(
    r"^(?P<self>[^\s:]{1,200}): (?P<line>\d{1,7}): (?:(?P=self): \d{1,7}: )?(?P<program>[^:]{1,200}): "
    r"(?P<detail>(?:not found|Permission denied))\s*$"
)
_BINARY = lazy(r"(?:^|: )(?P<self>[^\s:]{1,200}): (?P<detail>cannot execute binary file)(?:: Exec format error)?\s*$")
_SCRIPT = lazy(r"\.(?:sh|bash|ksh|sbatch|slurm|job|pbs|sub|cmd)$|slurm_script$|/job\d+/|(?:^|/)\w*sh$|^-")


class Shells(LogParser):
    """Parser of jobs that died, and of files that a shell tried to interpret."""

    triggers = (
        *(name.encode() for name in _NAMES),
        *(name.encode() for name in ("zsh: ", "Memory fault", "Floating exception", "fish: ", "coredump)")),
        b"(core dumped)",
        b"yntax error",
        b"Unterminated quoted",
        b"unexpected EOF while",
        b": not found",
        b": Permission denied",
        b"cannot execute binary",
        b"]  + ",
        b"]  - ",
    )

    def __init__(self) -> None:
        self._matches: list[FailureMatch] = []
        self._forms: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], LogLine], FailureMatch | None]], ...] = (
            *((form, _job) for form in (_BASH, _ZSH, _KSH, _FISH, _BARE, _NAMED)),
            *((form, _no_program) for form in (_SYNTAX, _BINARY, _NOT_FOUND)),
        )

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if len(self._matches) >= _MOST or text.startswith(_NOT_A_SHELL):
            return
        for form, read in self._forms:
            if found := form.search(text):
                match = read(found, line)
                self._matches += [match] if match else []
                return

    def finish(self) -> Sequence[FailureMatch]:
        return tuple(self._matches)


def _job(found: re.Match[str], line: LogLine) -> FailureMatch | None:
    """Return a command that died of a signal; timeout(1) dies of the one that it sent."""
    said = found.groupdict()
    command = said.get("command") or ""
    number = _number(said)
    if number is None or _BESIDE.match(command):
        return None
    reason = exit_by_signal(number)
    name = reason.signal
    bare = found.re.pattern == _BARE.pattern and number not in (4, 7, 8, 11) and not said.get("dumped")
    signature = Signature(
        reason.kind,
        reason.key,
        line.quote,
        line.number,
        signal=name,
        detail=reason.detail,
        ranks=() if line.rank is None else (line.rank,),
        hosts=(line.host,) if line.host else (),
    )
    if number in _SENT and (limit := _TIMEOUT.match(command)):
        options = limit["options"].strip()
        signature = replace(signature, kind=Kind.TIMEOUT, key=_FROM_TIMEOUT, detail=f"timeout {options}".strip())
        return FailureMatch(signature, CUT_OFF)
    return FailureMatch(signature, reason.priority, fatal=not bare)


def _number(said: dict[str, str | None]) -> int | None:
    if name := said.get("name"):
        return next((number for number in range(1, 32) if signal_name(number) == name), None)
    how = said.get("how") or ""
    return signal_number(how) or _OTHER_NAMES.get(how)


def _no_program(found: re.Match[str], line: LogLine) -> FailureMatch | None:
    """Return a file that a shell cannot interpret; in later lines a script may have run a program before."""
    name, said = found["self"], found.groupdict()
    script = _SCRIPT.search(name) is not None
    if script and found.re.pattern == _NOT_FOUND.pattern:
        return None  # the loader's dialect reads these
    key = f"no-program@{token(said.get('program') or name)}" if script else f"not-a-program@{token(name)}"
    signature = Signature(
        Kind.LAUNCH_FAILURE,
        f"syntax-error@{token(name)}" if script and found.re.pattern == _SYNTAX.pattern else key,
        line.quote,
        line.number,
        detail=found["detail"].strip(),
        ranks=() if line.rank is None else (line.rank,),
    )
    later = found.re.pattern == _NOT_FOUND.pattern and int(found["line"]) > 1
    doubtful = later or (script and found.re.pattern == _SYNTAX.pattern)
    return FailureMatch(signature, Priority.RELAYED if doubtful else Priority.CAUSE, fatal=not doubtful)
