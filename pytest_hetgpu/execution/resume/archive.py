"""Files that an earlier part left of a cell that runs again: moved, so that they are not taken for new ones."""

from __future__ import annotations

from pytest_hetgpu.store.folder import RunFolder

NAME = "part-"


def archive(folder: RunFolder, label: str, part: int) -> None:
    """Move all files in a cell's folder into `part-N` below it, N the part before this one. Raise OSError."""
    folder.archive_raw_logs(label, f"{NAME}{part - 1}")
    here = folder.scenario(label)
    found = [path for path in here.iterdir() if not path.name.startswith(NAME)] if here.is_dir() else []
    if found:
        there = here / f"{NAME}{part - 1}"
        there.mkdir(exist_ok=True)
        for path in found:
            path.replace(there / path.name)
