"""Creation of a run's files and folders: whatever the umask, only their owner may write to them.

The umask decides who may read reports. Only the owner may read files with environments or output (`PRIVATE`).
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from pytest_hetgpu.errors import UsageError

PRIVATE, READABLE, FOLDER, PRIVATE_FOLDER = 0o600, 0o644, 0o755, 0o700


def make_folder(path: Path, below: Path | None = None) -> None:
    """Create a folder and its missing parents. Raises OSError; FileExistsError if a file has that name.

    Never create the folder `below`: a renamed run folder must not reappear empty.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir() and path.parent != below:
        make_folder(path.parent, below)
    path.mkdir(mode=FOLDER, exist_ok=True)


def write_atomically(path: Path, data: bytes, mode: int = READABLE) -> None:
    """Write `data` to `path` in full or not at all; the umask may reduce `mode`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # An earlier process may have had our number. O_NOFOLLOW: a link planted here is not followed.
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
    """Raise UsageError if a run's folder holds a link, a pipe or a device, whose target would be shown.

    Our runs hold none. A run folder received from another person may.
    """
    if not (run / "journal").exists():
        return  # no run: the reader reports that
    for folder, folders, names in os.walk(run):
        for path in (Path(folder, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else "no file"
                raise UsageError(f"{path} is {what}: a run holds plain files only, and what is behind it is not read")
