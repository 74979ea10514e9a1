"""Signs of success in a log: an exit status of 0, a complete table of results, or a program's last words.

Each is a line that somebody can quote. A run without one may have passed, but its log does not show it.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

_LONGEST = 1000
_MOST = 64


class Proof(enum.Enum):
    """Kind of a sign, the strongest first."""

    STATUS = "exit status 0"
    TESTS = "tests passed"
    RESULT = "result"
    WORDS = "last words"
    FINALIZE = "orderly end of the libraries"


@dataclass(frozen=True, slots=True)
class Success:
    """A line that shows success; `line` counts from 1."""

    proof: Proof
    line: int
    quote: str


# Launchers, schedulers and shells. Sources: Slurm's seff and sacct, LSF's report, flux-job, PBS's accounting,
# torchrun (elastic/agent/server/api.py), DeepSpeed's launch.py, GitLab's runner, Kubernetes.
_STATUS = lazy(
    r"(?i:\b(?:exit(?:[ _-]?(?:status|code|value))?|return(?:ed)?(?:[ _-]?(?:status|code|value))?|rc|exited with(?: code)?"
    r"|status code)(?: (?:is|was|of))?\s*[:=]?\s*\(?['\"]?0['\"]?(?![\w.:/-])(?!\s*(?:/|of)\s*\d))"
    r"|\bExitCode=0:0\b|\bState: COMPLETED \(exit code 0\)|^Successfully completed\.\s*$|\bexits successfully\b"
    r"|\b[Ww]orker group successfully finished\b|^Job succeeded\b|\bFinished: SUCCESS\b"
    r"|(?i:\b(?:job|step|task|process|workflow|pipeline|run)\b.{0,60}\b(?:completed|finished|ended|exited) success\w*)"
)
_TESTS = lazy(
    r"^=+ (?:\d+ (?:passed|skipped|deselected|xfailed|xpassed|warnings?)(?:, )?)+ in [\d.]+\w*.*=+\s*$"
    r"|^\[  PASSED  \] \d+ tests?\.?|^100% tests passed, 0 tests failed out of \d+|^OK(?: \(skipped=\d+\))?\s*$"
    r"|^test result: ok\. |(?i:^all (?:\d+ )?tests? (?:have )?(?:passed|ok|succeeded|successful))"
)
_RESULT = lazy(
    r"^# (?:Out of bounds values : 0 OK|Avg bus bandwidth\s+:\s*[\d.]+)|Out of bounds values : 0 OK"
    r"|(?i:\bverif(?:ication|ied|y)\w*\s*[:=]?\s*(?:is |was |of \w+ )?(?:success\w*|ok\b|passed|correct|valid))"
    r"|(?i:\b(?:0|no|zero) (?:bad|wrong|incorrect|failed|corrupt\w*|mismatch\w*|invalid|errors?\b)(?! in\b)(?: elements?| values?)?)"
    r"|(?i:\b(?:errors?|failures|failed|mismatches|bad(?: values| elements)?)\s*[:=]\s*0\b(?!\.\d*[1-9]))"
    r"|(?i:\b(?:test|check|validation|residual check|correctness)\w*\W{1,5}(?:\w+ ){0,3}(?:passed|pass|ok|success\w*)\b)"
    r"|(?i:\bfigure of merit\b.*\d|\bFOM\b.*\d|\bfinal (?:resid\w*|norm|loss|result|energy|accuracy|score|time)\b.*\d)"
    r"|(?i:\b(?:\w*result\w*|checksum|answer|sum|accuracy|metricvalue|eval\w*|best \w+)\b.{0,40}[:=]\s*(?:tensor\()?\[?[-+]?\d)"
    r"|^@hetgpu:\d{4}:\w+:\{\"t\":\"done\"|\bHPL: |\bEnd of Tests?\b|^\s*\d+(?:\s+[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)+\s+Pass\s*$"
)
_WORDS = lazy(
    r"(?i:^\W{0,8}(?:\S{1,40}[:\]|] ?){0,3}(?:\W{0,3}(?:rank|proc\w*|worker|task|node)[ :#=]{0,2}\d+(?: ?(?:of|/) ?\d+)?\W{0,3})?\s*"
    r"(?:all )?(?:done|finished|finalized|completed?|success(?:ful(?:ly)?)?|succeeded|passed|bye|goodbye|the end|exiting normally)"
    r"(?:[\s.!:)*=-]*$|,? (?:in|after|time|at|on)\b))"
    r"|(?i:\b(?:success(?:fully)?|normally|correctly)\b.{0,40}\b(?:complet\w+|finish\w+|ended|terminat\w+|exit\w*|done|trained|saved)\b)"
    r"|(?i:\b(?:complet\w+|finish\w+|ended|terminat\w+|exit\w*|done|ran|run|shut ?down|saved)\b.{0,40}\b(?:success\w*|normally|without errors?)\b)"
    r"|(?i:\bnormal (?:termination|end|exit|completion)\b|\bsuccessful completion\b)"
    r"|(?i:\b(?:simulation|calculation|training|benchmark\w*|tests?|runs?|jobs?|program|execution|computation|analysis|script"
    r"|fine-?tuning|inference|evaluation|sampling|optimi[sz]ation|experiments?|workflow|collect\w*|all\b.{0,20})"
    r"(?: \S+){0,4}? (?:is |are |was |has |have )?(?:now )?(?:complete[d]?|finish\w*|done|ended|concluded|over)\b(?! (?:in|with) err))"
    r"|(?i:\b(?:total|overall|elapsed|wall(?:[ -]?clock)?|run|execution|solve|training|computation|cpu|average|loop)[ _-]?"
    r"(?:wall |run |elapsed |clock |cpu |execution )?time\b.{0,60}\d)"
    r"|(?i:\b(?:runtime|elapsed|duration|throughput|(?:samples|tokens|images|steps)(?:/| per )s(?:ec\w*)?)\b\W{0,4}\d)"
    r"|^\s*real\s+(?:\d+m)?\d+[.,]\d+s?\s*$|\b[Tt]ime to \w+\b.{0,20}\d|\bJOB DONE\b|\bGROMACS reminds you\b"
    r"|^\s*(?:(?:GFLOPS|[GM]FLOP/s|Mop/s total|MB/s|GB/s)\b.*\d)|(?i:\b(?:total|final|mean|average) (?:wall |bandwidth|performance)\b.*\d)"
    r"|(?i:\b(?:end|finish\w*|stop|completed) (?:time|at|date|on|of)\b\W{0,3}.*\d|^\W{0,6}end(?: of)? \w+)"
    r"|\b100%\|[^|]*\| *(\d+)/(\d+) |(?i:\b(?:epoch|step|iter\w*)\W{1,3}(\d+) ?(?:/|of) ?(\d+)\b)"
    r"|^\s*\d+\s+\d+\.\d+(?:\s+\d+\.\d+)*\s*$"
)
# Ranks that reached MPI_Finalize or ncclCommDestroy. Sources: Open MPI's pml_ucx.c and common_ucx.c, NCCL's init.cc,
# libfabric's ofi_monitors_cleanup.
_FINALIZE = lazy(
    r"\bmca_pml_ucx_close\b|\bwaiting for 0 disconnect requests\b|\bNCCL INFO comm \S+ rank .* - Destroy COMPLETE"
    r"|\bofi_monitors_cleanup\b|\bcoll finalize: req\b"
)
# `step 3/100` is no end.
_COUNTED = lazy(r"\b100%\|[^|]*\| *(\d+)/(\d+) |(?i:\b(?:epoch|step|iter\w*)\W{1,3}(\d+) ?(?:/|of) ?(\d+)\b)")
_DENIED = lazy(
    r"(?i:\b(?:not|never|cannot|can't|couldn't|un)(?:\b|(?=success))|\bfail(?:ed|ure|s)?\b(?!\s*[:=]?\s*0\b)"
    r"|^\s*File \"|^\s*\{.*:.*,|\berrors?\b(?!\s*[:=]\s*0\b)|\bexception\b|\bwarning\b|\baborted\b|\bkilled\b|\bcancel|\bincomplete)"
)
_ZERO = lazy(r"(?i:\b(?:0|no|zero|without) (?:errors?|fail\w*|tests failed))")


def sign_of_success(line: LogLine) -> Success | None:
    """Return the sign in a line, None without one; a line that also reports a failure is none."""
    text = line.text[:_LONGEST]
    if _DENIED.search(text) and not _ZERO.search(text):
        return None
    for proof, pattern in ((Proof.STATUS, _STATUS), (Proof.TESTS, _TESTS), (Proof.RESULT, _RESULT)):
        if pattern.search(text):
            return Success(proof, line.number, line.quote)
    if _WORDS.search(text) and not _unfinished(text):
        return Success(Proof.WORDS, line.number, line.quote)
    return Success(Proof.FINALIZE, line.number, line.quote) if _FINALIZE.search(text) else None


def _unfinished(text: str) -> bool:
    counted = _COUNTED.search(text)
    if counted is None:
        return False
    done, whole = (number for number in counted.groups() if number is not None)
    return int(done[:9]) < int(whole[:9])


class SuccessSigns:
    """Collects signs of the whole log; of many it keeps the last.

    `triggers` are parts of lines that hold a sign apart from the last lines, which `of_tail` searches without them.
    """

    triggers = (
        *(b"xit code", b"xit status", b"xit_status", b"ExitCode=0:0", b"xitcode", b"exit_code", b"xited with"),
        *(b"eturn code", b"eturned 0", b" rc=0", b"COMPLETED", b"uccess", b"SUCCESS", b"Job succeeded"),
        *(b" passed", b"PASSED", b"Out of bounds values", b"erification", b"bad elements", b"ormal termination"),
        *(b'"t":"done"', b"JOB DONE", b"result: ", b"Figure of Merit", b"figure of merit", b"FOM", b"training is done"),
    )

    def __init__(self) -> None:
        self._found: deque[Success] = deque(maxlen=_MOST)

    def feed(self, line: LogLine) -> None:
        """Take one line that holds a trigger."""
        found = sign_of_success(line)
        if found is not None:
            self._found.append(found)

    @property
    def found(self) -> Sequence[Success]:
        """Return the last signs, in the order of lines."""
        return tuple(self._found)


def signs_in(lines: Sequence[LogLine]) -> Iterator[Success]:
    """Yield the signs in some lines."""
    return (found for line in lines if (found := sign_of_success(line)) is not None)
