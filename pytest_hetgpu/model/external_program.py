"""What a workload asks of a program that is not ours. Plain data, stored with the job: a run can be judged again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExternalProgram:
    """A program that prints no records of ours: how its output is read, and what it has to show.

    `argv` are the program and its options, `reader` is the name of what reads its output, `settings` are the reader's
    own as JSON. `ranks` are those that its rows must be of, as the program counts them; None where it tells none.
    `check`: it verifies its results, and every point that is owed must be found right; otherwise numbers alone are
    owed. `layer` is the library that carries the data (`ucx`, `nccl`), "" for the MPI that a transport pins; where
    `proof` is not owed it need not show itself. `memory` is where the data is if the program does not say; `iterations`
    are timed at each point, 0 for not known.
    """

    argv: tuple[str, ...]
    reader: str
    settings: str = "{}"
    ranks: int | None = None
    operation: str = ""
    check: bool = True
    layer: str = ""
    proof: bool = True
    memory: str = ""
    iterations: int = 0
