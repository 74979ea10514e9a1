"""Lines of a log that a running program prints itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from pytest_hetgpu.extensions.signatures.engine.tools import TOOLS
from pytest_hetgpu.model.lazy_regex import lazy

_PROGRAMS = r"(?:mpirun|mpiexec(?:\.\w+)?|prterun|orterun|srun|torchrun|aprun|jsrun|flux run|horovodrun|deepspeed)"
_PROMPT = r"(?:\S{0,80}[$%>]|\S{1,80}#|\[[^\[\]]{1,80}\][$#%])"

# A shell's echo of the command that starts a run, lines of Open MPI's launchers and ranks alike, and of any program.
_START = lazy(
    rf"^{_PROMPT} (?!man |which |type )(?:.{{0,400}}[\s/;&|])?{_PROGRAMS}(?=\s|$)|^{_PROGRAMS}\s+-"
    r"|^\[[^\[\]\s:]+:\d{2,}\] |^\s*\[\[\d+,\d+\],\d+\]"
    # Warnings of Python programs, bars of tqdm
    r"|\.py:\d+: \w*Warning\b|\b\d+%\|[^|]*\| *\d+/\d+ "
)
# Steps of a program, rows of tables of benchmarks.
_PROGRESS = (
    r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch|[Cc]ycle)[ :=#\[]*\d+\b(?!/).*\d",
    r"\b(?:[Ff]igure [Oo]f [Mm]erit|FOM|GFLOPS|[Ww]all[ -]?(?:clock )?time|[Ee]lapsed time)\b.*\d",
    r"\b(?:[Rr]esidual|[Ll]oss|[Bb]andwidth|[Ll]atency)\b.*\d",
    r"^\s*\d+(?:\s+[-+]?\d[\d.]*(?:[eE][-+]?\d+)?){2,}\s*(?:Pass)?\s*$",
    r"^\s*\d+\s+\d+\.\d+\s*$",
    r"^\s*\d+\s+\d+\s+(?:float|double|half|bfloat|u?int)\d*\b",
    r"\b\d+%\|[^|]*\| *\d+/\d+ |\b[Ss]teps?(?:/sec|: *\d)",
    r"\b(?:[Ee]poch|[Ii]ter\w*|[Ss]tep)\W{1,3}\d+ ?(?:/|of) ?\d+(?! : )",
)
# Tests that passed: of unittest and pytest, one by one or as dots into which libraries may write; TAP; GoogleTest.
_PASSED_TEST = (
    r"\.\.\. ok\s*$",
    r"\bPASSED\b(?:\s+\[ *\d+%\])?\s*$",
    r"^[sxFE]*\.[.sxFE]*(?:\[[^\[\]\s:]+:\d+\] |(?<=.{8})\s*(?:\[ *\d+%\])?\s*$)",
    r"^ok \d+\b",
    r"^\[ +OK \] ",
)
# Lines that only ranks write: their own, those of the libraries that they load, tables of benchmarks.
_RANK = lazy(
    r"|".join(
        (
            r"^@hetgpu:\d{4}:",
            r"^\[\d{8,}\.\d+\] \[[^\[\]\s:]+:\d+\s*:\w+\]",
            r"\bNCCL (?:INFO|WARN|version)\b",
            r"^libfabric:\d+:",
            r"^\[\d+,\d+\]<std(?:out|err)>",
            r"\bMPI startup\(\)",
            r"^# (?:OSU |Collective test |nThread |Using devices|Benchmarking |Size  +(?:Avg )?(?:Latency|Bandwidth))",
            r"\b(?:MPI )?[Rr]ank[s:=# ]{0,3}\d+\b",
            r"\b[Pp]rocess(?:or)? \d+ (?:of|out of) \d+",
            r"\b[Ww]orld[ _]?[Ss]ize\b",
            *_PROGRESS,
        )
    )
)
_PROGRESSED = lazy(r"|".join((*_PROGRESS, *_PASSED_TEST)))
_ZEROS = str.maketrans("123456789", "0" * 9)

# Echoes of an exit status by scripts.
_STATUS = (
    r"(?i:^\W{0,6}(?:[\w./-]{1,40}[:,]? ){0,4}?(?:exit(?: status| code)?|return(?:ed)?(?: code)?|rc)"
    r"\s*[:=]?\s*\d{1,3}\W*$)"
)
# Lines of libraries, launchers and resource managers, and separators between them.
_NOT_THE_PROGRAMS = lazy(
    r"|".join(
        (
            r"^\s*$|^[-=*_]{4,}\s*$",
            r"^\[\d{8,}\.\d+\] \[",
            r"^\[[^\[\]\s:]+:\d{2,}(?:\s*:\d+)*\]",
            r"\bNCCL (?:INFO|WARN|TRACE)\b",
            r"^\s*#\d{1,3}\s+0x[0-9a-f]+ |^libfabric:|^libibverbs:|^\[?[WEIF]\d{4} \d\d:",
            rf"^(?:{TOOLS})\b.{{0,80}}:",
            r"^FATAL: {3}",
            # Tracebacks and stacks of Python (traceback.c), and torch's additions to an error or its end.
            r"^(?:CUDA|HIP) kernel errors might be|^For debugging consider passing |^Compile with `TORCH_USE_",
            r"^Stalled ops:|\[missing ranks: ?\d",  # Horovod
            r"\b[Ss]ending process \d+ closing signal SIG",
            r"^\s+File \".*\", line \d+|^(?:Current thread|Thread) 0x|^(?:Timeout \(|Traceback \(most)",
            r"^\[(?:mpiexec|proxy:\d+(?::\d+)?)@|^\w{1,80}\(\d{0,6}\)\.{0,60} ?: ",
            r"^(?:START OF (?:JOBSPEC|EVENTLOG)|\{\"(?:timestamp|resources)\")",
            r"^\s*(?:real|user|sys)\s+\d",
            _STATUS,
            r"(?i:^\W{0,4}(?:end|stop|finish)\w* (?:time|at|date)\b)",
            r"^=+\s+BAD TERMINATION|^=   |^=>> PBS: ",
        )
    )
)

# Lines before and after a help text of Open MPI (opal/util/show_help.c).
_RULE = lazy(r"^-{50,}\s*$")


def is_program_running(lines: Iterable[str]) -> bool:
    """Return whether one of these lines is of a kind that only running programs, or their start, write."""
    return any(is_rank_line(line) or _START.search(line) for line in lines)


def is_rank_line(line: str) -> bool:
    """Return whether only a rank, or a library in it, writes such a line."""
    return _RANK.search(line) is not None


def is_progress(line: str) -> bool:
    """Return whether a line shows that a program makes progress: a step, a loss, a row of a table, a passed test."""
    return _is_progressed(line.translate(_ZEROS)) and is_program_line(line)


@lru_cache(maxsize=1024)
def _is_progressed(shape: str) -> bool:
    """Return the same for all lines that differ in digits only: a large log has few kinds of lines."""
    return _PROGRESSED.search(shape) is not None


def is_program_line(line: str) -> bool:
    """Return whether a line is the program's own: no known line of a library, launcher or resource manager."""
    return not _NOT_THE_PROGRAMS.search(line)


def last_program_line(lines: Sequence[str], failures: Collection[int] = ()) -> int | None:
    """Return the index of the last line of the program itself, None without one; help texts between rules are skipped.

    `failures` are indexes of lines that are failures themselves.
    """
    inside, last = False, None
    for here, line in enumerate(lines):
        if _RULE.match(line):
            inside = not inside
        elif here not in failures and not inside and is_program_line(line):
            last = here
    return last
