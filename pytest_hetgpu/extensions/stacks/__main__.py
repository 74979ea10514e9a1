"""`python -m pytest_hetgpu.extensions.stacks [NAME]`: print the stacks that pip can make, or the pins of one."""

from __future__ import annotations

import sys

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.extensions.stacks.base import family_of, stack_names


def main(arguments: list[str]) -> int:
    """Print one name, or one requirement, per line. Exit with 4 for an unknown stack, or one without requirements."""
    if not arguments:
        print(*(name for name in stack_names() if _made(name)), sep="\n")
        return 0
    try:
        print(*requirements(arguments[0]), sep="\n")
    except UsageError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 4
    return 0


def _made(name: str) -> bool:
    release = family_of(name).releases[name]
    return bool(release.requirements) and not release.on_request


def requirements(name: str) -> tuple[str, ...]:
    """Return the packages of a stack for pip. Raises UsageError for one without any."""
    release = family_of(name).releases[name]
    if not release.requirements:
        raise UsageError(f"stack {name} is the system's own: apt-get install {' '.join(release.packages)}")
    return release.requirements


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
