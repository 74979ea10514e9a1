"""A program of another project as a workload. Plain data, stored with the job, so that a run can be judged again."""

from __future__ import annotations

from dataclasses import dataclass

PYTHON = "{python}"
"""Placeholder for the interpreter of the node's stack."""


@dataclass(frozen=True, slots=True)
class ExternalProgram:
    """A program that prints no records of this project: its command, its output parser, and the required results.

    Attributes:
        argv: the program and its options.
        reader: name of its output parser.
        settings: the parser's settings as JSON.
        ranks: required number of ranks of its rows, as the program counts them; None if it prints none.
        operation: operation of its rows, "" if the command names it.
        check: the program verifies results, and every required point must be verified; else numbers suffice.
        layer: library that carries the data (`ucx`, `nccl`), "" for the MPI that a transport pins.
        proof: the transport must appear in the log.
        memory: memory that holds the data, if the program does not print it.
        iterations: timed iterations per point, 0 if not known.
        labels: form of the label with the rank that the launcher puts before each line, "" for none.

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
    labels: str = ""
