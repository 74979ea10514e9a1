"""The exceptions a caller may meet.

    HetgpuError
    +-- UsageError            what the user wrote cannot be run; exit code 4
    |   +-- MatrixError       ... in a matrix file; carries every complaint found
    |   +-- InventoryError    ... in an inventory file
    |   +-- KnowledgeError    ... in a file of known failures
    +-- NotHere               something this machine lacks; the cell is skipped with the reason
    +-- ProvisionError        a node could not be made ready; an error, not a failure
    |   +-- LostNode          ... or was, and is out of reach now
    +-- LaunchError           the launcher itself could not be started
    +-- RecordError           a stored record cannot be read back (store/encode.py)
    +-- StorageError          the run's folder cannot be written: disk full, taken away, read-only
    |   +-- JournalError      ... its journal (store/journal.py)

Errors of foreign libraries end where they arise and come out as one of these.
"""

from __future__ import annotations

from collections.abc import Iterable

ENGINE_AWAY = "its container engine went away"
"""Stands in the reason why a node was lost whose engine stopped or restarted under it: the node did not fail."""


class HetgpuError(Exception):
    """Base of everything this package raises on purpose."""


class UsageError(HetgpuError):
    """What the user wrote cannot be run: said once, in full, before anything starts."""


class MatrixError(UsageError):
    """A matrix that cannot be used. `complaints` holds one `FILE:LINE: text` string per mistake."""

    def __init__(self, complaints: Iterable[str]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("\n".join(self.complaints))


class InventoryError(MatrixError):
    """An inventory that cannot be used; complaints as in `MatrixError`."""


class KnowledgeError(MatrixError):
    """A file of known failures that cannot be used; complaints as in `MatrixError`."""


class NotHere(HetgpuError):
    """Something a cell needs is not on this machine; the message says what, and how to get it."""


class ProvisionError(HetgpuError):
    """A node could not be made ready. `log` are lines that show more, like the end of a build."""

    def __init__(self, node: str, reason: str, log: Iterable[str] = ()) -> None:
        self.node = node
        self.log = tuple(log)
        super().__init__(f"{node}: {reason}")


class LostNode(ProvisionError):
    """A node that was ready cannot be reached any more."""


class StorageError(HetgpuError):
    """What a cell leaves cannot be written; the message names the file and the reason."""


class LaunchError(HetgpuError):
    """The launcher could not be started at all (no such program, not executable, no memory)."""
