"""The variables of the ranks of a job, read back from its command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.model.job import Job


def rank_settings(job: Job) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the variables of each node's ranks: of the command, its hardware, and `env K=V` of its context."""
    contexts = list(_contexts(job.command.argv))
    ranks, place = 0, 0
    for node in job.nodes:
        while place < len(contexts) - 1 and ranks >= contexts[place][0]:
            ranks, place = ranks - contexts[place][0], place + 1
        own = contexts[place][1] if contexts else {}
        ranks += node.ranks
        yield node.index, {**job.command.env, **node.hardware.env, **own}


def _contexts(argv: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield ranks and variables of each context of an MPMD command line."""
    start = 0
    for end in (*(place for place, token in enumerate(argv) if token == ":"), len(argv)):  # noqa: S105
        yield _context(argv[start:end])
        start = end + 1


def _context(tokens: Sequence[str]) -> tuple[int, dict[str, str]]:
    counts = (tokens[place + 1] for place, token in enumerate(tokens[:-1]) if token in ("-np", "-n"))
    count = next((int(word) for word in counts if word.isdecimal()), 0)
    if "env" not in tokens:
        return count, {}
    pairs = (token.partition("=") for token in tokens[list(tokens).index("env") + 1 :])
    variables = {}
    for name, equals, value in pairs:
        if not equals or not name.replace("_", "a").isalnum():
            break
        variables[name] = value
    return count, variables
