"""Parser of an mpirun command line of Open MPI, for all spellings of an option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

# Names that Open MPI has given up, with those that came after them.
RENAMED = {"pml_ucx_tls": "opal_common_ucx_tls", "pml_ucx_devices": "opal_common_ucx_devices"}


@dataclass(frozen=True)
class Rank:
    """One rank: its host, its command, and its variables."""

    host: str
    program: tuple[str, ...]
    env: Mapping[str, str]


@dataclass
class Meaning:
    """A command line: its ranks in order, MCA parameters that hold for all, and flags without a value."""

    ranks: list[Rank] = field(default_factory=list)
    mca: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def meaning(argv: Iterable[str]) -> Meaning:
    """Parse the tokens after `mpirun`. Raises ValueError for an unknown one."""
    found = Meaning()
    for context in contexts(argv):
        read_context(context, found)
    return found


def contexts(argv: Iterable[str]) -> list[list[str]]:
    """Return the parts between colons."""
    parts: list[list[str]] = [[]]
    for token in argv:
        if token == ":":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def read_context(tokens: list[str], found: Meaning) -> None:
    """Add the ranks of one context."""
    count, hosts, env, place = 0, [""], {}, 0
    while tokens[place].startswith("-"):
        option, width = "-" + tokens[place].lstrip("-"), 2
        if option in ("-np", "-n"):
            count = int(tokens[place + 1])
        elif option in ("-H", "-host"):
            hosts = [name for slot in tokens[place + 1].split(",") for name in slots(slot)]
        elif option == "-x":
            name, _, env[name] = tokens[place + 1].partition("=")
        elif option == "-mca":
            name = tokens[place + 1]
            found.mca[RENAMED.get(name, name)], width = tokens[place + 2], 3
        elif option == "-prtemca":
            width = 3  # how its daemons meet
        elif option == "-allow-run-as-root":
            found.flags.add(option)
            width = 1
        else:
            raise ValueError(f"{tokens[place]} is not known")
        place += width
    program, own = assignments(tokens[place:])
    rank = Rank("", program, {**env, **own})
    found.ranks += [replace(rank, host=hosts[index % len(hosts)]) for index in range(count)]


def slots(text: str) -> list[str]:
    """Expand `a:2` to a twice."""
    name, _, count = text.partition(":")
    return [name] * int(count or 1)


def assignments(tokens: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return a program and the variables that `env` sets for it, without Python's guard (`-m mpi4py`)."""
    env = {}
    if tokens[0] == "env":
        tokens = tokens[1:]
        while "=" in tokens[0]:
            name, _, env[name] = tokens[0].partition("=")
            tokens = tokens[1:]
    guard = tokens[1:3] == ["-m", "mpi4py"]
    return (tokens[0], *tokens[3 if guard else 1 :]), env
