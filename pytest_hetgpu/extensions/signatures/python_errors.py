"""Tracebacks of Python, and the meaning of the exceptions that end them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_hetgpu.extensions.signatures._messages.gpu import gpu_error
from pytest_hetgpu.extensions.signatures._messages.nccl import meaning
from pytest_hetgpu.extensions.signatures._messages.python import EXCEPTIONS, MPICH_CLASSES
from pytest_hetgpu.extensions.signatures._messages.torch import filled_key, first_rule
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, token
from pytest_hetgpu.extensions.signatures.engine import collectives, tracebacks
from pytest_hetgpu.extensions.signatures.engine.frames import signal_name
from pytest_hetgpu.extensions.signatures.engine.tracebacks import (
    ChainLink,
    InterpreterCrash,
    RaisedException,
    Tracebacks,
)
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST_WRITERS = 256
_LONGEST_DETAIL = 200
_NOT_OURS = lazy(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |\.p(?:yx|xi|xd)$")
_C10D = lazy(r"torch/distributed/(?:distributed_c10d|nn/functional|_functional_collectives)\.py$")
# torchrun before it starts anything
_STARTING = lazy(r"config_from_args|determine_local_world_size|parse_\w+|get_rdzv_endpoint")
_AGENT = lazy(r"torch/distributed/(?:elastic/agent|launcher)/")
_CLEANUP = {"__exit__", "__del__", "__aexit__", "destroy_process_group", "shutdown", "close", "cleanup", "teardown"}
# concurrent.futures, torch._dynamo.exc, torch.utils.data, transformers' import_utils.py and others
_REFERS = lazy(
    r"\b(?i:see|look at|caused by|because of) (?:\w+ ){0,3}(?i:inner|above|original|previous|underlying|following)\b"
    r"|look up to see its traceback|exited unexpectedly| (?:raised|error|exception|reason)s?:$"
)
_MPI_CALL = lazy(r"\bMPI\.(?:Comm|Intracomm|Intercomm|Request|File|Win)\.(\w+)$")
_MPI_ERROR = lazy(r"(MPIX?_ERR_\w+)(?:: (.*))?")
_MPICH_ERROR = lazy(rf"({'|'.join(map(re.escape, MPICH_CLASSES))})(?:, error stack:.*)?$")
_GPU = lazy(r"\b(?:CUDA|HIP)(?: runtime| driver)? error: (?P<text>[^\n]+)")
_LAST_ERROR = lazy(r"^Last error:\s*(?P<text>[^\n]+)", re.MULTILINE)
# MPI_Abort's text: ompi/mpi/help-mpi-api.txt and ompi/runtime/ompi_mpi_abort.c, src/mpid/ch4/src/ch4_globals.c
_ABORTING = ("MPI_ABORT was invoked on rank ", "application called MPI_Abort(")
_ABORTED = lazy(
    r"MPI_ABORT was invoked on rank (?P<openmpi>\d{1,9}) |Abort\(1\) on node \d+ \(rank (?P<mpich>\d{1,9}) in comm 0\)"
)
_LONGEST_ABORT = 200
_UNSPECIFIC = ("MPI_ERR_OTHER", "MPI_ERR_INTERN", "MPI_ERR_UNKNOWN")
# Causes of the interpreter's fatal error, by text (Python/pylifecycle.c, Modules/faulthandler.c).
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Floating": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Aborted": "SIGABRT",
}


class PythonErrors(LogParser):
    """Parser of tracebacks: one match per exception at the end of one; line prefixes distinguish ranks."""

    triggers = tuple(
        word.encode()
        for word in (
            tracebacks.START,
            tracebacks.FATAL,
            tracebacks.CAUSED,
            tracebacks.HANDLING,
            tracebacks.THREAD,
            tracebacks.IGNORED,
            tracebacks.LOGGING,
            *tracebacks.SYNTAX,
            *_ABORTING,
            '  File "',
            "Error: ",
            "Exception: ",
        )
    )
    context = 120

    def __init__(self) -> None:
        self._writers: dict[tuple[int | None, str | None], Tracebacks] = {}
        self._aborting: set[int] = set()

    def feed(self, line: LogLine) -> None:
        if found := _ABORTED.match(line.text[:_LONGEST_ABORT]):
            self._abort(int(found["openmpi"] or found["mpich"]))
        line = tracebacks.strip_rank_prefix(tracebacks.restore_exception_name(line))
        writer = self._writers.get((line.rank, line.host))
        if writer is None:
            if len(self._writers) >= _MOST_WRITERS:
                return
            writer = self._writers[line.rank, line.host] = Tracebacks()
        writer.feed(line)

    def _abort(self, rank: int) -> None:
        if len(self._aborting) < _MOST_WRITERS:
            self._aborting.add(rank)

    def finish(self) -> Sequence[FailureMatch]:
        matches: list[FailureMatch] = []
        for writer in self._writers.values():
            writer.finish()
            matches += _matches(writer.raised)
            matches += [_fatal(fatal) for fatal in writer.fatal]
        matches += collectives.of_tracebacks(matches)
        return tuple(sorted(self._ranked(matches), key=lambda match: match.signature.line))

    def _ranked(self, matches: Sequence[FailureMatch]) -> Sequence[FailureMatch]:
        """Add the rank that mpi4py then aborted with, if all matches are of one rank.

        mpi4py's hook prints, and then calls MPI_Abort.
        """
        best = min((match.priority for match in matches), default=Priority.CAUSE)
        keys = {match.signature.key for match in matches if match.priority is best}
        unnamed = not any(match.signature.ranks for match in matches)
        if not unnamed or len(self._aborting) != 1 or len(keys) != 1:
            return matches
        ranks = tuple(self._aborting)
        return [replace(match, signature=replace(match.signature, ranks=ranks)) for match in matches]


def _matches(raised: Sequence[RaisedException]) -> list[FailureMatch]:
    read: dict[int, FailureMatch] = {}
    for one in raised:
        match = _match(one)
        before = read.get(id(one.after)) if one.after else None
        if before and one.after:
            read[id(one.after)], match = _chained(before, one.after, match, one)
        read[id(one)] = match
    return [read[id(one)] for one in raised if one.name != "ChildFailedError"]


def _chained(
    before: FailureMatch, was: RaisedException, match: FailureMatch, one: RaisedException
) -> tuple[FailureMatch, FailureMatch]:
    """Return two chained exceptions, with the priority of each beside the other.

    The last one is the program's message, however it was raised: in `raise X from Y` X was written with Y in mind. The
    first one counts in three cases. It has more than its name, the last only refers to it (`_wraps`), or the last came
    from cleaning up.
    """
    if was.name == "ExceptionGroup" or one.link in (ChainLink.INNER, ChainLink.MEMBER):
        return _at_least(before, max(Priority.RELAYED, match.priority)), match
    if was.name == "CancelledError":  # asyncio's own way to end what took too long
        return before, match
    if one.name == "RendezvousConnectionError":  # its text holds the error of the store's socket
        named = replace(match.signature, hosts=match.signature.hosts or before.signature.hosts)
        return _at_least(before, Priority.CONSEQUENCE), replace(match, signature=named)
    plain = _is_plain(was, before)
    told = not plain and (one.link is ChainLink.CAUSED or _is_plain(one, match))
    cleaning = one.link is ChainLink.HANDLING and any(name.rpartition(".")[2] in _CLEANUP for _, name in one.frames)
    if told or cleaning or _wraps(one, was):
        return before, _at_least(match, max(Priority.RELAYED, before.priority))
    return (_at_least(before, Priority.RELAYED) if plain else before), match


def _wraps(one: RaisedException, was: RaisedException) -> bool:
    """Return whether an exception lacks a message of its own: a pool's copy of its worker's, or a reference to it."""
    return one.message in ("", was.message) or _REFERS.search(one.message) is not None


def _is_plain(one: RaisedException, match: FailureMatch) -> bool:
    """Return whether an exception has nothing but its name."""
    return match.signature.key == f"{one.name}@{_place(one.frames)}" and match.priority is Priority.CAUSE


def _at_least(match: FailureMatch, priority: Priority) -> FailureMatch:
    return replace(match, priority=max(match.priority, priority))


def _match(one: RaisedException) -> FailureMatch:
    said = one.line
    words = f"{one.name}: {one.message}" if one.message else one.name
    place = _place(one.frames)
    signature = Signature(
        Kind.ERROR,
        f"{one.name}@{place}",
        said.quote,
        said.number,
        detail=words[:_LONGEST_DETAIL],
        entry_point=_entry(one.frames),
        ranks=() if said.rank is None else (said.rank,),
        hosts=(said.host,) if said.host else (),
    )
    fatal = not (one.thread or one.bare)
    if not one.name:
        cut = replace(signature, key=f"traceback@{place}", detail="the log ends within a traceback")
        return FailureMatch(cut, Priority.UNSPECIFIC)
    if one.name == "Exception" and (mpi := _mpi(one, signature)):
        return mpi
    if any(_STARTING.fullmatch(name) for path, name in one.frames if path.endswith("torch/distributed/run.py")):
        return FailureMatch(replace(signature, kind=Kind.LAUNCH_FAILURE))
    if one.name == "FileNotFoundError" and one.frames and one.frames[-1][1] == "_get_code_from_file":
        return FailureMatch(replace(signature, kind=Kind.LAUNCH_FAILURE, key="no-program@python"))
    if (gpu := _GPU.search(one.text)) and (error := gpu_error(gpu["text"])):
        key = f"OutOfMemoryError@{place}" if error.name == "OutOfMemory" else error.key
        return FailureMatch(replace(signature, kind=error.kind, key=key), fatal=fatal)
    return _nccl(one.text, signature, fatal) or _sensed(one, signature, place, fatal)


def _nccl(text: str, signature: Signature, fatal: bool) -> FailureMatch | None:
    """Return the last warning of NCCL, which c10d's exception repeats after its own text (NCCLUtils.cpp)."""
    found = _LAST_ERROR.search(text)
    means = meaning(found["text"].strip()) if found else None
    if means is None:
        return None
    entry = means.entry or signature.entry_point
    said = replace(signature, kind=means.kind, key=means.key, detail=means.detail, entry_point=entry)
    return FailureMatch(said, means.priority, fatal=fatal)


def _sensed(one: RaisedException, signature: Signature, place: str, fatal: bool) -> FailureMatch:
    found = first_rule(one.text, EXCEPTIONS)
    if not found:
        return FailureMatch(signature, fatal=fatal)
    sense, regex_match = found
    groups = regex_match.groupdict()
    signal = groups.get("signal") or sense.signal
    signal = signal_name(int(signal)) if signal and signal.isdigit() else signal
    key = sense.key if not sense.key.endswith("@") else f"{sense.key}{place}"
    key = filled_key(sense._replace(key=key.replace("{signal}", signal or "")), regex_match) or signature.key
    kind = sense.kind
    if key.startswith("address-in-use@") and any(_AGENT.search(path) for path, _ in one.frames):
        kind = Kind.LAUNCH_FAILURE
    signature = replace(
        signature,
        kind=kind,
        key=key,
        signal=signal,
        entry_point=sense.entry or signature.entry_point,
        ranks=(int(groups["rank"]),) if groups.get("rank") else signature.ranks,
        hosts=(groups["host"],) if groups.get("host") else signature.hosts,
    )
    return FailureMatch(signature, sense.priority, fatal=fatal)


def _place(frames: Sequence[tuple[str, str]]) -> str:
    """Return `train.py!main`: the innermost frame of the user's own code, else the innermost of all."""
    if not frames:
        return "python"
    ours = (frame for frame in reversed(frames) if not _NOT_OURS.search(frame[0]) and not _is_stub(*frame))
    path, function = next(ours, frames[-1])
    function = "" if function.startswith("<") else token(function)
    return token(path.strip("<>").removeprefix("frozen ")) + (f"!{function}" if function else "")


def _is_stub(path: str, function: str) -> bool:
    """Return whether a frame is in the script that pip puts before a package's function."""
    return function == "<module>" and "/bin/" in path and not path.endswith(".py")


def _entry(frames: Sequence[tuple[str, str]]) -> str | None:
    """Return the function of torch.distributed or mpi4py that the program called."""
    for path, function in frames:
        if _C10D.search(path) and not function.startswith("_"):
            return token(function)
        if call := _MPI_CALL.search(function):
            return f"Comm.{call[1]}" if ".Comm." in function or ".Intracomm." in function else function[-60:]
    return None


def _mpi(one: RaisedException, signature: Signature) -> FailureMatch | None:
    """Return an error that MPI returned, with the key of the report of Open MPI."""
    error = _MPI_ERROR.match(one.message)
    mpich = _MPICH_ERROR.match(one.message)
    if not (error or mpich):
        return None
    name = error[1] if error else MPICH_CLASSES[mpich[1]] if mpich else ""
    called = next((call for _, function in reversed(one.frames) if (call := _MPI_CALL.search(function))), None)
    where = f"MPI_{called[1].capitalize()}" if called else _place(one.frames)
    detail = (f"{name}: {error[2]}" if error and error[2] else name) if error else f"{name}: {one.message}"
    entry = f"Comm.{called[1]}" if called else signature.entry_point
    priority = Priority.UNSPECIFIC if name in _UNSPECIFIC else Priority.CAUSE
    return FailureMatch(
        replace(signature, key=f"{name}@{where}", detail=detail[:_LONGEST_DETAIL], entry_point=entry), priority
    )


def _fatal(fatal: InterpreterCrash) -> FailureMatch:
    """Return the interpreter's fatal error.

    It aborts after the message; faulthandler prints it when a signal ends the process. If the program's own code is not
    in a function, the innermost frame names the crash.
    """
    frames = fatal.frames[::-1]
    place = _place(frames)
    if "!" not in place:
        place = _place(frames[-1:])
    signal = next((signal for words, signal in _SIGNALS.items() if fatal.what.startswith(words)), "SIGABRT")
    signature = Signature(
        Kind.CRASH,
        f"{signal}@{place}",
        fatal.line.quote,
        fatal.line.number,
        signal=signal,
        detail=fatal.what[:_LONGEST_DETAIL],
        ranks=() if fatal.line.rank is None else (fatal.line.rank,),
        hosts=(fatal.line.host,) if fatal.line.host else (),
    )
    return FailureMatch(signature, Priority.RELAYED if fatal.what.startswith("Aborted") else Priority.CAUSE)
