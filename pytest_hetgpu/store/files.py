"""How files and folders of a run are made: whatever the umask, nobody but their owner may write to them.

Reports are readable as the umask says. What holds environments or output (`PRIVATE`) is its owner's alone to read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from pytest_hetgpu.errors import UsageError

PRIVATE, READABLE, FOLDER, PRIVATE_FOLDER = 0o600, 0o644, 0o755, 0o700


def make_folder(path: Path, below: Path | None = None) -> None:
    """Makes a folder, and those above it that are missing. Raises OSError; FileExistsError for what is no folder.

    The folder `below` is never made: a run's folder that was renamed must not come back empty.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir() and path.parent != below:
        make_folder(path.parent, below)
    path.mkdir(mode=FOLDER, exist_ok=True)


def write_atomically(path: Path, data: bytes, mode: int = READABLE) -> None:
    """Puts `data` where it is seen in full or not at all; `mode` as far as the umask lets it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # Of an earlier process with our number; and no link that somebody laid there is followed.
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def refuse_links(run: Path) -> None:
    """Raises UsageError for a run's folder with a link, a pipe or a device in it: what these lead to would be shown.

    No run of ours has any; one that was handed on by somebody may.
    """
    if not (run / "journal").exists():
        return  # no run: whoever reads it says so
    for folder, folders, names in os.walk(run):
        for path in (Path(folder, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else "no file"
                raise UsageError(f"{path} is {what}: a run holds plain files only, and what is behind it is not read")
