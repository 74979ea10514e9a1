"""Wrong world sizes: each process prints that it is rank 0 of 1, or that it requires more or fewer ranks.

There is no upstream text: programs print their own greetings. An MPI starts a process without a launcher as a world of
one (MPI standard, "Singleton MPI_Init"). Two such greetings prove two processes; one is enough if the command line in
the log requests more. Complaints of programs are in `_messages.world_size`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.signatures._messages.world_size import wrong_world_size
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_LONGEST = 1000
_MOST = 4096

_WHO = r"(?:(?i:rank|process(?:or)?|proc|task|image|pe|node|worker)[ :#=]{0,3}|(?i:i am |i'm |hello.{0,60} ))"
_OF = r"(?:/|,? (?i:of|out of|(?:world[ _])?size|n(?:ranks|procs|tasks))[ :=]+)"
# `rank 0 of 1`, `Rank 0 size 1`, `process 0/1`, `I am 0 of 1`.
_GREETING = lazy(rf"\b{_WHO}\(?(?P<rank>\d{{1,7}}){_OF}(?P<size>\d{{1,7}})\b")
# Further evidence, if the command line requests more: `world size is 1`, a count before a plural.
_SIZE_ONE = lazy(
    r"(?i:\bworld[ _]?size\W{1,4}(?:is )?1\b)(?![.\d])|(?<![\w.-])1 (?:MPI )?(?:ranks|processes|procs|tasks)\b"
)
# NCCL's and RCCL's init.cc.
_COMMUNICATOR = lazy(
    r"^(?P<process>\S{1,300}:\d{1,10}):\d{1,10} \[-?\d+\] NCCL INFO comm \S+ rank \d+ n[Rr]anks (?P<size>\d{1,7})\b"
)
_HOST = lazy(r"^\[(?P<host>[A-Za-z][\w.-]{0,200})\] |\bon (?:host |node )?(?P<on>[A-Za-z][\w-]{0,60}\d)\b")
_ASKED = lazy(
    r"\b(?:mpirun|mpiexec(?:\.\w+)?|prterun|orterun|srun|torchrun|torch\.distributed\.(?:run|launch)|flux run|jsrun)\b"
)
_COUNT = lazy(r" (?:-{1,2}np?|--ntasks|--nproc[-_]per[-_]node|-c(?= \d+ \S*\s-H))[ =](?P<count>\d{1,7})\b")
# Lines about other worlds than the program's, or about a request to a launcher.
_OTHERS = lazy(
    r"^(?:\S*/)?(?:srun|sbatch|salloc|mpirun|mpiexec\S*|prterun|torchrun|flux\S*|slurm\w*)\b.{0,20}: |^\[[^\[\]\s]+:\d+"
    r"|\[W\d{4} |^[\w.]*(?:Error|Exception): |\bslots?\b|\bthreads?\b|\?\s*$"
)
_NOTES = lazy(r"\b(?:UCX|UCC|NCCL|libfabric|split|sub-?comm\w*|group|local|node rank)\b", re.IGNORECASE)


class WorldSize(LogParser):
    """Parser of greetings of which none counts another rank, and of a program's complaint."""

    triggers = (
        b" 0 of 1",
        b" 0 out of 1",
        b"0/1",
        b"ank 0 size",
        b"ank 0, size",
        b"ank: 0",
        b"ank=0",
        b"ank 0 world",
        b"ank 0, world",
        b"ank 0, n",
        b" 1 of ",
        b" 1 out of ",
        b"ank 1 size",
        b"ank 1, size",
        b"ank: 1",
        b"ank=1",
        b"ank 1/",
        b" 1 ranks",
        b" 1 MPI ",
        b" 1 proc",
        b" 1 tasks",
        b"size 1",
        b"size is 1",
        b"size: 1",
        b"size = 1",
        b"size=1",
        b" nRanks ",
        b" nranks ",
        b"mpirun -",
        b"mpiexec -",
        b"mpiexec.hydra -",
        b"prterun -",
        b"srun -",
        b"torchrun -",
        b"flux run -",
        b"anted ",
        b"wants ",
        b"xpected",
        b"xpects ",
        b"xpecting ",
        b"eeded",
        b"eeds ",
        b"need ",
        b"equires ",
        b"equired",
        b"equested",
        b"sked for ",
        b"must be ",
        b"must have ",
        b"must run ",
        b"must use ",
        b"should be ",
        b"should have ",
        b"meant for ",
        b"ntended for ",
        b"uilt for ",
        b"onfigured for ",
        b"ompiled for ",
        b"esigned for ",
    )

    def __init__(self) -> None:
        self._alone: list[LogLine] = []
        self._said: dict[str, int] = {}
        self._together = False
        self._asked = 0
        self._another: FailureMatch | None = None
        self._communicators: dict[str, LogLine | None] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if found := _COMMUNICATOR.match(text):
            self._communicator(found["process"], found["size"], line)
            return
        if _ASKED.search(text):
            counts = [int(found["count"]) for found in _COUNT.finditer(text)]
            self._asked = max(self._asked, sum(counts) if " : " in text else max(counts, default=0))
            return
        if self._another is None and not _OTHERS.search(text) and not _NOTES.search(text):
            self._another = _another(text, line)
        if _NOTES.search(text):
            return
        found = _GREETING.search(text)
        if not found:
            if self._asked > 1 and _SIZE_ONE.search(text) and len(self._alone) < _MOST:
                self._alone.append(line)
        elif int(found["size"]) > 1 or int(found["rank"]) > 0:
            self._together = True
        elif found["size"] == "1" and len(self._alone) < _MOST:
            self._alone.append(line)
            words = re.sub(r"\d+|^\[[^\[\]]*\]", "", text)
            self._said[words] = self._said.get(words, 0) + 1

    def _communicator(self, process: str, size: str, line: LogLine) -> None:
        if size != "1":
            self._communicators[process] = None
        elif len(self._communicators) < _MOST:
            self._communicators.setdefault(process, line)

    def finish(self) -> Sequence[FailureMatch]:
        told = (self._another,) if self._another else ()
        return (*self._fallen_apart(), *self._lone_communicators(), *told)

    def _lone_communicators(self) -> Sequence[FailureMatch]:
        """Return that each process has NCCL communicators of its own alone, on several hosts."""
        alone = [line for line in self._communicators.values() if line is not None]
        hosts = dict.fromkeys(process.partition(":")[0] for process in self._communicators)
        if len(hosts) <= 1 or len(alone) < len(self._communicators):
            return ()
        detail = f"{len(alone)} processes, each alone in its communicators"
        signature = Signature(
            Kind.WRONG_RESULT,
            "world-of-one@nccl",
            alone[0].quote,
            alone[0].number,
            detail=detail,
            hosts=tuple(hosts)[:64],
        )
        return (FailureMatch(signature),)

    def _fallen_apart(self) -> Sequence[FailureMatch]:
        twice = max(self._said.values(), default=0) > 1
        if not self._alone or self._together or self._asked == 1 or not (twice or self._asked > 1):
            return ()
        first = self._alone[0]
        hosts = tuple(dict.fromkeys(host for line in self._alone if (host := _host(line))))
        detail = f"{len(self._alone)} processes, each a world of its own"
        signature = Signature(
            Kind.WRONG_RESULT, "world-of-one@mpi", first.quote, first.number, detail=detail, hosts=hosts[:64]
        )
        return (FailureMatch(signature),)


def _another(text: str, line: LogLine) -> FailureMatch | None:
    numbers = wrong_world_size(text)
    if numbers is None:
        return None
    detail = f"{numbers[0]} ranks wanted, {numbers[1]} there"
    ranks = () if line.rank is None else (line.rank,)
    return FailureMatch(
        Signature(Kind.WRONG_RESULT, "world-size@program", line.quote, line.number, detail=detail, ranks=ranks)
    )


def _host(line: LogLine) -> str | None:
    found = _HOST.search(line.text[:_LONGEST])
    return line.host or (found and (found["host"] or found["on"])) or None
