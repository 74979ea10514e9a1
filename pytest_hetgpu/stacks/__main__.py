"""`python -m pytest_hetgpu.stacks [NAME]`: the stacks this version knows, or the pinned packages of one."""

from __future__ import annotations

import sys

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.stacks.base import family_of, stack_names


def main(arguments: list[str]) -> int:
    """Prints a name a line, or a requirement a line. Exit 4 for an unknown stack."""
    if not arguments:
        print(*stack_names(), sep="\n")
        return 0
    try:
        print(*family_of(arguments[0]).releases[arguments[0]].requirements, sep="\n")
    except UsageError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
