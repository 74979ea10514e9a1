"""Model of a run from its log: its phases, the events in them, and which event explains which.

A run is submitted, starts, has its ranks up, makes progress, and finishes. The first event that ended its progress is
the cause. Events that the run survived, and events that follow from another, explain nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.logs.outline import Alarms, Attempts, progress_between
from pytest_hetgpu.analysis.logs.success import Success
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Phase, Priority
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

Reader = Callable[[int, int], Sequence[LogLine]]
"""Returns the lines of a log from one number to another, both included."""

_MOST_ASKED = 24
_NEAR = 40
_LONG_BEFORE = 1000
_BEFORE_RANKS = (Phase.SUBMITTED, Phase.STARTING)
_BY_SIGNAL = lazy(r"\b(?:killed \(|received |got |caught )(?:signal )?(?:SIG(?:TERM|INT|HUP|KILL|USR\d)|15\b)")
_APART = 5
# A program's own exception about a communicator that is lost.
_LAST_WORDS = "aborted@"
_STOPPED = ("stopped@torchrun",)
_LIMIT_REACHED = "time-limit@timeout"

# Signals by which schedulers, launchers and people end processes.
_SENT = frozenset(("SIGTERM", "SIGKILL", "SIGINT", "SIGHUP", "SIGCONT", "SIGUSR1", "SIGUSR2"))
_OWN = frozenset(("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"))
_EFFECTS = frozenset((Kind.CRASH, Kind.ERROR, Kind.LAUNCH_FAILURE, Kind.NETWORK_FAILURE))
_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "orted", "prted", "hydra", "launcher", "flux", "daemon")
# Libraries that only ranks, or their launcher after the script, call.
_OF_RANKS = frozenset(("c10d-store", "nccl", "rccl", "gloo", "torch"))


@dataclass(frozen=True, slots=True)
class Course:
    """A run's course: its attempts, the lines that alarm, and its number of lines.

    `read` returns lines; it is called for few of them. `read_signs` and `read_tests` search the last lines, and
    `read_start` the first: most runs pass or fail without a question about them.
    """

    attempts: Attempts
    alarms: Alarms
    lines: int
    read: Reader
    read_signs: Callable[[], tuple[Success, ...]]
    read_tests: Callable[[], Success | None]
    read_start: Callable[[], int | None]

    @property
    def signs(self) -> tuple[Success, ...]:
        """The signs of success, in the order of lines."""
        return self.read_signs()

    @property
    def started(self) -> int | None:
        """The first line of a rank; None if no rank shows itself."""
        return self.read_start()


def explained(matches: Sequence[FailureMatch], course: Course) -> tuple[FailureMatch, ...]:
    """Return the matches with the priority that their place in the run gives them."""
    matches = _one_per_line(matches)
    if not matches:
        return ()
    for place in _PLACES:
        matches = place(matches, course)
    return tuple(matches)


def _one_per_line(matches: Sequence[FailureMatch]) -> Sequence[FailureMatch]:
    """Leave out the program's message if another parser has read its line, too."""
    known = {match.signature.line for match in matches if not is_of_program(match)}
    return [match for match in matches if not is_of_program(match) or match.signature.line not in known]


def is_of_program(match: FailureMatch) -> bool:
    """Return whether a match is a message of the program that proves no failure."""
    return not match.fatal and match.signature.key.endswith("@program")


def _before_ranks(matches: Sequence[FailureMatch], course: Course) -> Sequence[FailureMatch]:
    """Return failures of scripts before the ranks were up as survived, if another than a launch failed later."""
    if not any(map(_of_script, matches)):
        return matches
    shown = [match.signature.line for match in matches if match.fatal and _place(match) in _OF_RANKS]
    started = min((line for line in (course.started, *shown) if line is not None), default=None)
    if started is None or not any(
        match.fatal and match.signature.line >= started and match.signature.kind is not Kind.LAUNCH_FAILURE
        for match in matches
    ):
        return matches
    # Another rank may start later than the one whose exit is reported.
    if any(match.fatal and match.priority is Priority.EXIT and match.signature.line < started for match in matches):
        return matches
    return [_consequence(match) if match.signature.line < started and _of_script(match) else match for match in matches]


def _of_script(match: FailureMatch) -> bool:
    return match.signature.signal is None and (not match.fatal or match.signature.kind is Kind.LAUNCH_FAILURE)


def _after_start(matches: Sequence[FailureMatch], course: Course) -> Sequence[FailureMatch]:
    """Return a launcher's failures to launch after progress of the ranks as symptoms: they ran."""
    launches = [match for match in matches if _relayed_launch(match)]
    started = course.started if launches else None
    if started is None:
        return matches
    late = [match for match in launches if match.signature.line > started]
    ran = {id(match) for match in late[:_MOST_ASKED] if progress_between(course.read, started, match.signature.line)}
    return [
        replace(match, priority=max(match.priority, Priority.UNSPECIFIC)) if id(match) in ran else match
        for match in matches
    ]


def _relayed_launch(match: FailureMatch) -> bool:
    return _phase(match) in _BEFORE_RANKS and match.priority >= Priority.RELAYED


def _phase(match: FailureMatch) -> Phase | None:
    return match.phase or (Phase.STARTING if match.signature.kind is Kind.LAUNCH_FAILURE else None)


def _survived(matches: Sequence[FailureMatch], course: Course) -> Sequence[FailureMatch]:
    """Return failures after which the program made progress as consequences, if a fatal one came later."""
    lines = frozenset(match.signature.line for match in matches)
    ends = {
        match.signature.key: match.signature.line
        for match in sorted(matches, key=lambda match: match.signature.line)
        if match.fatal and match.priority < Priority.CONSEQUENCE
    }
    asked, result = 0, []
    for match in matches:
        line = match.signature.line
        end = max((end for key, end in ends.items() if end > line and key != match.signature.key), default=None)
        if (
            end is not None
            and match.signature.signal is None
            and match.priority < Priority.LIMIT
            and asked < _MOST_ASKED
        ):
            asked += 1
            if progress_between(course.read, line, end, lines):
                result.append(_consequence(match))
                continue
        result.append(match)
    return result


def _logged_before(matches: Sequence[FailureMatch], _: Course) -> Sequence[FailureMatch]:
    """Return what was only logged, some lines before a fatal failure that names its own cause, as a symptom."""
    last = max((match.signature.line for match in matches if match.fatal and _names_cause(match)), default=0)
    limit = max((match.signature.line for match in matches if _is_limit(match)), default=0)
    placed = [_behind(match, max(last, limit) if match.priority is Priority.CAUSE else last) for match in matches]
    # A program that crashes later did without a library that the loader missed.
    crash = max(
        (match.signature.line for match in matches if match.fatal and match.signature.signal in _OWN), default=0
    )
    return [
        replace(match, priority=max(match.priority, Priority.SYMPTOM))
        if match.signature.line + _APART < crash and _is_optional(match)
        else match
        for match in placed
    ]


def _is_optional(match: FailureMatch) -> bool:
    """Return whether a program may run on without a library; ld.so ends one that it cannot start (elf/rtld.c)."""
    signature = match.signature
    return signature.kind is Kind.MISSING_LIBRARY and "error while loading" not in signature.primary_line


def _behind(match: FailureMatch, last: int) -> FailureMatch:
    anonymous = match.process is None and not match.signature.ranks
    if anonymous and not match.fatal and match.signature.line + _APART < last:
        return replace(match, priority=max(match.priority, Priority.SYMPTOM))
    raised = match.signature.key.startswith(_LAST_WORDS) and match.signature.line == last
    return replace(match, priority=Priority.EXIT) if raised else match


def _names_cause(match: FailureMatch) -> bool:
    return match.priority is Priority.CAUSE or match.signature.key.startswith(_LAST_WORDS)


def _under_limit(matches: Sequence[FailureMatch], _: Course) -> Sequence[FailureMatch]:
    """Return ends by signals and of launchers, after a limit or a cancellation or with it, as its consequences."""
    line = min((match.signature.line for match in matches if _is_limit(match)), default=None)
    if line is None:
        return matches
    return [_consequence(match) if _follows_limit(match, line) else match for match in matches]


def _follows_limit(match: FailureMatch, line: int) -> bool:
    if _is_limit(match) or match.signature.line < line - _NEAR:
        return False
    late = match.signature.line > line
    # SIGKILL comes after the message.
    sent = _SENT if late else _SENT - {"SIGKILL"}
    if match.signature.signal in sent or _BY_SIGNAL.search(match.signature.primary_line):
        return True
    return late and (match.priority >= Priority.EXIT or _of_launcher(match)) and match.signature.kind in _EFFECTS


def _of_launcher(match: FailureMatch) -> bool:
    return any(name in _place(match) for name in _LAUNCHERS)


def _place(match: FailureMatch) -> str:
    return match.signature.key.partition("@")[2]


def _of_others(matches: Sequence[FailureMatch], _: Course) -> Sequence[FailureMatch]:
    """Return reports of an end that began elsewhere as consequences, if a failure shows where."""
    if all(match.phase is Phase.FINISHING for match in matches if match.fatal):
        return matches
    return [_consequence(match) if match.phase is Phase.FINISHING else match for match in matches]


def _after_stop(matches: Sequence[FailureMatch], _: Course) -> Sequence[FailureMatch]:
    """Return what follows a signal from outside to the launcher as its consequence.

    If the exit status of timeout(1) comes last, its limit sent the signal.
    """
    stop = min((match.signature.line for match in matches if match.signature.key in _STOPPED), default=None)
    if stop is None:
        return matches
    late = [match for match in matches if match.signature.line > stop]
    limit = next((match for match in late if match.signature.key == _LIMIT_REACHED), None)
    placed = []
    for match in matches:
        if match is limit:
            placed.append(replace(match, fatal=True, priority=Priority.CAUSE))
        elif match in late or (limit and match.signature.key in _STOPPED):
            placed.append(_consequence(match))
        else:
            placed.append(match)
    return placed


def _before_abort(matches: Sequence[FailureMatch], _: Course) -> Sequence[FailureMatch]:
    """Return what a program, or a library in it, reports shortly before it aborts as the reason of that."""
    first = min((match.signature.line for match in matches if _is_abort(match)), default=None)
    if first is None:
        return matches
    return [
        replace(match, priority=Priority.RELAYED)
        if match.priority is Priority.SYMPTOM and 0 < first - match.signature.line < _far(match)
        else match
        for match in matches
    ]


def _is_abort(match: FailureMatch) -> bool:
    return match.priority is Priority.EXIT and match.signature.key.startswith("MPI_Abort")


def _far(match: FailureMatch) -> int:
    return _LONG_BEFORE if match.fatal else _NEAR


_PLACES = (
    *(_before_ranks, _after_start, _survived, _logged_before, _under_limit, _of_others, _after_stop, _before_abort),
)


def _is_limit(match: FailureMatch) -> bool:
    """Return whether a scheduler, or a program that ends others, reports that it ended the run."""
    of_program = _place(match) in ("program", "nccl", "c10d", "gloo", "torch")
    return match.fatal and match.signature.kind is Kind.TIMEOUT and not of_program


def _consequence(match: FailureMatch) -> FailureMatch:
    return replace(match, priority=Priority.CONSEQUENCE, fatal=False)
