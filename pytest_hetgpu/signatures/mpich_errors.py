"""MPICH's own words on errors: the line that MPI_Abort prints (src/mpi/errhan/errutil.c, src/mpi/init/abort.c)."""

from __future__ import annotations

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect
from pytest_hetgpu.signatures.base import Weight


class MpichErrors(RuleDialect):
    """The head of an error stack, and a program's own call of MPI_Abort."""

    rules = (
        Rule(
            ": Fatal error in ",
            Kind.ERROR,
            "{detail}@{entry}",
            Weight.RELAYED,
            pattern=r"Abort\(\d+\)(?: on node \d+ \(rank (?P<rank>\d+) in comm \d+\))?: "
            r"Fatal error in (?:internal_)?(?P<entry>\w+): (?P<detail>[^,]+), error stack",
        ),
        Rule(
            "application called MPI_Abort(",
            Kind.ERROR,
            "MPI_Abort@{code}",
            Weight.ENDING,
            pattern=r"application called MPI_Abort\([^,]*, (?P<code>-?\d+)\)",
        ),
    )
