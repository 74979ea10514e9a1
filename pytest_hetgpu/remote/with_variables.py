"""Starts a program with the variables of a file, so that no command line shows their values.

    with_variables.py FILE PROGRAM ARGUMENT...

FILE is a JSON object of names and values, which only this user can read. A relative path is below TMPDIR. The program
keeps the process id. Python 3.6 or later.
"""

import json
import os
import sys
from typing import List

# pathlib doubles the time that this takes before each rank.
# ruff: noqa: PTH118, PTH123

NOT_STARTED, NOT_FOUND = 126, 127


def main(arguments: List[str]) -> None:
    """Set the variables and replace this process by the program. Exit as `env` does if that fails."""
    path, *command = arguments
    try:
        with open(os.path.join(os.environ.get("TMPDIR", ""), path), "rb") as file:
            variables = json.loads(file.read().decode("ascii"))
    except OSError as error:
        sys.exit(f"with_variables.py: cannot read the variables of this rank: {error}")
    environment = dict(os.environb)
    environment.update((encode(name), encode(value)) for name, value in variables.items())
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        print(f"with_variables.py: '{command[0]}': {error.strerror}", file=sys.stderr)
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED)


def encode(text: str) -> bytes:
    """Encode as the matrix was read, whatever the locale of the node."""
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    main(sys.argv[1:])
